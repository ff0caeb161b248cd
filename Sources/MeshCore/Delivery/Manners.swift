// SPDX-License-Identifier: MIT

import Timing

/// How much of the last two minutes the channel was in use, as far as this radio hears it, with what it sends.
///
/// Packets that it cannot decode are not in it, so the channel is in use at least so much. 240 bytes, and no timer.
public struct ChannelUse: Equatable, Sendable {
  static let slot: Duration = .seconds(2)
  static let slots = 60
  public static let window: Duration = slot * slots

  /// Milliseconds on the air in each slot, by the slot's number.
  private var times = [UInt32](repeating: 0, count: slots)
  /// The number of the newest slot.
  private var newest: Int64 = 0

  public init() {}

  private static func number(_ time: MonotonicTime) -> Int64 {
    max(0, time.nanoseconds / slot.wholeNanoseconds)
  }

  private static func place(_ number: Int64) -> Int { Int(number % Int64(slots)) }

  /// A packet was heard or sent.
  public mutating func add(_ milliseconds: Int64, now: MonotonicTime) {
    let number = max(Self.number(now), newest)
    for passed in 1...max(1, min(number - newest, Int64(Self.slots))) where number > newest {
      times[Self.place(number - passed + 1)] = 0
    }
    newest = number
    times[Self.place(number)] &+= UInt32(clamping: min(max(0, milliseconds), 60_000))
  }

  /// The sum of the slots from `first` on.
  private func sum(since first: Int64) -> Int64 {
    var sum: Int64 = 0
    for number in max(first, newest - Int64(Self.slots) + 1, 0)...max(first, newest) where number <= newest {
      sum += Int64(times[Self.place(number)])
    }
    return sum
  }

  private static func first(in window: Int64) -> Int64 { window - Int64(slots) + 1 }

  /// What was in use when the program ended: so many per cent of the window, and so long ago.
  mutating func recall(percent: Double, age: Duration, now: MonotonicTime) {
    let milliseconds = Int64(min(max(0, percent), 100) * Self.window.inSeconds * 10) / Int64(Self.slots)
    for place in (0..<Self.slots).reversed() {
      let ago = min(max(.zero, age), Self.window) + Self.slot * place
      guard ago < Self.window else { continue }
      add(milliseconds, now: MonotonicTime(nanoseconds: now.nanoseconds - ago.wholeNanoseconds))
    }
  }

  /// Per cent of the window.
  public func percent(now: MonotonicTime) -> Double {
    min(100, Double(sum(since: Self.first(in: Self.number(now)))) / Self.window.inSeconds / 10)
  }

  /// When the use falls below this many per cent, if nothing more is heard: `now`, or the end of a slot.
  func falls(below percent: Int, now: MonotonicTime) -> MonotonicTime {
    let limit = Double(percent) * Self.window.inSeconds * 10
    var number = Self.number(now)
    while Double(sum(since: Self.first(in: number))) >= limit, number < newest + Int64(Self.slots) { number += 1 }
    guard number > Self.number(now) else { return now }
    return MonotonicTime(nanoseconds: number * Self.slot.wholeNanoseconds)
  }
}

/// Who waits while the channel is busy, and how long.
///
/// People's own new messages and acknowledgements never wait. What other places, programs and the clock send waits until the channel is less in use,
/// or its patience is over: then one goes out at each end of the patience, so that nothing waits for ever, and a long queue does not fill the air.
public struct Manners: Equatable, Sendable {
  /// Per cent of the window from which the channel counts as busy; 100: never.
  public var limit: Int
  public private(set) var use = ChannelUse()
  /// Since when the next one of each priority waits.
  private var waiting: [DeliveryPriority: MonotonicTime] = [:]
  /// How often something was sent on a busy channel, because its patience was over.
  public private(set) var impatient = 0

  public init(limit: Int) { self.limit = limit }

  /// How long a priority waits; `nil`: it does not.
  public static func patience(_ priority: DeliveryPriority) -> Duration? {
    switch priority {
    case .interactive: nil
    case .relayed: .seconds(120)
    case .bulk: .seconds(600)
    }
  }

  public mutating func heard(_ milliseconds: Int64, now: MonotonicTime) { use.add(milliseconds, now: now) }

  /// How busy the channel was when the program ended.
  mutating func recall(percent: Double, age: Duration, now: MonotonicTime) {
    use.recall(percent: percent, age: age, now: now)
  }

  public func isBusy(now: MonotonicTime) -> Bool { limit < 100 && use.percent(now: now) >= Double(limit) }

  /// When something that waits since then may go: `now`, or when to look again.
  public func next(_ priority: DeliveryPriority, since: MonotonicTime, now: MonotonicTime) -> MonotonicTime {
    guard let patience = Self.patience(priority), isBusy(now: now), now < since + patience else { return now }
    return min(use.falls(below: limit, now: now), since + patience)
  }

  /// The same for the messages of a priority, of which one after the other waits.
  func next(_ priority: DeliveryPriority, now: MonotonicTime) -> MonotonicTime {
    next(priority, since: waiting[priority] ?? now, now: now)
  }

  /// `priorities` have messages that wait for the channel; of `present` ones there are messages at all.
  mutating func note(waiting priorities: Set<DeliveryPriority>, present: Set<DeliveryPriority>, now: MonotonicTime) {
    for priority in DeliveryPriority.allCases {
      if priorities.contains(priority) {
        waiting[priority] = waiting[priority] ?? now
      } else if !present.contains(priority) {
        waiting[priority] = nil
      }
    }
  }

  /// Something that may wait is sent; the next one's patience begins.
  public mutating func went(_ priority: DeliveryPriority, now: MonotonicTime) {
    guard Self.patience(priority) != nil, isBusy(now: now) else { return }
    impatient += 1
    waiting[priority] = now
  }
}

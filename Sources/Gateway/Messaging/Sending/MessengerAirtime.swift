// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import Store
import Timing

/// The air time that is used, and what waits while others use it.
extension Messenger {
  /// Reserves air time for a program that shares the radio, if the hour's budget has room. A fifth of the budget is kept for people who have signed
  /// in. The program would take a wait for a failure, so it does not wait while the channel is busy.
  public func spendShared(_ packet: SharedPacket) -> Bool {
    airtime(of: packet.bytes).map { spend($0, .relayed, for: .client, channel: packet.channel) } ?? true
  }

  /// Gives air time back: the radio did not send this packet.
  public func giveBackShared(_ packet: SharedPacket) {
    if packet.bytes > 0, let airtime = airtime(of: packet.bytes) {
      giveBack(airtime, for: .client, channel: packet.channel)
    }
  }

  /// Milliseconds; `nil`: the radio's parameters are unknown.
  func airtime(of bytes: Int) -> Int64? {
    guard let radio = synchronizer.connection.identity?.info.radio else { return nil }
    return Int64(Airtime.milliseconds(bytes: bytes, radio).rounded(.up))
  }

  /// Reserves air time for something other than a message, if the hour's budget has room. `channel`: counts for this channel, too.
  func spend(
    _ airtime: Int64, _ priority: DeliveryPriority, for purpose: AirtimePurpose, channel: String? = nil
  ) -> Bool {
    guard session.spend(airtime, priority, channel: channel, now: loop.now) else { return false }
    let moment = synchronizer.now
    used.add(airtime, for: purpose)
    store.post(when: .soon, "air time") { store throws(SQLiteError) in
      try store.recordAirtime(airtime, channel: channel, at: store.elapsed(at: moment))
      try store.addAirtime(.init(milliseconds: airtime, packets: 1), for: purpose.rawValue, at: moment)
    }
    return true
  }

  /// Gives reserved air time back that was not used.
  func giveBack(_ airtime: Int64, for purpose: AirtimePurpose, channel: String? = nil) {
    decide { $0.giveBack(airtime, channel: channel, now: $1) }
    used.takeBack(airtime, for: purpose)
    store.post(when: .soon, "air time") { store throws(SQLiteError) in
      try store.forgetAirtime(airtime, channel: channel)
      try store.takeBackAirtime(airtime, for: purpose.rawValue)
    }
  }

  /// What the present attempt of a message is for.
  static func purpose(of message: OutgoingMessage) -> AirtimePurpose {
    if message.attempts.accepted > 0 { return .retry }
    if message.origin.hasPrefix(OutgoingMessage.hookOrigin) { return .hook }
    return message.priority == DeliveryPriority.interactive.rawValue || message.origin == SendRequest.controlOrigin
      ? .message : .relayed
  }

  // MARK: The channel

  /// The radio has heard a packet, whoever sent it.
  func heardPacket(_ bytes: Int) {
    guard let airtime = airtime(of: bytes) else { return }
    session.heardPacket(airtime, now: loop.now)
    used.add(airtime, for: .heard)
    heardAirtime.note(airtime, store, at: synchronizer.now, now: loop.now)
    let (percent, elapsed) = (session.manners.use.percent(now: loop.now), store.elapsed(at: synchronizer.now))
    store.transactions.writeAlong("the channel's use") { store throws(SQLiteError) in
      try store.keepChannelUse(Int64(percent.rounded(.up)), elapsed: elapsed)
    }
  }

  /// After a start.
  func recallChannel() {
    // An unreadable store knows nothing.
    guard let (percent, elapsed) = store.ifReadable({ try store.channelUse() }) ?? nil else { return }
    let age = Duration.milliseconds(max(0, store.elapsed(at: synchronizer.now) - max(0, elapsed)))
    session.recallChannel(percent: Double(percent), age: age, now: loop.now)
  }

  /// Returns when the channel is not busy, or the patience of this priority is over.
  func untilCalm(_ priority: DeliveryPriority, since: MonotonicTime) async throws(CancellationError) {
    guard session.manners.next(priority, since: since, now: loop.now) > loop.now else { return }
    waitingForChannel += 1
    defer { waitingForChannel -= 1 }
    while true {
      let next = session.manners.next(priority, since: since, now: loop.now)
      guard next > loop.now else { break }
      try await loop.sleep(until: next)
    }
    session.wentImpatiently(priority, now: loop.now)
    sayIfImpatient()
  }

  func mayGo(_ priority: DeliveryPriority, since: MonotonicTime) -> Bool {
    session.manners.next(priority, since: since, now: loop.now) <= loop.now
  }

  func sayIfImpatient() {
    guard session.manners.impatient > impatientBefore else { return }
    impatientBefore = session.manners.impatient
    guard impatienceToldAt.map({ loop.now - $0 >= AirtimeBudget.window }) ?? true else { return }
    impatienceToldAt = loop.now
    let use = Int(session.manners.use.percent(now: loop.now))
    log.notice(
      "the channel stays busy (\(use) % of the last two minutes): what has waited long enough is sent all the same (see `meshpost airtime`; logged at most once an hour)"
    )
  }
}

/// What a program that shares the radio has it send.
public struct SharedPacket: Equatable, Sendable {
  public static let none = SharedPacket(bytes: 0)

  public let bytes: Int
  /// The digest of the channel's key, whose hour it counts for; `nil`: it is of no channel.
  public let channel: String?

  public init(bytes: Int, channel: String? = nil) { (self.bytes, self.channel) = (bytes, channel) }
}

/// Air time since the program's start, by purpose, as counters: they never fall.
struct AirtimeTotals {
  private var sums: [AirtimePurpose: Int64] = [:]
  private(set) var counters: [AirtimePurpose: Int64] = [:]

  mutating func add(_ milliseconds: Int64, for purpose: AirtimePurpose) {
    sums[purpose, default: 0] += milliseconds
    counters[purpose] = max(counters[purpose] ?? 0, sums[purpose] ?? 0)
  }

  mutating func takeBack(_ milliseconds: Int64, for purpose: AirtimePurpose) {
    sums[purpose, default: 0] -= milliseconds
  }
}

// SPDX-License-Identifier: MIT

import Timing

/// Which address of a host is tried when. Pure: failures and time go in, attempts come out.
///
/// The families alternate, beginning with that of the first address. An attempt that says nothing for 250 ms gets company, one
/// that fails is followed at once; nobody waits for an address that swallows what is sent to it. Source: RFC 8305 §§ 4 and 5.
struct ConnectionRace {
  /// What to do with the address of this number.
  enum Action: Equatable {
    case start(Int)
    /// There are newer attempts, and no more than so many at once.
    case giveUp(Int)
    /// All have failed.
    case lost
  }

  /// RFC 8305 § 8, "Connection Attempt Delay".
  static let delay: Duration = .milliseconds(250)
  /// Descriptors that one race may hold: the oldest attempt has had two seconds when it makes room.
  static let maxAtOnce = 8

  private var waiting: ArraySlice<Int>
  /// Attempts that have no answer yet, oldest first.
  private(set) var underWay: [Int] = []
  /// When `timePassed` wants to be called; `nil`: no attempt is to follow.
  private(set) var nextAt: MonotonicTime?

  /// `families`: of each address, in the order that the resolver prefers. `first`: the one that worked last time.
  init(families: [Int32], first: Int? = nil) {
    waiting = Self.order(families, first)[...]
  }

  private static func order(_ families: [Int32], _ first: Int?) -> [Int] {
    var all = Array(families.indices)
    if let first, all.indices.contains(first) {
      all.remove(at: first)
      all.insert(first, at: 0)
    }
    guard let leader = all.first.map({ families[$0] }) else { return [] }
    var sides = (all.filter { families[$0] == leader }[...], all.filter { families[$0] != leader }[...])
    var order: [Int] = []
    while !sides.0.isEmpty || !sides.1.isEmpty {
      if let next = sides.0.popFirst() { order.append(next) }
      if let next = sides.1.popFirst() { order.append(next) }
    }
    return order
  }

  /// The first attempt.
  mutating func begin(now: MonotonicTime) -> [Action] { startNext(now) }

  /// The address has refused, or could not be tried.
  mutating func failed(_ address: Int, now: MonotonicTime) -> [Action] {
    guard let place = underWay.firstIndex(of: address) else { return [] }
    underWay.remove(at: place)
    return startNext(now)
  }

  mutating func timePassed(now: MonotonicTime) -> [Action] {
    guard let nextAt, now >= nextAt else { return [] }
    return startNext(now)
  }

  private mutating func startNext(_ now: MonotonicTime) -> [Action] {
    guard let next = waiting.popFirst() else {
      nextAt = nil
      return underWay.isEmpty ? [.lost] : []
    }
    var actions: [Action] = []
    if underWay.count == Self.maxAtOnce { actions.append(.giveUp(underWay.removeFirst())) }
    underWay.append(next)
    nextAt = waiting.isEmpty ? nil : now + Self.delay
    return actions + [.start(next)]
  }
}

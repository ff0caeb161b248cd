// SPDX-License-Identifier: MIT

import Timing

/// Which address of a host is tried when. Pure: failures and time go in, attempts come out.
///
/// The families alternate, beginning with that of the first address. An attempt that says nothing for 250 ms gets company, one
/// that fails is followed at once by the next; an address that drops packets does not delay the others. Source: RFC 8305 §§ 4 and 5.
///
/// A line that was cut swallows everything, too, and the kernel asks again after 1, 3, 7 and 15 s: where that is likelier than a dead server,
/// addresses that say nothing are tried once more beside that (`again`), and at once when somebody says that the line is up (`hurry`). Nothing is given up for it: on a slow line the first is answered first.
struct ConnectionRace {
  /// What to do with the attempt of this number: the address's, plus the number of addresses each time that it is tried again.
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

  /// Between the last attempt and those that are made once more, and between these. The kernel asks twice in that time.
  static let again: Duration = .seconds(5)
  /// Attempts that are made once more by themselves: as many as come before a connection is given up.
  static let maxAgain = 3

  private var waiting: ArraySlice<Int>
  private let order: [Int]
  private let triesAgain: Bool
  private var (triedAgain, hurried) = (0, 0)
  /// Attempts that have no answer yet, oldest first.
  private(set) var underWay: [Int] = []
  /// When `timePassed` wants to be called; `nil`: no attempt is to follow.
  private(set) var nextAt: MonotonicTime?

  /// `families`: of each address, in the order that the resolver prefers. `first`: the one that worked last time.
  /// `triesAgain`: silent addresses are retried after a time, not only on `hurry`.
  init(families: [Int32], first: Int? = nil, triesAgain: Bool = false) {
    order = Self.order(families, first)
    waiting = order[...]
    self.triesAgain = triesAgain
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
    return waiting.isEmpty ? tryAgain(now) : startNext(now)
  }

  /// The line is said to be up: what says nothing is tried once more at once.
  mutating func hurry(now: MonotonicTime) -> [Action] {
    guard waiting.isEmpty, !underWay.isEmpty, hurried < Self.maxAgain else { return [] }
    hurried += 1
    return tryAgain(now)
  }

  private mutating func tryAgain(_ now: MonotonicTime) -> [Action] {
    triedAgain += 1
    nextAt = triesAgain && triedAgain - hurried < Self.maxAgain ? now + Self.again : nil
    guard underWay.count < Self.maxAtOnce else { return [] }
    let turn = triedAgain - 1
    let attempt = order[turn % order.count] + order.count * (turn / order.count + 1)
    underWay.append(attempt)
    return [.start(attempt)]
  }

  private mutating func startNext(_ now: MonotonicTime) -> [Action] {
    guard let next = waiting.popFirst() else {
      guard underWay.isEmpty else { return [] }
      nextAt = nil
      return [.lost]
    }
    var actions: [Action] = []
    if underWay.count == Self.maxAtOnce { actions.append(.giveUp(underWay.removeFirst())) }
    underWay.append(next)
    nextAt = !waiting.isEmpty ? now + Self.delay : triesAgain ? now + Self.again : nil
    return actions + [.start(next)]
  }
}

// SPDX-License-Identifier: MIT

import Timing

/// Decides which address of a host is tried when. Pure: failures and time go in, attempts come out.
///
/// Address families alternate, beginning with that of the first address. After 250 ms without an answer a further
/// attempt starts beside the first; after a failure the next one starts at once. So an address that drops packets does
/// not delay the others. Source: RFC 8305 §§ 4 and 5.
///
/// On an interrupted line every attempt stays silent, and the kernel retries after 1, 3, 7 and 15 s. Where an
/// interruption is likelier than a dead server (`triesAgain`), silent addresses are tried again beside the pending
/// attempts every 5 s, and at once after `hurry`. Pending attempts continue: on a slow line the first one is answered
/// first.
struct ConnectionRace {
  /// What to do with an attempt. Its number is that of the address, plus the number of addresses for each repetition.
  enum Action: Equatable {
    case start(Int)
    /// Closes the oldest attempt, because `maxAtOnce` are under way.
    case giveUp(Int)
    /// All attempts have failed.
    case lost
  }

  /// RFC 8305 § 8, "Connection Attempt Delay".
  static let delay: Duration = .milliseconds(250)
  /// Descriptors that one race may hold. The oldest attempt has had two seconds before it is given up.
  static let maxAtOnce = 8

  /// The time between the last attempt and the first repetition, and between repetitions. The kernel retries twice in
  /// that time.
  static let again: Duration = .seconds(5)
  /// Repetitions without `hurry`: as many as fit before the connection attempt times out.
  static let maxAgain = 3

  private var waiting: ArraySlice<Int>
  private let order: [Int]
  private let triesAgain: Bool
  private var (triedAgain, hurried) = (0, 0)
  /// Attempts that have no answer yet, oldest first.
  private(set) var underWay: [Int] = []
  /// When to call `timePassed`; `nil`: no further attempt is planned.
  private(set) var nextAt: MonotonicTime?

  /// `families`: of each address, in the resolver's order of preference. `first`: the address that worked last time.
  /// `last`: the address that connected last time, and whose server said nothing. `triesAgain`: silent addresses are
  /// retried after a time, not only on `hurry`.
  init(families: [Int32], first: Int? = nil, last: Int? = nil, triesAgain: Bool = false) {
    order = Self.order(families, first, last)
    waiting = order[...]
    self.triesAgain = triesAgain
  }

  private static func order(_ families: [Int32], _ first: Int?, _ last: Int?) -> [Int] {
    var all = Array(families.indices)
    if let first, all.indices.contains(first) {
      all.remove(at: first)
      all.insert(first, at: 0)
    }
    if let last, let place = all.firstIndex(of: last) { all.append(all.remove(at: place)) }
    guard let leader = all.first.map({ families[$0] }) else { return [] }
    var sides = (all.filter { families[$0] == leader }[...], all.filter { families[$0] != leader }[...])
    var order: [Int] = []
    while !sides.0.isEmpty || !sides.1.isEmpty {
      if let next = sides.0.popFirst() { order.append(next) }
      if let next = sides.1.popFirst() { order.append(next) }
    }
    return order
  }

  /// Starts the first attempt.
  mutating func begin(now: MonotonicTime) -> [Action] { startNext(now) }

  /// An address has refused the connection, or could not be tried.
  mutating func failed(_ address: Int, now: MonotonicTime) -> [Action] {
    guard let place = underWay.firstIndex(of: address) else { return [] }
    underWay.remove(at: place)
    return startNext(now)
  }

  mutating func timePassed(now: MonotonicTime) -> [Action] {
    guard let nextAt, now >= nextAt else { return [] }
    return waiting.isEmpty ? tryAgain(now) : startNext(now)
  }

  /// The line may be up again: retries a silent address at once.
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

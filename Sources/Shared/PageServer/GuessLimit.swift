// SPDX-License-Identifier: MIT

import Timing

/// The origin of an attempt to sign in.
public struct Guesser: Sendable {
  /// The client's address, or the network of an IPv6 address.
  public var address: String
  /// The account; empty if there is one password for all.
  public var name: String
  /// Identifies a browser in which this person has signed in before, at any address; `nil`: unknown browser.
  public var browser: String?

  public init(address: String, name: String = "", browser: String? = nil) {
    (self.address, self.name, self.browser) = (address, name, browser)
  }
}

/// Limits attempts to guess a password. Pure: time is an argument. Decision 0024.
///
/// It counts wrong guesses for each address. After a few, each further guess doubles the pause for this address. Two more limits, for each account
/// and for all accounts, slow down an attacker with many addresses. They refill faster than one address can use them up, so an attacker at one
/// address locks out nobody. They do not apply to addresses and browsers from which the person has signed in before. Such a browser also has its own
/// count, independent of its address.
public struct GuessLimit {
  /// Wrong guesses from one address before the first pause; each further one doubles it.
  static let freeOfOne = 5
  static let longestPause: Duration = .seconds(300)
  /// After this time without a wrong guess, the count of an address is zero again.
  static let memory: Duration = .seconds(3600)
  /// The limits for one account and for all accounts: a number at once, and one more in each interval.
  static let ofName = Supply(most: 20, every: .seconds(60))
  static let ofAll = Supply(most: 100, every: .seconds(10))
  /// Counters for accounts. Accounts share them by chance: invented names must not use up memory, and must behave like real names.
  static let nameCounts = 1024

  private struct Count {
    var wrong = 0
    var lastAt: MonotonicTime
    var pausedUntil: MonotonicTime

    init(now: MonotonicTime) { (lastAt, pausedUntil) = (now, now) }

    mutating func add(now: MonotonicTime) {
      if now - lastAt > GuessLimit.memory { wrong = 0 }
      lastAt = now
      wrong = min(wrong + 1, GuessLimit.freeOfOne + 20)
      guard wrong > GuessLimit.freeOfOne else { return }
      let pause = Duration.seconds(1 << min(wrong - GuessLimit.freeOfOne, 12))
      pausedUntil = now + min(pause, GuessLimit.longestPause)
    }
  }

  /// A number of guesses that refills.
  struct Supply {
    let most: Int
    let every: Duration

    /// `full`: the time at which the supply is full.
    func pause(full: MonotonicTime?, now: MonotonicTime) -> Duration? {
      guard let full, full > now else { return nil }
      let pause = full - now - every * (most - 1)
      return pause > .zero ? pause : nil
    }

    func afterOne(full: MonotonicTime?, now: MonotonicTime) -> MonotonicTime { max(full ?? now, now) + every }
  }

  /// Most addresses in memory. At this limit it forgets the address with the oldest last guess.
  private let mostPlaces: Int
  private var ofPlace: [String: Count] = [:]
  private var nameFull: [Int: MonotonicTime] = [:]
  private var allFull: MonotonicTime?
  /// Pairs of an address and an account that has signed in from there.
  private var known: [String] = []

  public init(mostPlaces: Int = 64) { self.mostPlaces = mostPlaces }

  /// The pause until this client may try; `nil`: now.
  public func pause(of guesser: Guesser, now: MonotonicTime) -> Duration? {
    var pauses: [Duration?] = [ofPlace[Self.place(guesser)].map { $0.pausedUntil - now }]
    if !isKnown(guesser) {
      pauses.append(Self.ofName.pause(full: nameFull[Self.slot(guesser.name)], now: now))
      pauses.append(Self.ofAll.pause(full: allFull, now: now))
    }
    let longest = pauses.compactMap(\.self).max() ?? .zero
    return longest > .zero ? longest : nil
  }

  public mutating func guessedWrong(by guesser: Guesser, now: MonotonicTime) {
    let place = Self.place(guesser)
    var one = ofPlace[place] ?? Count(now: now)
    one.add(now: now)
    ofPlace[place] = one
    while ofPlace.count > mostPlaces, let oldest = ofPlace.min(by: { $0.value.lastAt < $1.value.lastAt })?.key {
      ofPlace[oldest] = nil
    }
    guard !isKnown(guesser) else { return }
    let slot = Self.slot(guesser.name)
    nameFull[slot] = Self.ofName.afterOne(full: nameFull[slot], now: now)
    allFull = Self.ofAll.afterOne(full: allFull, now: now)
  }

  public mutating func guessedRight(by guesser: Guesser) {
    // A sign-in to one account must not reset the count of guesses at other accounts.
    if guesser.name.isEmpty || guesser.browser != nil { ofPlace[Self.place(guesser)] = nil }
    let key = Self.key(guesser)
    known.removeAll { $0 == key }
    known.append(key)
    if known.count > mostPlaces { known.removeFirst() }
  }

  private func isKnown(_ guesser: Guesser) -> Bool { guesser.browser != nil || known.contains(Self.key(guesser)) }

  private static func key(_ guesser: Guesser) -> String { "\(guesser.address) \(guesser.name)" }

  /// The number of entries, for tests.
  var counts: (places: Int, known: Int, names: Int) { (ofPlace.count, known.count, nameFull.count) }

  private static func place(_ guesser: Guesser) -> String {
    guesser.browser.map { "browser \($0)" } ?? "address \(guesser.address)"
  }

  /// Hash seeds differ between processes, so nobody can predict which accounts share a counter.
  private static func slot(_ name: String) -> Int {
    var hasher = Hasher()
    hasher.combine(name)
    return Int(UInt(bitPattern: hasher.finalize()) % UInt(nameCounts))
  }
}

// SPDX-License-Identifier: MIT

import Timing

/// Somebody who says a password.
public struct Guesser: Sendable {
  /// Where they are: an address, or the network of one.
  public var address: String
  /// The account that is guessed at; empty where there is one password for all.
  public var name: String
  /// By what a browser is known in which this person has signed in before, whatever its address; `nil`: it is not.
  public var browser: String?

  public init(address: String, name: String = "", browser: String? = nil) {
    (self.address, self.name, self.browser) = (address, name, browser)
  }
}

/// How often somebody may guess. Pure: time is an argument. Decision 0024.
///
/// Guesses are counted by where they come from; each wrong one more makes that place wait longer. Who has many places is slowed down by two more
/// counts, of a name and of all names, which fill up again faster than one place can use them up: one who guesses from there locks out nobody.
/// A browser in which the person has signed in before has a count of its own, and is spared these two.
public struct GuessLimit {
  /// Wrong guesses of one place before the first pause; each further one doubles it.
  static let freeOfOne = 5
  static let longestPause: Duration = .seconds(300)
  /// Without a wrong guess for so long, a place's earlier ones are forgotten.
  static let memory: Duration = .seconds(3600)
  /// For one name, and for all: so many at once, and one more each time that this has passed.
  static let ofName = Supply(most: 20, every: .seconds(60))
  static let ofAll = Supply(most: 100, every: .seconds(10))
  /// Counts of names, which share them by chance: names that nobody has must not use up memory, nor be told from others.
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

  /// Guesses that fill up again.
  struct Supply {
    let most: Int
    let every: Duration

    /// `full`: when it will be full.
    func pause(full: MonotonicTime?, now: MonotonicTime) -> Duration? {
      guard let full, full > now else { return nil }
      let pause = full - now - every * (most - 1)
      return pause > .zero ? pause : nil
    }

    func afterOne(full: MonotonicTime?, now: MonotonicTime) -> MonotonicTime { max(full ?? now, now) + every }
  }

  /// Places that are remembered; then the one that was heard of longest ago is forgotten.
  private let mostPlaces: Int
  private var ofPlace: [String: Count] = [:]
  private var nameFull: [Int: MonotonicTime] = [:]
  private var allFull: MonotonicTime?
  /// Addresses from which somebody has signed in, each with whose name.
  private var known: [String] = []

  public init(mostPlaces: Int = 64) { self.mostPlaces = mostPlaces }

  /// How long they may not try; `nil`: now.
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
    // Who has a password of their own must not be able to begin anew with somebody else's.
    if guesser.name.isEmpty || guesser.browser != nil { ofPlace[Self.place(guesser)] = nil }
    let key = Self.key(guesser)
    known.removeAll { $0 == key }
    known.append(key)
    if known.count > mostPlaces { known.removeFirst() }
  }

  private func isKnown(_ guesser: Guesser) -> Bool { guesser.browser != nil || known.contains(Self.key(guesser)) }

  private static func key(_ guesser: Guesser) -> String { "\(guesser.address) \(guesser.name)" }

  /// What is remembered.
  var counts: (places: Int, known: Int, names: Int) { (ofPlace.count, known.count, nameFull.count) }

  private static func place(_ guesser: Guesser) -> String {
    guesser.browser.map { "browser \($0)" } ?? "address \(guesser.address)"
  }

  /// Hashes differ from process to process: nobody can tell which names share a count.
  private static func slot(_ name: String) -> Int {
    var hasher = Hasher()
    hasher.combine(name)
    return Int(UInt(bitPattern: hasher.finalize()) % UInt(nameCounts))
  }
}

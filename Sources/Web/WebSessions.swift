// SPDX-License-Identifier: MIT

import Escaping
import MeshCrypto
import Timing

/// Who is signed in, and how many may guess. Pure: time and chance are arguments.
///
/// Of a session the digest of its token is kept, so that whoever reads memory or file has no session.
public struct WebSessions {
  /// At once; the one that was used longest ago ends for a further one.
  public static let mostSessions = 32
  /// A session that nobody uses ends.
  public static let idleLimit: Duration = .seconds(30 * 86400)
  /// Wrong guesses before the first pause; each further one doubles it.
  static let freeGuesses = 5
  static let longestPause: Duration = .seconds(300)

  private struct Session {
    let digest: [UInt8]
    var usedAt: MonotonicTime
  }

  private var sessions: [Session] = []
  private var guesses = 0
  private var pausedUntil = MonotonicTime(nanoseconds: .min)

  public init() {}

  /// Begins a session with this token.
  public mutating func begin(_ token: String, now: MonotonicTime) {
    guesses = 0
    sessions.removeAll { now - $0.usedAt > Self.idleLimit }
    while sessions.count >= Self.mostSessions,
      let oldest = sessions.indices.min(by: { sessions[$0].usedAt < sessions[$1].usedAt })
    {
      sessions.remove(at: oldest)
    }
    sessions.append(Session(digest: Self.digest(token), usedAt: now))
  }

  /// Whether this token is that of a session; then it is used.
  public mutating func use(_ token: String, now: MonotonicTime) -> Bool {
    let digest = Self.digest(token)
    guard let place = sessions.firstIndex(where: { $0.digest == digest }) else { return false }
    guard now - sessions[place].usedAt <= Self.idleLimit else {
      sessions.remove(at: place)
      return false
    }
    sessions[place].usedAt = now
    return true
  }

  public mutating func end(_ token: String) {
    let digest = Self.digest(token)
    sessions.removeAll { $0.digest == digest }
  }

  public mutating func endAll() { sessions = [] }

  public var count: Int { sessions.count }

  // MARK: Guesses

  /// How long nobody may try; `nil`: now.
  public func pause(now: MonotonicTime) -> Duration? { pausedUntil > now ? pausedUntil - now : nil }

  public mutating func guessedWrong(now: MonotonicTime) {
    guesses = min(guesses + 1, Self.freeGuesses + 20)
    guard guesses > Self.freeGuesses else { return }
    let pause = Duration.seconds(1 << min(guesses - Self.freeGuesses, 12))
    pausedUntil = now + min(pause, Self.longestPause)
  }

  // MARK: Tokens

  /// 256 bits of chance in hexadecimal digits.
  public static func token() -> String {
    let digits = Array("0123456789abcdef".utf8)
    return String(decoding: (0..<64).map { _ in digits[Int.random(in: 0..<16)] }, as: UTF8.self)
  }

  /// Whether both are the same, in a time that tells nothing of where they differ.
  public static func isSame(_ one: String, _ other: String) -> Bool { digest(one) == digest(other) }

  private static func digest(_ token: String) -> [UInt8] { Digest.sha256(Array(token.utf8)) }
}

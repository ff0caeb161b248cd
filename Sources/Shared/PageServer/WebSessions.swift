// SPDX-License-Identifier: MIT

import MeshCrypto
import Timing
import UntrustedText

/// The signed-in browsers. Pure: time is an argument.
///
/// It has only digests of tokens: a reader of the memory or the file gets no session.
public struct WebSessions {
  /// The most sessions. A further one replaces the session with the oldest last use.
  public static let mostSessions = 32
  /// A session ends after this time without use.
  public static let idleLimit: Duration = .seconds(30 * 86400)

  /// A session of a browser.
  public struct Session: Equatable, Sendable {
    /// SHA-256 of its token.
    public let digest: [UInt8]
    public var usedAt: MonotonicTime

    public init(digest: [UInt8], usedAt: MonotonicTime) { (self.digest, self.usedAt) = (digest, usedAt) }
  }

  public private(set) var sessions: [Session]

  /// `sessions`: those stored by an earlier process.
  public init(_ sessions: [Session] = []) { self.sessions = sessions.suffix(Self.mostSessions) }

  /// Begins a session with this token.
  public mutating func begin(_ token: String, now: MonotonicTime) {
    sessions.removeAll { now - $0.usedAt > Self.idleLimit }
    while sessions.count >= Self.mostSessions,
      let oldest = sessions.indices.min(by: { sessions[$0].usedAt < sessions[$1].usedAt })
    {
      sessions.remove(at: oldest)
    }
    sessions.append(Session(digest: Self.digest(token), usedAt: now))
  }

  /// Uses the session of this token, and returns it with the time of its previous use; `nil`: there is none.
  public mutating func use(_ token: String, now: MonotonicTime) -> Session? {
    let digest = Self.digest(token)
    guard let place = sessions.firstIndex(where: { $0.digest == digest }) else { return nil }
    guard now - sessions[place].usedAt <= Self.idleLimit else {
      sessions.remove(at: place)
      return nil
    }
    defer { sessions[place].usedAt = now }
    return sessions[place]
  }

  /// Ends the session of this token. False: there is none.
  public mutating func end(_ token: String) -> Bool {
    let (digest, before) = (Self.digest(token), sessions.count)
    sessions.removeAll { $0.digest == digest }
    return sessions.count < before
  }

  public mutating func endAll() { sessions = [] }

  public var count: Int { sessions.count }

  // MARK: Tokens

  /// 256 random bits in hexadecimal digits.
  public static func token() -> String {
    let digits = Array("0123456789abcdef".utf8)
    return String(decoding: (0..<tokenBytes).map { _ in digits[Int.random(in: 0..<16)] }, as: UTF8.self)
  }

  /// The values of a cookie, from the fields `Cookie`. Another site of the domain, or another port of the machine,
  /// may have set a further one.
  public static func values(of cookie: String, in fields: [String]) -> [String] {
    fields.flatMap { $0.pieces(at: ";") }.compactMap { pair in
      let parts = pair.utf8.drop { $0 == 0x20 }.split(separator: UInt8(ascii: "="), maxSplits: 1)
      guard parts.count == 2, let name = String(parts[0]), name.isExactly(cookie) else { return nil }
      return String(parts[1])
    }
  }

  /// The values of a cookie that may be tokens. Each costs a digest or a query, of strangers as well, so further ones are left out.
  public static func tokens(of cookie: String, in fields: [String]) -> [String] {
    Array(values(of: cookie, in: fields).lazy.filter { $0.utf8.count == Self.tokenBytes }.prefix(Self.mostTokens))
  }

  private static let tokenBytes = 64
  private static let mostTokens = 4

  /// Whether both are equal, in a time that does not reveal where they differ.
  public static func isSame(_ one: String, _ other: String) -> Bool { digest(one) == digest(other) }

  static func digest(_ token: String) -> [UInt8] { Digest.sha256(Array(token.utf8)) }
}

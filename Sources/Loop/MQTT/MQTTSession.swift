// SPDX-License-Identifier: MIT

import Timing

/// Decides how a client connects to a broker; `MQTTConnection` decides from then on. Pure: no clock, no input, no output.
///
///     closed ── opened ──▶ greeting ── accepted ──▶ open
///       ▲──────── close ──────┴────────── close ─────┘
///
/// Facts about the broker, which it learns on the way, outlive connections.
struct MQTTSession {
  /// How the handshake ends.
  enum Greeting: Equatable {
    case accepted
    /// Connect again at once: `opened` then asks for less.
    case reconnect
    /// `goodbye`: the code of the DISCONNECT that goes out first.
    case end(MQTTFailure, goodbye: UInt8? = nil)
  }

  private enum State {
    /// Why the last connection ended; `nil`: it has not, or the client closed it.
    case closed(MQTTFailure?)
    /// CONNECT is sent, with these options.
    case greeting(MQTTDecoder, MQTTOptions)
    case open(MQTTConnection)
  }

  private var state = State.closed(nil)
  private var search: VersionSearch
  /// Whether the broker may accept a retained will.
  private var retains = true
  /// The client id that the broker assigned.
  private var assignedID: String?
  /// The idle time that the path supports; `nil`: no pings.
  private var silences: KeepAlive?
  private var lastID: UInt16 = 0
  /// The broker is to delete the session of earlier connections.
  private var forgets = false
  /// Time-out for CONNECT with a version that the broker may not support.
  var guessPatience: Duration = .seconds(10)

  /// `version`: the only one to use; `nil`: 5, or 3.1.1 if that fails.
  init(_ version: MQTTVersion?) { search = VersionSearch(version) }

  var version: MQTTVersion { search.version }
  var connection: MQTTConnection? { if case .open(let connection) = state { connection } else { nil } }
  var end: MQTTFailure? { if case .closed(let failure) = state { failure } else { nil } }
  /// Time-out for CONNECT, if it is a shorter one.
  var helloPatience: Duration? { search.isGuess ? guessPatience : nil }

  /// The next connection begins a new session, without the old one's subscriptions and messages.
  mutating func forget() { forgets = true }

  /// The owner wants a connection.
  mutating func begin(_ options: MQTTOptions, now: MonotonicTime) {
    state = .closed(nil)
    search.begins(now: now)
    let longest = options.keepAlive > 0 ? Duration.seconds(Int64(options.keepAlive)) : nil
    if silences?.longest != longest { silences = longest.map { KeepAlive(longest: $0) } }
  }

  /// A stream to the broker is open; returns CONNECT.
  mutating func opened(_ options: MQTTOptions) -> [UInt8] {
    var options = options
    if options.clientID.isEmpty { options.clientID = assignedID ?? "" }
    if !retains { options.will?.retain = false }
    options.startsClean = forgets
    // The end of a connection that only deletes the session tells nobody anything: see `greeted`.
    if forgets, version == .v3 { options.will = nil }
    // The keep-alive leaves room for longer silences; the broker disconnects after one and a half times that.
    if let silences {
      options.keepAlive = UInt16(clamping: min(Int(options.keepAlive), 2 * Int(silences.interval.inSeconds)))
    }
    state = .greeting(MQTTDecoder(version, maxBytes: Int(options.maxBytes)), options)
    return MQTTCommand.connect(options, version).encode()
  }

  /// The connection was lost before the broker accepted the client.
  mutating func failed(_ cause: VersionSearch.Failure, _ failure: MQTTFailure, now: MonotonicTime) -> Greeting {
    search.failed(cause, now: now) ? .reconnect : .end(failure)
  }

  /// Bytes came before the broker accepted the client; `nil`: more are needed.
  mutating func received(_ bytes: [UInt8], now: MonotonicTime) -> Greeting? {
    guard case .greeting(var decoder, let options) = state else { return nil }
    decoder.append(bytes)
    state = .greeting(decoder, options)
    do throws(MQTTError) {
      switch try decoder.next() {
      case nil: return nil
      case .connected(let greeting): return greeted(greeting, decoder, options, now)
      case .disconnected(let code, let reason, let server):
        return .end(.ended(code, reason, server))
      default: throw .protocolError("a packet before CONNACK")
      }
    } catch {
      return .end(.nonsense(error))
    }
  }

  private mutating func greeted(
    _ greeting: MQTTGreeting, _ decoder: MQTTDecoder, _ options: MQTTOptions, _ now: MonotonicTime
  ) -> Greeting {
    let code = greeting.code
    // 3.1.1 brokers answer 1 (unacceptable protocol version), those that know of 5 answer 0x84.
    if code != 0x84, code != 1 {
      search.answered()
    } else if search.failed(.refused, now: now) {
      return .reconnect
    }
    guard code == 0 else {
      // Without the retained will the broker may accept.
      if code == 0x9A, retains {
        retains = false
        return .reconnect
      }
      let words = "the broker refuses: \(MQTTReason.words(code, greeting.reason, server: greeting.server))"
      return .end(MQTTReason.stopsGreeting(code) ? .refused(words) : .unreachable(words))
    }
    guard greeting.takesQuality1 else {
      return .end(.refused("the broker cannot be used: \(MQTTReason.words(0x9B))"), goodbye: 0)
    }
    if options.startsClean {
      forgets = false
      // In version 3.1.1 a session that begins clean ends with its connection, so another connection begins the one that stays.
      if version == .v3 { return .reconnect }
    }
    (retains, assignedID) = (greeting.retains, greeting.clientID ?? assignedID)
    let seconds = Int64(greeting.keepAlive ?? Int(options.keepAlive))
    let pings = PingSchedule(silences, agreed: seconds > 0 ? .seconds(seconds) : nil, now: now)
    state = .open(MQTTConnection(greeting, options, decoder, pings, lastID: lastID))
    return .accepted
  }

  /// Lets the open connection handle an event; `nil`: there is no connection.
  mutating func open<Result>(_ event: (inout MQTTConnection) -> Result?) -> Result? {
    guard case .open(var connection) = state else { return nil }
    // Now nothing else refers to the collections of `connection`: they change in place.
    state = .closed(nil)
    defer { state = .open(connection) }
    return event(&connection)
  }

  /// The stream is closed. `failure`: why; `nil`: the client closed it, or that is known already.
  mutating func close(_ failure: MQTTFailure?) {
    if let connection { (silences, lastID) = (connection.pings.silences, connection.lastID) }
    state = .closed(failure ?? end)
  }
}

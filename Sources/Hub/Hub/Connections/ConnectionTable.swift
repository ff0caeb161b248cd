// SPDX-License-Identifier: MIT

import EventLoop
import FoundationEssentials
import Glibc
import HTTP
import HummingbirdCore
import NIOCore
import Synchronization

/// The hub's connections, within the limit of descriptors. `ConnectionLimiter` decides; this class closes and logs.
final class ConnectionTable: Sendable {
  enum Admission { case admitted, rejected, dropped }

  /// Most connections that get a refusal at the same time. The hub closes further ones without an answer.
  static let maxRejected = 8
  /// Descriptors that NIO may accept before it checks the count again.
  static let maxAccepted = 4
  /// Descriptors for everything else: the database, timers, configuration.
  static let reserved = 16
  /// A hub with room for fewer connections is useless.
  static let least = 4

  private struct State {
    var limiter: ConnectionLimiter
    var lastNumber = 0
    var numbers: [ObjectIdentifier: Int] = [:]
    var channels: [Int: any Channel] = [:]
    /// The grant of a connection's last request, or of its link.
    var grants: [Int: HubAccess.Grant] = [:]
    var rejected = 0
    /// Since the start: rejected, dropped, or closed in favour of others.
    var refused = 0
    /// Accepted connections that are not closed yet.
    var open = 0
  }

  let most: Int
  private let access: HubAccess
  private let state: Mutex<State>
  private let evictionLog: ThrottledLog
  private let rejectionLog: ThrottledLog

  init(most: Int, _ access: HubAccess, log: @escaping HubLog.Write) {
    (self.most, self.access) = (most, access)
    state = Mutex(State(limiter: ConnectionLimiter(most: most)))
    evictionLog = ThrottledLog(log)
    rejectionLog = ThrottledLog(log)
  }

  /// The number of connections that fit a limit of open files, of which `open` are in use already; at most `wanted`.
  static func room(limit: Int, open: Int, wanted: Int) -> Int {
    min(wanted, limit - open - reserved - maxRejected - maxAccepted)
  }

  var count: Int { state.withLock { $0.limiter.count } }
  var refusedCount: Int { state.withLock { $0.refused } }

  func admit(_ channel: any Channel) -> Admission {
    let (admission, closing) = state.withLock { state -> (Admission, (any Channel)?) in
      state.lastNumber += 1
      let number = state.lastNumber
      var evicted: (any Channel)?
      switch state.limiter.arrived(number, from: Self.address(of: channel)) {
      case .full:
        state.refused += 1
        guard state.rejected < Self.maxRejected else { return (.dropped, nil) }
        state.rejected += 1
        return (.rejected, nil)
      case .admittedInPlaceOf(let victim):
        state.refused += 1
        evicted = Self.forget(victim, &state)
      case .admitted: break
      }
      state.numbers[ObjectIdentifier(channel)] = number
      state.channels[number] = channel
      return (.admitted, evicted)
    }
    if let closing {
      closing.close(promise: nil)
      evictionLog.say("all \(most) connections are in use: closing the oldest without a token")
    }
    if admission != .admitted {
      rejectionLog.say(
        "all \(most) connections are in use: refusing new ones; raise max_connections and LimitNOFILE")
    }
    channel.closeFuture.whenComplete { [self] _ in closed(channel, admission) }
    return admission
  }

  private static func forget(_ number: Int, _ state: inout State) -> (any Channel)? {
    state.grants[number] = nil
    guard let channel = state.channels.removeValue(forKey: number) else { return nil }
    state.numbers[ObjectIdentifier(channel)] = nil
    return channel
  }

  private func closed(_ channel: any Channel, _ admission: Admission) {
    state.withLock { state in
      if admission == .rejected { state.rejected -= 1 }
      guard let number = state.numbers[ObjectIdentifier(channel)] else { return }
      _ = Self.forget(number, &state)
      state.limiter.left(number)
    }
  }

  /// Notes the grant of a connection's request or link. `false`: the holder has too many connections, or the grant has been withdrawn.
  func register(_ grant: HubAccess.Grant, on channel: any Channel) -> Bool {
    let hasRoom = state.withLock { state in
      guard let number = state.numbers[ObjectIdentifier(channel)] else { return true }
      guard state.limiter.showed(number, as: grant.holder) else { return false }
      state.grants[number] = grant
      return true
    }
    // The tokens may have changed between the check and this note.
    return hasRoom && access.allows(grant)
  }

  /// Closes all connections without a valid grant: requests in progress, streams and links. Returns their number.
  @discardableResult
  func close(unless allows: (HubAccess.Grant) -> Bool) -> Int {
    let ended = state.withLock { state in
      state.grants.filter { !allows($0.value) }.keys.compactMap { state.channels[$0] }
    }
    for channel in ended { channel.close(promise: nil) }
    return ended.count
  }

  /// The tokens of sessions with requests in progress.
  var busySessions: Set<String> {
    state.withLock { state in
      Set(
        state.grants.compactMap { number, grant in
          if case .session(let token) = grant.proof, !state.limiter.isIdle(number) { token } else { nil }
        })
    }
  }

  func setIdle(_ channel: any Channel, _ isIdle: Bool) {
    state.withLock { state in
      if let number = state.numbers[ObjectIdentifier(channel)] { state.limiter.idle(number, isIdle) }
    }
  }

  func setClient(_ address: String, of channel: any Channel) {
    state.withLock { state in
      if let number = state.numbers[ObjectIdentifier(channel)] { state.limiter.asks(number, for: address) }
    }
  }

  func isKnown(_ channel: any Channel) -> Bool {
    state.withLock { state in state.numbers[ObjectIdentifier(channel)].map { state.limiter.isKnown($0) } ?? false }
  }

  /// The address under which connections count: for IPv6 the /64 network, which belongs to one household.
  static func address(of channel: any Channel) -> String {
    let peer = Self.host(channel)
    return IPAddress(peer)?.network ?? peer
  }

  /// The peer's address, for people and for tools that read the log.
  static func host(_ channel: any Channel) -> String {
    let address = channel.remoteAddress?.ipAddress ?? "?"
    return address.hasPrefix("::ffff:") && address.contains(".") ? String(address.dropFirst(7)) : address
  }
}

/// Stops accepting connections at the limit, until some are closed.
extension ConnectionTable: AvailableConnectionsDelegate {
  func connectionOpened() { state.withLock { $0.open += 1 } }
  func connectionClosed() { state.withLock { $0.open -= 1 } }
  func isAcceptingNewConnections() -> Bool { state.withLock { $0.open < most + Self.maxRejected } }
}

/// The process's limit of descriptors.
enum OpenFiles {
  /// More than any hub needs; a higher limit gains nothing.
  private static let enough: rlim_t = 1 << 20

  /// Raises the soft limit to the hard one, and returns the limit that now applies.
  static func raiseLimit() -> Int {
    var limit = rlimit()
    // A limit that every system allows.
    guard getrlimit(kind, &limit) == 0 else { return 1024 }
    let wanted = min(limit.rlim_max, enough)
    if limit.rlim_cur < wanted {
      var raised = limit
      raised.rlim_cur = wanted
      // Without permission to raise it, fewer connections fit.
      if setrlimit(kind, &raised) == 0 { return Int(clamping: wanted) }
    }
    return Int(clamping: min(limit.rlim_cur, enough))
  }

  private static var kind: __rlimit_resource_t { __rlimit_resource_t(RLIMIT_NOFILE.rawValue) }

  static var count: Int {
    // `try?`: without /proc, the approximate number of a hub without connections.
    (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count) ?? 48
  }
}

// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Timing

/// Accepts connections at a listening socket: a limited number in each turn, and without spinning when the process has
/// no descriptor left.
///
/// A connection that cannot be accepted stays in the kernel's queue, and the loop would report it again and again. So
/// one descriptor is kept in reserve: with it the connection is accepted, and then closed or (at the operator's socket)
/// served.
public final class Acceptor {
  public enum Reserve: Sendable {
    /// The connection is accepted and closed, so that the client knows at once.
    case turnsAway
    /// One more connection is served.
    case serves
  }

  private static let maxPerTurn = 16
  /// Pause before the next attempt when not even the reserve descriptor is free.
  private static let rest: Duration = .seconds(1)
  /// The interval between log lines about the shortage.
  private static let quiet: Duration = .seconds(3600)

  private var listener: Int32
  private let name: String
  private let reserveUse: Reserve
  private let loop: EventLoop
  private let log: Log
  private var reserve: Int32 = -1
  private var loggedAt: MonotonicTime?
  private let readable = Waiter()
  private var isWaiting = false
  private var isWatched = false
  /// Attempts since other descriptors last had their turn.
  private var attempts = 0

  /// Takes ownership of `listener`, a non-blocking listening socket. `name`: for log lines.
  public init(_ listener: Int32, name: String, reserve: Reserve, on loop: EventLoop, log: Log) {
    self.listener = listener
    self.name = name
    reserveUse = reserve
    self.loop = loop
    self.log = log
    refill()
  }

  deinit { stop() }

  /// Stops listening at once. The task that accepts ends.
  public func stop() {
    guard listener >= 0 else { return }
    if isWatched { loop.unwatch(listener) }
    close(listener)
    listener = -1
    if reserve >= 0 { close(reserve) }
    reserve = -1
    readable.resume()
  }

  /// The next connection, non-blocking; the caller owns it. When no descriptor is left, `makingRoom` closes a
  /// connection that can be spared; it returns false if there is none. Throws when the task is cancelled or the
  /// acceptor is stopped. Only one task may accept.
  public func accept(makingRoom: () -> Bool = { false }) async throws(CancellationError) -> Int32 {
    while true {
      if attempts >= Self.maxPerTurn {
        attempts = 0
        try await loop.nextTurn()
      }
      guard listener >= 0, !Task.isCancelled else { throw CancellationError() }
      attempts += 1
      refill()
      let socket = take()
      if socket >= 0 { return socket }
      switch errno {
      case EAGAIN: try await untilReadable()
      // These errors concern one connection, which is gone (accept(2)).
      case EINTR, ECONNABORTED, EPROTO, EPERM, ENETDOWN, ENETUNREACH, EHOSTUNREACH: continue
      default: if let socket = try await takeWithoutRoom(errno, makingRoom) { return socket }
      }
    }
  }

  private func refill() { if reserve < 0 { reserve = open("/dev/null", O_RDONLY | O_CLOEXEC) } }

  private func take() -> Int32 {
    accept4(listener, nil, nil, Int32(SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue))
  }

  private func untilReadable() async throws(CancellationError) {
    attempts = 0
    isWaiting = true
    defer { isWaiting = false }
    if isWatched {
      loop.changeInterest(listener, to: .readable)
    } else {
      isWatched = loop.watch(listener, for: .readable) { [weak self] _ in self?.ready() }
    }
    // Without memory for a watch in the kernel, it is tried again after a pause.
    if isWatched { try await readable.wait() } else { try await rest() }
  }

  private func ready() {
    if isWaiting { return readable.resume() }
    // No task accepts now: connections stay in the kernel's queue, and it must not report them in every turn.
    loop.changeInterest(listener, to: [])
  }

  private func rest() async throws(CancellationError) {
    try await readable.wait(until: loop.now + Self.rest, on: loop)
  }

  /// Deals with a connection for which no descriptor is left. `nil`: try again.
  private func takeWithoutRoom(_ code: Int32, _ makingRoom: () -> Bool) async throws(CancellationError) -> Int32? {
    // Without a free descriptor, accept fails even if no connection waits.
    guard isWaitedFor else {
      try await untilReadable()
      return nil
    }
    tell(SystemError("accept", code: code))
    if makingRoom() { return nil }
    guard reserve >= 0 else {
      try await rest()
      return nil
    }
    close(reserve)
    reserve = -1
    let socket = take()
    guard socket >= 0 else {
      try await rest()
      return nil
    }
    switch reserveUse {
    case .serves:
      // The new connection gets a turn before it may be closed for the next one.
      attempts = Self.maxPerTurn
      return socket
    case .turnsAway:
      close(socket)
      return nil
    }
  }

  private var isWaitedFor: Bool {
    var entry = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
    return poll(&entry, 1, 0) == 1
  }

  private func tell(_ error: SystemError) {
    let now = loop.now
    if let loggedAt, now - loggedAt < Self.quiet { return }
    loggedAt = now
    log.warning("\(name): cannot accept connections: \(error.message). Raise the limit (LimitNOFILE), or close some.")
  }
}

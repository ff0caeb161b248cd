// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Timing

/// Takes connections at a listening socket: so many a turn, and without spinning when the process has no descriptor left.
///
/// A connection that cannot be taken stays in the kernel's queue, which is reported again and again. One descriptor is kept in
/// reserve for that: with it the connection is taken, and turned away or, where an operator calls, served.
public final class Acceptor {
  public enum Reserve: Sendable {
    /// Who cannot be served hears so at once.
    case turnsAway
    /// One more is served, even when all descriptors are used.
    case serves
  }

  private static let maxPerTurn = 16
  /// Without a reserve, either, it is tried again after so long.
  private static let rest: Duration = .seconds(1)
  /// The shortage is told that seldom.
  private static let quiet: Duration = .seconds(3600)

  private let listener: Int32
  private let name: String
  private let reserveUse: Reserve
  private let loop: EventLoop
  private let log: Log
  private var reserve: Int32 = -1
  private var pause: LoopTimer?
  private var toldAt: MonotonicTime?
  private var isStopped = false
  private let onSocket: (Int32) -> Void
  /// Lets go of a connection that can be spared; false: there is none.
  public var makeRoom: () -> Bool = { false }

  /// `listener` listens and does not block; it stays its owner's, who calls `stop` before closing it. `name` says in the log
  /// where nobody gets in. `onSocket` gets each connection, non-blocking, and owns it.
  public init(
    _ listener: Int32, name: String, reserve: Reserve, on loop: EventLoop, log: Log,
    _ onSocket: @escaping (Int32) -> Void
  ) {
    self.listener = listener
    self.name = name
    reserveUse = reserve
    self.loop = loop
    self.log = log
    self.onSocket = onSocket
    refill()
    loop.watch(listener, for: .readable) { [weak self] _ in self?.accept() }
  }

  deinit { stop() }

  public func stop() {
    guard !isStopped else { return }
    isStopped = true
    pause?.cancel()
    loop.unwatch(listener)
    if reserve >= 0 { close(reserve) }
    reserve = -1
  }

  private func refill() { if reserve < 0 { reserve = open("/dev/null", O_RDONLY | O_CLOEXEC) } }

  private func take() -> Int32 {
    accept4(listener, nil, nil, Int32(SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue))
  }

  private func accept() {
    refill()
    for _ in 0..<Self.maxPerTurn where !isStopped {
      let socket = take()
      if socket >= 0 {
        onSocket(socket)
        continue
      }
      switch errno {
      case EAGAIN: return
      // Of that one connection, which is gone (accept(2)).
      case EINTR, ECONNABORTED, EPROTO, EPERM, ENETDOWN, ENETUNREACH, EHOSTUNREACH: continue
      default: guard hasRoom(errno) else { return }
      }
    }
  }

  /// True: the next may be taken.
  private func hasRoom(_ code: Int32) -> Bool {
    // Without a descriptor to give, accept fails before it looks whether anybody waits.
    guard isWaitedFor else { return false }
    tell(SystemError("accept", code: code))
    if makeRoom() { return true }
    guard reserve >= 0 else {
      rest()
      return false
    }
    close(reserve)
    reserve = -1
    let socket = take()
    guard socket >= 0 else {
      rest()
      return false
    }
    switch reserveUse {
    case .serves:
      onSocket(socket)
      // Who comes next makes it give way when it has been answered, and not before it could ask.
      return false
    case .turnsAway:
      close(socket)
      refill()
      return true
    }
  }

  private var isWaitedFor: Bool {
    var entry = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
    return poll(&entry, 1, 0) == 1
  }

  private func rest() {
    loop.changeInterest(listener, to: [])
    pause = loop.schedule(after: Self.rest) { [weak self] in
      guard let self else { return }
      self.refill()
      self.loop.changeInterest(self.listener, to: .readable)
    }
  }

  private func tell(_ error: SystemError) {
    let now = loop.now
    if let toldAt, now - toldAt < Self.quiet { return }
    toldAt = now
    log.warning("\(name): connections cannot be taken: \(error.words). Raise the limit (LimitNOFILE), or close some.")
  }
}

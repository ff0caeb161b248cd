// SPDX-License-Identifier: MIT

import EventLoop
import Glibc

/// Why a stream gives no more bytes.
public enum StreamEnd: Error, Equatable, Sendable {
  /// The peer closed it in order.
  case closed
  case failed(String)
  /// It was closed from here, or the task that reads was cancelled.
  case cancelled

  /// What went wrong; `nil`: nothing.
  public var reason: String? { if case .failed(let reason) = self { reason } else { nil } }
}

/// A connected socket as a stream of bytes, with or without TLS. One task reads.
public protocol ByteStream: AnyObject {
  /// Bytes that wait to go out.
  var pendingBytes: Int { get }
  /// Bytes that have moved: those that the peer's kernel has acknowledged, and those that came. It grows as long as the line
  /// works, however slowly.
  var movedBytes: UInt64 { get }
  /// Bytes that were written and that the peer's kernel has not acknowledged.
  var outstandingBytes: Int { get }
  /// Takes all of it at once; it goes out as the line allows.
  func write(_ bytes: [UInt8])
  /// The bytes that come next, at least one.
  func read() async throws(StreamEnd) -> [UInt8]
  /// Returns each time that everything written has gone out.
  func drained() async throws(StreamEnd)
  /// Nothing has come that nobody has read, and the peer has not closed it.
  var isQuiet: Bool { get }
  /// Whoever reads gets `StreamEnd.cancelled`.
  func close()
}

extension ByteStream {
  public var outstandingBytes: Int { pendingBytes }
}

public final class SocketStream: ByteStream {
  private var socket: Int32
  private let loop: EventLoop
  private var pending: [UInt8] = []
  private var sent = 0
  private var (written, received): (UInt64, UInt64) = (0, 0)
  private let readable = Waiter()
  /// Resumed when everything has gone out, when the peer has gone, and by whoever else has something to say to the task that waits.
  public let changed = Waiter()
  private var hasDrained = false
  private var isWaiting = false
  private var isWatched = false
  private var end: StreamEnd?
  /// Of the wall clock, since 1970.
  var wallSeconds: Int64 { loop.wallClock.seconds }
  /// Reads since the last wait.
  private var reads = 0
  /// The turn in which a read took all that was there: within it there is no more to look for.
  private var emptied: UInt64?
  private let meter: TrafficMeter?
  private let endsWithPeer: Bool

  /// Takes ownership of the non-blocking socket. `meter`: counts it. `endsWithPeer`: a peer that says no more counts as gone although nobody reads
  /// just now. A browser that closes a connection over TCP shows in no other way; but whoever pipes a request into `nc` still listens.
  public init(_ socket: Int32, meter: TrafficMeter? = nil, endsWithPeer: Bool = false, on loop: EventLoop) {
    self.endsWithPeer = endsWithPeer
    self.socket = socket
    self.meter = meter
    self.loop = loop
    meter?.begins(socket)
  }

  deinit { close() }

  public var pendingBytes: Int { pending.count - sent }

  public var outstandingBytes: Int { socket < 0 ? 0 : pendingBytes + Descriptor.unacknowledged(socket) }

  public var movedBytes: UInt64 {
    guard socket >= 0 else { return written &+ received }
    return written &- min(written, UInt64(Descriptor.unacknowledged(socket))) &+ received
  }

  public var isQuiet: Bool {
    var byte: UInt8 = 0
    guard socket >= 0, recv(socket, &byte, 1, Int32(truncatingIfNeeded: MSG_PEEK | MSG_DONTWAIT)) < 0 else {
      return false
    }
    return errno == EAGAIN || errno == EWOULDBLOCK
  }

  /// False: either side has closed it.
  public var isOpen: Bool { socket >= 0 }

  public func close() { finish(.cancelled) }

  private func finish(_ end: StreamEnd) {
    guard socket >= 0 else { return }
    if isWatched { loop.unwatch(socket) }
    meter?.ends(socket)
    Glibc.close(socket)
    socket = -1
    self.end = end
    pending = []
    sent = 0
    readable.resume()
    changed.resume()
  }

  // MARK: Reading

  public func read() async throws(StreamEnd) -> [UInt8] {
    while true {
      if let end { throw end }
      // A peer that never stops leaves the others their turn.
      if reads >= Descriptor.readsPerTurn {
        reads = 0
        do { try await loop.nextTurn() } catch { throw .cancelled }
        continue
      }
      if emptied == loop.wakeups {
        emptied = nil
        try await untilReadable()
        continue
      }
      reads += 1
      switch Descriptor.read(socket) {
      case .bytes(let bytes):
        emptied = bytes.count < Descriptor.chunk ? loop.wakeups : nil
        received &+= UInt64(bytes.count)
        meter?.moved(bytes.count, on: socket)
        return bytes
      case .wouldBlock: try await untilReadable()
      case .end: finish(.closed)
      case .failed(let error): finish(.failed(error.message))
      }
    }
  }

  /// What is there now.
  func readAvailable() -> [UInt8]? {
    guard socket >= 0, case .bytes(let bytes) = Descriptor.read(socket) else { return nil }
    received &+= UInt64(bytes.count)
    meter?.moved(bytes.count, on: socket)
    return bytes
  }

  private func untilReadable() async throws(StreamEnd) {
    reads = 0
    isWaiting = true
    updateInterest()
    defer { isWaiting = false }
    do { try await readable.wait() } catch { throw .cancelled }
  }

  // MARK: Writing

  public func write(_ bytes: [UInt8]) {
    guard socket >= 0 else { return }
    pending.append(contentsOf: bytes)
    flush()
  }

  public func drained() async throws(StreamEnd) {
    while try await !hasChanged() {}
  }

  /// Returns when `changed` was resumed; true: everything written has gone out since.
  public func hasChanged() async throws(StreamEnd) -> Bool {
    if let end { throw end }
    // That the peer is gone is noticed, too.
    updateInterest()
    do { try await changed.wait() } catch { throw .cancelled }
    if let end { throw end }
    defer { hasDrained = false }
    return hasDrained
  }

  private func flush() {
    while socket >= 0, sent < pending.count {
      switch Descriptor.write(socket, pending[sent...]) {
      case .wrote(let count):
        sent += count
        written &+= UInt64(count)
        meter?.moved(count, on: socket)
      case .wouldBlock:
        if sent > 65536 {
          pending.removeFirst(sent)
          sent = 0
        }
        return updateInterest()
      case .failed(let error): return finish(.failed(error.message))
      }
    }
    guard socket >= 0 else { return }
    pending.removeAll(keepingCapacity: pending.capacity <= 16384)
    sent = 0
    if isWatched { updateInterest() }
    hasDrained = true
    changed.resume()
  }

  // MARK: The loop

  /// The kernel is asked for what somebody waits for; that the peer is gone it tells either way.
  private func updateInterest() {
    guard socket >= 0 else { return }
    var interest: EventLoop.Readiness = isWaiting ? .readable : []
    if sent < pending.count { interest.insert(.writable) }
    if endsWithPeer, !isWaiting { interest.insert(.ended) }
    if isWatched { return loop.changeInterest(socket, to: interest) }
    isWatched = loop.watch(socket, for: interest) { [weak self] readiness in self?.ready(readiness) }
    if !isWatched { finish(.failed("the kernel does not watch the socket")) }
  }

  private func ready(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable) { flush() }
    guard socket >= 0 else { return }
    if isWaiting { return readable.resume() }
    // Gone, and nothing that it still said can be answered.
    if !readiness.isDisjoint(with: endsWithPeer ? [.closed, .ended] : .closed) { return finish(.closed) }
    // Nobody reads just now: what comes stays with the kernel, which holds the peer back.
    updateInterest()
  }
}

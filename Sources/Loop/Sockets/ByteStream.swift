// SPDX-License-Identifier: MIT

import EventLoop
import Glibc

/// Why a stream has ended.
public enum StreamEnd: Error, Equatable, Sendable {
  /// The peer closed it regularly.
  case closed
  /// It ended without the end of TLS: somebody on the way may have cut off the rest of what the peer has sent.
  case cut
  case failed(String)
  /// The owner closed it, or the reading task was cancelled.
  case cancelled

  /// The error; `nil`: there was none.
  public var reason: String? { if case .failed(let reason) = self { reason } else { nil } }
}

/// A connected socket as a stream of bytes, with or without TLS. Only one task may read.
public protocol ByteStream: AnyObject {
  /// Bytes that are not sent yet.
  var pendingBytes: Int { get }
  /// Sent bytes that the peer's kernel has acknowledged, plus received bytes. It grows as long as the line works,
  /// however slowly.
  var movedBytes: UInt64 { get }
  /// Written bytes that the peer's kernel has not acknowledged.
  var outstandingBytes: Int { get }
  /// Takes all bytes at once; they are sent as the line allows.
  func write(_ bytes: [UInt8])
  /// Waits for data; returns at least one byte.
  func read() async throws(StreamEnd) -> [UInt8]
  /// Returns each time that everything written was sent.
  func drained() async throws(StreamEnd)
  /// Whether there is no unread data and the peer has not closed the connection.
  var isQuiet: Bool { get }
  /// A reading task gets `StreamEnd.cancelled`.
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
  /// Resumed when everything was sent, when the peer is gone, and by other code that has news for the waiting task.
  public let changed = Waiter()
  private var hasDrained = false
  private var isWaiting = false
  private var isWatched = false
  private var end: StreamEnd?
  /// What the peer had sent when writing failed: it may say why, as the refusal of a server that reads no more of a large request.
  private var unread: [UInt8] = []
  /// What comes beyond that is lost with the connection.
  private static let maxUnread = 65536
  /// The wall clock, in seconds since 1970.
  var wallSeconds: Int64 { loop.wallClock.seconds }
  /// Reads since the last wait.
  private var reads = 0
  /// The turn in which a read took all available data: there is no more within that turn.
  private var emptied: UInt64?
  private let meter: TrafficMeter?
  private let endsWithPeer: Bool
  private let wasSilent: () -> Void

  /// Takes ownership of the non-blocking socket. `meter`: counts its bytes. `endsWithPeer`: a peer that will send
  /// nothing more counts as gone even if nobody reads. Over TCP, a browser that closes a connection shows it in no
  /// other way; but somebody who pipes a request into `nc` still reads. `wasSilent`: called at the end if the peer has
  /// sent nothing.
  public init(
    _ socket: Int32, meter: TrafficMeter? = nil, endsWithPeer: Bool = false, on loop: EventLoop,
    wasSilent: @escaping () -> Void = {}
  ) {
    self.endsWithPeer = endsWithPeer
    self.wasSilent = wasSilent
    self.socket = socket
    self.meter = meter
    self.loop = loop
    meter?.begins(socket)
  }

  deinit { close() }

  public var pendingBytes: Int { pending.count - sent }

  public var outstandingBytes: Int { socket < 0 ? 0 : pendingBytes + loop.unacknowledged(socket) }

  public var movedBytes: UInt64 { takenBytes &+ received }

  /// Sent bytes that the peer's kernel has acknowledged.
  public var takenBytes: UInt64 {
    guard socket >= 0 else { return written }
    return written &- min(written, UInt64(loop.unacknowledged(socket)))
  }

  public var isQuiet: Bool {
    var byte: UInt8 = 0
    guard socket >= 0, recv(socket, &byte, 1, Int32(truncatingIfNeeded: MSG_PEEK | MSG_DONTWAIT)) < 0 else {
      return false
    }
    return errno == EAGAIN || errno == EWOULDBLOCK
  }

  /// False: either side has closed the connection.
  public var isOpen: Bool { socket >= 0 }

  public func close() {
    unread = []
    finish(.cancelled)
  }

  private func finish(_ end: StreamEnd) {
    guard socket >= 0 else { return }
    if isWatched { loop.unwatch(socket) }
    meter?.ends(socket)
    Glibc.close(socket)
    socket = -1
    self.end = end
    if received == 0 { wasSilent() }
    pending = []
    sent = 0
    readable.resume()
    changed.resume()
  }

  // MARK: Reading

  public func read() async throws(StreamEnd) -> [UInt8] {
    while true {
      if !unread.isEmpty {
        defer { unread = [] }
        return unread
      }
      if let end { throw end }
      // Others get their turn even if this peer never stops sending.
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

  /// The data that is available now.
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

  /// Returns when `changed` is resumed. True: everything written was sent since the last call.
  public func hasChanged() async throws(StreamEnd) -> Bool {
    if let end { throw end }
    // The watch also reports that the peer is gone.
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
      case .failed(let error):
        while unread.count < Self.maxUnread, let bytes = readAvailable() { unread += bytes }
        return finish(.failed(error.message))
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

  /// Asks the kernel for the events that a task waits for; the kernel reports a gone peer in any case.
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
    // The peer is gone, so requests that are still unread could not be answered.
    if !readiness.isDisjoint(with: endsWithPeer ? [.closed, .ended] : .closed) { return finish(.closed) }
    // Nobody reads now: data stays in the kernel, which slows the peer down.
    updateInterest()
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import Glibc

/// A connected socket as a stream of bytes, with or without TLS.
public protocol ByteStream: AnyObject {
  var onBytes: ([UInt8]) -> Void { get set }
  /// The stream ended or failed; it is closed already. `nil`: the peer closed in order.
  var onClose: (String?) -> Void { get set }
  /// Everything written so far went out.
  var onDrained: () -> Void { get set }
  /// Bytes that wait to go out.
  var pendingBytes: Int { get }
  /// Bytes that have moved: those that the peer's kernel has acknowledged, and those that came. It grows as long as the line
  /// works, however slowly.
  var movedBytes: UInt64 { get }
  func start()
  func write(_ bytes: [UInt8])
  /// No event follows.
  func close()
}

public final class SocketStream: ByteStream {
  private var socket: Int32
  private let loop: EventLoop
  private var pending: [UInt8] = []
  private var sent = 0
  private var isPaused = false
  private var isTellingDrained = false
  private var (written, received): (UInt64, UInt64) = (0, 0)
  public var onBytes: ([UInt8]) -> Void = { _ in }
  public var onClose: (String?) -> Void = { _ in }
  public var onDrained: () -> Void = {}

  /// Takes ownership of the non-blocking socket.
  public init(_ socket: Int32, on loop: EventLoop) {
    self.socket = socket
    self.loop = loop
  }

  deinit { close() }

  public var pendingBytes: Int { pending.count - sent }

  public var movedBytes: UInt64 {
    guard socket >= 0 else { return written &+ received }
    return written &- min(written, UInt64(Descriptor.unacknowledged(socket))) &+ received
  }

  public func start() {
    loop.watch(socket, for: .readable) { [weak self] readiness in self?.ready(readiness) }
  }

  /// Reads on, or leaves what comes with the kernel, which then holds the peer back. That the peer is gone is told either way.
  public func setReading(_ isReading: Bool) {
    guard isPaused == isReading else { return }
    isPaused = !isReading
    updateInterest()
  }

  private func updateInterest() {
    guard socket >= 0 else { return }
    var interest: EventLoop.Readiness = isPaused ? [] : .readable
    if sent < pending.count { interest.insert(.writable) }
    loop.changeInterest(socket, to: interest)
  }

  public func close() {
    guard socket >= 0 else { return }
    loop.unwatch(socket)
    Glibc.close(socket)
    socket = -1
  }

  public func write(_ bytes: [UInt8]) {
    guard socket >= 0 else { return }
    pending.append(contentsOf: bytes)
    flush()
  }

  private func flush() {
    while socket >= 0, sent < pending.count {
      switch Descriptor.write(socket, pending[sent...]) {
      case .wrote(let count):
        sent += count
        written &+= UInt64(count)
      case .wouldBlock:
        if sent > 65536 {
          pending.removeFirst(sent)
          sent = 0
        }
        return updateInterest()
      case .failed(let error): return fail(error.words)
      }
    }
    guard socket >= 0 else { return }
    pending.removeAll(keepingCapacity: pending.capacity <= 16384)
    sent = 0
    updateInterest()
    tellDrained()
  }

  /// Once for all that was written meanwhile.
  private func tellDrained() {
    guard !isTellingDrained else { return }
    isTellingDrained = true
    loop.later { [weak self] in
      guard let self else { return }
      self.isTellingDrained = false
      if self.pendingBytes == 0 { self.onDrained() }
    }
  }

  private func ready(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable) { flush() }
    // Gone, and nothing that it still said can be answered.
    if isPaused, !readiness.isDisjoint(with: .closed) { return fail(nil) }
    for _ in 0..<Descriptor.readsPerTurn where socket >= 0 && !isPaused {
      switch Descriptor.read(socket) {
      case .bytes(let bytes):
        received &+= UInt64(bytes.count)
        onBytes(bytes)
      case .wouldBlock: return
      case .end: return fail(nil)
      case .failed(let error): return fail(error.words)
      }
    }
  }

  private func fail(_ words: String?) {
    guard socket >= 0 else { return }
    close()
    loop.later { [weak self] in self?.onClose(words) }
  }
}

// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc

/// Received bytes that are not on disk yet, kept by the kernel: they outlive this process.
///
/// A pipe whose ends a service manager keeps, too. Bytes are moved from the port into it within the kernel (`splice`), copied without removing
/// them (`tee`), and removed when their content is on disk. After a kill the next process finds them in the port or
/// in the pipe. Bytes that were stored but not yet removed are read twice; the store detects
/// that.
///
/// Bound: the pipe, 256 reads of any size. If the disk refuses messages until the pipe is full, it is emptied: a kill in
/// that state loses only what memory holds for the disk.
final class ReceiveSpool {
  /// The pipe's ends: read, write.
  let ends: [Int32]
  private let look: [Int32]
  /// The previous process created the pipe.
  let isInherited: Bool
  /// Bytes at the front of the pipe that were already returned.
  private var given = 0
  /// Capacity in bytes; each read occupies a page, however short.
  private static let size: Int32 = 1 << 20
  /// Reads after which the content should be stored.
  private static let many = 96
  private var reads = 0
  /// The pipe was emptied because it was full; until everything is stored, a kill can lose data.
  private(set) var wasEmptied = false

  /// The content should be stored before more is read.
  var isFilling: Bool { reads >= Self.many }

  /// `inherited`: the ends that the previous process left, in any order.
  init?(inherited: [Int32]) {
    var look: [Int32] = [-1, -1]
    var ends = inherited.sorted { Self.mode($0) < Self.mode($1) }
    isInherited = ends.map(Self.mode) == [O_RDONLY, O_WRONLY]
    if !isInherited {
      for end in inherited { close(end) }
      ends = [-1, -1]
      guard meshpost_pipe(&ends) == 0 else { return nil }
    }
    guard meshpost_pipe(&look) == 0 else {
      for end in ends { close(end) }
      return nil
    }
    for end in ends + look { Descriptor.setNonBlocking(end) }
    // If the kernel refuses, the pipe is full earlier.
    for pipe in [ends, look] { meshpost_set_pipe_size(pipe[0], Self.size) }
    (self.ends, self.look) = (ends, look)
  }

  private static func mode(_ descriptor: Int32) -> Int32 { fcntl(descriptor, F_GETFL) & O_ACCMODE }

  deinit { for end in ends + look { close(end) } }

  /// Bytes that the previous process had not stored; empty if there are none.
  func leftOver() -> [UInt8] {
    given = 0
    let bytes = fresh()
    // The number of reads is unknown: assume many.
    if !bytes.isEmpty { reads = Self.many }
    return bytes
  }

  /// Reads from the port through the pipe. `nil`: this kernel cannot splice from such a port.
  func read(from port: Int32) -> ReadResult? {
    var count = meshpost_splice(port, ends[1], Descriptor.chunk)
    if count < 0, errno == EAGAIN, isFull {
      forget(given)
      wasEmptied = true
      count = meshpost_splice(port, ends[1], Descriptor.chunk)
    }
    if count == 0 { return .end }
    if count < 0 {
      let code = errno
      if code == EINVAL || code == ENOSYS { return nil }
      return code == EAGAIN || code == EINTR ? .wouldBlock : .failed(SystemError("splice", code: code))
    }
    reads += 1
    let bytes = fresh()
    return bytes.isEmpty ? .failed(SystemError("tee", code: EIO)) : .bytes(bytes)
  }

  private var isFull: Bool {
    var look = pollfd(fd: ends[1], events: Int16(POLLOUT), revents: 0)
    return poll(&look, 1, 0) == 0
  }

  /// Bytes in the pipe that were not returned yet.
  private func fresh() -> [UInt8] {
    guard meshpost_tee(ends[0], look[1], Int(Self.size)) > 0 else { return [] }
    var bytes: [UInt8] = []
    while case .bytes(let more) = Descriptor.read(look[0], most: 16_384) { bytes += more }
    defer { given = bytes.count }
    return Array(bytes.dropFirst(given))
  }

  /// Everything returned is on disk, except the last `pending` bytes.
  func settled(pending: Int) {
    let count = given - max(0, pending)
    if count > 0 { forget(count) }
    wasEmptied = false
  }

  private func forget(_ count: Int) {
    var left = count
    while left > 0, case .bytes(let bytes) = Descriptor.read(ends[0], most: min(left, 16_384)) { left -= bytes.count }
    given -= count - left
    if given == 0 { reads = 0 }
  }
}

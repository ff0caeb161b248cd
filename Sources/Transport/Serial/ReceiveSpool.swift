// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc

/// What came from the radio and is not safe on disk yet, in the kernel's keeping: it outlives this process.
///
/// A pipe whose ends a service manager keeps, too. Bytes are moved from the port into it within the kernel (`splice`), looked at without taking
/// them out (`tee`), and taken out only when what they say is on disk. Whoever is killed in between: his successor
/// finds them in the port or in the pipe. What was on disk already and had not been taken out yet comes twice, and the
/// store knows it.
///
/// Bound: the pipe, 256 reads of any size. When a disk refuses messages for long and it fills, it is emptied: only a kill in
/// that state loses what is held in memory for the disk.
final class ReceiveSpool {
  /// The pipe's ends: to read, to write.
  let ends: [Int32]
  private let look: [Int32]
  /// A predecessor made it.
  let isInherited: Bool
  /// Bytes at the front of the pipe that were given out already.
  private var given = 0
  /// Bytes that a pipe is made for; each read takes a page of it, however short.
  private static let size: Int32 = 1 << 20
  /// Reads after which it is time to have things on disk.
  private static let many = 96
  private var reads = 0
  /// It was emptied because it was full; until all is on disk again, a kill can take something.
  private(set) var wasEmptied = false

  /// More should not come before what is here is on disk.
  var isFilling: Bool { reads >= Self.many }

  /// `inherited`: the ends that a predecessor left, in any order.
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
    // Where that is refused, the pipe is full earlier.
    for pipe in [ends, look] { meshpost_set_pipe_size(pipe[0], Self.size) }
    (self.ends, self.look) = (ends, look)
  }

  private static func mode(_ descriptor: Int32) -> Int32 { fcntl(descriptor, F_GETFL) & O_ACCMODE }

  deinit { for end in ends + look { close(end) } }

  /// What a predecessor had not finished with; empty when there is nothing.
  func leftOver() -> [UInt8] {
    given = 0
    let bytes = fresh()
    // How many reads that was is not known.
    if !bytes.isEmpty { reads = Self.many }
    return bytes
  }

  /// Reads from the port by way of the pipe. `nil`: this kernel cannot move bytes from such a port.
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

  /// What is in the pipe and was not given out yet.
  private func fresh() -> [UInt8] {
    guard meshpost_tee(ends[0], look[1], Int(Self.size)) > 0 else { return [] }
    var bytes: [UInt8] = []
    while case .bytes(let more) = Descriptor.read(look[0], most: 16_384) { bytes += more }
    defer { given = bytes.count }
    return Array(bytes.dropFirst(given))
  }

  /// What was given out is on disk, but for the last `pending` bytes.
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

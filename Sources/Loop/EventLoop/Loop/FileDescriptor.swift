// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// A descriptor with one owner, closed when the owner releases it.
public final class OwnedDescriptor {
  public let number: Int32

  public init(_ number: Int32) { self.number = number }

  deinit { close(number) }
}

/// A failed system call and its error code.
public struct SystemError: Error, Equatable, Sendable, CustomStringConvertible {
  public let call: String
  public let code: Int32

  public init(_ call: String, code: Int32 = errno) {
    self.call = call
    self.code = code
  }

  public var message: String { String(cString: strerror(code)) }
  public var description: String { "\(call): \(message)" }
}

/// The result of a non-blocking read.
public enum ReadResult: Equatable {
  case bytes([UInt8])
  case wouldBlock
  case end
  case failed(SystemError)
}

/// The result of a non-blocking write.
public enum WriteResult: Equatable {
  case wrote(Int)
  case wouldBlock
  case failed(SystemError)
}

public enum Descriptor {
  public static func close(_ descriptor: Int32) { _ = Glibc.close(descriptor) }

  /// The device name of the other end of a pseudo-terminal, given its master.
  public static func terminalName(of master: Int32) -> String? {
    var name = [CChar](repeating: 0, count: 64)
    guard ptsname_r(master, &name, name.count) == 0 else { return nil }
    return String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// Bytes that one read takes at most.
  public static let chunk = 4096
  /// Reads of one descriptor in one turn of the loop, so that a peer that never stops sending does not starve the
  /// others.
  public static let readsPerTurn = 8

  public static func setNonBlocking(_ descriptor: Int32) {
    let flags = fcntl(descriptor, F_GETFL)
    if flags >= 0 { _ = fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) }
  }

  public static func read(_ descriptor: Int32, most: Int = chunk) -> ReadResult {
    var failure: Int32 = 0
    var count = 0
    let bytes = [UInt8](unsafeUninitializedCapacity: most) { buffer, initialized in
      repeat {
        count = Glibc.read(descriptor, buffer.baseAddress, most)
      } while count < 0 && errno == EINTR
      failure = errno
      initialized = max(0, count)
    }
    if count > 0 { return .bytes(bytes) }
    if count == 0 { return .end }
    return failure == EAGAIN || failure == EWOULDBLOCK ? .wouldBlock : .failed(SystemError("read", code: failure))
  }

  /// Bytes written to a socket that the peer's kernel has not acknowledged; 0 if the kernel cannot tell.
  public static func unacknowledged(_ socket: Int32) -> Int { max(0, Int(meshpost_unacknowledged(socket))) }

  /// On a connection with few segments under way, TCP then retransmits up to six times at even intervals before it
  /// doubles them: after an interruption of some seconds, the connection continues sooner. Source: tcp-thin in the
  /// kernel's documentation. Kernels without this option behave as before.
  public static func asksEvenly(_ socket: Int32) {
    var yes: Int32 = 1
    // TCP_THIN_LINEAR_TIMEOUTS, which Glibc's headers define but Swift does not import.
    setsockopt(socket, Int32(IPPROTO_TCP), 16, &yes, socklen_t(MemoryLayout<Int32>.size))
  }

  /// The bytes that a TCP connection has put on the line in both directions, with headers and retransmissions, and
  /// those that would still be sent after a close. `nil`: the kernel cannot tell, or this is not a TCP connection.
  public static func lineBytes(_ socket: Int32) -> (bytes: UInt64, unsent: UInt64)? {
    var unsent: UInt64 = 0
    let bytes = meshpost_line_bytes(socket, &unsent)
    return bytes == 0 ? nil : (bytes, unsent)
  }

  public static func write(_ descriptor: Int32, _ bytes: ArraySlice<UInt8>) -> WriteResult {
    guard !bytes.isEmpty else { return .wrote(0) }
    let count = bytes.withUnsafeBytes { buffer in
      var written = 0
      repeat {
        // The command line keeps SIGPIPE, which ends it with the reader of its output: a gateway that has closed its socket is told in words.
        written = Glibc.send(descriptor, buffer.baseAddress, buffer.count, Int32(MSG_NOSIGNAL))
        if written < 0, errno == ENOTSOCK { written = Glibc.write(descriptor, buffer.baseAddress, buffer.count) }
      } while written < 0 && errno == EINTR
      return written
    }
    if count >= 0 { return .wrote(count) }
    return errno == EAGAIN || errno == EWOULDBLOCK ? .wouldBlock : .failed(SystemError("write"))
  }
}

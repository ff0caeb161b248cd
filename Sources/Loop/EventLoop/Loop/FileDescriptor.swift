// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// A descriptor with one owner, closed when the owner releases it.
public final class OwnedDescriptor {
  public let number: Int32

  public init(_ number: Int32) { self.number = number }

  deinit { close(number) }
}

/// What a system call said.
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

/// What came of a read that does not wait.
public enum ReadResult: Equatable {
  case bytes([UInt8])
  case wouldBlock
  case end
  case failed(SystemError)
}

/// What came of a write that does not wait.
public enum WriteResult: Equatable {
  case wrote(Int)
  case wouldBlock
  case failed(SystemError)
}

public enum Descriptor {
  public static func close(_ descriptor: Int32) { _ = Glibc.close(descriptor) }

  /// The device at the other end of a pseudo-terminal's master.
  public static func terminalName(of master: Int32) -> String? {
    var name = [CChar](repeating: 0, count: 64)
    guard ptsname_r(master, &name, name.count) == 0 else { return nil }
    return String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// The most that one read takes.
  public static let chunk = 4096
  /// The most reads of one descriptor in one turn of the loop: a peer that never stops leaves the others their turn.
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

  /// Bytes that were written to a socket and that its peer's kernel has not acknowledged; 0 where that cannot be told.
  public static func unacknowledged(_ socket: Int32) -> Int { max(0, Int(meshpost_unacknowledged(socket))) }

  /// On a connection with few segments under way, TCP sends again what was not acknowledged up to six times at even distances, before the distances
  /// double: after a cut of some seconds, it continues that much sooner. Source: tcp-thin in the kernel's documentation. Kernels without it behave as before.
  public static func asksEvenly(_ socket: Int32) {
    var yes: Int32 = 1
    // TCP_THIN_LINEAR_TIMEOUTS, which Glibc's headers have and Swift does not see.
    setsockopt(socket, Int32(IPPROTO_TCP), 16, &yes, socklen_t(MemoryLayout<Int32>.size))
  }

  /// What a TCP connection has cost the line, both ways, with headers and what was sent again; and what would still go out after a
  /// close. `nil`: the kernel cannot tell, or it is none.
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
        written = Glibc.write(descriptor, buffer.baseAddress, buffer.count)
      } while written < 0 && errno == EINTR
      return written
    }
    if count >= 0 { return .wrote(count) }
    return errno == EAGAIN || errno == EWOULDBLOCK ? .wouldBlock : .failed(SystemError("write"))
  }
}

// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// An IP address: 4 or 16 bytes. An IPv4 address that was mapped into IPv6 becomes the IPv4 address.
public struct IPAddress: Hashable, Sendable, CustomStringConvertible {
  public let bytes: [UInt8]

  /// `nil`: not a numeric address.
  public init?(_ text: String) {
    var buffer = [UInt8](repeating: 0, count: 16)
    if inet_pton(AF_INET, text, &buffer) == 1 {
      self.init(bytes: Array(buffer.prefix(4)))
    } else if inet_pton(AF_INET6, text, &buffer) == 1 {
      self.init(bytes: buffer)
    } else {
      return nil
    }
  }

  init(bytes: [UInt8]) {
    let isMapped =
      bytes.count == 16 && bytes.prefix(10).allSatisfy { $0 == 0 } && bytes[10] == 0xFF && bytes[11] == 0xFF
    self.bytes = isMapped ? Array(bytes.suffix(4)) : bytes
  }

  public var isLoopback: Bool {
    bytes.count == 4 ? bytes[0] == 127 : bytes.dropLast().allSatisfy { $0 == 0 } && bytes.last == 1
  }

  /// An IPv4 address, or the network of an IPv6 address (64 bits).
  public var network: String {
    bytes.count == 4 ? description : "\(IPAddress(bytes: Array(bytes.prefix(8)) + [UInt8](repeating: 0, count: 8)))/64"
  }

  public var description: String {
    var buffer = [CChar](repeating: 0, count: 64)
    inet_ntop(bytes.count == 4 ? AF_INET : AF_INET6, bytes, &buffer, socklen_t(buffer.count))
    return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}

/// `192.168.1.0/24`, `fd00::/8`, or one address.
public struct AddressRange: Hashable, Sendable, CustomStringConvertible {
  public let base: IPAddress
  public let bits: Int

  public init?(_ text: String) {
    let parts = text.split(separator: "/", maxSplits: 1).map(String.init)
    guard let first = parts.first, let base = IPAddress(first) else { return nil }
    let most = base.bytes.count * 8
    guard parts.count == 2 else {
      (self.base, bits) = (base, most)
      return
    }
    guard let bits = Int(parts[1]), (0...most).contains(bits) else { return nil }
    (self.base, self.bits) = (base, bits)
  }

  public func contains(_ address: IPAddress) -> Bool {
    guard address.bytes.count == base.bytes.count else { return false }
    return (0..<bits).allSatisfy { bit in
      let differing: UInt8 = address.bytes[bit / 8] ^ base.bytes[bit / 8]
      let mask: UInt8 = 0x80 >> UInt8(bit % 8)
      return differing & mask == 0
    }
  }

  public var description: String { bits == base.bytes.count * 8 ? "\(base)" : "\(base)/\(bits)" }
}

/// A numeric address and a port to listen at: `127.0.0.1:5000` or `[::1]:5000`.
public struct ListenAddress: Hashable, Sendable, CustomStringConvertible {
  public let address: IPAddress
  public let port: UInt16

  public init?(_ text: String) {
    guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]) else { return nil }
    var host = String(text[..<colon])
    if host.hasPrefix("["), host.hasSuffix("]") { host = String(host.dropFirst().dropLast()) }
    guard let address = IPAddress(host) else { return nil }
    (self.address, self.port) = (address, port)
  }

  public static func loopback(_ port: UInt16) -> ListenAddress {
    ListenAddress(IPAddress(bytes: [127, 0, 0, 1]), port)
  }

  private init(_ address: IPAddress, _ port: UInt16) { (self.address, self.port) = (address, port) }

  public var description: String { address.bytes.count == 4 ? "\(address):\(port)" : "[\(address)]:\(port)" }

  /// Whether only one of the two can listen: an address of zeros includes all of its family, and `[::]` those of IPv4, too.
  public func meets(_ other: ListenAddress) -> Bool {
    guard port == other.port, port != 0 else { return false }
    return address == other.address || includes(other) || other.includes(self)
  }

  private func includes(_ other: ListenAddress) -> Bool {
    address.bytes.allSatisfy { $0 == 0 } && (address.bytes.count == 16 || other.address.bytes.count == 4)
  }

  /// Opens a non-blocking socket that listens here. At `[::]` it accepts IPv4, too, the kernel's default.
  public func listen() throws(SystemError) -> Int32 {
    let family = address.bytes.count == 4 ? AF_INET : AF_INET6
    let flags = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
    let descriptor = socket(family, flags, 0)
    guard descriptor >= 0 else { throw SystemError("socket") }
    var yes: Int32 = 1
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
    guard bind(descriptor), Glibc.listen(descriptor, 16) == 0 else {
      let error = SystemError("listen on \(self)")
      close(descriptor)
      throw error
    }
    return descriptor
  }

  private func bind(_ descriptor: Int32) -> Bool {
    func bind<Address>(_ value: Address) -> Bool {
      withUnsafePointer(to: value) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          Glibc.bind(descriptor, $0, socklen_t(MemoryLayout<Address>.size)) == 0
        }
      }
    }
    if address.bytes.count == 4 {
      var value = sockaddr_in()
      value.sin_family = sa_family_t(AF_INET)
      value.sin_port = port.bigEndian
      withUnsafeMutableBytes(of: &value.sin_addr) { $0.copyBytes(from: address.bytes) }
      return bind(value)
    }
    var value = sockaddr_in6()
    value.sin6_family = sa_family_t(AF_INET6)
    value.sin6_port = port.bigEndian
    withUnsafeMutableBytes(of: &value.sin6_addr) { $0.copyBytes(from: address.bytes) }
    return bind(value)
  }

  /// The peer's address; `nil`: the peer is gone.
  public static func peer(of descriptor: Int32) -> IPAddress? {
    var storage = sockaddr_storage()
    var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
    return withUnsafeMutablePointer(to: &storage) { pointer -> IPAddress? in
      let found = pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getpeername(descriptor, $0, &size) }
      guard found == 0 else { return nil }
      switch Int32(pointer.pointee.ss_family) {
      case AF_INET:
        return pointer.withMemoryRebound(to: sockaddr_in.self, capacity: 1) { address in
          IPAddress(bytes: withUnsafeBytes(of: address.pointee.sin_addr) { Array($0) })
        }
      case AF_INET6:
        return pointer.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) { address in
          IPAddress(bytes: withUnsafeBytes(of: address.pointee.sin6_addr) { Array($0) })
        }
      default: return nil
      }
    }
  }
}

// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Timing

/// An address and port as the kernel takes them.
public struct NetworkAddress: Hashable, Sendable {
  let family: Int32
  let bytes: [UInt8]

  /// The port: bytes 2 and 3 of `sockaddr_in` and of `sockaddr_in6`.
  public var port: UInt16 { bytes.count < 4 ? 0 : UInt16(bytes[2]) << 8 | UInt16(bytes[3]) }

  /// Begins to connect a new socket, without waiting.
  func connect() throws(SystemError) -> (socket: Int32, isConnected: Bool) {
    let flags = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
    let socket = Glibc.socket(family, flags, 0)
    guard socket >= 0 else { throw SystemError("socket") }
    let code = bytes.withUnsafeBytes { bytes in
      bytes.withMemoryRebound(to: sockaddr.self) { Glibc.connect(socket, $0.baseAddress, socklen_t(bytes.count)) }
    }
    if code == 0 { return (socket, true) }
    if errno == EINPROGRESS { return (socket, false) }
    let error = SystemError("connect")
    close(socket)
    throw error
  }
}

extension NetworkAddress: CustomStringConvertible {
  /// The numeric address, without the port.
  public var description: String {
    var text = [CChar](repeating: 0, count: 64)
    let code = bytes.withUnsafeBytes { bytes in
      bytes.withMemoryRebound(to: sockaddr.self) {
        getnameinfo($0.baseAddress, socklen_t(bytes.count), &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST)
      }
    }
    guard code == 0 else { return "an address of family \(family)" }
    return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}

/// The address of each host that took the last connection: it is tried first the next time, or last if nothing came on that connection, as from a
/// machine whose service hangs. Bounded; the oldest is forgotten.
struct GoodAddresses {
  private static let most = 32
  /// If a host has worked within this time, silence more likely means that the line is down.
  static let lately: Duration = .seconds(600)

  /// `address`: `nil` if it has failed since. `isSilent`: it has taken the last connection, and nothing came on that.
  private var entries: [(host: String, address: NetworkAddress?, at: MonotonicTime, isSilent: Bool)] = []

  subscript(host: String) -> NetworkAddress? { entries.first { $0.host == host }?.address }

  func isSilent(_ host: String) -> Bool { entries.contains { $0.host == host && $0.isSilent } }

  func hasWorkedLately(_ host: String, now: MonotonicTime) -> Bool {
    entries.contains { $0.host == host && now - $0.at <= Self.lately }
  }

  mutating func worked(_ address: NetworkAddress, for host: String, now: MonotonicTime) {
    entries.removeAll { $0.host == host }
    if entries.count == Self.most { entries.removeFirst() }
    entries.append((host, address, now, false))
  }

  mutating func wasSilent(_ host: String) {
    for index in entries.indices where entries[index].host == host { entries[index].isSilent = true }
  }

  /// Forgets the address, but not that the host has worked.
  mutating func forget(_ host: String) {
    for index in entries.indices where entries[index].host == host { entries[index].address = nil }
  }
}

/// The addresses of a host name. getaddrinfo has no non-blocking form, so a look-up has a thread of its own.
enum NameLookup {
  enum Result: Sendable {
    case addresses([NetworkAddress])
    case failed(String)
  }

  /// Addresses of one name that are tried at most.
  private static let maxAddresses = 32

  /// Answers with the addresses in the resolver's order (RFC 6724).
  static func run(_ host: String, _ port: UInt16, _ answer: Wakeup<Result>) {
    // A numeric address needs no look-up and no thread.
    if host.utf8.allSatisfy({ $0 < 0x80 }), case .addresses(let found) = resolve(host, port, AI_NUMERICHOST) {
      return answer.send(.addresses(found))
    }
    // A small stack is enough. If no thread can be started, the connector's time limit ends the attempt.
    DetachedThread.begin(stack: 256 * 1024) { answer.send(resolve(host, port)) }
  }

  private static func resolve(_ host: String, _ port: UInt16, _ flags: Int32 = AI_ADDRCONFIG) -> Result {
    let name: String
    do throws(HostName.Failure) {
      name = try HostName.ascii(host)
    } catch {
      return .failed(error.description)
    }
    var hints = addrinfo()
    hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    hints.ai_flags = flags
    var list: UnsafeMutablePointer<addrinfo>?
    let code = getaddrinfo(name, String(port), &hints, &list)
    guard code == 0 else { return .failed(String(cString: gai_strerror(code))) }
    defer { freeaddrinfo(list) }
    var addresses: [NetworkAddress] = []
    var next = list
    while let entry = next, addresses.count < maxAddresses {
      if let address = entry.pointee.ai_addr {
        let bytes = UnsafeRawBufferPointer(start: address, count: Int(entry.pointee.ai_addrlen))
        let found = NetworkAddress(family: entry.pointee.ai_family, bytes: Array(bytes))
        if !addresses.contains(found) { addresses.append(found) }
      }
      next = entry.pointee.ai_next
    }
    return addresses.isEmpty ? .failed("no address") : .addresses(addresses)
  }
}

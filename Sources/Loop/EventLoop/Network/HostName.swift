// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Names of hosts beyond ASCII: `bücher.example` is `xn--bcher-kva.example` to resolvers, servers and certificates (RFC 5891).
///
/// libidn2 knows how, and is loaded for such a name alone: its tables are two mebibytes.
public enum HostName {
  public struct Failure: Error, Equatable, Sendable, CustomStringConvertible {
    public let description: String
  }

  private static let maxBytes = 1024
  /// IDN2_NFC_INPUT and IDN2_NONTRANSITIONAL: `straße` keeps its ß, as browsers do it.
  private static let flags: CInt = 1 | 8

  /// As it goes over the wire. A name in ASCII, and an address in figures, is returned as it is.
  public static func ascii(_ name: String) throws(Failure) -> String {
    guard name.utf8.contains(where: { $0 >= 0x80 }) else { return name }
    guard name.utf8.count <= maxBytes, !name.utf8.contains(0) else {
      throw Failure(description: "the name is too long, or has a zero byte")
    }
    guard let library = dlopen("libidn2.so.0", RTLD_NOW | RTLD_LOCAL), let symbol = dlsym(library, "idn2_lookup_u8")
    else {
      throw Failure(
        description:
          "a non-ASCII name requires libidn2, which is not installed (Debian: libidn2-0); or write its xn-- form")
    }
    defer { dlclose(library) }
    typealias LookUp =
      @convention(c) (
        UnsafePointer<UInt8>, UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>, CInt
      ) -> CInt
    let lookUp = unsafeBitCast(symbol, to: LookUp.self)
    var found: UnsafeMutablePointer<UInt8>?
    let code = (Array(name.utf8) + [0]).withUnsafeBufferPointer { bytes in
      bytes.baseAddress.map { lookUp($0, &found, flags) } ?? -1
    }
    defer { free(found) }
    guard code == 0, let found else { throw Failure(description: "invalid host name: \(words(code, library))") }
    return String(cString: found)
  }

  /// What libidn2 says.
  private static func words(_ code: CInt, _ library: UnsafeMutableRawPointer) -> String {
    guard let symbol = dlsym(library, "idn2_strerror") else { return "code \(code)" }
    typealias Words = @convention(c) (CInt) -> UnsafePointer<CChar>?
    return unsafeBitCast(symbol, to: Words.self)(code).map { String(cString: $0) } ?? "code \(code)"
  }
}

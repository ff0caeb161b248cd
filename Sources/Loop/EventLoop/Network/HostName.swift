// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Host names beyond ASCII: resolvers, servers and certificates know `bücher.example` as `xn--bcher-kva.example` (RFC
/// 5891).
///
/// libidn2 converts them. It is loaded only for such a name, because its tables take two mebibytes.
public enum HostName {
  public struct Failure: Error, Equatable, Sendable, CustomStringConvertible {
    public let description: String
  }

  private static let maxBytes = 1024
  /// IDN2_NFC_INPUT and IDN2_NONTRANSITIONAL: `straße` keeps its ß, as in browsers.
  private static let flags: CInt = 1 | 8

  /// The name as it goes over the wire. Names in ASCII and numeric addresses are returned unchanged.
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

  /// libidn2's description of an error.
  private static func words(_ code: CInt, _ library: UnsafeMutableRawPointer) -> String {
    guard let symbol = dlsym(library, "idn2_strerror") else { return "code \(code)" }
    typealias Words = @convention(c) (CInt) -> UnsafePointer<CChar>?
    return unsafeBitCast(symbol, to: Words.self)(code).map { String(cString: $0) } ?? "code \(code)"
  }
}

// SPDX-License-Identifier: MIT

import Glibc

/// Names and addresses as they appear in URLs.
enum ServerName {
  static func isIPv6(_ text: String) -> Bool {
    var address = in6_addr()
    return inet_pton(AF_INET6, text, &address) == 1
  }

  /// A letter, a digit, or one of `-._`: nothing that begins another part of a URL.
  static func isOfName(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"): true
    default: false
    }
  }

  /// The host in a URL: IPv6 addresses get brackets.
  static func inURL(_ host: String) -> String { host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host }

  /// The bytes of a numeric address; `nil`: it is a name.
  static func address(_ text: String) -> [UInt8]? {
    var four = in_addr()
    if inet_pton(AF_INET, text, &four) == 1 { return withUnsafeBytes(of: &four) { Array($0) } }
    var six = in6_addr()
    if inet_pton(AF_INET6, text, &six) == 1 { return withUnsafeBytes(of: &six) { Array($0) } }
    return nil
  }
}

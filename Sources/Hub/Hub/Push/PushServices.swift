// SPDX-License-Identifier: MIT

import HTTP
import UntrustedText

/// Which servers the hub may send pushes to. A browser names the address: without this list, whoever may view could have the hub send requests to
/// any host that it reaches.
enum PushServices {
  /// Those of Chrome and Edge on Android and elsewhere, Firefox, Safari, and Edge on Windows.
  static let usual = [
    "fcm.googleapis.com", "*.push.services.mozilla.com", "*.push.apple.com", "*.notify.windows.com",
  ]
  private static let mostBytes = 1024

  /// Whether it can be in the list.
  static func isAllowed(_ name: String) -> Bool {
    isHost(name.utf8.dropFirst(name.begins(with: "*.") ? 2 : 0))
  }

  /// What else may stand before the end of a name could lead elsewhere: `::1%x.example.org` is an address, and other letters may become these.
  private static func isHost(_ name: Substring.UTF8View) -> Bool {
    (1...253).contains(name.count) && name.allSatisfy { $0.isLetterOrDigit || $0 == 0x2D || $0 == 0x2E }
  }

  /// The origin of the address at a push service, if a host of the list has it: over TLS at the usual port, or on this machine.
  static func origin(of address: String, among names: [String]) -> String? {
    guard address.utf8.count <= mostBytes, let (endpoint, _) = HTTPEndpoint.parse(address, allowsQuery: true),
      case .tcp(let host, let port, let isSecure) = endpoint, isHost(host.utf8.dropFirst(0))
    else { return nil }
    let lower = host.lowercased()
    let isListed = names.contains { name in
      let name = name.lowercased()
      guard name.begins(with: "*.") else { return name.isExactly(lower) }
      // With its dot.
      let end = name.utf8.dropFirst()
      return lower.utf8.count > end.count && lower.utf8.suffix(end.count).elementsEqual(end)
    }
    guard isListed else { return nil }
    if isSecure, port == 443 { return "https://\(lower)" }
    // A list names this machine for a push service of one's own.
    return HTTPEndpoint.isThisMachine(lower) ? "\(isSecure ? "https" : "http")://\(lower):\(port)" : nil
  }
}

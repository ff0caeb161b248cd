// SPDX-License-Identifier: MIT

import EventLoop
import PageServer
import TOML
import UntrustedText

/// `[web]`: pages for browsers on the local network.
public struct WebSettings: Equatable, Sendable {
  public var address: ListenAddress
  /// Addresses that may connect.
  public var allowFrom: [AddressRange]
  /// Host names that browsers may use, in addition to the machine's own.
  public var names: [String]
  /// The folder with the pages.
  public var pages: String
  /// The server of map tiles; `nil`: maps have a grid.
  public var tiles: TileServer?
}

enum WebConfiguration {
  static let pages = "/usr/share/meshpost/pages"

  /// This machine, and networks without strangers: private ones (RFC 1918, RFC 4193), links (RFC 3927, RFC 4291), and
  /// those of carriers (RFC 6598), which VPNs such as Tailscale use.
  static let local = [
    "127.0.0.0/8", "::1", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10",
    "fc00::/7",
    "fe80::/10",
  ]

  /// `nil`: no pages are served.
  static func read(_ table: inout TOMLReader) -> WebSettings? {
    let listen = table.string("listen")
    let ranges = ProxyConfiguration.ranges(&table, usually: local)
    let names = table.strings("names")
    let pages = table.string("pages") ?? Self.pages
    for name in names where !isName(name) {
      table.note("names", "\"\(name)\" is not allowed: expected a host name without a port, such as \"hilltop.lan\"")
    }
    if !pages.hasPrefix("/") { table.note("pages", "\"\(pages)\" is not absolute") }
    let tiles = tiles(&table)
    guard let listen else { return nil }
    guard let address = ListenAddress(listen), address.port > 0 else {
      table.note(
        "listen", "\"\(listen)\" is not allowed: expected a numeric address and a port, such as \"0.0.0.0:8080\"")
      return nil
    }
    return WebSettings(address: address, allowFrom: ranges, names: names, pages: pages, tiles: tiles)
  }

  private static func tiles(_ table: inout TOMLReader) -> TileServer? {
    let credit = table.string("tiles_credit")
    guard let url = table.string("tiles") else { return nil }
    do throws(TileServer.Invalid) {
      return try TileServer(url, credit: credit)
    } catch {
      table.note("tiles", error.message)
      return nil
    }
  }

  private static func isName(_ name: String) -> Bool {
    (1...253).contains(name.utf8.count) && name.utf8.allSatisfy { $0.isLetterOrDigit || ".-_".utf8.contains($0) }
  }
}

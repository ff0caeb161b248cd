// SPDX-License-Identifier: MIT

import PageServer
import TOML
import UntrustedText

/// `[web]` of hub.toml: pages for people in a browser.
public struct HubWebSettings: Sendable, Equatable {
  static let pages = "/usr/share/meshpost-hub/pages"

  /// The hub's address for browsers: `https://hub.example.org`.
  public var url: String
  /// The host names that browsers may use, without ports.
  public var names: [String]
  /// The folder with the pages.
  public var pages: String
  /// Days after which an unused session ends.
  public var sessionDays: Int64
  /// `[web.oidc]`.
  public var openID: OpenIDSettings?
  /// The hosts of push services that browsers may name; `*.` before a name: all hosts below it. Empty: there are no pushes.
  public var pushServices: [String]

  /// Whether browsers send the cookie over TLS only.
  var isSecure: Bool { url.begins(with: "https://") }

  /// Checks what the settings name: the hub does not start without its pages, or without the client's secret.
  public func check() throws(HubConfiguration.Failure) { _ = try files() }

  /// The pages, after all checks.
  func files() throws(HubConfiguration.Failure) -> PageFiles {
    guard let files = PageFiles(folder: pages, page: "hub.html") else {
      throw HubConfiguration.Failure(
        description: "web.pages: no pages in \(pages): the package meshpost-hub contains them")
    }
    if let openID, let file = openID.secretFile, openID.secret == nil {
      throw HubConfiguration.Failure(description: "web.oidc.client_secret_file: \(file) cannot be read, or is empty")
    }
    return files
  }

  init?(_ table: inout TOMLReader) {
    let url = table.string("url") ?? ""
    var names = table.strings("names")
    pages = table.string("pages") ?? Self.pages
    sessionDays = table.integer("session_days", in: 1...365, default: 30)
    if !pages.hasPrefix("/") { table.note("pages", "\"\(pages)\" is not absolute") }
    pushServices = table.optionalStrings("push_services") ?? PushServices.usual
    if !pushServices.allSatisfy(PushServices.isAllowed) {
      table.note("push_services", "expected names of hosts, such as \"push.example.org\" or \"*.example.org\"")
    }
    if var inner = table.optionalTable("oidc") {
      openID = OpenIDSettings(&inner)
      table.note(from: inner)
    }
    table.finish()
    let scheme = ["https://", "http://"].first { url.begins(with: $0) }
    let host = scheme.map {
      String(decoding: url.utf8.dropFirst($0.utf8.count).prefix { $0 != 0x3A && $0 != 0x2F }, as: UTF8.self)
    }
    guard let host, !host.isEmpty, !url.utf8.dropFirst((scheme?.utf8.count ?? 0) + host.utf8.count).contains(0x2F)
    else {
      table.note(
        "url", "\"\(url)\" is not allowed: expected what browsers call the hub, such as \"https://hub.example.org\"")
      return nil
    }
    names.append(host)
    self.url = url
    self.names = names
  }
}

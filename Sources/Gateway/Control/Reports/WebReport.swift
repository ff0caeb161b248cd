// SPDX-License-Identifier: MIT

import ControlShapes
import JSON
import Transport

/// The state of the pages on the local network (`[web]`).
public struct WebReport {
  public let address: String
  /// Why nobody can use the pages; `nil`: they work.
  public let trouble: String?
  /// Whether they are served: if not, no password helps.
  public let isServed: Bool
  public let hasPassword: Bool
  /// The number of signed-in browsers.
  public let sessions: Int

  public init(address: String, trouble: String?, isServed: Bool, hasPassword: Bool, sessions: Int) {
    (self.address, self.trouble, self.isServed) = (address, trouble, isServed)
    (self.hasPassword, self.sessions) = (hasPassword, sessions)
  }

  func write(to json: inout JSONWriter) {
    let row = Shape.Web()
    json.field(row.address, address)
    json.field(row.error, trouble)
    json.field(row.hasPassword, hasPassword)
    json.field(row.sessions, Int64(sessions))
  }

  /// The finding for `doctor`.
  var finding: Finding {
    guard let trouble else { return Finding("pages", .ok, "\(sessions) browsers are signed in at http://\(address)") }
    let isWanting = isServed && !hasPassword
    let remedy =
      !isWanting
      ? "Another program uses the port (`ss -ltnp`), this machine does not have the address, or there are no pages in its folder."
      : "Set a password: meshpost web password"
    return Finding("pages", isWanting ? .warning : .failed, trouble, remedy)
  }
}

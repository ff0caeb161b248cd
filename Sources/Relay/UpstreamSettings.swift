// SPDX-License-Identifier: MIT

import EventLoop
import Store
import Timing

/// An upstream as the configuration describes it.
public struct UpstreamSettings: Sendable {
  public enum Kind: Sendable {
    case hub
    case webhook(secretFile: String?, template: BodyTemplate?, contentType: String, batches: Bool)
  }

  public var kind: Kind
  public var journal: JournalUpstream.Settings
  public var url: String
  public var tokenFile: String?
  public var authorities: String?
  public var timeout: Duration

  public init(
    kind: Kind, journal: JournalUpstream.Settings, url: String, tokenFile: String? = nil, authorities: String? = nil,
    timeout: Duration = .seconds(30)
  ) {
    self.kind = kind
    self.journal = journal
    self.url = url
    self.tokenFile = tokenFile
    self.authorities = authorities
    self.timeout = timeout
  }

  public var name: String { journal.name }

  /// Whether a text can be the URL of an upstream over HTTP.
  public static func isURL(_ text: String) -> Bool { HTTPRoad.isURL(text) }
}

extension JournalUpstream {
  public convenience init(_ settings: UpstreamSettings, store: Store, on loop: EventLoop, log: Log) throws {
    let road = HTTPRoad.Settings(
      url: settings.url, tokenFile: settings.tokenFile, authorities: settings.authorities, timeout: settings.timeout)
    let carrier: any Carrier
    switch settings.kind {
    case .hub: carrier = try HubCarrier(road, store: store, on: loop)
    case .webhook(let secretFile, let template, let contentType, let batches):
      carrier = try WebhookCarrier(
        WebhookCarrier.Settings(
          road: road, secretFile: secretFile, template: template, contentType: contentType, batches: batches),
        store: store, on: loop)
    }
    try self.init(settings.journal, carrier: carrier, store: store, on: loop, log: log)
  }
}

// SPDX-License-Identifier: MIT

/// The routes of the control socket that pages may use. Pages may not use the others: private keys, backups with secrets, pairing, new upstreams, raw
/// frames.
public enum PassedRoutes {
  public enum AnswerForm: Sendable, Equatable {
    /// A whole answer.
    case whole
    /// Rows, which may arrive piece by piece.
    case rows
    /// An endless stream.
    case stream
  }

  private static let reading: [String: AnswerForm] = [
    "/v1/status": .whole, "/v1/sync": .whole, "/v1/messages": .rows, "/v1/contacts": .rows, "/v1/channels": .rows,
    "/v1/readings": .rows, "/v1/radios": .rows, "/v1/journal": .rows, "/v1/packets": .stream,
    "/v1/conversations": .rows, "/v1/blocks": .rows, "/v1/live": .stream, "/v1/resolve": .whole, "/v1/outgoing": .rows,
    "/v1/contacts/export": .whole, "/v1/radio": .whole, "/v1/radio/presets": .whole, "/v1/documents": .whole,
    "/v1/outbox": .whole, "/v1/doctor": .whole, "/v1/alerts": .whole, "/v1/alerts/rules": .whole,
    "/v1/outgoing/attempts": .whole, "/v1/airtime": .whole,
  ]

  private static let changing: Set<String> = [
    "/v1/sync", "/v1/send", "/v1/react", "/v1/outgoing/retry", "/v1/outgoing/cancel", "/v1/outgoing/adopt",
    "/v1/conversations/read", "/v1/conversations/level", "/v1/blocks/add", "/v1/blocks/remove",
    "/v1/contacts/add", "/v1/contacts/remove",
    "/v1/contacts/import", "/v1/contacts/share", "/v1/contacts/favourite",
    "/v1/contacts/path", "/v1/channels/add", "/v1/channels/remove", "/v1/channels/region", "/v1/channels/relay",
    "/v1/channels/data",
    "/v1/node/login", "/v1/node/logout", "/v1/node/status", "/v1/node/telemetry", "/v1/node/neighbours",
    "/v1/node/region", "/v1/node/regions", "/v1/radio/regions", "/v1/node/trace", "/v1/node/cli", "/v1/node/clock",
    "/v1/node/alias", "/v1/node/note", "/v1/node/tags", "/v1/radio/set",
    "/v1/radio/advert", "/v1/documents", "/v1/outbox/retry", "/v1/outbox/drop", "/v1/outbox/resume",
    "/v1/upstreams/pause", "/v1/upstreams/resume", "/v1/upstreams/test", "/v1/alerts/acknowledge",
  ]

  /// `nil`: pages may not use this route.
  public static func way(_ method: String, _ path: String) -> AnswerForm? {
    switch method {
    case "GET": reading[path]
    case "POST": changing.contains(path) ? .whole : nil
    default: nil
    }
  }
}

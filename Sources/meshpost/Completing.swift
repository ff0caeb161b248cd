// SPDX-License-Identifier: MIT

import ArgumentParser
import JSON

/// Names for a shell's completion, as the gateway knows them; none when it does not answer.
enum Completing {
  static let nodes = CompletionKind.custom { _, _, _ in names("/v1/contacts", "name") }
  static let channels = CompletionKind.custom { _, _, _ in names("/v1/channels", "name") }
  static let everybody = CompletionKind.custom { _, _, _ in
    names("/v1/channels", "name") + names("/v1/contacts", "name")
  }
  static let upstreams = CompletionKind.custom { _, _, _ in
    // `try?`: nothing to complete with.
    let outbox = (try? client)?.quietly("/v1/outbox")
    return outbox?["upstreams"]?.array?.compactMap { $0["name"]?.string } ?? []
  }

  private static var client: ControlClient {
    get throws { ControlClient(try Connection.parse([])) }
  }

  private static func names(_ target: String, _ field: String) -> [String] {
    // `try?`: nothing to complete with.
    ((try? client)?.quietRows(target) ?? []).compactMap { $0[field]?.string }.filter { !$0.isEmpty }.map(Show.clean)
  }
}

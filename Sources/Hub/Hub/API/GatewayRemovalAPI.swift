// SPDX-License-Identifier: MIT

import Hummingbird

/// Removes a gateway that is gone for good, as `meshpost-hub gateways remove` does. Source: docs/hub.md.
extension HubAPI {
  /// A hub ends what was begun with a token within this time.
  private static let tokensEnd: Duration = .seconds(2)

  func removeGateway(_ call: Call) async throws -> Response {
    let gateway = call.gateway
    // The hub reads such tokens, and may not change them.
    guard !access.tokenHolders.own.contains(gateway) else {
      return Self.refusal(
        .conflict,
        "\(gateway) has a token of its own. Remove one that stands in hub.toml, and reload the hub; one in gateway_tokens goes with "
          + "`sudo meshpost-hub gateways remove \(gateway)`, which also removes the gateway")
    }
    let ended = try await stores.writer.endBindings(of: gateway)
    if ended > 0 {
      access.load(try await stores.lookups.tokenBindings())
      connections.close { access.allows($0) }
      guard peerHubs == nil else {
        return Self.refusal(
          .conflict, "a token that was bound to \(gateway) has ended: reload the other hubs, and repeat this")
      }
      try await Task.sleep(for: Self.tokensEnd)
    }
    guard await !links.isLinked(gateway) else {
      return Self.refusal(.conflict, "\(gateway) is linked: end what lets it in, and repeat this")
    }
    // Before the first row: what is interrupted is deleted in part.
    try await note("gateway", call, ["removed": true])
    let removed = try await stores.maintenance.removeGateway(gateway) { took in
      // The hub works for as long as the step took.
      try await Task.sleep(for: max(took, .milliseconds(10)))
    }
    HubLog.write(.notice, "\(call.author) removed the gateway \(gateway)")
    guard try await stores.lookups.gateways(gateway).isEmpty else {
      return Self.refusal(.conflict, "\(gateway) has come again meanwhile: end what lets it in, and repeat this")
    }
    return Self.json(["events": removed.events, "messages": removed.messages])
  }
}

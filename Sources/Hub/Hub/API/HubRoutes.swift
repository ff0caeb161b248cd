// SPDX-License-Identifier: MIT

/// All requests of the API that need a token or a session, with their parameters and answers; `/openapi.json` is made from them.
extension HubAPI {
  var routes: [HubRoute] { readers + gatewayReaders + operators + ofGateways + (web == nil ? [] : ofPages) }

  // MARK: Parameters

  private static let limit = HubRoute.Parameter.whole("limit", "Rows of a page: 1 to 1000, 100 without it.")
  private static let afterText = HubRoute.Parameter.text("after", "The `next` of the page before.")
  private static let newestFirst = [
    HubRoute.Parameter.whole("after", "The `next` of the page before, of a list with the oldest first."),
    .whole("before", "The `next` of the page before, of a list with the newest first."),
    HubRoute.Parameter(
      name: "order", shape: .oneOf(["newest", "oldest"]),
      summary: "Which end the list begins at; `before` means newest."),
    limit, .whole("since", "Only as new: milliseconds since 1970."),
    .whole("until", "Only as old: milliseconds since 1970."), words,
  ]
  private static let words = HubRoute.Parameter.text(
    "q", "Words that have to be there, all of them, in any script; upper and lower case are the same.",
    most: SearchTerms.mostBytes)
  private static let channel = HubRoute.Parameter.text("channel", "A channel's digest.")
  private static let wait = HubRoute.Parameter.whole("wait_s", "Seconds to wait for its end: 0 to 60.")

  // MARK: Shapes

  private static let heard = Shape.object([
    ("gateway", .text), ("at", .whole), ("seq?", .whole), ("snr?", .number), ("hops?", .number),
  ])
  private static let message = Shape.object([
    ("position", .whole), ("at?", .whole), ("arrived?", .whole), ("body", .object([])), ("heard", .list(heard)),
  ])
  private static let place: [(String, Shape)] = [("lat?", .number), ("lon?", .number)]
  private static let event = Shape.object([
    ("id", .whole), ("epoch", .text), ("seq", .whole), ("at", .whole), ("trusted", .truth), ("kind", .text),
    ("body", .object([])),
  ])
  private static let fleetRow = Shape.object([
    ("gateway", .text), ("radio?", .text), ("name", .text), ("linked", .truth), ("link_since?", .whole),
    ("last_seen", .whole), ("events", .whole), ("version?", .text), ("link?", .text), ("model?", .text),
    ("radio_key?", .text), ("radio_state?", .text), ("sync?", .text), ("clock_trusted?", .truth),
    ("battery_mv?", .whole), ("power?", .oneOf(["low", "ok"])), ("pending?", .whole), ("error?", .text),
    ("store_error?", .text),
    ("position?", .object([("lat", .number), ("lon", .number)])), ("note?", .text), ("tags?", .list(.text)),
    ("messages_today", .whole), ("nodes", .whole),
    (
      "last_message?",
      .object([("at", .whole), ("text?", .text), ("sender_name?", .text), ("channel_name?", .text)])
    ), ("alerts", .whole), ("state_at?", .whole),
  ])
  private static let command = Shape.object([
    ("id", .text), ("state", .oneOf(["queued", "done", "refused", "expired"])), ("command?", .any), ("answer?", .any),
    ("by?", .text), ("created_at?", .whole), ("ended_at?", .whole),
  ])
  private static let ownedCommand = Shape.object([
    ("gateway", .text), ("id", .text), ("state", .oneOf(["queued", "done", "refused", "expired"])), ("command?", .text),
    ("body", .object([])), ("answer?", .any), ("author", .text), ("created_at", .whole), ("ended_at?", .whole),
  ])
  private static let document = Shape.object([
    ("key", .text), ("value", .any), ("updated_at", .whole), ("by_hub", .truth),
  ])
  private static let alert = Shape.object([
    ("id", .whole), ("gateway?", .text), ("rule", .text), ("subject?", .text), ("text", .text), ("began_at", .whole),
    ("ended_at?", .whole), ("acknowledged_at?", .whole), ("acknowledged_by?", .text), ("note?", .text),
  ])
  private static let ok = Shape.object([("ok", .truth)])
  private static let acknowledged = Shape.object([("acknowledged", .whole)])

  private static func page(_ name: String, _ row: Shape, next: Shape = .whole) -> Shape {
    .object([(name, .list(row)), ("next?", next)])
  }

  // MARK: Readers of all gateways

  private var readers: [HubRoute] {
    [
      HubRoute(
        method: .get, path: "/v1/fleet", operation: .read, summary: "Each gateway with what is known of it, by id.",
        parameters: [Self.afterText, Self.limit], answers: [200: Self.page("gateways", Self.fleetRow, next: .text)],
        handler: { try await fleet($0) }),
      HubRoute(
        method: .get, path: "/v1/fleet/summary", operation: .read, summary: "The fleet in figures.",
        answers: [
          200: .object([
            ("gateways", .whole), ("linked", .whole), ("silent", .whole), ("alerts", .whole),
            ("messages_today", .whole),
            ("hours", .list(.object([("at", .whole), ("messages", .whole)]))),
          ])
        ], handler: { try await fleetSummary($0) }),
      HubRoute(
        method: .get, path: "/v1/messages", operation: .read,
        summary: "Messages of all gateways, each once, with who heard it.",
        parameters: Self.newestFirst + [Self.channel, .text("gateway", "Only what this one heard.")],
        answers: [200: Self.page("messages", Self.message)], handler: { try await joined($0) }),
      HubRoute(
        method: .get, path: "/v1/messages/{position}", operation: .read, summary: "One message.",
        answers: [200: Self.message], refusals: [404], handler: { try await oneMessage($0) }),
      HubRoute(
        method: .get, path: "/v1/channels", operation: .read,
        summary: "Channels of any gateway, the newest message first.",
        answers: [
          200: .object([
            (
              "channels",
              .list(.object([("channel", .text), ("name?", .text), ("gateways", .whole), ("newest_at?", .whole)]))
            )
          ])
        ], handler: { try await channels($0) }),
      HubRoute(
        method: .get, path: "/v1/nodes", operation: .read,
        summary: "Nodes of all gateways, by key, with who heard them.",
        parameters: [Self.afterText, Self.limit, Self.words],
        answers: [
          200: Self.page(
            "nodes",
            .object([("key", .text), ("name", .text), ("kind", .text)] + Self.place + [("heard", .list(Self.heard))]),
            next: .text)
        ], handler: { try await nodes($0) }),
      HubRoute(
        method: .get, path: "/v1/coverage", operation: .read, summary: "Which gateway hears which node.",
        parameters: [Self.afterText, Self.limit, .whole("since", "Only what was heard as late.")],
        answers: [
          200: .object([
            ("gateways", .list(.object([("gateway", .text), ("name", .text)] + Self.place))),
            (
              "links",
              .list(
                .object(
                  [("gateway", .text), ("node", .text), ("name?", .text), ("kind?", .text)] + Self.place
                    + [("at", .whole), ("snr?", .number), ("hops?", .whole)]))
            ), ("next?", .text),
          ])
        ], handler: { try await coverage($0) }),
      HubRoute(
        method: .get, path: "/v1/commands", operation: .read, summary: "Commands to all gateways, the newest first.",
        parameters: [.text("before", "The `next` of the page before."), Self.limit],
        answers: [200: Self.page("commands", Self.ownedCommand, next: .text)], handler: { try await allCommands($0) }),
      HubRoute(
        method: .get, path: "/v1/alerts", operation: .read, summary: "Alerts of gateways and hubs, the newest first.",
        parameters: [
          HubRoute.Parameter(
            name: "state", shape: .oneOf(["all", "open"]), summary: "Whether also those that are over."),
          .text("gateway", "Only of this one."), .whole("before", "The `next` of the page before."), Self.limit,
        ], answers: [200: Self.page("alerts", Self.alert)], handler: { try await alertList($0) }),
      HubRoute(
        method: .get, path: "/v1/alerts/rules", operation: .read, summary: "The hub's own rules, each as a sentence.",
        answers: [200: .object([("rules", .list(.object([("rule", .text), ("sentence", .text)])))])],
        handler: { try await alertRules($0) }),
      HubRoute(
        method: .get, path: "/v1/live", operation: .read, summary: "What changes, as server-sent events.",
        parameters: [
          .whole("after", "The last message that the reader has; as the header Last-Event-ID."),
          .whole("arrived", "When that came to the hub, by its `arrived`."),
        ],
        answers: [200: .text], isStream: true, handler: { try await follow($0) }),
      HubRoute(
        method: .get, path: "/v1/gateways", operation: .read, summary: "Gateways, by id.",
        parameters: [Self.afterText, Self.limit],
        answers: [200: Self.page("gateways", .object([("gateway", .text), ("epoch", .text)]), next: .text)],
        handler: { try await gateways($0) }),
    ]
  }

  // MARK: Readers of one gateway

  private var gatewayReaders: [HubRoute] {
    let id = "/v1/gateways/{id}"
    return [
      HubRoute(
        method: .get, path: id, operation: .greet, summary: "A gateway, and how much of its journal is here.",
        parameters: [.text("epoch", "The newest without it.")]
          + EventBatch.Lane.allCases.map { .whole($0.rawValue, "Of this lane only what is here up to this event.") },
        answers: [200: .object([("gateway", .text), ("epoch", .text), ("linked", .truth)])], refusals: [404],
        handler: { try await greet($0) }),
      HubRoute(
        method: .get, path: id + "/events", operation: .read, summary: "Its journal.",
        parameters: Self.newestFirst + [.text("kind", "Only of this kind."), Self.channel],
        answers: [200: Self.page("events", Self.event)], refusals: [404],
        handler: { try await ifKnown($0) { try await page($0, kind: nil) } }),
      HubRoute(
        method: .get, path: id + "/messages", operation: .read, summary: "Messages that it received.",
        parameters: Self.newestFirst + [Self.channel], answers: [200: Self.page("messages", Self.event)],
        refusals: [404],
        handler: { try await ifKnown($0) { try await page($0, kind: "message") } }),
      HubRoute(
        method: .get, path: id + "/contacts", operation: .read, summary: "The newest state of each node, by key.",
        parameters: [Self.afterText, Self.limit], answers: [200: Self.page("contacts", .object([]), next: .text)],
        refusals: [404],
        handler: { try await ifKnown($0) { try await contacts($0) } }),
      HubRoute(
        method: .get, path: id + "/state", operation: .read, summary: "What it last said of itself, by name.",
        answers: [200: .object([])], refusals: [404], handler: { try await ifKnown($0) { try await states($0) } }),
      HubRoute(
        method: .get, path: id + "/commands", operation: .read, summary: "Commands to it, the newest first.",
        parameters: [Self.limit], answers: [200: .object([("commands", .list(Self.command))])], refusals: [404],
        handler: { try await commands($0) }),
      HubRoute(
        method: .get, path: id + "/commands/{command}", operation: .read, summary: "One command.",
        parameters: [Self.wait], answers: [200: Self.command, 202: Self.command], refusals: [404],
        handler: { try await oneCommand($0) }),
      HubRoute(
        method: .get, path: id + "/documents", operation: .read, summary: "Its documents, by key.",
        parameters: [Self.afterText, Self.limit], answers: [200: Self.page("documents", Self.document, next: .text)],
        refusals: [404],
        handler: { try await ifKnown($0) { try await documents($0) } }),
    ]
  }

  private var operators: [HubRoute] {
    let id = "/v1/gateways/{id}"
    return [
      HubRoute(
        method: .post, path: "/v1/alerts/{alert}/acknowledge", operation: .command,
        summary: "Somebody has seen an alert.",
        body: .object([("note?", .text(most: AlertReport.textBytes))]), answers: [200: Self.alert], refusals: [404],
        handler: { try await acknowledgeAlert($0) }),
      HubRoute(
        method: .post, path: id + "/commands", operation: .command, summary: "A command to it.",
        parameters: [Self.wait],
        body: .object([("command", .text), ("id?", .text(most: 48)), ("queue?", .truth)]),
        answers: [200: Self.command, 202: Self.command], refusals: [404, 413, 504], handler: { try await command($0) }),
      HubRoute(
        method: .put, path: id + "/documents/**", operation: .command, summary: "Edits a document.",
        body: .object([("value", .any)]), answers: [200: Self.document], refusals: [404, 422],
        handler: { try await ifKnown($0) { try await editDocument($0) } }),
      HubRoute(
        method: .delete, path: id + "/documents/**", operation: .command, summary: "Deletes a document.",
        answers: [200: Self.document], refusals: [404],
        handler: { try await ifKnown($0) { try await editDocument($0) } }),
    ]
  }

  // MARK: People

  /// Only with `[web]`.
  private var ofPages: [HubRoute] {
    let roles = Shape.oneOf(HubPerson.Role.allCases.map(\.rawValue))
    return [
      HubRoute(
        method: .get, path: "/v1/people", operation: .administer, summary: "Lists the people who may use the pages.",
        answers: [
          200: .object([
            (
              "people",
              .list(
                .object([
                  ("name", .text), ("role", roles), ("way", .text), ("created_at", .whole), ("last_used?", .whole),
                ]))
            )
          ])
        ], handler: { try await people($0) }),
      HubRoute(
        method: .put, path: "/v1/people/{name}", operation: .administer, summary: "Adds somebody, or changes them.",
        body: .object([("role?", roles), ("password?", .text)]), answers: [200: Self.ok], refusals: [404, 409],
        handler: { try await setPerson($0) }),
      HubRoute(
        method: .delete, path: "/v1/people/{name}", operation: .administer, summary: "Removes somebody.",
        answers: [200: Self.ok], refusals: [404, 409], handler: { try await removePerson($0) }),
      HubRoute(
        method: .get, path: "/v1/tokens", operation: .administer, summary: "Lists the tokens.",
        answers: [
          200: .object([
            (
              "tokens",
              .list(
                .object([
                  ("name", .text), ("gateway", .text), ("access", .text), ("gateways?", .list(.text)),
                  ("last_used?", .whole),
                ]))
            )
          ])
        ], handler: { try await tokens($0) }),
      HubRoute(
        method: .get, path: "/v1/audit", operation: .administer, summary: "Who did what, the newest first.",
        parameters: [.whole("before", "The `next` of the page before."), Self.limit],
        answers: [
          200: Self.page(
            "audit",
            .object([
              ("id", .whole), ("at", .whole), ("who", .text), ("way", .text), ("what", .text), ("gateway?", .text),
              ("detail", .object([])),
            ]))
        ], handler: { try await auditRecords($0) }),
    ]
  }

  // MARK: Gateways

  private var ofGateways: [HubRoute] {
    let id = "/v1/gateways/{id}"
    return [
      HubRoute(
        method: .post, path: id + "/events", operation: .write, summary: "A batch of its journal.",
        body: .object([
          ("epoch", .text), ("lane?", .oneOf(["messages", "nodes", "packets"])),
          (
            "events",
            .list(
              .object([
                ("seq", .whole), ("at", .whole), ("trusted", .truth), ("kind", .text), ("body", .object([])),
              ]))
          ),
        ]), answers: [200: Self.acknowledged], refusals: [413, 415, 422], handler: { try await take($0) }),
      HubRoute(
        method: .get, path: id + "/link", operation: .write, summary: "Its link: a WebSocket.", answers: [:],
        refusals: [409, 426], handler: { await refuseLink($0) }),
      HubRoute(
        method: .get, path: id + "/updates", operation: .write, summary: "What is new for it.",
        parameters: [
          .text("buckets", "How far each of these is."),
          .text("gateways", "With that: of messages only what these heard is taken; without it that stays as it is."),
          .whole("lanes", "1: how much of its journal is here, too."), .text("bucket", "A page of this."),
          .whole("after", "Behind this."),
          .whole("at", "When that was made."), .whole("since", "All before is known."), .whole("until", "To here."),
          .whole(
            "most",
            "Of messages: about so many in all pages to there, of each gateway its share; `left_out` in the answer tells of the others."
          ),
          Self.limit,
        ], answers: [200: .object([])], handler: { try await updates($0) }),
      HubRoute(
        method: .put, path: id + "/state/{name}", operation: .write, summary: "What it says of itself.",
        body: .object([]),
        answers: [200: Self.ok], refusals: [413], handler: { try await setState($0) }),
    ]
  }
}

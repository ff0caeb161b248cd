// SPDX-License-Identifier: MIT

/// All requests of the API that need a token or a session, with their parameters and answers; `/openapi.json` is made from them.
extension HubAPI {
  var routes: [HubRoute] { readers + gatewayReaders + operators + ofGateways + (web == nil ? [] : ofPages) }

  // MARK: Parameters

  private static let limit = HubRoute.Parameter.whole("limit", "Most rows of a page: 1 to 1000, by default 100.")
  private static let afterText = HubRoute.Parameter.text("after", "`next` of the previous page.")
  private static let newestFirst = [
    HubRoute.Parameter.whole("after", "`next` of the previous page, for a list with the oldest first."),
    .whole("before", "`next` of the previous page, for a list with the newest first."),
    HubRoute.Parameter(
      name: "order", shape: .oneOf(["newest", "oldest"]),
      summary: "The end at which the list begins; `before` implies newest."),
    limit, .whole("since", "Only rows of this time or later: milliseconds since 1970."),
    .whole("until", "Only rows of this time or earlier: milliseconds since 1970."), words,
  ]
  private static let words = HubRoute.Parameter.text(
    "q", "Only rows with all of these words, in any script and case.",
    most: SearchTerms.mostBytes)
  private static let channel = HubRoute.Parameter.text("channel", "A channel's digest.")
  private static let wait = HubRoute.Parameter.whole("wait_s", "Seconds to wait for the command's end: 0 to 60.")

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
        method: .get, path: "/v1/fleet", operation: .read, summary: "Each gateway with its state, by id.",
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
        summary: "Messages of all gateways, each once, with its hearers.",
        parameters: Self.newestFirst + [Self.channel, .text("gateway", "Only messages that this gateway heard.")],
        answers: [200: Self.page("messages", Self.message)], handler: { try await joined($0) }),
      HubRoute(
        method: .get, path: "/v1/messages/{position}", operation: .read, summary: "One message.",
        answers: [200: Self.message], refusals: [404], handler: { try await oneMessage($0) }),
      HubRoute(
        method: .get, path: "/v1/channels", operation: .read,
        summary: "Channels of all gateways, by their newest message.",
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
        summary: "Nodes of all gateways, by key, with their hearers.",
        parameters: [Self.afterText, Self.limit, Self.words],
        answers: [
          200: Self.page(
            "nodes",
            .object([("key", .text), ("name", .text), ("kind", .text)] + Self.place + [("heard", .list(Self.heard))]),
            next: .text)
        ], handler: { try await nodes($0) }),
      HubRoute(
        method: .get, path: "/v1/coverage", operation: .read, summary: "The nodes that each gateway hears.",
        parameters: [
          Self.afterText, Self.limit,
          .whole("since", "Only nodes that were heard at this time or later: milliseconds since 1970."),
        ],
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
        parameters: [.text("before", "`next` of the previous page."), Self.limit],
        answers: [200: Self.page("commands", Self.ownedCommand, next: .text)], handler: { try await allCommands($0) }),
      HubRoute(
        method: .get, path: "/v1/alerts", operation: .read, summary: "Alerts of gateways and hubs, the newest first.",
        parameters: [
          HubRoute.Parameter(
            name: "state", shape: .oneOf(["all", "open"]), summary: "`all`: also alerts that have ended."),
          .text("gateway", "Only alerts of this gateway."), .whole("before", "`next` of the previous page."),
          Self.limit,
        ], answers: [200: Self.page("alerts", Self.alert)], handler: { try await alertList($0) }),
      HubRoute(
        method: .get, path: "/v1/alerts/rules", operation: .read, summary: "The hub's own rules, each as a sentence.",
        answers: [200: .object([("rules", .list(.object([("rule", .text), ("sentence", .text)])))])],
        handler: { try await alertRules($0) }),
      HubRoute(
        method: .get, path: "/v1/live", operation: .read, summary: "Changes, as server-sent events.",
        parameters: [
          .whole("after", "The reader's last message, like the header Last-Event-ID."),
          .whole("arrived", "`arrived` of that message."),
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
        method: .get, path: id, operation: .greet, summary: "A gateway, and the stored part of its journal.",
        parameters: [.text("epoch", "An epoch; by default the newest.")]
          + EventBatch.Lane.allCases.map { .whole($0.rawValue, "The stored part of this lane up to this event.") },
        answers: [200: .object([("gateway", .text), ("epoch", .text), ("linked", .truth)])], refusals: [404],
        handler: { try await greet($0) }),
      HubRoute(
        method: .get, path: id + "/events", operation: .read, summary: "The gateway's journal.",
        parameters: Self.newestFirst + [.text("kind", "Only events of this kind."), Self.channel],
        answers: [200: Self.page("events", Self.event)], refusals: [404],
        handler: { try await ifKnown($0) { try await page($0, kind: nil) } }),
      HubRoute(
        method: .get, path: id + "/messages", operation: .read, summary: "Messages that the gateway received.",
        parameters: Self.newestFirst + [Self.channel], answers: [200: Self.page("messages", Self.event)],
        refusals: [404],
        handler: { try await ifKnown($0) { try await page($0, kind: "message") } }),
      HubRoute(
        method: .get, path: id + "/contacts", operation: .read, summary: "The newest state of each node, by key.",
        parameters: [Self.afterText, Self.limit], answers: [200: Self.page("contacts", .object([]), next: .text)],
        refusals: [404],
        handler: { try await ifKnown($0) { try await contacts($0) } }),
      HubRoute(
        method: .get, path: id + "/state", operation: .read, summary: "The gateway's last states, by name.",
        answers: [200: .object([])], refusals: [404], handler: { try await ifKnown($0) { try await states($0) } }),
      HubRoute(
        method: .get, path: id + "/commands", operation: .read, summary: "Commands to the gateway, the newest first.",
        parameters: [Self.limit], answers: [200: .object([("commands", .list(Self.command))])], refusals: [404],
        handler: { try await commands($0) }),
      HubRoute(
        method: .get, path: id + "/commands/{command}", operation: .read, summary: "One command.",
        parameters: [Self.wait], answers: [200: Self.command, 202: Self.command], refusals: [404],
        handler: { try await oneCommand($0) }),
      HubRoute(
        method: .get, path: id + "/documents", operation: .read, summary: "The gateway's documents, by key.",
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
        summary: "Acknowledges an alert.",
        body: .object([("note?", .text(most: AlertReport.textBytes))]), answers: [200: Self.alert], refusals: [404],
        handler: { try await acknowledgeAlert($0) }),
      HubRoute(
        method: .post, path: id + "/commands", operation: .command, summary: "Sends a command to the gateway.",
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
        method: .put, path: "/v1/people/{name}", operation: .administer, summary: "Adds a person, or changes one.",
        body: .object([("role?", roles), ("password?", .text)]), answers: [200: Self.ok], refusals: [404, 409],
        handler: { try await setPerson($0) }),
      HubRoute(
        method: .delete, path: "/v1/people/{name}", operation: .administer, summary: "Removes a person.",
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
        method: .get, path: "/v1/audit", operation: .administer,
        summary: "Actions of people and tokens, the newest first.",
        parameters: [.whole("before", "`next` of the previous page."), Self.limit],
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
        method: .post, path: id + "/events", operation: .write, summary: "Stores a batch of the gateway's journal.",
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
        method: .get, path: id + "/link", operation: .write, summary: "Opens the gateway's link: a WebSocket.",
        answers: [:],
        refusals: [409, 426], handler: { await refuseLink($0) }),
      HubRoute(
        method: .get, path: id + "/updates", operation: .write, summary: "New updates for the gateway.",
        parameters: [
          .text("buckets", "The states of these buckets."),
          .text(
            "gateways",
            "With `buckets`: from now on only messages that these gateways heard. Without it nothing changes."),
          .whole("lanes", "1: also the stored part of the journal."), .text("bucket", "A page of this bucket."),
          .whole("after", "Only updates behind this number."),
          .whole("at", "The time of the update `after`."),
          .whole("since", "The gateway has all updates before this time."),
          .whole("until", "Only updates up to this number."),
          .whole(
            "most",
            "Most messages in all pages, about, shared among their gateways; `left_out` in the answer counts the others."
          ),
          Self.limit,
        ], answers: [200: .object([])], handler: { try await updates($0) }),
      HubRoute(
        method: .put, path: id + "/state/{name}", operation: .write, summary: "Stores a state of the gateway.",
        body: .object([]),
        answers: [200: Self.ok], refusals: [413], handler: { try await setState($0) }),
    ]
  }
}

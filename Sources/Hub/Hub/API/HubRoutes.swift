// SPDX-License-Identifier: MIT

import OpenAPI

/// All requests of the API that need a token or a session, with their parameters and answers; `/openapi.json` is made from them.
extension HubAPI {
  var routes: [HubRoute] { readers + gatewayReaders + operators + ofGateways + (web == nil ? [] : ofPages) }

  // MARK: Parameters

  private static let limit = OpenAPI.Parameter.whole("limit", "Most rows of a page: 1 to 1000, by default 100.")
  private static let afterText = OpenAPI.Parameter.text("after", "`next` of the previous page.")
  private static let newestFirst = [
    OpenAPI.Parameter.whole("after", "`next` of the previous page, for a list with the oldest first."),
    .whole("before", "`next` of the previous page, for a list with the newest first."),
    OpenAPI.Parameter(
      "order?", .oneOf(["newest", "oldest"]), "The end at which the list begins; `before` implies newest."),
    limit, .whole("since", "Only rows of this time or later: milliseconds since 1970."),
    .whole("until", "Only rows of this time or earlier: milliseconds since 1970."), words,
  ]
  private static let words = OpenAPI.Parameter(
    "q?", .text(most: SearchTerms.mostBytes), "Only rows with all of these words, in any script and case.")
  private static let channel = OpenAPI.Parameter.text("channel", "A channel's digest.")
  private static let wait = OpenAPI.Parameter.whole("wait_s", "Seconds to wait for the command's end: 0 to 60.")

  // MARK: Shapes

  private static let heard = Schema.object([
    ("gateway", .text), ("at", .whole), ("seq?", .whole), ("snr?", .number), ("hops?", .number),
  ])
  private static let message = Schema.object([
    ("position", .whole), ("at?", .whole), ("arrived?", .whole), ("body", .object([])), ("heard", .list(heard)),
  ])
  private static let place: [(String, Schema)] = [("lat?", .number), ("lon?", .number)]
  private static let event = Schema.object([
    ("id", .whole), ("epoch", .text), ("seq", .whole), ("at", .whole), ("trusted", .truth), ("kind", .text),
    ("body", .object([])),
  ])
  private static let fleetRow = Schema.object([
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
  private static let command = Schema.object([
    ("id", .text), ("state", .oneOf(["queued", "done", "refused", "expired"])), ("command?", .any), ("answer?", .any),
    ("by?", .text), ("created_at?", .whole), ("ended_at?", .whole),
  ])
  private static let ownedCommand = Schema.object([
    ("gateway", .text), ("id", .text), ("state", .oneOf(["queued", "done", "refused", "expired"])), ("command?", .text),
    ("body", .object([])), ("answer?", .any), ("author", .text), ("created_at", .whole), ("ended_at?", .whole),
  ])
  private static let document = Schema.object([
    ("key", .text), ("value", .any), ("updated_at", .whole), ("by_hub", .truth),
  ])
  private static let alert = Schema.object([
    ("id", .whole), ("gateway?", .text), ("rule", .text), ("subject?", .text), ("text", .text), ("began_at", .whole),
    ("ended_at?", .whole), ("acknowledged_at?", .whole), ("acknowledged_by?", .text), ("note?", .text),
  ])
  private static let ok = Schema.object([("ok", .truth)])
  private static let acknowledged = Schema.object([("acknowledged", .whole)])

  private static func page(_ name: String, _ row: Schema, next: Schema = .whole) -> Schema {
    .object([(name, .list(row)), ("next?", next)])
  }

  // MARK: Readers of all gateways

  private var readers: [HubRoute] {
    [
      HubRoute(
        .get, "/v1/fleet", .read, "Each gateway with its state, by id.", parameters: [Self.afterText, Self.limit],
        answers: [200: Self.page("gateways", Self.fleetRow, next: .text)], handler: { try await fleet($0) }),
      HubRoute(
        .get, "/v1/fleet/summary", .read, "The fleet in figures.",
        answers: [
          200: .object([
            ("gateways", .whole), ("linked", .whole), ("silent", .whole), ("alerts", .whole),
            ("messages_today", .whole), ("hours", .list(.object([("at", .whole), ("messages", .whole)]))),
          ])
        ], handler: { try await fleetSummary($0) }),
      HubRoute(
        .get, "/v1/messages", .read, "Messages of all gateways, each once, with its hearers.",
        parameters: Self.newestFirst + [Self.channel, .text("gateway", "Only messages that this gateway heard.")],
        answers: [200: Self.page("messages", Self.message)], handler: { try await joined($0) }),
      HubRoute(
        .get, "/v1/messages/{position}", .read, "One message.", answers: [200: Self.message], refusals: [404],
        handler: { try await oneMessage($0) }),
      HubRoute(
        .get, "/v1/channels", .read, "Channels of all gateways, by their newest message.",
        answers: [
          200: .object([
            (
              "channels",
              .list(.object([("channel", .text), ("name?", .text), ("gateways", .whole), ("newest_at?", .whole)]))
            )
          ])
        ], handler: { try await channels($0) }),
      HubRoute(
        .get, "/v1/nodes", .read, "Nodes of all gateways, by key, with their hearers.",
        parameters: [Self.afterText, Self.limit, Self.words],
        answers: [
          200: Self.page(
            "nodes",
            .object([("key", .text), ("name", .text), ("kind", .text)] + Self.place + [("heard", .list(Self.heard))]),
            next: .text)
        ], handler: { try await nodes($0) }),
      HubRoute(
        .get, "/v1/coverage", .read, "The nodes that each gateway hears.",
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
                  [("gateway", .text), ("node", .text), ("name?", .text), ("kind?", .text)] + Self.place + [
                    ("at", .whole), ("snr?", .number), ("hops?", .whole),
                  ]))
            ), ("next?", .text),
          ])
        ], handler: { try await coverage($0) }),
      HubRoute(
        .get, "/v1/commands", .read, "Commands to all gateways, the newest first.",
        parameters: [.text("before", "`next` of the previous page."), Self.limit],
        answers: [200: Self.page("commands", Self.ownedCommand, next: .text)], handler: { try await allCommands($0) }),
      HubRoute(
        .get, "/v1/alerts", .read, "Alerts of gateways and hubs, the newest first.",
        parameters: [
          OpenAPI.Parameter("state?", .oneOf(["all", "open"]), "`all`: also alerts that have ended."),
          .text("gateway", "Only alerts of this gateway."), .whole("before", "`next` of the previous page."),
          Self.limit,
        ], answers: [200: Self.page("alerts", Self.alert)], handler: { try await alertList($0) }),
      HubRoute(
        .get, "/v1/alerts/rules", .read, "The hub's own rules, each as a sentence.",
        answers: [200: .object([("rules", .list(.object([("rule", .text), ("sentence", .text)])))])],
        handler: { try await alertRules($0) }),
      HubRoute(
        .get, "/v1/live", .read, "Changes, as server-sent events.",
        parameters: [
          .whole("after", "The reader's last message, like the header Last-Event-ID."),
          .whole("arrived", "`arrived` of that message."),
        ], answers: [200: .text], isStream: true, handler: { try await follow($0) }),
      HubRoute(
        .get, "/v1/gateways", .read, "Gateways, by id.", parameters: [Self.afterText, Self.limit],
        answers: [200: Self.page("gateways", .object([("gateway", .text), ("epoch", .text)]), next: .text)],
        handler: { try await gateways($0) }),
    ]
  }

  // MARK: Readers of one gateway

  private var gatewayReaders: [HubRoute] {
    let id = "/v1/gateways/{id}"
    return [
      HubRoute(
        .get, id, .greet, "A gateway, and the stored part of its journal.",
        parameters: [.text("epoch", "An epoch; by default the newest.")]
          + EventBatch.Lane.allCases.map { .whole($0.rawValue, "The stored part of this lane up to this event.") },
        answers: [200: .object([("gateway", .text), ("epoch", .text), ("linked", .truth)])], refusals: [404],
        handler: { try await greet($0) }),
      HubRoute(
        .get, id + "/events", .read, "The gateway's journal.",
        parameters: Self.newestFirst + [.text("kind", "Only events of this kind."), Self.channel],
        answers: [200: Self.page("events", Self.event)], refusals: [404],
        handler: { try await ifKnown($0) { try await page($0, kind: nil) } }),
      HubRoute(
        .get, id + "/messages", .read, "Messages that the gateway received.",
        parameters: Self.newestFirst + [Self.channel], answers: [200: Self.page("messages", Self.event)],
        refusals: [404], handler: { try await ifKnown($0) { try await page($0, kind: "message") } }),
      HubRoute(
        .get, id + "/contacts", .read, "The newest state of each node, by key.",
        parameters: [Self.afterText, Self.limit], answers: [200: Self.page("contacts", .object([]), next: .text)],
        refusals: [404], handler: { try await ifKnown($0) { try await contacts($0) } }),
      HubRoute(
        .get, id + "/state", .read, "The gateway's last states, by name.", answers: [200: .object([])], refusals: [404],
        handler: { try await ifKnown($0) { try await states($0) } }),
      HubRoute(
        .get, id + "/commands", .read, "Commands to the gateway, the newest first.", parameters: [Self.limit],
        answers: [200: .object([("commands", .list(Self.command))])], refusals: [404],
        handler: { try await commands($0) }),
      HubRoute(
        .get, id + "/commands/{command}", .read, "One command.", parameters: [Self.wait],
        answers: [200: Self.command, 202: Self.command], refusals: [404], handler: { try await oneCommand($0) }),
      HubRoute(
        .get, id + "/documents", .read, "The gateway's documents, by key.", parameters: [Self.afterText, Self.limit],
        answers: [200: Self.page("documents", Self.document, next: .text)], refusals: [404],
        handler: { try await ifKnown($0) { try await documents($0) } }),
    ]
  }

  private var operators: [HubRoute] {
    let id = "/v1/gateways/{id}"
    return [
      HubRoute(
        .post, "/v1/alerts/{alert}/acknowledge", .command, "Acknowledges an alert.",
        body: .object([("note?", .text(most: AlertReport.textBytes))]), answers: [200: Self.alert], refusals: [404],
        handler: { try await acknowledgeAlert($0) }),
      HubRoute(
        .post, id + "/commands", .command, "Sends a command to the gateway.", parameters: [Self.wait],
        body: .object([("command", .text), ("id?", .text(most: 48)), ("queue?", .truth)]),
        answers: [200: Self.command, 202: Self.command], refusals: [404, 413, 504], handler: { try await command($0) }),
      HubRoute(
        .put, id + "/documents/**", .command, "Edits a document.", body: .object([("value", .any)]),
        answers: [200: Self.document], refusals: [404, 422],
        handler: { try await ifKnown($0) { try await editDocument($0) } }),
      HubRoute(
        .delete, id + "/documents/**", .command, "Deletes a document.", answers: [200: Self.document], refusals: [404],
        handler: { try await ifKnown($0) { try await editDocument($0) } }),
    ]
  }

  // MARK: People

  /// Only with `[web]`.
  private var ofPages: [HubRoute] {
    let roles = Schema.oneOf(HubPerson.Role.allCases.map(\.rawValue))
    return [
      HubRoute(
        .get, "/v1/people", .administer, "Lists the people who may use the pages.",
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
        .put, "/v1/people/{name}", .administer, "Adds a person, or changes one.",
        body: .object([("role?", roles), ("password?", .text)]), answers: [200: Self.ok], refusals: [404, 409],
        handler: { try await setPerson($0) }),
      HubRoute(
        .delete, "/v1/people/{name}", .administer, "Removes a person.", answers: [200: Self.ok], refusals: [404, 409],
        handler: { try await removePerson($0) }),
      HubRoute(
        .get, "/v1/tokens", .administer, "Lists the tokens.",
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
        .get, "/v1/audit", .administer, "Actions of people and tokens, the newest first.",
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
        .post, id + "/events", .write, "Stores a batch of the gateway's journal.",
        body: .object([
          ("epoch", .text), ("lane?", .oneOf(["messages", "nodes", "packets"])),
          (
            "events",
            .list(
              .object([("seq", .whole), ("at", .whole), ("trusted", .truth), ("kind", .text), ("body", .object([]))]))
          ),
        ]), answers: [200: Self.acknowledged], refusals: [413, 415, 422], handler: { try await take($0) }),
      HubRoute(
        .get, id + "/link", .write, "Opens the gateway's link: a WebSocket.", answers: [:], refusals: [409, 426],
        handler: { await refuseLink($0) }),
      HubRoute(
        .get, id + "/updates", .write, "New updates for the gateway.",
        parameters: [
          .text("buckets", "The states of these buckets."),
          .text(
            "gateways",
            "With `buckets`: from now on only messages that these gateways heard. Without it nothing changes."),
          .whole("lanes", "1: also the stored part of the journal."), .text("bucket", "A page of this bucket."),
          .whole("after", "Only updates behind this number."), .whole("at", "The time of the update `after`."),
          .whole("since", "The gateway has all updates before this time."),
          .whole("until", "Only updates up to this number."),
          .whole(
            "most",
            "Most messages in all pages, about, shared among their gateways; `left_out` in the answer counts the others."
          ), Self.limit,
        ], answers: [200: .object([])], handler: { try await updates($0) }),
      HubRoute(
        .put, id + "/state/{name}", .write, "Stores a state of the gateway.", body: .object([]),
        answers: [200: Self.ok], refusals: [413], handler: { try await setState($0) }),
    ]
  }
}

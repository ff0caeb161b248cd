// SPDX-License-Identifier: MIT

import OpenAPI

/// All requests of the API that need a token or a session, with their parameters and answers; `/openapi.json` is made from them.
extension HubAPI {
  var routes: [HubRoute] { readers + gatewayReaders + operators + ofGateways + (web == nil ? [] : ofPages + ofPushes) }

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
  private static let from = OpenAPI.Parameter(
    "from?", .text(most: SearchTerms.mostBytes), "Only messages whose sender's name has all of these words.")
  private static let channel = OpenAPI.Parameter.text("channel", "A channel's digest.")
  private static let wait = OpenAPI.Parameter.whole("wait_s", "Seconds to wait for the command's end: 0 to 60.")

  private static let id = "/v1/gateways/{id}"

  // MARK: Schemas

  private static let heard: Schema = [
    "gateway": .text, "at": .whole, "seq?": .whole, "snr?": .number, "hops?": .number, "channel_name?": .text,
    "radio?": .text,
  ]
  private static let message: Schema = [
    "position": .whole, "at?": .whole, "arrived?": .whole, "body": [:], "heard": .list(heard),
  ]
  private static let way: Schema = [
    "at": .whole, "path": .list(.text), "hops?": .whole, "route?": .oneOf(["direct"]), "region?": .text,
    "region_code?": .text, "snr?": .number, "rssi?": .number, "guess?": .truth,
  ]
  private static let wayNodes: Schema = [
    "hash?": .text, "nodes": .list(["key?": .text, "name?": .text]), "more?": .whole,
  ]
  private static let messageWithWays: Schema = [
    "position": .whole, "at?": .whole, "arrived?": .whole, "body": [:], "heard": .list(heard),
    "ways?": .list([
      "gateway": .text, "ways": .list(way), "ways_more?": .whole, "way_nodes?": .list(wayNodes),
    ]), "ways_more?": .whole,
  ]
  private static let event: Schema = [
    "id": .whole, "epoch": .text, "seq": .whole, "at": .whole, "trusted": .truth, "kind": .text, "body": [:],
  ]
  private static let fleetRow: Schema = [
    "gateway": .text, "radio?": .text, "name": .text, "linked": .truth, "link_since?": .whole, "last_seen": .whole,
    "events": .whole, "version?": .text, "link?": .text, "model?": .text, "radio_key?": .text, "radio_state?": .text,
    "sync?": .text, "clock_trusted?": .truth, "battery_mv?": .whole, "power?": .oneOf(["low", "ok"]),
    "pending?": .whole, "error?": .text, "store_error?": .text, "position?": ["lat": .number, "lon": .number],
    "note?": .text, "tags?": .list(.text), "messages_today?": .whole, "nodes?": .whole,
    "last_message?": ["at": .whole, "text?": .text, "sender_name?": .text, "channel_name?": .text], "alerts": .whole,
    "alert_rules": .list(.text), "needs": .list(.oneOf(GatewayNeed.allCases.map(\.rawValue))), "rank?": .whole,
    "state_at?": .whole,
  ]
  private static let command: Schema = [
    "id": .text, "state": .oneOf(["queued", "done", "refused", "expired"]), "command?": .any, "answer?": .any,
    "by?": .text, "created_at?": .whole, "ended_at?": .whole,
  ]
  private static let ownedCommand: Schema = [
    "gateway": .text, "id": .text, "state": .oneOf(["queued", "done", "refused", "expired"]), "command?": .text,
    "body": [:], "answer?": .any, "author": .text, "created_at": .whole, "ended_at?": .whole,
  ]
  private static let document: Schema = [
    "key": .text, "value": .any, "updated_at": .whole, "by_hub": .truth, "permitted?": .truth, "permits?": .text,
  ]
  private static let alert: Schema = [
    "id": .whole, "gateway?": .text, "rule": .text, "subject?": .text, "text": .text, "began_at": .whole,
    "ended_at?": .whole, "acknowledged_at?": .whole, "acknowledged_by?": .text, "note?": .text,
  ]
  private static let gateway: Schema = [
    "gateway": .text, "radio?": .text, "events": .whole, "last_seen": .whole, "epoch": .text, "acknowledged": .whole,
  ]
  private static let greeting: Schema = [
    "gateway": .text, "radio?": .text, "events": .whole, "last_seen": .whole, "epoch": .text, "acknowledged?": .whole,
    "lanes": [:], "digests?": [:], "others?": [:], "linked": .truth, "gzip": .truth, "deflate": .text,
    "deletes": .truth, "short?": .text,
  ]
  private static let ok: Schema = ["ok": .truth]
  private static let acknowledged: Schema = ["acknowledged": .whole]

  private static func page(_ name: String, _ row: Schema, next: Schema = .whole) -> Schema {
    [name: .list(row), "next?": next]
  }

  // MARK: Readers of all gateways

  private var readers: [HubRoute] {
    [
      HubRoute(
        .get, "/v1/fleet", .read, "Each gateway with its state, by id.", [Self.afterText, Self.limit],
        answer: Self.page("gateways", Self.fleetRow, next: .text), handler: fleet),
      HubRoute(
        .get, "/v1/fleet/summary", .read, "The fleet in figures.",
        answer: [
          "gateways": .whole, "linked": .whole, "silent": .whole, "alerts": .whole, "messages_today?": .whole,
          "hours?": .list(["at": .whole, "messages": .whole]),
        ], handler: fleetSummary),
      HubRoute(
        .get, "/v1/messages", .read, "Messages of all gateways, each once, with its hearers.",
        Self.newestFirst + [Self.channel, .text("gateway", "Only messages that this gateway heard."), Self.from],
        answer: ["messages": .list(Self.message), "next?": .whole, "hidden?": .truth], handler: joined),
      HubRoute(
        .get, "/v1/messages/{position}", .read, "One message, with the ways by which it came to its hearers.",
        answer: Self.messageWithWays, refusals: [404], handler: oneMessage),
      HubRoute(
        .get, "/v1/channels", .read, "Channels of all gateways, by their newest message.",
        answer: [
          "channels": .list(["channel": .text, "name?": .text, "gateways": .whole, "newest_at?": .whole]),
          "more?": .truth,
        ], handler: reading { store, _ in try store.channels() }),
      HubRoute(
        .get, "/v1/nodes", .read, "Nodes of all gateways, by key, with their hearers.",
        [Self.afterText, Self.limit, Self.words],
        answer: Self.page(
          "nodes",
          ["key": .text, "name": .text, "kind": .text, "lat?": .number, "lon?": .number, "heard": .list(Self.heard)],
          next: .text),
        handler: reading { store, call in
          try store.nodes(
            after: call.query("after") ?? "", limit: try call.pageLimit(), words: try SearchTerms(call.query("q")))
        }),
      HubRoute(
        .get, "/v1/coverage", .read, "The nodes that each gateway hears.",
        [
          Self.afterText, Self.limit,
          .whole("since", "Only nodes that were heard at this time or later: milliseconds since 1970."),
        ],
        answer: [
          "gateways": .list(["gateway": .text, "name": .text, "lat?": .number, "lon?": .number]),
          "links": .list([
            "gateway": .text, "node": .text, "name?": .text, "kind?": .text, "lat?": .number, "lon?": .number,
            "at": .whole, "snr?": .number, "hops?": .whole,
          ]), "next?": .text,
        ], handler: coverage),
      HubRoute(
        .get, "/v1/commands", .read, "Commands to all gateways, the newest first.",
        [.text("before", "`next` of the previous page."), Self.limit],
        answer: Self.page("commands", Self.ownedCommand, next: .text), handler: allCommands),
      HubRoute(
        .get, "/v1/alerts", .read, "Alerts of gateways and hubs, the newest first.",
        [
          OpenAPI.Parameter("state?", .oneOf(["all", "open"]), "`all`: also alerts that have ended."),
          .text("gateway", "Only alerts of this gateway, or of these: ids with commas between."),
          .text("rule", "Only alerts of this rule."), .whole("before", "`next` of the previous page."), Self.limit,
        ], answer: Self.page("alerts", Self.alert), handler: alertList),
      HubRoute(
        .get, "/v1/alerts/rules", .read, "The hub's own rules, each as a sentence.",
        answer: ["rules": .list(["rule": .text, "sentence": .text])], handler: alertRules),
      HubRoute(
        .get, "/v1/live", .read, "Changes, as server-sent events.",
        [
          .whole("after", "The reader's last message, like the header Last-Event-ID."),
          .whole("arrived", "`arrived` of that message."),
        ], answer: .text, isStream: true, handler: follow),
      HubRoute(
        .get, "/v1/gateways", .read, "Gateways, by id.", [Self.afterText, Self.limit],
        answer: Self.page("gateways", Self.gateway, next: .text), handler: gateways),
    ]
  }

  // MARK: Readers of one gateway

  private var gatewayReaders: [HubRoute] {
    [
      HubRoute(
        .get, Self.id, .greet, "A gateway, and the stored part of its journal.",
        [
          .text("epoch", "An epoch; by default the newest."),
          .whole("short", "1: also the key of `POST /v1/e`, for small batches."),
        ]
          + EventBatch.Lane.allCases.map { .whole($0.rawValue, "The stored part of this lane up to this event.") },
        answer: Self.greeting, refusals: [404], handler: greet),
      HubRoute(
        .get, "\(Self.id)/events", .read, "The gateway's journal.",
        Self.newestFirst + [.text("kind", "Only events of this kind."), Self.channel],
        answer: Self.page("events", Self.event), refusals: [404], handler: ifKnown { try await page($0, kind: nil) }),
      HubRoute(
        .get, "\(Self.id)/messages", .read, "Messages that the gateway received.", Self.newestFirst + [Self.channel],
        answer: Self.page("messages", Self.event), refusals: [404],
        handler: ifKnown { try await page($0, kind: "message") }),
      HubRoute(
        .get, "\(Self.id)/contacts", .read, "The newest state of each node, by key.", [Self.afterText, Self.limit],
        answer: Self.page("contacts", [:], next: .text), refusals: [404],
        handler: ifKnown(
          reading { try $0.contacts(gateway: $1.gateway, after: $1.query("after") ?? "", limit: try $1.pageLimit()) })),
      HubRoute(
        .get, "\(Self.id)/state", .read, "The gateway's last states, by name.", answer: [:], refusals: [404],
        handler: ifKnown(reading { try $0.states(of: $1.gateway) })),
      HubRoute(
        .get, "\(Self.id)/commands", .read, "Commands to the gateway, the newest first.", [Self.limit],
        answer: ["commands": .list(Self.command)], refusals: [404], handler: commands),
      HubRoute(
        .get, "\(Self.id)/commands/{command}", .read, "One command.", [Self.wait], answer: Self.command, isQueued: true,
        refusals: [404], handler: oneCommand),
      HubRoute(
        .get, "\(Self.id)/documents", .read, "The gateway's documents, by key.", [Self.afterText, Self.limit],
        answer: Self.page("documents", Self.document, next: .text), refusals: [404], handler: ifKnown(documents)),
    ]
  }

  private var operators: [HubRoute] {
    [
      HubRoute(
        .post, "/v1/alerts/{alert}/acknowledge", .command, "Acknowledges an alert.",
        body: ["note?": .text(most: AlertReport.textBytes)], answer: Self.alert, refusals: [404],
        handler: acknowledgeAlert),
      HubRoute(
        .post, "/v1/alerts/acknowledge", .command, "Acknowledges several alerts.",
        body: ["ids": .list(.whole), "note?": .text(most: AlertReport.textBytes)],
        answer: ["alerts": .list(Self.alert)], handler: acknowledgeAlerts),
      HubRoute(
        .delete, Self.id, .administer, "Removes a gateway that is gone, with all that is stored of it.",
        answer: ["events": .whole, "messages": .whole], refusals: [404, 409], handler: ifKnown(removeGateway)),
      HubRoute(
        .post, "\(Self.id)/commands", .command, "Sends a command to the gateway.", [Self.wait],
        body: ["command": .text, "id?": .text(most: 48), "queue?": .truth], answer: Self.command, isQueued: true,
        refusals: [404, 409, 413, 504], handler: command),
      HubRoute(
        .put, "\(Self.id)/documents/**", .command, "Edits a document.", body: ["value": .any], answer: Self.document,
        refusals: [404, 422], handler: ifKnown(editDocument)),
      HubRoute(
        .delete, "\(Self.id)/documents/**", .command, "Deletes a document.", answer: Self.document, refusals: [404],
        handler: ifKnown(editDocument)),
    ]
  }

  // MARK: People

  /// Only with `[web]`.
  private var ofPages: [HubRoute] {
    let roles = Schema.oneOf(HubPerson.Role.allCases.map(\.rawValue))
    return [
      HubRoute(
        .get, "/v1/people", .administer, "Lists the people who may use the pages.",
        answer: [
          "people": .list(["name": .text, "role": roles, "way": .text, "created_at": .whole, "last_used?": .whole])
        ], handler: people),
      HubRoute(
        .put, "/v1/people/{name}", .administer, "Adds a person, or changes one.",
        body: ["role?": roles, "password?": .text], answer: Self.ok, refusals: [404, 409], handler: setPerson),
      HubRoute(
        .delete, "/v1/people/{name}", .administer, "Removes a person.", answer: Self.ok, refusals: [404, 409],
        handler: removePerson),
      HubRoute(
        .get, "/v1/tokens", .administer, "Lists the tokens.",
        answer: [
          "tokens": .list([
            "name": .text, "gateway": .text, "access": .text, "gateways?": .list(.text), "last_used?": .whole,
          ])
        ], handler: tokens),
      HubRoute(
        .get, "/v1/audit", .administer, "Actions of people and tokens, the newest first.",
        [.whole("before", "`next` of the previous page."), Self.limit],
        answer: Self.page(
          "audit",
          ["id": .whole, "at": .whole, "who": .text, "way": .text, "what": .text, "gateway?": .text, "detail": [:]]),
        handler: reading { try $0.auditRecords(before: try $1.bound("before") ?? .max, limit: try $1.pageLimit()) }),
    ]
  }

  private static let devices: Schema = [
    "key?": .text, "session?": .text,
    "devices": .list([
      "id": .text, "person": .text, "device": .text, "alerts": .truth, "channels": .list(.text), "created_at": .whole,
      "pushed_at?": .whole, "failing_since?": .whole, "error?": .text,
    ]),
  ]

  /// Only with `[web]`.
  private var ofPushes: [HubRoute] {
    [
      HubRoute(
        .get, "/v1/push", .read, "The hub's key for pushes, and the person's browsers that get them.",
        answer: Self.devices, handler: pushes),
      HubRoute(
        .post, "/v1/push", .read, "Pushes news to this browser from now on.",
        body: [
          "endpoint": .text, "key": .text, "auth": .text, "device": .text, "alerts?": .truth, "channels?": .list(.text),
        ], answer: ["id": .text, "session": .text], refusals: [409],
        handler: subscribe),
      HubRoute(
        .delete, "/v1/push/{device}", .read, "Ends the pushes to one of the person's browsers.", answer: Self.ok,
        refusals: [404], handler: endPush),
      HubRoute(
        .get, "/v1/push/all", .administer, "All browsers that get pushes.", answer: Self.devices, handler: allPushes),
      HubRoute(
        .delete, "/v1/push/all/{device}", .administer, "Ends the pushes to a browser.", answer: Self.ok,
        refusals: [404], handler: endAnyPush),
    ]
  }

  // MARK: Gateways

  private var ofGateways: [HubRoute] {
    [
      HubRoute(
        .post, "\(Self.id)/events", .write, "Stores a batch of the gateway's journal.",
        body: [
          "epoch": .text, "lane?": .oneOf(["messages", "nodes", "packets"]), "after?": .whole, "before?": .text,
          "events": .list(["seq": .whole, "at": .whole, "trusted?": .truth, "kind": .text, "body": [:]]),
        ], answer: Self.acknowledged, refusals: [409, 413, 415, 422], handler: take),
      HubRoute(
        .get, "\(Self.id)/link", .write, "Opens the gateway's link: a WebSocket.", refusals: [409, 426],
        handler: refuseLink),
      HubRoute(
        .get, "\(Self.id)/updates", .write, "New updates for the gateway.",
        [
          .text("buckets", "The states of these buckets."),
          .text(
            "gateways",
            "With `buckets`: from now on only messages that these gateways heard. Without it nothing changes."),
          .whole("lanes", "1: also the stored part of the journal."),
          .text("epoch", "With `lanes`: of this epoch, if the hub has it."), .text("bucket", "A page of this bucket."),
          .whole("after", "Only updates behind this number."), .whole("at", "The time of the update `after`."),
          .whole("since", "The gateway has all updates before this time."),
          .whole("until", "Only updates up to this number."),
          .whole(
            "most",
            "Most messages in all pages, about, shared among their gateways; `left_out` in the answer counts the others."
          ), Self.limit,
        ], answer: [:], handler: updates),
      HubRoute(
        .put, "\(Self.id)/state/{name}", .write, "Stores a state of the gateway.", body: [:], answer: Self.ok,
        refusals: [413], handler: setState),
    ]
  }
}

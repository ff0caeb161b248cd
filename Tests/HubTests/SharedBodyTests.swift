// SPDX-License-Identifier: MIT

import JSON
import TestSupport
import Testing

@testable import Hub

/// A gateway whose token was stolen reports a message of a channel first: the others' reports are joined to what it says.
@Suite struct SharedBodyTests {
  private let scratch = Scratch(inMemory: true)
  private static let channel = "0011223344556677"
  private static let now: Int64 = 1_795_000_000_000
  private static let honest: [(String, JSONValue)] = [
    ("kind", .string("channel")), ("sender_name", .string("Birch")), ("channel", .string(channel)),
    ("channel_name", .string("#trees")), ("sender_time", .integer(100)),
    ("text", .string("@[Alder] landslide \u{FFFD}")),
    ("text_hex", .string("405b416c6465725d206c616e64736c69646520ff")), ("mentions", .array([.string("Alder")])),
  ]

  private static func event(_ kind: String, _ body: [(String, JSONValue)]) -> HubEvent {
    HubEvent(seq: 1, at: now, trusted: true, kind: kind, body: .object(body))
  }

  private func take(_ store: HubStore, _ gateway: String, _ body: [(String, JSONValue)]) async throws {
    let batch = PreparedBatch(
      [Self.event("message", body)], of: "e", in: .messages, from: gateway, after: nil, at: Self.now)
    _ = try await store.take([batch])
  }

  private func store() async throws -> HubStore {
    let store = try HubStore(location: scratch.location("hub.db"))
    let known = Self.event("channel", [("channel", .string(Self.channel)), ("name", .string("#trees"))])
    _ = try await store.take([PreparedBatch([known], of: "e", in: .messages, from: "c", after: nil, at: Self.now)])
    return store
  }

  private func found(_ store: HubStore, _ words: String?) async throws -> [JSONValue] {
    let query = try ListQuery(limit: 10, words: words.flatMap { try SearchTerms($0) })
    return try JSONValue(parsing: await store.messages(query))["messages"]?.array ?? []
  }

  private func forwarded(_ store: HubStore) async throws -> [String] {
    let page = try await store.updates(
      "channel/\(Self.channel)", of: "c", from: HubStore.Position(after: 0), until: nil, limit: 10)
    return (try JSONValue(parsing: page)["updates"]?.array ?? []).compactMap { $0["body"]?["text"]?.string }
  }

  private static func without(_ names: String...) -> [(String, JSONValue)] { honest.filter { !names.contains($0.0) } }

  /// First reports of a thief, by what they do.
  static let lies: [String: [(String, JSONValue)]] = [
    "the text as data": without("text", "text_hex") + [("data", .string("@[Alder] landslide \u{FFFD}"))],
    "the text as a datagram": without("kind", "text") + [
      ("kind", .string("datagram")), ("data", .string("@[Alder] landslide \u{FFFD}")),
    ],
    "another kind": without("kind") + [("kind", .string("datagram")), ("data", .string("00"))],
    "another kind of its own": without("kind") + [("kind", .string("cli")), ("command", .bool(true))],
    "a sender": honest + [("sender", .string("0123456789ab")), ("author", .string("01234567"))],
    "a long member that nobody knows": honest + [("x", .string(String(repeating: "y", count: 17_000)))],
    "long known members": without("channel_name") + [
      ("channel_name", .string(String(repeating: "y", count: 9000))),
      ("radio", .string(String(repeating: "y", count: 9000))),
      ("data", .string(String(repeating: "y", count: 9000))),
    ],
    "members of other kinds": without("mentions", "text_hex", "channel_name") + [
      ("mentions", .object([("x", .string(String(repeating: "y", count: 9000)))])),
      ("text_hex", .array([.string(String(repeating: "y", count: 9000))])),
      ("data_type", .array([.string(String(repeating: "y", count: 9000))])),
    ],
    "another text's bytes, and mentions": without("mentions", "text_hex") + [
      ("text_hex", .string("00")), ("mentions", .array([.string("Cedar")])),
    ],
    "a text that comes twice": honest + [("text", .string("all is well"))],
  ]

  @Test(arguments: lies.keys.sorted())
  func `no first report hides a message's text from readers and gateways`(_ lie: String) async throws {
    let store = try await store()
    let body = try #require(Self.lies[lie])
    try await take(store, "thief", body)
    try await take(store, "honest", Self.honest)
    let of = try await found(store, "landslide").filter { message in
      message["heard"]?.array?.contains { $0["gateway"]?.string == "honest" } ?? false
    }
    #expect(of.count == 1, "\(of)")
    let shown = try #require(of.first?["body"])
    for name in ["kind", "sender_name", "channel", "sender_time", "text"] {
      let told = Self.honest.first { $0.0 == name }?.1
      #expect(shown[name] == told, "\(name)")
      #expect(shown.fields?.count { $0.0 == name } == 1, "\(name)")
    }
    #expect(
      shown.text.utf8.count < 1000
        && Set(shown.fields?.map(\.0) ?? []).isSubset(of: [
          "kind", "sender_name", "channel", "channel_name", "sender_time", "text", "text_hex", "mentions", "radio",
        ]))
    #expect(shown["text_hex"] == nil || shown["text_hex"] == Self.honest[6].1)
    #expect(shown["mentions"] == nil || shown["mentions"] == Self.honest[7].1)
    #expect(try await forwarded(store).count { $0 == "@[Alder] landslide \u{FFFD}" } == 1)
  }

  /// Who reports the message in this order, and what they call its channel; then what all see.
  static let names: [(reports: [String: String?], order: [String], seen: String?)] = [
    (["thief": "Bank"], ["thief"], "Bank"),
    (["thief": "Bank", "a": "#trees"], ["thief", "a"], nil),
    (["thief": "Bank", "a": "#trees", "b": "#trees"], ["thief", "a", "b"], "#trees"),
    (["thief": "Bank", "a": "#trees", "b": nil], ["a", "thief", "b"], nil),
    (["thief": nil, "a": "#trees"], ["thief", "a"], "#trees"),
  ]

  @Test(arguments: 0..<5 as Range<Int>)
  func `no gateway names a channel for others, and each hearer has its own name for it`(_ number: Int) async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let one = Self.names[number]
    for gateway in one.order {
      let name = (one.reports[gateway] ?? nil).map { [("channel_name", JSONValue.string($0))] } ?? []
      try await take(store, gateway, Self.without("channel_name") + name + [("radio", .string("radio of \(gateway)"))])
    }
    let message = try #require(try await found(store, nil).first)
    #expect(message["body"]?["channel_name"]?.string == one.seen && message["body"]?["radio"] == nil)
    let heard = message["heard"]?.array ?? []
    #expect(heard.count == one.order.count)
    for each in heard {
      let gateway = each["gateway"]?.string ?? ""
      #expect(each["channel_name"]?.string == one.reports[gateway] ?? nil)
      #expect(each["radio"]?.string == "radio of \(gateway)")
    }
    let newest = try await store.newestPosition()
    let push = try await store.pushedMessages(after: 0, through: newest, since: 0, now: Self.now, channels: ["*"])
    #expect(push?.title == one.seen ?? "Birch")
    let list = try JSONValue(parsing: await store.channels())["channels"]?.array
    #expect(list?.first?["name"]?.string == one.seen)
  }

  /// What gateways call the channel by an event of their own, and by a message that they heard; then what the list calls it.
  static let votes: [(events: [String: String], hearers: [String: String], seen: String?)] = [
    (["thief": "Bank"], ["a": "#trees", "b": "#trees", "d": "#trees", "e": "#trees"], "#trees"),
    (["thief": "Bank", "a": "#trees", "b": "#trees", "d": "Trees"], [:], nil),
    (["thief": "Bank", "a": "#trees"], ["thief": "Bank"], nil),
    (["a": "#trees", "b": "#trees", "d": "Trees"], ["thief": "Bank"], nil),
    (["a": "#trees", "b": "#trees", "d": "#trees"], ["thief": "Bank", "e": "Bank"], "#trees"),
  ]

  @Test(arguments: 0..<5 as Range<Int>)
  func `in the list of channels each gateway has one vote for a name`(_ number: Int) async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let one = Self.votes[number]
    for (gateway, name) in one.events.sorted(by: { $0.key < $1.key }) {
      let event = Self.event("channel", [("channel", .string(Self.channel)), ("name", .string(name))])
      _ = try await store.take([
        PreparedBatch([event], of: "f", in: .messages, from: gateway, after: nil, at: Self.now)
      ])
    }
    for (gateway, name) in one.hearers.sorted(by: { $0.key < $1.key }) {
      try await take(store, gateway, Self.without("channel_name") + [("channel_name", .string(name))])
    }
    let list = try JSONValue(parsing: await store.channels())["channels"]?.array
    #expect(list?.first?["name"]?.string == one.seen, "\(list ?? [])")
  }

  @Test func `a message of an earlier version has its first hearer's name as one of them`() {
    func named(_ body: String, _ heard: String...) -> String? {
      // `try?`: what is no JSON has no name.
      (try? JSONValue(parsing: AgreedName.named(body, by: heard)))?["channel_name"]?.string
    }
    let (old, said) = (#"{"channel_name":"Bank","text":"x"}"#, #"{"text":"\"channel_name\":\"x\""}"#)
    let (bank, trees) = (#"{"channel_name":"Bank"}"#, ##"{"channel_name":"#trees"}"##)
    #expect(named(old) == "Bank" && named(old, bank) == "Bank" && named(old, trees) == nil)
    #expect(named(old, trees, trees) == "#trees" && named(said, trees) == "#trees" && named("{}", trees) == nil)
    #expect(AgreedName.named(said, by: []) == said)
  }

  @Test func `what an honest gateway reports of a text or a datagram stays whole, and joins what others report`()
    async throws
  {
    let store = try await store()
    let datagram: [(String, JSONValue)] = [
      ("kind", .string("datagram")), ("channel", .string(Self.channel)), ("sender_time", .integer(7)),
      ("data_type", .integer(65280)), ("data", .string("00ff")),
    ]
    for body in [Self.honest, datagram] {
      for gateway in ["a", "b"] {
        try await take(store, gateway + "\(body.count)", [("id", .integer(9))] + body + [("snr", .integer(3))])
      }
    }
    let all = try await found(store, nil)
    // The name is what its hearers call it, and is added to what they share.
    let text = JSONValue.object(Self.without("channel_name") + [("channel_name", .string("#trees"))])
    #expect(all.map { $0["body"] } == [.object(datagram), text])
    #expect(all.map { $0["heard"]?.array?.count } == [2, 2])
  }

  @Test func `the identity of a message with a text is that of earlier versions`() {
    let heard = PreparedEvent.Heard(Self.event("message", Self.honest), from: "a", epoch: "e")
    #expect(heard.identity == "0000006422c4549179525b32c1eaef7f")
  }
}

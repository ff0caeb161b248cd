// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import SQLite
import TestSupport
import Testing

@testable import Relay
@testable import Store

/// The nodes and channels of this mesh, which events name in short.
private final class Mesh {
  let scratch = Scratch()
  let store: Store
  static let birch = Mesh.key("aabbccddeeff", 1), ridge = Mesh.key("0102030405ff", 2)
  static let trees = ChannelSecret.hashtag("#trees").digest
  static let family = ChannelSecret(bytes: Array(repeating: 7, count: 16))!.digest

  static func key(_ beginning: String, _ end: UInt8) -> PublicKey {
    PublicKey(bytes: Hex.bytes(beginning)! + Array(repeating: end, count: 26))!
  }

  init() throws {
    store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"))
    try add(Self.birch, "Birch")
    try add(Self.ridge, "Ridge", .room)
    try add("#trees", ChannelSecret.hashtag("#trees"), slot: 1)
    try add("Family", ChannelSecret(bytes: Array(repeating: 7, count: 16))!, slot: 2)
  }

  func write(_ work: (Store) throws(SQLiteError) -> Void) throws {
    store.write(work)
    try store.commitNow()
  }

  func add(_ key: PublicKey, _ name: Text, _ type: NodeType = .chat) throws {
    try write { store throws(SQLiteError) in
      _ = try store.upsert(Contact(key: key, type: type, name: name), onRadio: true, heard: false, at: 1)
    }
  }

  func add(_ name: Text, _ secret: ChannelSecret, slot: UInt8) throws {
    try write { store throws(SQLiteError) in _ = try store.setChannel(Channel(slot: slot, name: name, secret: secret)) }
  }

  func passes(_ filter: EventFilter, _ kind: EventKind, _ body: String) throws -> Bool {
    let event = JournalEvent(seq: 1, at: 5, trusted: true, kind: kind.rawValue, body: Array(body.utf8))
    return try filter.passes(event, store)
  }

  /// One event of each kind about a channel or a node.
  static let ofTrees: [(EventKind, String)] = [
    (.message, ##"{"kind":"channel","channel":"\##(trees)","channel_name":"#trees","sender_name":"Birch"}"##),
    (.message, ##"{"kind":"datagram","channel":"\##(trees)","channel_name":"#trees"}"##),
    (.outgoing, #"{"id":"x","state":"pending","channel":"\#(trees)"}"#),
    (.reaction, #"{"conversation":"\#(trees)","sender":"Birch"}"#),
    (.channel, ##"{"slot":1,"name":"#trees","channel":"\##(trees)"}"##),
    (.document, #"{"key":"channel/\#(trees)/relay"}"#),
    (.command, #"{"upstream":"other","command":"send","result":{"messages":[{"channel":"\#(trees)"}]}}"#),
    (.ways, #"{"id":1,"kind":"channel","channel":"\#(trees)","ways":[]}"#),
    (.ways, #"{"id":"w","kind":"channel","channel":"\#(trees)","heard_by":[]}"#),
  ]
  static let ofBirch: [(EventKind, String)] = [
    (.message, #"{"kind":"direct","sender":"aabbccddeeff","sender_name":"Birch"}"#),
    (.outgoing, #"{"id":"y","state":"pending","recipient":"\#(birch.hex)"}"#),
    (.reaction, #"{"conversation":"aabbccddeeff","sender":"self"}"#),
    (.contact, #"{"key":"\#(birch.hex)","name":"Birch"}"#), (.advert, #"{"key":"\#(birch.hex)","name":"Birch"}"#),
    (.contactRemoved, #"{"key":"\#(birch.hex)"}"#), (.telemetry, #"{"node":"\#(birch.hex)","name":"Birch"}"#),
    (.status, #"{"node":"\#(birch.hex)","name":"Birch"}"#), (.document, #"{"key":"node/\#(birch.hex)/note"}"#),
    (.command, #"{"upstream":"other","command":"send","result":{"messages":[{"recipient":"\#(birch.hex)"}]}}"#),
    (.ways, #"{"id":1,"kind":"direct","sender":"aabbccddeeff","sender_name":"Birch","ways":[]}"#),
    (.ways, #"{"id":"w","kind":"direct","recipient":"\#(birch.hex)","heard_by":[]}"#),
    (.route, #"{"key":"\#(birch.hex)","name":"Birch","hops":1}"#),
  ]
  static let ofRidge: [(EventKind, String)] = [
    (
      .message,
      #"{"kind":"room","sender":"0102030405ff","sender_name":"Ridge","author":"aabbccdd","author_name":"Birch"}"#
    ),
    (.outgoing, #"{"id":"z","state":"pending","recipient":"\#(ridge.hex)"}"#),
    (.telemetry, #"{"node":"\#(ridge.hex)","name":"Ridge"}"#),
  ]
  /// Events of nodes that no filter can name.
  static let ofNobody: [(EventKind, String)] = [
    (.message, #"{"kind":"cli","sender":"aabbccddeeff","sender_name":"Birch"}"#), (.message, "{}"),
    (.message, "no JSON"),
    (.message, ##"{"kind":"channel","sender_name":"Birch","channel_name":"#trees"}"##),
    (.outgoing, #"{"id":"gone","state":"failed"}"#), (.reaction, "{}"), (.packet, #"{"raw":"00"}"#), (.radio, "{}"),
    (.power, "{}"), (.alert, "{}"), (.bucketGap, "{}"), (.radioGap, "{}"), (.ways, "{}"), (.route, "{}"),
    (.ways, #"{"id":"gone","heard_by":[]}"#),
    (.document, #"{"key":"settings/log_level"}"#),
    (.command, #"{"upstream":"other","command":"sync"}"#),
    (.command, #"{"upstream":"other","command":"send","error":"Birch or Birch2?"}"#),
    (
      .command,
      #"{"upstream":"other","command":"send","result":{"messages":[{"channel":"\#(trees)"},{"recipient":"00"}]}}"#
    ),
  ]
}

@Suite struct FilterTests {
  private func passing(_ mesh: Mesh, _ filter: EventFilter, _ events: [(EventKind, String)]) throws -> [String] {
    try events.filter { try mesh.passes(filter, $0.0, $0.1) }.map { "\($0.0) \($0.1)" }
  }

  @Test func `a filter for channels passes their events, and no others of any kind`() throws {
    let mesh = try Mesh()
    for name in ["#trees", Mesh.trees, Mesh.trees.uppercased()] {
      let filter = EventFilter(channels: [name])
      #expect(try passing(mesh, filter, Mesh.ofTrees).count == Mesh.ofTrees.count, "\(name)")
      #expect(try passing(mesh, filter, Mesh.ofBirch + Mesh.ofRidge + Mesh.ofNobody) == [], "\(name)")
    }
    #expect(try passing(mesh, EventFilter(channels: ["Family"]), Mesh.ofTrees) == [])
  }

  @Test func `of what concerns nobody, only a filter for people passes nothing`() throws {
    let mesh = try Mesh()
    _ = try mesh.store.attach(Mesh.key("999999999999", 9), name: "Hill", at: 0)
    var filter = EventFilter()
    filter.onlyConcerning = true
    let channel = #""kind":"channel","channel":"\#(Mesh.trees)","sender_name":"Bob""#
    let blocked: [(EventKind, String)] = [
      (.message, #"{"id":1,"kind":"direct","sender":"aabbccddeeff","sender_name":"A new name"}"#),
      (.message, #"{"id":2,"kind":"room","sender":"0102030405ff","author":"aabbccdd","text":"x"}"#),
      (.message, #"{"id":3,\#(channel),"text":"@[Hill] x"}"#),
      (.ways, #"{"id":1,"kind":"direct","sender":"aabbccddeeff","ways":[]}"#),
      (.message, #"{"id":6,"kind":"cli","sender":"aabbccddeeff","text":"nobody asked"}"#),
      (.ways, #"{"id":6,"kind":"cli","sender":"aabbccddeeff","ways":[]}"#),
      (.reaction, #"{"conversation":"\#(Mesh.trees)","sender":"Bob"}"#),
      (.reaction, #"{"conversation":"\#(Mesh.trees)","sender":"self"}"#),
      (.reaction, #"{"conversation":"0102030405ff","sender":"aabbccdd"}"#),
    ]
    let others: [(EventKind, String)] = [
      (.message, #"{"id":4,"kind":"room","sender":"0102030405ff","author":"aabbccde","text":"x"}"#),
      (.message, #"{"id":5,"kind":"channel","channel":"\#(Mesh.family)","sender_name":"Bob","text":"x"}"#),
      (.message, #"{"id":7,"kind":"cli","sender":"0102030405ff"}"#),
      (.message, #"{"id":8,"kind":"datagram","channel":"\#(Mesh.trees)","data":"00"}"#),
      (.reaction, #"{"conversation":"aabbccddeeff","sender":"self","ours":true}"#),
      (.reaction, #"{"conversation":"\#(Mesh.trees)","sender":"self","ours":true}"#),
    ]
    let all = blocked + others + Mesh.ofNobody + [(EventKind.outgoing, #"{"id":"y","recipient":"\#(Mesh.birch.hex)"}"#)]
    #expect(try passing(mesh, filter, all) == passing(mesh, EventFilter(), all))
    try mesh.write { store throws(SQLiteError) in
      try store.add(.key(Mesh.birch.bytes))
      // Anybody may have the word for ourselves as a name.
      for name in ["Bob", "self"] { try store.add(.name(name, channel: Mesh.trees)) }
    }
    #expect(try passing(mesh, filter, blocked) == [])
    #expect(try passing(mesh, filter, others).count == others.count)
    let rest = all.dropFirst(blocked.count)
    #expect(try passing(mesh, filter, Array(rest)) == passing(mesh, EventFilter(), Array(rest)))
  }

  @Test func `a level passes mentions, answers or nothing, and all but the last pass direct messages`() throws {
    let mesh = try Mesh()
    _ = try mesh.store.attach(Mesh.key("999999999999", 9), name: "Hill", at: 0)
    var filter = EventFilter()
    filter.onlyConcerning = true
    let texts = ["hello", "ask @[Hill]", "@[Hill] come", "@[Hilly] no"]
    var said: [(EventKind, String)] = []
    for text in texts {
      said.append(
        (.message, #"{"id":1,"kind":"channel","channel":"\#(Mesh.trees)","sender_name":"Bob","text":"\#(text)"}"#))
    }
    said += [
      (.reaction, #"{"conversation":"\#(Mesh.trees)","sender":"Bob","target_outgoing":1}"#),
      (.reaction, #"{"conversation":"\#(Mesh.trees)","sender":"Bob","target":1}"#),
      (.message, #"{"id":2,"kind":"direct","sender":"aabbccddeeff","text":"hello"}"#),
      (.message, #"{"id":3,"kind":"cli","sender":"aabbccddeeff","text":"hello"}"#),
      (.message, #"{"id":4,"kind":"datagram","channel":"\#(Mesh.trees)","data":"00"}"#),
    ]
    let expected: [(ConversationLevel, [Int])] = [
      (.all, [0, 1, 2, 3, 4, 5, 6, 7, 8]), (.mentions, [1, 2, 4, 6, 7]), (.direct, [2, 4, 6, 7]), (.nothing, []),
    ]
    for (level, passing) in expected {
      try mesh.write { store throws(SQLiteError) in
        for name in [ConversationName.channel(Mesh.trees), .node(Mesh.birch.prefix)] {
          try store.setLevel(level, of: name, ofRadio: store.radio)
        }
      }
      let found = try said.indices.filter { try mesh.passes(filter, said[$0].0, said[$0].1) }
      #expect(found == passing, "\(level)")
    }
  }

  @Test func `a reaction on a channel goes by the level of the radio that is attached`() throws {
    let mesh = try Mesh()
    _ = try mesh.store.attach(Mesh.key("999999999999", 9), name: "Hill", at: 0)
    _ = try mesh.store.attach(Mesh.key("888888888888", 8), name: "Dale", at: 1)
    var filter = EventFilter()
    filter.onlyConcerning = true
    let reaction = #"{"conversation":"\#(Mesh.trees)","sender":"Bob"}"#
    #expect(try mesh.passes(filter, .reaction, reaction))
    try mesh.write { store throws(SQLiteError) in
      try store.setLevel(.nothing, of: .channel(Mesh.trees), ofRadio: store.radio)
    }
    #expect(try !mesh.passes(filter, .reaction, reaction))
  }

  @Test func `a batch without an answer is the same after a block, and the next one is without that sender`() throws {
    let mesh = try Mesh()
    _ = try mesh.store.attach(Mesh.key("999999999999", 9), name: "Hill", at: 0)
    var settings = Upstream.Settings(name: "hook", fromStart: true)
    settings.filter = EventFilter(kinds: ["message"])
    settings.filter.onlyConcerning = true
    let reader = try JournalReader(
      settings, serverKeepsCount: false, store: mesh.store, clock: EventLoop().wallClock,
      log: Log(level: .error, sink: { _, _ in }))
    try mesh.write { store throws(SQLiteError) in
      for sender in ["aabbccddeeff", "0102030405ff"] {
        let body = #"{"id":1,"kind":"direct","sender":"\#(sender)","text":"x"}"#
        try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: Array(body.utf8))
      }
    }
    let limits = Batch.Limits(events: 100, bytes: 1 << 20)
    let sent = try reader.read(.messages, after: 0, limits: limits).events.map(\.seq)
    reader.lanes.messages.named = NamedBatch(seqs: sent, isSent: true)
    try mesh.write { store throws(SQLiteError) in try store.add(.key(Mesh.birch.bytes)) }
    let again = try reader.repetition(.messages, after: 0)
    #expect(sent.count == 2 && again?.events.map(\.seq) == sent)
    #expect(try reader.read(.messages, after: 0, limits: limits).events.map(\.seq) == Array(sent.suffix(1)))
  }

  @Test func `a filter for alerts also passes battery and supply events, and not the reverse`() throws {
    let mesh = try Mesh()
    let all: [(EventKind, String)] = [(.alert, "{}"), (.power, "{}"), (.radio, "{}")]
    for filter in [EventFilter(kinds: ["alert"]), EventFilter(kinds: ["alert"], channels: [Mesh.trees])] {
      #expect(try passing(mesh, filter, all) == ["alert {}", "power {}"])
    }
    #expect(try passing(mesh, EventFilter(kinds: ["power"]), all) == ["power {}"])
  }

  @Test func `a hub gets the end of a sent message and that it is held, and no other states`() throws {
    let mesh = try Mesh()
    var filter = EventFilter()
    filter.endsOnly = true
    let way: [(EventKind, String)] = [
      (.outgoing, #"{"id":"x","number":1,"text":"t","created_at":1,"state":"pending","ended":false}"#),
      (.outgoing, #"{"id":"x","state":"sending","attempts":0}"#),
      (.outgoing, #"{"id":"x","state":"sent","attempts":1}"#),
      (.outgoing, #"{"id":"x","state":"held_for_recipient","attempts":6}"#),
      (.outgoing, #"{"id":"x","state":"retrying"}"#), (.outgoing, #"{"id":"c","state":"sent","heard":2,"ended_at":5}"#),
    ]
    let ends: [(EventKind, String)] = [
      (.outgoing, #"{"id":"x","text":"t","state":"held_for_recipient","attempts":4,"ended":false}"#),
      (.outgoing, #"{"id":"x","text":"t","state":"delivered","attempts":1,"ended_at":5,"ended":true}"#),
      (.outgoing, #"{"id":"c","text":"t","state":"sent","heard":1,"ended_at":5,"ended":true}"#),
      (.outgoing, #"{"id":"e","text":"t","state":"failed","reason":"expired","ended_at":5,"ended":true}"#),
      (.outgoing, #"{"id":"x","state":"delivered","attempts":2,"ended_at":9}"#),
    ]
    #expect(try passing(mesh, filter, way) == [])
    #expect(try passing(mesh, filter, ends).count == ends.count)
    #expect(try passing(mesh, EventFilter(), way + ends).count == way.count + ends.count)
  }

  @Test func `hooks get no events that hooks caused`() throws {
    let mesh = try Mesh()
    let caused: [(EventKind, String)] = [
      (.outgoing, #"{"id":"hook/ping/e.1","state":"pending","origin":"hook/ping"}"#),
      (.outgoing, #"{"id":"k","state":"delivered"}"#),
      (.command, #"{"upstream":"hook/ping","id":"e.1","command":"send"}"#),
      (.reaction, #"{"emoji":"👍","sender":"self","origin":"hook/ping"}"#),
    ]
    try mesh.write { store throws(SQLiteError) in
      _ = try store.insertOutgoing(
        OutgoingMessage(
          key: "k", origin: "hook/other", priority: 0, kind: .channel, channel: Mesh.trees, text: "x",
          created: Moment(milliseconds: 1, trusted: true), lifetime: 1000))
    }
    let others: [(EventKind, String)] = [
      (.outgoing, #"{"id":"c","state":"pending","origin":"control"}"#), (.command, #"{"upstream":"hub","id":"1"}"#),
      (.message, #"{"kind":"direct","sender":"aabbccddeeff"}"#),
      (.reaction, #"{"emoji":"👍","sender":"aabbccddeeff"}"#),
    ]
    #expect(try passing(mesh, EventFilter(wantsWholeKeys: true), caused) == [])
    #expect(try passing(mesh, EventFilter(wantsWholeKeys: true), others).count == 4)
    #expect(try passing(mesh, EventFilter(), caused + others).count == 8, "servers get all events")
  }

  @Test func `a filter for contacts passes only their direct messages and events`() throws {
    let mesh = try Mesh()
    for keysOnly in [false, true] {
      let filter = EventFilter(contacts: [Mesh.birch.hex], wantsWholeKeys: keysOnly)
      #expect(try passing(mesh, filter, Mesh.ofBirch).count == Mesh.ofBirch.count)
      #expect(try passing(mesh, filter, Mesh.ofTrees + Mesh.ofRidge + Mesh.ofNobody) == [])
    }
    let rooms = EventFilter(rooms: [Mesh.ridge.hex])
    #expect(try passing(mesh, rooms, Mesh.ofRidge).count == Mesh.ofRidge.count)
    #expect(try passing(mesh, rooms, Mesh.ofTrees + Mesh.ofNobody) == [])
    let both = EventFilter(channels: ["#trees"], contacts: [Mesh.birch.hex])
    #expect(try passing(mesh, both, Mesh.ofTrees + Mesh.ofBirch).count == Mesh.ofTrees.count + Mesh.ofBirch.count)
    #expect(try passing(mesh, both, Mesh.ofRidge + Mesh.ofNobody) == [])
  }

  @Test func `kinds and channels of a filter both apply, and other events need their kind to be named`() throws {
    let mesh = try Mesh()
    let filter = EventFilter(kinds: ["message", "radio", "packet"], channels: ["#trees"])
    #expect(try passing(mesh, filter, Mesh.ofTrees).count == 2)
    #expect(try mesh.passes(filter, .radio, "{}"))
    #expect(try !mesh.passes(filter, .packet, #"{"raw":"00"}"#), "whose it is cannot be told")
    #expect(try mesh.passes(EventFilter(kinds: ["packet"]), .packet, #"{"raw":"00"}"#))
    #expect(try mesh.passes(filter, .gap, "{}"))
  }

  @Test func `in a strict filter a name or the beginning of a key matches nobody, and excludes everything`() throws {
    let mesh = try Mesh()
    for weak in ["Birch", "aabb", "aabbccddeeff", String(Mesh.birch.hex.dropLast())] {
      let acting = EventFilter(contacts: [weak], wantsWholeKeys: true)
      #expect(try passing(mesh, acting, Mesh.ofBirch + Mesh.ofTrees + Mesh.ofNobody) == [], "\(weak)")
      #expect(try passing(mesh, EventFilter(contacts: [weak]), Mesh.ofBirch).count == Mesh.ofBirch.count, "\(weak)")
    }
    #expect(try passing(mesh, EventFilter(contacts: ["aab", "birch", "Birc"]), Mesh.ofBirch) == [])
  }

  @Test func `six bytes of a key match a whole key only while no other known key begins with them`() throws {
    let mesh = try Mesh()
    let filter = EventFilter(contacts: [Mesh.birch.hex], wantsWholeKeys: true)
    #expect(try mesh.passes(filter, .message, Mesh.ofBirch[0].1))
    let unknown = EventFilter(contacts: [Mesh.key("aabbccddeeff", 9).hex], wantsWholeKeys: true)
    #expect(try !mesh.passes(unknown, .message, Mesh.ofBirch[0].1), "that is Birch, not the named contact")
    try mesh.add(Mesh.key("aabbccddeeff", 9), "made to look like Birch")
    #expect(try !mesh.passes(filter, .message, Mesh.ofBirch[0].1))
  }

  @Test func `a name in a filter matches no channel if two have it, and a hashtag only its own secret`() throws {
    let mesh = try Mesh()
    let secret = ChannelSecret(bytes: Array(repeating: 8, count: 16))!
    func message(_ name: String, _ digest: String) -> String {
      #"{"kind":"channel","channel":"\#(digest)","channel_name":"\#(name)"}"#
    }
    #expect(try mesh.passes(EventFilter(channels: ["Family"]), .message, message("Family", Mesh.family)))
    try mesh.add("Family", secret, slot: 3)
    try mesh.add("#trees", secret, slot: 4)
    for digest in [Mesh.family, secret.digest] {
      #expect(try !mesh.passes(EventFilter(channels: ["Family"]), .message, message("Family", digest)), "which?")
      #expect(try mesh.passes(EventFilter(channels: [digest]), .message, message("Family", digest)))
    }
    #expect(try mesh.passes(EventFilter(channels: ["#trees"]), .message, message("#trees", Mesh.trees)))
    #expect(try !mesh.passes(EventFilter(channels: ["#trees"]), .message, message("#trees", secret.digest)))
    // Equal in Swift, with different bytes.
    let (composed, apart) = ("Caf\u{E9}", "Cafe\u{301}")
    #expect(try !mesh.passes(EventFilter(channels: [composed]), .message, message(apart, "0011223344556677")))
    #expect(try mesh.passes(EventFilter(channels: [apart]), .message, message(apart, "0011223344556677")))
  }

  @Test func `later states of a message follow its first one, and a server's own messages go back to it`() throws {
    let mesh = try Mesh()
    for (key, recipient, channel) in [("d", Mesh.birch, nil), ("c", nil, Mesh.trees)] as [(String, PublicKey?, String?)]
    {
      try mesh.write { store throws(SQLiteError) in
        _ = try store.insertOutgoing(
          OutgoingMessage(
            key: key, origin: "hub", priority: 1, kind: recipient == nil ? .channel : .direct, recipient: recipient,
            channel: channel, text: "x", created: Moment(milliseconds: 1, trusted: true), lifetime: 1))
      }
    }
    let (direct, channel) = (#"{"id":"d","state":"delivered"}"#, #"{"id":"c","state":"sent"}"#)
    let trees = EventFilter(channels: ["#trees"]), birch = EventFilter(contacts: [Mesh.birch.hex])
    #expect(try mesh.passes(trees, .outgoing, channel) && !mesh.passes(trees, .outgoing, direct))
    #expect(try mesh.passes(birch, .outgoing, direct) && !mesh.passes(birch, .outgoing, channel))
    var hub = trees
    hub.upstream = "hub"
    #expect(try mesh.passes(hub, .outgoing, direct))
  }

  @Test func `a hub that exchanges documents gets those of others, whatever its filter names`() throws {
    let mesh = try Mesh()
    var filter = EventFilter(channels: ["#trees"])
    filter.own = "hub"
    let note = #"{"key":"node/\#(Mesh.birch.hex)/note","via":"other"}"#
    #expect(try !mesh.passes(filter, .document, note))
    filter.exchangesDocuments = true
    #expect(try mesh.passes(filter, .document, note))
    #expect(try !mesh.passes(filter, .document, note.replacing("other", with: "hub")))
    #expect(try mesh.passes(filter, .command, #"{"upstream":"hub","command":"send","error":"x"}"#))
  }

  @Test func `a batch knows how much its last event covers, and how much with what follows it`() throws {
    let mesh = try Mesh()
    let start = mesh.store.lastSeq
    try mesh.write { store throws(SQLiteError) in
      for kind in [EventKind.message, .reaction, .advert] {
        try store.append(kind, at: Moment(milliseconds: 1, trusted: true), body: Array("{}".utf8))
      }
    }
    let batch = try Batch(
      after: start, of: mesh.store, lane: .messages, limits: Batch.Limits(events: 2, bytes: 1000),
      filter: EventFilter(kinds: ["message"]))
    #expect(batch.events.map(\.kind) == ["message"] && batch.last == start + 3)
    #expect(batch.covered.events == 2 && batch.coveredByEvents?.events == 1)
  }
}

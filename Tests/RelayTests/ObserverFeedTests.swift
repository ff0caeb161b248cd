// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import SQLite
import Store
import TestSupport
import Testing

@testable import Relay

/// A radio that was plugged in.
private final class PluggedRadio: RadioAccess {
  var facts: RadioFacts?
  /// `nil`: it signs nothing.
  var signature: [UInt8]?
  private(set) var signed = 0

  init(_ number: Int) { plug(number) }

  func plug(_ number: Int) {
    facts = RadioFacts(
      key: String(repeating: "0\(number)", count: 32), name: "r\(number)", model: "", version: "",
      parameters: RadioParameters(frequency: 869_525, bandwidth: 250_000, spreadingFactor: 11, codingRate: 5))
  }

  func sign(_ message: [UInt8]) async -> [UInt8]? {
    signed += 1
    return signature
  }
  func readStats() async -> RadioStats? { nil }
}

/// A broker whose connections are about the radio that was attached at their begin.
private final class FeedOfRadio: Carrier {
  let kind = "mqtt"
  let place = "nowhere"
  let keepsConnection = true
  let serverKeepsCount = false
  let needsRadio = true
  let bytesSent: UInt64 = 0
  let plugged: PluggedRadio
  private(set) var greeted: [RadioFacts?] = []
  var isOfFormerRadio: Bool { greeted.last != plugged.facts }

  init(_ plugged: PluggedRadio) { self.plugged = plugged }

  func greet() async -> Greeting {
    greeted.append(plugged.facts)
    return .ready
  }

  func carry(_ batch: Batch) async -> Verdict { .acknowledged(through: batch.last) }
  func close() {}
}

@Suite struct ObserverFeedTests {
  @Test func `a feed connects again when another radio is attached`() throws {
    let (scratch, loop, radio) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()), PluggedRadio(1))
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let feed = FeedOfRadio(radio)
    let upstream = try Upstream(
      Upstream.Settings(name: "feed"), carrier: feed, store: store, on: loop,
      log: Log(level: .error, sink: { _, _ in }))
    loop.afterTurn { store.commit() }
    upstream.wake()
    loop.pass(.seconds(10))
    upstream.radioIsUp()
    loop.pass(.seconds(10))
    #expect(feed.greeted.map { $0?.name } == ["r1"], "it is the same radio")
    radio.plug(2)
    upstream.radioIsUp()
    loop.pass(.seconds(10))
    #expect(feed.greeted.map { $0?.name } == ["r1", "r2"])
    upstream.stop()
  }

  @Test func `a publication that is under way when the radio's token is renewed is not forgotten`() throws {
    let (scratch, loop, radio) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()), PluggedRadio(1))
    radio.signature = [UInt8](repeating: 7, count: 64)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let server = try StandingServer(.well, on: loop)
    defer { server.stop() }
    var mqtt = UpstreamSettings.MQTTSettings(
      topic: try TopicTemplate("event"), statusTopic: try TopicTemplate("status"))
    mqtt.token = UpstreamSettings.MQTTSettings.RadioToken(audience: "host")
    let journal = Upstream.Settings(name: "feed", fromStart: true)
    let upstream = try Upstream(
      UpstreamSettings(kind: .mqtt(mqtt), journal: journal, url: "mqtt://127.0.0.1:\(server.port)"),
      store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    defer { upstream.stop() }
    upstream.carrier.radio = radio
    loop.afterTurn { store.commit() }
    upstream.wake()
    // It is valid for an hour, and renewed five minutes before that. A broker has 20 s for an answer.
    loop.pass(.seconds(3290))
    #expect(radio.signed == 1 && server.connections == 1)
    server.fault = .takes(0)
    store.write { store throws(SQLiteError) in
      let body = Array(#"{"text":"1"}"#.utf8)
      try store.append(.message, at: Moment(milliseconds: 1, trusted: true), body: body)
    }
    try store.commitNow()
    upstream.wake()
    #expect(loop.pass(.seconds(15)) { radio.signed == 2 })
    server.fault = .well
    #expect(loop.pass(.seconds(120)) { server.taken == ["1"] }, "\(server.taken)")
    #expect(server.connections == 2)
  }

  @Test(arguments: [false, true])
  func `a connection knows that its radio was replaced, and whether its token is the former one's`(_ isSigned: Bool)
    throws
  {
    let (scratch, loop, radio) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()), PluggedRadio(1))
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let settings = UpstreamSettings.MQTTSettings(topic: try TopicTemplate("t"), statusTopic: try TopicTemplate("s"))
    let carrier = try MQTTCarrier(
      UpstreamSettings(kind: .mqtt(settings), journal: Upstream.Settings(name: "feed"), url: "mqtt://host"), settings,
      proxy: nil, store: store, on: loop)
    carrier.radio = radio
    carrier.observer = ObserverFeed(
      settings: .init(iata: "ZRH", sendsRaw: false), isSigned: isSigned, client: "meshpost/1",
      facts: try #require(radio.facts))
    #expect(!carrier.isOfFormerRadio && !carrier.hasFormerToken)
    radio.facts?.name = "renamed"
    #expect(carrier.isOfFormerRadio && !carrier.hasFormerToken)
    radio.plug(2)
    #expect(carrier.isOfFormerRadio && carrier.hasFormerToken == isSigned)
    radio.facts = nil
    #expect(!carrier.isOfFormerRadio && !carrier.hasFormerToken, "it is not known yet")
  }

  @Test(arguments: [false, true])
  func `an observer's packets have the key of the radio that heard them, not of the present one`(_ isSigned: Bool)
    throws
  {
    let scratch = Scratch(inMemory: true)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let moment = Moment(milliseconds: 1_795_000_000_000, trusted: true)
    func hear(_ number: UInt8) throws {
      store.write { store throws(SQLiteError) in
        let mark = store.markInEvent(ofRadio: store.radio).map { #""radio":"\#($0)","# } ?? ""
        let body = #"{\#(mark)"raw":"15000\#(number)aabbccddeeff","snr":7,"rssi":-90}"#
        try store.append(.packet, at: moment, body: Array(body.utf8))
      }
      try store.commitNow()
    }
    let keys = try (1...2).map { number in try #require(PublicKey(bytes: Array(repeating: UInt8(number), count: 32))) }
    for (round, radio) in [0, 1, 0, 1].enumerated() {
      try store.attach(keys[radio], name: radio == 0 ? "Ash" : "Birch", at: moment.milliseconds)
      try hear(UInt8(round))
    }
    let facts = RadioFacts(
      key: String(repeating: "02", count: 32), name: "Birch", model: "", version: "",
      parameters: RadioParameters(frequency: 869_525, bandwidth: 250_000, spreadingFactor: 11, codingRate: 5))
    let feed = ObserverFeed(
      settings: .init(iata: "ZRH", sendsRaw: true), isSigned: isSigned, client: "meshpost/1", facts: facts)
    var told: [String] = []
    try store.readJournal(after: 0) { event, _ in
      for message in feed.messages(for: event, store) {
        let payload = String(decoding: message.payload, as: UTF8.self)
        let word = payload.contains(#""origin":"Ash""#) ? "Ash" : payload.contains(#""origin":"Birch""#) ? "Birch" : "?"
        told.append("\(message.topic.dropFirst(13).prefix(2))\(message.topic.suffix(4)) \(word)")
      }
      return true
    }
    let (ash, birch) = (["01kets Ash", "01/raw Ash"], ["02kets Birch", "02/raw Birch"])
    #expect(told == (isSigned ? birch + birch : ash + birch + ash + birch))
  }
}

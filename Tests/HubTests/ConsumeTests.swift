// SPDX-License-Identifier: MIT

import Deflate
import Foundation
import JSON
import SQLite
import Synchronization
import TestSupport
import Testing
import Timing

@testable import Hub

@Suite struct ConsumeTests {
  private let scratch = Scratch()
  private static let patterns = ["meshpost/{gateway}/+"].compactMap(TopicPattern.init)

  private static func event(_ seq: Int64, _ kind: String = "message", _ body: String = "{}", at: Int64 = 5) -> String {
    #"{"seq":\#(seq),"at":\#(at),"trusted":true,"kind":"\#(kind)","body":\#(body)}"#
  }

  private static func single(
    _ seq: Int64, gateway: String = "hill", _ kind: String = "message", _ body: String = "{}", at: Int64 = 5
  ) -> Publication {
    let rest = event(seq, kind, body, at: at).dropFirst()
    return Publication(
      topic: "meshpost/\(gateway)/\(kind)", payload: Array(#"{"gateway":"\#(gateway)","epoch":"e1",\#(rest)"#.utf8))
  }

  private static func batch(_ seqs: [Int64]) -> [UInt8] {
    let events = seqs.map { event($0) }.joined(separator: ",")
    return Array(#"{"gateway":"hill","epoch":"e1","lane":"messages","events":[\#(events)]}"#.utf8)
  }

  private static func compact(_ json: [UInt8]) throws -> Publication {
    let packed = try #require(Deflater.whole(json, dictionary: LinkDictionary.fromGateway))
    return Publication(topic: "meshpost/hill/compact", payload: [1] + packed)
  }

  // MARK: Meaning of publications

  @Test func `an event reads the same from every format`() throws {
    let single = try #require(try Self.single(7).meaning(Self.patterns))
    #expect(single.gateway == "hill" && single.epoch == "e1" && single.events.map(\.seq) == [7])
    #expect(single.events[0].kind == "message" && single.events[0].trusted && single.events[0].at == 5)
    let plain = Publication(topic: "meshpost/hill/events", payload: Self.batch([7]))
    #expect(try plain.meaning(Self.patterns)?.events == single.events)
    #expect(try Self.compact(Self.batch([7])).meaning(Self.patterns)?.events == single.events)
    #expect(try Self.compact(Self.batch([3, 7, 9])).meaning(Self.patterns)?.events.map(\.seq) == [3, 7, 9])
  }

  @Test(arguments: [
    #"{"status":"online","gateway":"hill"}"#, #"{"id":"a","command":"sync"}"#, #"{"id":"a","ok":true,"result":{}}"#,
  ])
  func `a publication without an event is skipped`(_ payload: String) throws {
    #expect(try Publication(topic: "meshpost/hill/status", payload: Array(payload.utf8)).meaning(Self.patterns) == nil)
  }

  @Test(arguments: [
    "", "x", "[]", #"{"id":"a","command":"send","to":"r1","text":"x"}"#,
    event(3).replacing("{\"seq", with: "{\"gateway\":\"hill\",\"epoch\":\"e1\",\"seq"),
    #"{"gateway":"hill","epoch":"e1","seq":3,"at":5,"kind":"command","body":{},"command":"send"}"#,
  ])
  func `a publication on the command topic is no event`(_ payload: String) throws {
    #expect(try Publication(topic: "meshpost/hill/command", payload: Array(payload.utf8)).meaning(Self.patterns) == nil)
    #expect(try Self.single(3, "command").meaning(Self.patterns) == nil, "a command's topic reports no execution")
  }

  @Test
  func `no event is accepted from a configured command topic, and a command on another topic is logged`()
    async throws
  {
    let store = try HubStore(location: scratch.location("hub.db"))
    let asks = ["meshpost/{gateway}/ask"].compactMap(TopicPattern.init)
    let forged = Publication(topic: "meshpost/hill/ask", payload: Self.single(3).payload)
    let request = Publication(topic: "meshpost/hill/ask", payload: Array(#"{"id":"a","command":"sync"}"#.utf8))
    let lines = Mutex<[String]>([])
    func consumption(_ commands: [TopicPattern]) -> PublicationIngest {
      PublicationIngest(
        store, topics: Self.patterns, commands: commands,
        refused: RefusedFile(location: scratch.location("refused.jsonl"))
      ) { _, line in lines.withLock { $0.append(line) } }
    }
    let named = consumption(asks)
    let counts = try await named.keep([
      request, forged, Publication(topic: "meshpost/hill/ask", payload: Array("no JSON".utf8)),
    ])
    #expect(counts.publications == 3 && counts.stored == 0)
    #expect(counts.known == 0 && counts.refused == 0)
    #expect(try await seqs(store) == [] && lines.withLock { $0 } == [])
    _ = try await consumption([]).keep([request, request])
    #expect(lines.withLock { $0 }.count == 1 && lines.withLock { $0 }.first?.contains("consume.command_topics") == true)
    #expect(try await named.keep([Self.single(4)]).stored == 1)
  }

  @Test(arguments: [
    "", "x", "[]", "null", "\"text\"", "{", "{}", #"{"text":"of a template"}"#,
    #"{"gateway":"hill","seq":1,"at":1,"kind":"message","body":{}}"#,
    #"{"epoch":"e","seq":1,"at":1,"kind":"message","body":{}}"#,
    #"{"gateway":"hill","epoch":"e/x","seq":1,"at":1,"kind":"message","body":{}}"#,
    #"{"gateway":"hill","epoch":"e","seq":0,"at":1,"kind":"message","body":{}}"#,
    #"{"gateway":"hill","epoch":"e","seq":-5,"at":1,"kind":"message","body":{}}"#,
    #"{"gateway":"hill","epoch":"e","seq":1e300,"at":1,"kind":"message","body":{}}"#,
    #"{"gateway":"hill","epoch":"e","seq":99999999999999999999999,"at":1,"kind":"message","body":{}}"#,
    #"{"gateway":"hill","epoch":"e","seq":9223372036854775807,"at":1,"kind":"message","body":{}}"#,
    #"{"gateway":"hill","epoch":"e","seq":1.5,"at":1,"kind":"message","body":{}}"#,
    #"{"gateway":"hill","epoch":"e","seq":"1","at":1,"kind":"message","body":{}}"#,
    #"{"gateway":"hill","epoch":"e","seq":1,"kind":"message","body":{}}"#,
    #"{"gateway":"hill","epoch":"e","seq":1,"at":1,"kind":"a b","body":{}}"#,
    #"{"gateway":"hill","epoch":"e","seq":1,"at":1,"kind":"message","body":[]}"#,
    #"{"gateway":"hill","epoch":"e","events":{}}"#,
    #"{"gateway":"hill","epoch":"e","lane":"fast","events":[]}"#,
    #"{"gateway":"hill","epoch":"e","events":[{"seq":2,"at":1,"kind":"k","body":{}},{"seq":1,"at":1,"kind":"k","body":{}}]}"#,
    #"{"gateway":"dale","epoch":"e","seq":1,"at":1,"kind":"message","body":{}}"#,
    #"{"gateway":"","epoch":"e","seq":1,"at":1,"kind":"message","body":{}}"#,
    #"{"gateway":"a/b","epoch":"e","seq":1,"at":1,"kind":"message","body":{}}"#,
    String(repeating: "[", count: 5000), #"{"seq":"# + String(repeating: #"{"a":"#, count: 100),
  ])
  func `a publication that cannot be stored is refused with a reason`(_ payload: String) {
    let publication = Publication(topic: "meshpost/hill/message", payload: Array(payload.utf8))
    #expect(throws: Publication.Refusal.self) { try publication.meaning(Self.patterns) }
  }

  @Test func `bytes that are no text, not deflated or too large are refused`() throws {
    let bomb = try Self.compact([UInt8](repeating: 32, count: Publication.maxBytes + 1))
    let json = Self.batch([1])
    for payload in [
      [0xFF, 0xFE], [1], [1, 2, 3], [2] + json, json + [0xFF], bomb.payload,
      [UInt8](repeating: 32, count: Publication.maxBytes + 1), try Self.compact(json).payload.dropLast(3),
    ] as [[UInt8]] {
      let publication = Publication(topic: "meshpost/hill/compact", payload: payload)
      #expect(throws: Publication.Refusal.self) { try publication.meaning(Self.patterns) }
    }
  }

  @Test func `random publications are read or refused`() throws {
    var random = SeededRandom(seed: 19)
    let seeds = [Self.single(7).payload, Self.batch([1, 2]), try Self.compact(Self.batch([1, 2])).payload]
    for _ in 0..<3000 {
      var payload = seeds.randomElement(using: &random) ?? []
      for _ in 0..<Int.random(in: 1...4, using: &random) where !payload.isEmpty {
        let place = Int.random(in: 0..<payload.count, using: &random)
        switch Int.random(in: 0..<3, using: &random) {
        case 0: payload[place] = .random(in: 0...255, using: &random)
        case 1: payload.remove(at: place)
        default: payload.insert(.random(in: 0...255, using: &random), at: place)
        }
      }
      do throws(Publication.Refusal) {
        let meaning = try Publication(topic: "meshpost/hill/x", payload: payload).meaning(Self.patterns)
        #expect(meaning?.gateway ?? "hill" == "hill")
        #expect(meaning?.events.allSatisfy { $0.seq > 0 } ?? true)
      } catch {
        #expect(!error.reason.isEmpty)
      }
    }
  }

  // MARK: Topics

  @Test func `a pattern extracts the gateway from a topic`() throws {
    let pattern = try #require(TopicPattern("mesh/{gateway}/+/x"))
    #expect(pattern.filter == "mesh/+/+/x" && pattern.namesGateways)
    #expect(pattern.match("mesh/hill/a/x") == .gateway("hill"))
    #expect(pattern.match("mesh//a/x") == .gateway(""))
    for other in ["mesh/hill/a", "mesh/hill/a/y", "mesh/hill/a/x/z", "Mesh/hill/a/x", ""] {
      #expect(pattern.match(other) == .elsewhere, "\(other)")
    }
    let all = try #require(TopicPattern("a/{gateway}/#"))
    #expect(all.filter == "a/+/#" && all.match("a/b") == .gateway("b") && all.match("a/b/c/d") == .gateway("b"))
    #expect(all.match("a") == .elsewhere)
    let open = try #require(TopicPattern("a/#"))
    #expect(!open.namesGateways && open.match("a/b") == .anybody && open.match("a") == .anybody)
    for wrong in ["", "a/#/b", "a+", "a/{kind}", "{gateway}/{gateway}", "$share/g/a", "a/b{gateway}", "\0"] {
      #expect(TopicPattern(wrong) == nil, "\(wrong)")
    }
  }

  // MARK: Storing

  private func consumption(_ store: HubStore) -> PublicationIngest {
    PublicationIngest(
      store, topics: Self.patterns, refused: RefusedFile(location: scratch.location("refused.jsonl")))
  }

  private func seqs(_ store: HubStore, _ gateway: String = "hill") async throws -> [Int64] {
    let page = try JSONValue(parsing: try await store.events(gateway: gateway, kind: nil, after: 0, limit: 1000))
    return (page["events"]?.array ?? []).compactMap { $0["seq"]?.integer }.sorted()
  }

  @Test func `each event is stored once, in any order and with repetitions`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let consumption = consumption(store)
    let first = try await consumption.keep([
      Self.single(9), Self.single(4), Self.single(9), try Self.compact(Self.batch([4, 5])),
      Publication(topic: "meshpost/hill/status", payload: Array(#"{"status":"online"}"#.utf8)),
      Publication(topic: "meshpost/hill/x", payload: [7]),
    ])
    #expect(first.publications == 6 && first.stored == 3 && first.known == 2)
    #expect(first.refused == 1)
    let second = try await consumption.keep([Self.single(4), Self.single(6, "gap", #"{"count":3}"#)])
    #expect(second.stored == 1 && second.known == 1 && second.missing == 3)
    let again = try await consumption.keep([Self.single(6, "gap", #"{"count":3}"#)])
    #expect(again.known == 1 && again.missing == 0, "it was counted")
    #expect(try await seqs(store) == [4, 5, 6, 9])
  }

  @Test func `the number of new gateways is limited per day and in all, and known gateways continue`() {
    var newGateways = NewGatewayLimit(perDay: 24, most: 100)
    func day(_ hours: Double) -> MonotonicTime { MonotonicTime(seconds: hours * 3600) }
    for number in 0..<24 { #expect(newGateways.refusal("g\(number)", count: Int64(number), now: day(0)) == nil) }
    #expect(newGateways.refusal("g24", count: 24, now: day(0))?.contains("consume.new_gateways_per_day") == true)
    #expect(
      newGateways.unknown(["g3", "g24"]) == ["g24"], "one that was let in stays so, also where it was not stored yet")
    #expect(newGateways.refusal("g24", count: 24, now: day(1.1)) == nil)
    #expect(newGateways.refusal("g25", count: 25, now: day(1.1)) != nil)
    #expect(newGateways.refusal("g26", count: 100, now: day(100))?.contains("consume.max_gateways") == true)
    #expect(newGateways.dueReport(3, "a", now: day(0))?.count == 3 && newGateways.dueReport(4, "b", now: day(0)) == nil)
    // Without any other refused gateway.
    #expect(newGateways.dueReport(now: day(1)).map { $0.count == 4 && $0.reason == "b" } == true)
    #expect(newGateways.dueReport(now: day(2)) == nil)
    let namings = [2, 3].map { newGateways.wasRefused("h", publications: $0, now: day(3)) }
    #expect(namings == [true, false])
    #expect(newGateways.admit("h") == 5 && newGateways.admit("h") == 0)
    let named = (0..<200).count { newGateways.wasRefused("x\($0)", publications: 1, now: day(4)) }
    let isNamedLater = newGateways.wasRefused("x199", publications: 1, now: day(5))
    #expect(named == 64 && isNamedLater, "one that was not named yet has its turn later")
  }

  @Test func `invented gateways beyond the limit are refused with an alert, and known ones are not`()
    async throws
  {
    let store = try HubStore(location: scratch.location("hub.db"))
    _ = try await store.keepUnordered([
      PreparedBatch(
        [HubEvent(seq: 1, at: 5, trusted: true, kind: "message", body: .object([]))], of: "e1", in: nil, from: "old",
        after: nil, at: 1)
    ])
    let lines = Mutex<[String]>([])
    let consumption = PublicationIngest(
      store, topics: Self.patterns, refused: RefusedFile(location: scratch.location("refused.jsonl")),
      newGateways: NewGatewayLimit(perDay: 1000, most: 5), log: { _, line in lines.withLock { $0.append(line) } })
    let ghosts = (0..<20).map { Self.single(1, gateway: "ghost\($0)") }
    let counts = try await consumption.keep(ghosts + [Self.single(2, gateway: "old")])
    #expect(counts.stored == 5 && counts.refused == 16)
    let again = try await consumption.keep([
      Self.single(2, gateway: "ghost0"), Self.single(3, gateway: "old"), Self.single(2, gateway: "ghost19"),
    ])
    #expect(again.stored == 2 && again.refused == 1)
    #expect(try await store.gateways().count == 5)
    let alerts = try await store.alerts(before: .max, openOnly: true, limit: 10).alerts
    #expect(alerts.map(\.rule) == ["gateways_refused"] && alerts.first?.gateway == "")
    let words = "publications such as gateway ghost2's are refused: the hub knows 5 gateways"
    #expect(alerts.first?.text.hasPrefix(words) == true, "\(alerts)")
    // The log names each refused gateway once.
    let told = lines.withLock { $0.filter { $0.contains(" is refused: the hub knows 5 gateways") } }
    #expect(told.count == 16 && told.count(where: { $0.hasPrefix("gateway ghost19 ") }) == 1, "\(told)")
    _ = try await consumption.keep([Self.single(3, gateway: "old")])
    // One gateway is gone, so there is room for another.
    _ = try await store.number("DELETE FROM gateways WHERE id = 'ghost0'")
    #expect(try await consumption.keep([Self.single(5, gateway: "ghost19")]).stored == 1)
    let admit = lines.withLock {
      $0.filter { $0.contains("ghost19 is let in: at least 2 of its publications were refused") }
    }
    #expect(admit.count == 1, "\(lines.withLock(\.self))")
    #expect(alerts.first?.text.hasSuffix("; 16 so far") == true, "\(alerts)")
    try await store.endIdleAlerts(.gatewaysRefused, since: HubClock.now + 1, at: HubClock.now + 1)
    #expect(try await store.alerts(before: .max, openOnly: true, limit: 10).alerts.isEmpty)
  }

  @Test func `a consumer does not move positions, so that a link delivers the missing events`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    _ = try await consumption(store).keep([Self.single(9)])
    #expect(try await store.progress(gateway: "hill", epoch: "e1")?.lanes == [:])
    let events = (1...9).map {
      HubEvent(seq: $0, at: 5, trusted: true, kind: "message", body: .object([]))
    }
    let batch = PreparedBatch(events, of: "e1", in: .messages, from: "hill", after: nil, at: 1)
    #expect(try await store.take([batch]) == [.acknowledged(9)])
    #expect(try await seqs(store) == Array(1...9))
    _ = try await consumption(store).keep([Self.single(20)])
    #expect(try await store.progress(gateway: "hill", epoch: "e1")?.lanes == [.messages: 9])
  }

  @Test func `an older record of a node does not replace a newer one`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let consumption = consumption(store)
    _ = try await consumption.keep([Self.single(8, "contact", #"{"key":"k","name":"new"}"#, at: 800)])
    _ = try await consumption.keep([Self.single(3, "contact", #"{"key":"k","name":"old"}"#, at: 300)])
    var page = String(decoding: try await store.contacts(gateway: "hill", after: "", limit: 10), as: UTF8.self)
    #expect(page.contains("new") && !page.contains("old"))
    _ = try await consumption.keep([Self.single(9, "contact", #"{"key":"k","name":"newest"}"#, at: 900)])
    page = String(decoding: try await store.contacts(gateway: "hill", after: "", limit: 10), as: UTF8.self)
    #expect(page.contains("newest"))
  }

  @Test func `an event that the database refuses is set aside, and the others are stored`() async throws {
    let location = scratch.location("hub.db")
    let store = try HubStore(location: location)
    let other = try Database(location: location)
    try other.execute(
      "CREATE TRIGGER t BEFORE INSERT ON events WHEN NEW.seq = 3 BEGIN SELECT raise(ABORT, 'not this one'); END")
    let consumption = consumption(store)
    let counts = try await consumption.keep((1...6).map { Self.single($0) })
    #expect(counts.stored == 5 && counts.refused == 1)
    #expect(try await seqs(store) == [1, 2, 4, 5, 6])
    let kept = try String(contentsOfFile: scratch.location("refused.jsonl"), encoding: .utf8)
    #expect(kept.contains("not this one") && kept.contains("meshpost/hill/message"))
    // A single failure may be the database's own, so no publication is given up.
    await #expect(throws: HubDatabaseError.self) { try await consumption.keep([Self.single(3)]) }
    try other.execute("DROP TRIGGER t")
    #expect(try await consumption.keep([Self.single(3)]).stored == 1)
  }

  @Test func `nothing is consumed while the file of refused publications cannot be written`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let consumption = PublicationIngest(
      store, topics: Self.patterns, refused: RefusedFile(location: scratch.location("none/refused.jsonl")))
    await #expect(throws: HubDatabaseError.self) {
      try await consumption.keep([Publication(topic: "meshpost/hill/x", payload: [7])])
    }
  }

  @Test func `the file of refused publications is bounded`() throws {
    let location = scratch.location("refused.jsonl")
    let file = RefusedFile(location: location, bound: 1000)
    func refusals(_ numbers: Range<Int>) -> [(publication: Publication, reason: String)] {
      numbers.map { (publication: Publication(topic: "t/\($0)", payload: [1, 2, 255]), reason: "r") }
    }
    for number in 0..<20 { try file.append(refusals(number..<number + 1), at: 1) }
    // Of one round.
    try file.append(refusals(20..<50), at: 1)
    try file.append([], at: 1)
    let now = try String(contentsOfFile: location, encoding: .utf8)
    let before = try String(contentsOfFile: location + ".1", encoding: .utf8)
    #expect(now.utf8.count <= 1000 && before.utf8.count <= 1000)
    #expect(now.contains("t/49") && now.contains("0102ff"))
    for line in now.split(separator: "\n") { _ = try JSONValue(parsing: String(line)) }
  }

  // MARK: Configuration

  private func configuration(_ text: String) throws -> HubConfiguration {
    try HubConfiguration(parsing: Array(text.utf8), file: "hub.toml", for: .consuming)
  }

  @Test func `a configuration for consuming needs a broker and no tokens`() throws {
    let consume = try #require(try configuration("[consume]\nurl = \"mqtt://b\"\ngroup = \"g\"").consume)
    #expect(consume.brokers.map(\.host) == ["b"] && consume.window == 64)
    #expect(consume.filters == ["$share/g/meshpost/+/+"])
    #expect(try configuration("[consume]\nurls = [\"mqtt://a\", \"mqtt://b\"]").consume?.brokers.count == 2)
    #expect(
      try configuration("[consume]\nurl = \"mqtt://b\"\ncommand_topics = [\"a/{gateway}/ask\"]").consume?.commandTopics
        .count == 1)
    let wrong = #expect(throws: HubConfiguration.Failure.self) { try configuration("[consume]\n\nurl = \"http://b\"") }
    #expect(wrong?.description.contains("hub.toml: line 3: consume.url: expected mqtt://") == true)
    for wrong in [
      "[consume]\nurl = \"mqtt://b\"\ncommand_topics = [\"a/#/b\"]",
      "[consume]\nurl = \"mqtt://b\"\ncommand_topics = [\"#\"]",
      "[consume]\nurl = \"mqtt://b\"\ncommand_topics = [\"meshpost/+/telemetry\"]",
      "[consume]\nurl = \"mqtt://b\"\ntopics = [\"meshpost/#\"]\ncommand_topics = [\"meshpost/{gateway}/advert\"]",
      "[consume]\nurl = \"mqtt://b\"\ncommand_topics = [\"meshpost/{gateway}/message\"]",
      "", "[consume]", "[consume]\nurl = \"mqtt://b\"\nurls = [\"mqtt://c\"]",
      "[consume]\nurl = \"mqtt://b\"\ntopic = \"x\"",
      "[consume]\nurl = \"mqtt://b\"\ntopics = []", "[consume]\nurl = \"mqtt://b\"\ntopics = [\"a/#/b\"]",
      "[consume]\nurl = \"mqtt://b\"\nwindow = 0", "[consume]\nurl = \"mqtt://b\"\ngroup = \"a/b\"",
      "consume = 3",
    ] {
      #expect(throws: HubConfiguration.Failure.self, "\(wrong)") { try configuration(wrong) }
    }
  }
}

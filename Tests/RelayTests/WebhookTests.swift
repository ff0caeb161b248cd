// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import JSON
import SQLite
import TestSupport
import Testing
import Timing

@testable import HTTP
@testable import Relay
@testable import Store

/// A store, a webhook and a server that records requests, on one loop.
private final class Hook {
  struct Got {
    let headers: HTTPHeaders
    let body: [UInt8]
    var text: String { String(decoding: body, as: UTF8.self) }
    var json: JSONValue { (try? JSONValue(parsing: body)) ?? .null }
  }

  let scratch = Scratch(inMemory: true)
  let loop = EventLoop()
  let store: Store
  private var server: HTTPServer!
  private var settings: UpstreamSettings!
  private(set) var upstream: Upstream!
  private(set) var got: [Got] = []
  /// The statuses of the next answers, then 200.
  var statuses: [Int] = []
  /// Texts and kinds that are always refused.
  var poison: Set<String> = []
  /// Texts and kinds over which the server always fails.
  var crashing: Set<String> = []
  /// Bytes of each answer.
  var page = 0
  /// From this number of events in a request on, the server does not answer.
  var silentFrom = Int.max
  private(set) var unanswered: [HTTPResponder] = []
  /// The log's lines.
  private(set) var logged: [String] = []
  /// Accepted texts, in order.
  private(set) var taken: [String] = []
  var keys: [String] { got.compactMap { $0.headers["Idempotency-Key"] } }

  init(
    template: BodyTemplate? = nil, secret: String? = nil, batches: Bool = false, filter: EventFilter = EventFilter()
  ) throws {
    store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"))
    server = try HTTPServer(loopbackPort: 0, on: loop) { [unowned self] request, responder in
      self.got.append(Got(headers: request.headers, body: request.body))
      let json = got.last?.json ?? .null
      if let events = json["events"]?.array, events.count >= silentFrom { return unanswered.append(responder) }
      let name = json["body"]?["text"]?.string ?? json["kind"]?.string ?? ""
      let status = self.statuses.isEmpty ? self.usual(name) : self.statuses.removeFirst()
      if status == 200 { taken.append(name) }
      responder.respond(HTTPResponse(status: status, body: [UInt8](repeating: 0x78, count: page)))
    }
    let secretFile = secret.map { scratch.write("secret", $0 + "\n") }
    settings = UpstreamSettings(
      kind: .webhook(secretFile: secretFile, template: template, contentType: "application/json", batches: batches),
      journal: Upstream.Settings(name: "hook", batchEvents: batches ? 100 : 1, filter: filter),
      url: "http://127.0.0.1:\(server.port)/hooks/secret-path", timeout: .seconds(5))
    try start()
    try store.keepOnlyCursors(of: ["hook"])
    loop.afterTurn { [unowned self] in
      store.commit()
      if store.transactions.takeNews().hasGrown { upstream.wake() }
    }
  }

  /// Starts the upstream as a new program does, on what is on disk.
  func start() throws {
    upstream?.stop()
    upstream = try Upstream(
      settings, store: store, on: loop, log: Log(level: .notice, sink: { [weak self] in self?.logged.append($1) }))
  }

  deinit {
    upstream.stop()
    server.stop()
  }

  private func usual(_ name: String) -> Int { poison.contains(name) ? 422 : crashing.contains(name) ? 500 : 200 }

  /// The answer to an operator who wants to skip this event, over which the server fails.
  func skip(_ seq: Int64) throws -> Upstream.Skipped {
    try run("a failure") { upstream.untaken?.first == seq }
    var said: Upstream.Skipped?
    _ = loop.begin { said = await self.upstream.skip() }
    try run("an answer") { said != nil }
    return try #require(said)
  }

  func append(_ kind: EventKind, _ body: String) throws {
    store.write { store throws(SQLiteError) in
      try store.append(kind, at: Moment(milliseconds: 5, trusted: true), body: Array(body.utf8))
    }
    try store.commitNow()
  }

  func run(_ what: String, _ condition: () throws -> Bool) throws {
    let isSo = try turn(loop, until: condition)
    try #require(isSo, "waited in vain: \(what)")
  }

  /// Runs with shortened pauses.
  func run(impatiently what: String, _ condition: () throws -> Bool) throws {
    try run(what) {
      if upstream.status.state == .waiting { upstream.resume() }
      return try condition()
    }
  }

  func allSent() throws { try run("everything sent") { upstream.status.pending == 0 } }
}

@Suite struct WebhookTests {
  @Test func `an event is sent once to a server that answers with a large page`() throws {
    let hook = try Hook(filter: EventFilter(kinds: ["message"]))
    hook.page = 2 << 20
    for text in ["a", "b"] { try hook.append(.message, "{\"text\":\"\(text)\"}") }
    try hook.allSent()
    #expect(hook.taken == ["a", "b"])
  }

  @Test(arguments: [false, true])
  func `events too old are counted, kept over a restart, and logged once with their number`(_ batches: Bool) throws {
    var filter = EventFilter(kinds: ["message"])
    filter.age = AgeLimit(oldest: 300)
    let hook = try Hook(batches: batches, filter: filter)
    hook.upstream.setPaused(true)
    try hook.append(.radio, "{}")
    for (text, age) in [("a", 9000), ("b", 9000), ("c", 0), ("d", 9000), ("e", 0), ("f", 0), ("g", 9000)] {
      try hook.append(.message, #"{"text":"\#(text)","age_s":\#(age)}"#)
    }
    hook.upstream.setPaused(false)
    try hook.allSent()
    let events = hook.got.flatMap { $0.json["events"]?.array ?? [$0.json] }
    #expect(events.compactMap { $0["body"]?["text"]?.string } == ["c", "e", "f"])
    #expect(hook.upstream.status.losses.tooOld == 4)
    let told = hook.logged.filter { $0.contains("too old") }
    #expect(told.count == 1 && told[0].hasSuffix(": 4"), "\(hook.logged)")
    hook.store.settle()
    #expect(try hook.store.leftOut(of: "hook").tooOld == 4)
    for number in 5...7 {
      try hook.append(.message, #"{"text":"old \#(number)","age_s":9000}"#)
      try hook.allSent()
    }
    hook.upstream.stop()
    let later = Array(hook.logged.filter { $0.contains("too old") }.dropFirst())
    #expect(later.count == 1 && later[0].hasSuffix(": 3"), "\(later)")
  }

  @Test func `an event is skipped when another passes, or when there is no other`() throws {
    let hook = try Hook(filter: EventFilter(kinds: ["message"]))
    hook.crashing = ["a", "c"]
    try hook.append(.message, #"{"text":"a"}"#)
    #expect(try hook.skip(1) == .setAside(seq: 1), "it is the only one")
    for text in ["b", "c", "d", "e"] { try hook.append(.message, "{\"text\":\"\(text)\"}") }
    try hook.run("the first") { hook.taken == ["b"] }
    hook.crashing = ["c", "d"]
    let refused = try hook.skip(3)
    #expect(refused == .othersFail(seq: 3, reason: "HTTP 500"), "\(refused)")
    #expect(hook.upstream.status.deadLetters == 1)
    hook.crashing = ["c"]
    #expect(try hook.skip(3) == .setAside(seq: 3))
    try hook.allSent()
    #expect(hook.taken == ["b", "e", "d"], "the second proof is another event, and is not sent again")
    #expect(hook.upstream.status.deadLetters == 2)
  }

  @Test func `no other event is tried again for an operator before all others were`() throws {
    let hook = try Hook(filter: EventFilter(kinds: ["message"]))
    hook.crashing = ["a", "b", "c"]
    for text in ["a", "b", "c", "d"] { try hook.append(.message, "{\"text\":\"\(text)\"}") }
    for _ in 0..<2 { #expect(try hook.skip(1) == .othersFail(seq: 1, reason: "HTTP 500")) }
    #expect(try hook.skip(1) == .setAside(seq: 1))
    #expect(hook.taken == ["d"])
  }

  @Test func `a text from the mesh cannot mention a whole channel of a chat server`() throws {
    let hook = try Hook(
      template: BodyTemplate(#"{"text": "{{sender_name:chat}}: {{ text:chat }}", "raw": "{{text}}"}"#, isJSON: true))
    let text = "@everyone <!channel> <https://bad.example|good> & @\u{301}all"
    let body = JSONWriter.object { json in
      json.field("sender_name", "@here")
      json.field("text", text)
    }
    try hook.append(.message, String(decoding: body, as: UTF8.self))
    try hook.run("the request") { hook.got.count == 1 }
    let blank = "\u{200B}"
    #expect(
      hook.got[0].json["text"]?.string
        == "@\(blank)here: @\(blank)everyone &lt;!channel&gt; &lt;https://bad.example|good&gt; &amp; @\(blank)\u{301}all"
    )
    #expect(hook.got[0].json["raw"]?.string == text)
    #expect(throws: BodyTemplate.Failure.self) { try BodyTemplate("{{text:other}}", isJSON: false) }
  }

  @Test func `the key of an event covers its content, so that a reused number is no repetition`() {
    let keys = ["one", "other"].map { text in
      let event = JournalEvent(
        seq: 7, at: 1, trusted: true, kind: "message", body: Array(#"{"text":"\#(text)","heard":1}"#.utf8))
      return WebhookCarrier.content(Batch(event, lane: nil), false)
    }
    #expect(keys[0] != keys[1] && keys.allSatisfy { $0.count == 16 }, "\(keys)")
  }

  @Test func `each event is a signed request of its own, and is repeated unchanged after an error`() throws {
    let hook = try Hook(secret: "key")
    hook.statuses = [503]
    try hook.append(.message, #"{"text":"hello"}"#)
    try hook.append(.message, #"{"text":"again"}"#)
    try hook.allSent()
    #expect(hook.got.map { $0.json["body"]?["text"]?.string } == ["hello", "hello", "again"])
    #expect(hook.got[0].body == hook.got[1].body)
    let keys = hook.got.map { $0.headers["Idempotency-Key"] ?? "" }
    #expect(keys[0] == keys[1] && keys[0].hasPrefix("hill/\(hook.store.epoch)/1/") && keys[2].contains("/2/"))
    let signature = BodySignature.value(hook.got[0].body, secret: Array("key".utf8))
    #expect(hook.got[0].headers["X-Meshpost-Signature"] == signature)
    #expect(hook.got[0].json["gateway"]?.string == "hill" && hook.got[0].json["kind"]?.string == "message")
    #expect(!hook.upstream.status.url.contains("secret-path"), "the address is a secret itself")
  }

  @Test func `an event of the previous epoch keeps the key under which the server may have it`() throws {
    let hook = try Hook()
    hook.statuses = [503]
    try hook.append(.message, #"{"text":"old"}"#)
    try hook.run("a failure") { hook.upstream.status.state == .waiting }
    let before = hook.store.epoch
    try hook.store.renewEpoch()
    try hook.run(impatiently: "the old one sent") { hook.taken == ["old"] }
    try hook.append(.message, #"{"text":"new"}"#)
    try hook.allSent()
    let keys = hook.got.map { $0.headers["Idempotency-Key"] ?? "" }
    #expect(keys.count == 3 && keys[0] == keys[1] && keys[0].hasPrefix("hill/\(before)/1/"), "\(keys)")
    #expect(keys[2].hasPrefix("hill/\(hook.store.epoch)/2/"), "\(keys)")
    #expect(hook.got.map { $0.json["before"]?.string } == [nil, before, nil])
    #expect(hook.got[1].json["epoch"]?.string == hook.store.epoch)
  }

  @Test func `a signature is HMAC-SHA-256 in hexadecimal`() {
    let body = Array("The quick brown fox jumps over the lazy dog".utf8)
    #expect(
      BodySignature.value(body, secret: Array("key".utf8))
        == "sha256=f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8")
  }

  @Test func `a refused event becomes a dead letter, the others are sent, and 401 stops without a loss`() throws {
    let hook = try Hook()
    hook.poison = ["1"]
    for number in 1...3 { try hook.append(.message, #"{"text":"\#(number)"}"#) }
    try hook.allSent()
    #expect(hook.got.map { $0.json["body"]?["text"]?.string } == ["1", "2", "1", "3"], "2 shows that it takes any")
    #expect(hook.upstream.status.deadLetters == 1)
    hook.poison = []
    #expect(try hook.store.retryDeadLetters(of: "hook") == 1)
    hook.statuses = [403]
    hook.upstream.resume()
    try hook.run("another try") { hook.statuses.isEmpty && hook.upstream.status.inFlight == 0 }
    #expect(hook.upstream.status.state != .stopped, "only the letter is forbidden, as far as is known")
    try hook.run("the dead letter") { hook.upstream.status.deadLetters == 0 }
    hook.statuses = [401]
    try hook.append(.message, #"{"text":"4"}"#)
    try hook.run("stopped") { hook.upstream.status.state == .stopped }
    hook.upstream.resume()
    try hook.allSent()
    #expect(hook.got.last?.json["body"]?["text"]?.string == "4" && hook.upstream.status.deadLetters == 0)
  }

  @Test func `a redirect stops a webhook, and only the host of its target is shown`() {
    func verdict(_ headers: HTTPHeaders) -> Verdict {
      RetryPolicy.webhookVerdict(.success(HTTPResponse(status: 302, headers: headers)), now: 0, through: 1)
    }
    #expect(
      verdict(["Location": "https://new.example/hooks/secret"])
        == .stopped(reason: "HTTP 302, a redirect to https://new.example/…: check the URL"))
    #expect(verdict(["Location": "/hooks/secret"]) == .stopped(reason: "HTTP 302, a redirect to …: check the URL"))
    #expect(verdict([:]) == .retry(reason: "HTTP 302: check the URL", after: nil))
  }

  @Test(arguments: [400, 404, 422])
  func `a server that refuses everything for a while is in trouble, and no event is a dead letter`(_ status: Int) throws
  {
    let hook = try Hook()
    hook.statuses = Array(repeating: status, count: 40)
    for number in 1...5 { try hook.append(.message, #"{"text":"\#(number)"}"#) }
    try hook.run("a pause") { hook.upstream.status.state == .waiting }
    #expect(hook.upstream.status.reason?.contains("HTTP \(status)") == true && hook.got.count == 2)
    try hook.run(impatiently: "everything sent") { hook.upstream.status.pending == 0 }
    #expect(Set(hook.taken) == ["1", "2", "3", "4", "5"] && hook.taken.count == 5, "each once: \(hook.taken)")
    #expect(hook.upstream.status.deadLetters == 0)
  }

  @Test func `a server that refuses everything is asked with pauses, although several lanes wait`() throws {
    let hook = try Hook()
    hook.statuses = Array(repeating: 400, count: 1000)
    try hook.append(.message, #"{"text":"1"}"#)
    try hook.append(.advert, #"{"key":"2"}"#)
    try hook.run("a pause") { hook.upstream.status.state == .waiting || hook.got.count > 50 }
    #expect(hook.got.count < 10, "each lane waits for the other to show that the server takes any")
  }

  @Test func `a refused event without another behind it waits for the next event`() throws {
    let hook = try Hook()
    hook.poison = ["1"]
    try hook.append(.message, #"{"text":"1"}"#)
    try hook.run(impatiently: "several tries") { hook.got.count > 5 }
    #expect(hook.upstream.status.deadLetters == 0 && hook.upstream.status.pending == 1)
    try hook.append(.message, #"{"text":"2"}"#)
    try hook.run(impatiently: "everything sent") { hook.upstream.status.pending == 0 }
    #expect(hook.upstream.status.deadLetters == 1 && hook.taken == ["2"])
  }

  @Test func `a long run of refused events holds up nothing, and one event that passes ends it`() throws {
    let hook = try Hook()
    hook.poison = Set((6...65).map(String.init))
    for number in 1...67 { try hook.append(.message, #"{"text":"\#(number)"}"#) }
    try hook.run(impatiently: "the others sent") { hook.taken.count == 7 }
    let (requests, buried) = (hook.got.count, hook.upstream.status.deadLetters)
    #expect(requests < 100 && buried > 0, "\(requests) requests")
    // The rest is tried meanwhile, and was refused before this event passes.
    try hook.run(impatiently: "all tried") { hook.got.count > requests + 300 }
    try hook.append(.message, #"{"text":"68"}"#)
    try hook.run(impatiently: "everything sent") { hook.upstream.status.pending == 0 }
    #expect(hook.upstream.status.deadLetters == 60)
    #expect(hook.taken.sorted() == ["1", "2", "3", "4", "5", "66", "67", "68"])
  }

  @Test(arguments: 1...20 as ClosedRange<UInt64>)
  func `after random refusals and outages, each event arrives once or is a dead letter`(
    _ seed: UInt64
  ) throws {
    var random = SeededRandom(seed: seed)
    let hook = try Hook()
    let count = Int.random(in: 5...25, using: &random)
    hook.poison = Set((1...count).filter { _ in Int.random(in: 0..<4, using: &random) == 0 }.map(String.init))
    let status = [400, 404, 500].randomElement(using: &random) ?? 400
    hook.statuses = Array(repeating: status, count: Int.random(in: 0...30, using: &random))
    for number in 1...count { try hook.append(.message, #"{"text":"\#(number)"}"#) }
    // The last event shows that the server accepts any; without it the last refusal stays undecided.
    try hook.append(.message, #"{"text":"last"}"#)
    var more = 0
    try hook.run(impatiently: "everything sent, seed \(seed)") {
      if hook.upstream.status.pending > 0, hook.got.count > 300 * (more + 1) {
        more += 1
        try hook.append(.message, #"{"text":"more \#(more)"}"#)
      }
      return hook.upstream.status.pending == 0
    }
    let taken = hook.taken.filter { !$0.hasPrefix("more") }
    let all = Set((1...count).map(String.init) + ["last"])
    #expect(taken.count == Set(taken).count, "seed \(seed): twice: \(taken)")
    let lost = all.subtracting(taken).subtracting(hook.poison)
    #expect(lost.isEmpty, "seed \(seed): \(lost)")
    #expect(hook.upstream.status.deadLetters == all.subtracting(taken).count, "seed \(seed)")
  }

  @Test func `a refused gap becomes a dead letter, and is not sent again and again`() throws {
    let hook = try Hook()
    hook.upstream.setPaused(true)
    for number in 1...4 { try hook.append(.message, #"{"text":"\#(number)"}"#) }
    try hook.store.commitNow()
    try hook.store.database.execute("DELETE FROM journal WHERE seq < 3")
    hook.poison = ["gap"]
    hook.upstream.setPaused(false)
    try hook.allSent()
    #expect(
      hook.got.map { $0.json["kind"]?.string } == ["gap", "message", "gap", "message"] && hook.taken == ["3", "4"])
    #expect(hook.upstream.status.deadLetters == 1)
  }

  @Test func `a batch carries many events`() throws {
    let hook = try Hook(batches: true)
    hook.upstream.setPaused(true)
    for number in 1...5 { try hook.append(.message, #"{"text":"\#(number)"}"#) }
    hook.upstream.setPaused(false)
    try hook.allSent()
    // The first request has a single event; the rest follows at once.
    #expect(hook.got.first?.json["events"]?.array?.count == 1 && hook.got.count < 5)
    #expect(hook.got[1].json["gateway"]?.string == "hill")
    #expect(hook.keys.flatMap(events) == Array(1...5), "\(hook.keys)")
  }

  /// The events that a key names.
  private func events(_ key: String) -> [Int] {
    let ends = key.split(separator: "/")[2].split(separator: "-").compactMap { Int($0) }
    return Array((ends.first ?? 0)...(ends.last ?? 0))
  }

  @Test func `a batch without an answer is sent again as it was, after a lost connection and after a kill`() throws {
    let hook = try Hook(batches: true)
    hook.upstream.setPaused(true)
    for number in 1...40 { try hook.append(.message, #"{"text":"\#(number)"}"#) }
    hook.silentFrom = 10
    hook.upstream.setPaused(false)
    try hook.run("a large batch") { hook.got.last?.json["events"]?.array?.count ?? 0 >= 10 }
    let lost = try #require(hook.keys.last)
    for number in 41...60 { try hook.append(.message, #"{"text":"\#(number)"}"#) }
    let before = hook.got.count
    // The HTTP client repeats it once by itself.
    for tries in 1...2 {
      for responder in hook.unanswered { responder.abort() }
      try hook.run(impatiently: "another try") { hook.got.count >= before + tries }
    }
    try hook.start()
    hook.silentFrom = .max
    hook.upstream.wake()
    try hook.allSent()
    #expect(hook.keys[before - 1...before + 2].allSatisfy { $0 == lost }, "\(hook.keys)")
    #expect(Set(hook.keys).flatMap(events).sorted() == Array(1...60), "\(hook.keys)")
  }

  @Test func `an event that the filter excludes is not sent, and is no gap`() throws {
    let filter = EventFilter(kinds: ["message"], channels: ["00ff00ff00ff00ff"], contacts: ["Birch"])
    let hook = try Hook(filter: filter)
    for body in [
      #"{"kind":"channel","channel":"00ff00ff00ff00ff","channel_name":"Trees","text":"1"}"#,
      #"{"kind":"channel","channel":"11ff00ff00ff00ff","channel_name":"Public","text":"2"}"#,
      #"{"kind":"direct","sender":"aabbccddeeff","sender_name":"Birch","text":"3"}"#,
      #"{"kind":"direct","sender":"112233445566","text":"4"}"#,
    ] { try hook.append(.message, body) }
    for _ in 0..<50 { try hook.append(.contact, #"{"name":"Birch"}"#) }
    try hook.allSent()
    #expect(hook.got.map { $0.json["body"]?["text"]?.string } == ["1", "3"])
  }

  private func event(_ body: String) -> JournalEvent {
    JournalEvent(seq: 1, at: 5, trusted: true, kind: "message", body: Array(body.utf8))
  }

  @Test func `a new upstream begins now or at the start, and a returned one resumes at its old position`() throws {
    let hook = try Hook()
    for _ in 0..<3 { try hook.append(.message, "{}") }
    try hook.allSent()
    #expect(try hook.store.openCursor(of: "later", fromStart: false) == (ByLane(all: 3), 3))
    #expect(try hook.store.openCursor(of: "all", fromStart: true) == (ByLane(all: 0), 0))
    try hook.append(.message, "{}")
    #expect(try hook.store.openCursor(of: "later", fromStart: true) == (ByLane(all: 3), 3), "it is there already")
    try hook.store.keepOnlyCursors(of: ["hook"])
    #expect(try hook.store.openCursor(of: "later", fromStart: false) == (ByLane(all: 3), 3), "it is back")
  }

  @Test func `a pause survives a restart`() throws {
    let hook = try Hook()
    hook.upstream.setPaused(true)
    try hook.append(.message, "{}")
    try hook.run("the pause kept") { try hook.store.isPaused("hook") }
    #expect(hook.upstream.status.state == .paused && hook.got.isEmpty)
    hook.upstream.setPaused(false)
    try hook.allSent()
  }

  @Test func `a template is filled in, with escapes if it is JSON`() throws {
    let slack = try BodyTemplate(#"{"text":"{{ sender_name }}: {{text}} ({{missing}}{{snr}})"}"#, isJSON: true)
    let filled = slack.render(event(#"{"sender_name":"A \"b\"","text":"x\ny","snr":9.5}"#), gateway: "hill")
    #expect(try JSONValue(parsing: filled)["text"]?.string == "A \"b\": x\ny (9.5)")
    let plain = try BodyTemplate("{{gateway}} {{event}} {{seq}}: {{text}}", isJSON: false)
    #expect(
      String(decoding: plain.render(event(#"{"text":"\"q\""}"#), gateway: "hill"), as: UTF8.self)
        == "hill message 1: \"q\"")
  }

  @Test(arguments: [
    (#"{"t":"{{text}}"}"#, true), ("\n {\"t\":\"{{text}}\"}", true), (#"[{"t":"{{text}}"}]"#, true),
    ("{{text}}", false), (" {{text}}", false), ("[{{sender_name}}] {{text}}", false), ("says: {{text}}", false),
  ]) func `a template that looks like JSON has its values escaped`(_ text: String, _ isJSON: Bool) throws {
    let template = try BodyTemplate(guessing: text)
    let filled = String(decoding: template.render(event(#"{"text":"\"q\""}"#), gateway: "hill"), as: UTF8.self)
    #expect(filled.contains(#"\"q\""#) == isJSON, "\(filled)")
  }

  @Test func `a template without words for a loss gets some`() throws {
    let chat = try BodyTemplate("{{sender_name}}: {{text}}", isJSON: false)
    for (count, words) in [
      (2671, "2671 events are lost (quota)"), (0, "events are lost, and nobody knows how many (quota)"),
    ] {
      let gap = JournalEvent(
        seq: 9, at: 1, trusted: true, kind: "gap",
        body: Array(#"{"lane":"messages","first":1,"last":9,"count":\#(count),"reason":"quota"}"#.utf8))
      #expect(String(decoding: chat.render(gap, gateway: "hill"), as: UTF8.self) == "gateway hill: \(words)")
    }
    let ofDatabase = JournalEvent(
      seq: 9, at: 1, trusted: true, kind: "gap", body: Array(#"{"reason":"damaged","at_most":7}"#.utf8))
    #expect(
      String(decoding: chat.render(ofDatabase, gateway: "hill"), as: UTF8.self)
        == "gateway hill: at most 7 events are lost (damaged)")
  }

  @Test(arguments: [
    ("{\"a\":{{text}", true), ("{{}}", false), ("{{a b!}}", false), ("{\"a\":{{text}}", true), ("hello {{text}}", true),
    ("{\"a\":{{text}}}", true), ("{\"a\":{{sender}}}", true),
  ]) func `an invalid template is refused`(_ text: String, _ isJSON: Bool) {
    #expect(throws: BodyTemplate.Failure.self) { try BodyTemplate(text, isJSON: isJSON) }
  }
}

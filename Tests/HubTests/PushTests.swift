// SPDX-License-Identifier: MIT

import HTTP
import JSON
import Synchronization
import TOML
import TestSupport
import Testing
import UntrustedText

@testable import Hub

/// Web Push: its encryption, whom the hub tells what, and how attempts end.
@Suite struct PushTests {
  private let scratch = Scratch(inMemory: true)
  private static let hour: Int64 = 3_600_000
  private static let endpoint = "https://fcm.googleapis.com/fcm/send/abc"
  /// RFC 8291 § 5.
  private static let browser =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
  private static let auth = "BTBZMqHH6r4Tts7J_aSIgg"

  // MARK: Encryption

  private static func bytes(_ text: String) throws -> [UInt8] { try #require(Base64.decodeFromURL(text)) }

  @Test func `a record is encrypted as in the example of RFC 8188`() throws {
    let bytes = try PushEncryption.encode(
      Array("I am the walrus".utf8), keyedBy: Self.bytes("yqdlZ-tYemfogSmv7Ws5PQ"),
      salt: Self.bytes("I1BsxtFttlv3u_Oo94xnmw"), keyID: [])
    #expect(
      Base64.encodeForURL(try #require(bytes))
        == "I1BsxtFttlv3u_Oo94xnmwAAEAAA-NAVub2qFgBEuQKRapoZu-IxkIva3MEB1PD-ly8Thjg")
  }

  @Test func `a push is encrypted as in the example of RFC 8291`() throws {
    // Its private and public key, as an ECPrivateKey.
    let der = try Self.bytes(
      "MHcCAQEEIMn1j4mBPp-Ohy5x9CqmThdXySVNzGK3LdwBC7QEPqEcoAoGCCqGSM49AwEHoUQDQgAE_jP0qw3qcZFNtVgj9ztUlI9BMG2SBzLbuaW"
        + "aUyhkgiAOWXp7e8JguhwieZhYCZLpOXMALzASooro8Gu7eOXsDw")
    let key = try #require(PushKey(der: der))
    let bytes = try PushEncryption.encrypt(
      Array("When I grow up, I want to be a watermelon".utf8), for: Self.bytes(Self.browser),
      auth: Self.bytes(Self.auth), key: key, salt: Self.bytes("DGv6ra1nlYgDCS1FRnbzlw"))
    #expect(
      Base64.encodeForURL(try #require(bytes))
        == "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6P"
        + "Bru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN")
    let full = [UInt8](repeating: 0x61, count: PushEncryption.mostBytes)
    let (point, auth) = (try Self.bytes(Self.browser), try Self.bytes(Self.auth))
    #expect(PushEncryption.encrypt(full, for: point, auth: auth, key: key, salt: Array(0..<16))?.count == 4096)
    #expect(PushEncryption.encrypt(full + [0], for: point, auth: auth, key: key, salt: Array(0..<16)) == nil)
  }

  @Test func `a proof is signed by the key that it names, and keys are read back`() throws {
    let key = try #require(PushKey.make())
    #expect(PushKey(der: key.der)?.point == key.point)
    #expect(try #require(PushKey.make()).point != key.point)
    for damaged in [[], [0x30], Array(key.der.dropLast()), [UInt8](repeating: 0, count: 121)] {
      #expect(PushKey(der: damaged) == nil)
    }
    for time in 0..<40 as Range<Int64> {
      let words = try #require(
        PushEncryption.proof(key, audience: "https://push.example", contact: "https://hub.example", at: time * 1000))
      let parts = words.dropFirst("vapid t=".count).split(separator: ", k=")
      let token = parts[0].split(separator: ".").map(String.init)
      let point = try Self.bytes(String(parts[1]))
      let claims = try JSONValue(parsing: Self.bytes(token[1]))
      #expect(claims["aud"]?.string == "https://push.example" && claims["sub"]?.string == "https://hub.example")
      #expect(claims["exp"]?.integer == time + 12 * 3600)
      let (x, y) = (Base64.encodeForURL(Array(point[1..<33])), Base64.encodeForURL(Array(point[33...])))
      let json = "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"\(x)\",\"y\":\"\(y)\"}"
      let own = try #require(WebKey(try JSONValue(parsing: json)))
      #expect(own.hasSigned(Array("\(token[0]).\(token[1])".utf8), try Self.bytes(token[2]), .es256))
    }
    #expect(key.sharedSecret(with: [4] + [UInt8](repeating: 1, count: 64)) == nil, "not on the curve")
    #expect(key.sharedSecret(with: []) == nil)
  }

  // MARK: Where to

  @Test(arguments: [
    endpoint, "https://updates.push.services.mozilla.com/wpush/v2/a", "https://web.push.apple.com/x",
    "https://wns2-par02p.notify.windows.com/w/?token=a", "https://FCM.googleapis.com/x",
  ]) func `browsers may name push services`(_ address: String) {
    #expect(PushServices.origin(of: address, among: PushServices.usual) != nil)
  }

  @Test(arguments: [
    "", "http://fcm.googleapis.com/x", "https://fcm.googleapis.com:8443/x", "https://fcm.googleapis.com.evil.example/x",
    "https://evil.example/fcm.googleapis.com", "https://a@fcm.googleapis.com/x", "https://127.0.0.1/x",
    "https://localhost/x", "https://[::1]/x", "https://10.0.0.1/x", "https://push.apple.com/x",
    "https://evilpush.apple.com/x", "https://.push.apple.com/x", "https://fcm.googleapis.com/\r\nX: y",
    "file:///etc/passwd", "https://[::1%25x.push.apple.com]/x", "https://x\u{212A}.push.apple.com/x",
    "https://fcm.googleapis.com/" + String(repeating: "a", count: 1024),
  ]) func `no browser may name another host, or this machine`(_ address: String) {
    #expect(PushServices.origin(of: address, among: PushServices.usual) == nil)
  }

  // MARK: What

  @Test func `a push fits a record, whatever it says`() throws {
    for text in ["short", String(repeating: "\u{1}", count: 5000), String(repeating: "ü", count: 5000)] {
      let body = JSONValue.object([
        ("text", .string(text)), ("sender_name", .string(text)), ("channel_name", .string("x")),
      ])
      let json = PushContent(message: 7, body, count: 1).json
      #expect(json.count <= PushContent.mostBytes)
      #expect(try JSONValue(parsing: json)["number"]?.integer == 7)
    }
  }

  // MARK: To whom

  /// A hub with ana, who is signed in, and a push service that keeps what it gets.
  private final class Site: Sendable {
    private struct State {
      /// Milliseconds that a look seems to take.
      var takes: Int64 = 0
      var status = 201
      var headers: HTTPHeaders = [:]
      /// A part of the addresses at which nobody answers.
      var silent: String?
      var got: [OutgoingRequest] = []
    }

    private final class Service: Sendable {
      let state = Mutex(State())
    }

    let stores: HubStores
    let sender: PushSender
    private let service: Service

    init(_ location: String, most: Int = PushSender.mostMessages) async throws {
      stores = try HubStores(location: location)
      var reader = TOMLReader(try TOMLParser.parse(Array("url = \"https://hub.example\"".utf8)))
      let read = HubWebSettings(&reader)
      let settings = try #require(read)
      let service = Service()
      self.service = service
      let post: PushSender.Post = { request in
        service.state.withLock { state -> Result<HTTPResponse, OutgoingRequest.Failure> in
          state.got.append(request)
          if let silent = state.silent, request.url.contains(silent) {
            return .failure(OutgoingRequest.Failure(words: ": no answer in time"))
          }
          return .success(HTTPResponse(status: state.status, headers: state.headers))
        }
      }
      sender = PushSender(stores, settings, most: most, post: post) { _ in service.state.withLock { $0.takes } }
      guard try await stores.writer.person("ana") == nil else { return }
      _ = try await stores.writer.setPerson("ana", role: .view, hash: "h", at: 1)
      try await stores.writer.beginSession("token", of: "ana", at: 1)
    }

    func takes(_ milliseconds: Int64) { service.state.withLock { $0.takes = milliseconds } }

    /// The pushes since the last call, by their topics.
    func took() -> [String] { requests().map { $0.headers["Topic"] ?? "" } }

    /// Since the last call.
    func requests() -> [OutgoingRequest] {
      service.state.withLock { state in
        defer { state.got = [] }
        return state.got
      }
    }

    func isSilent(_ part: String?) { service.state.withLock { $0.silent = part } }

    func answers(_ status: Int, _ headers: HTTPHeaders = [:]) {
      service.state.withLock { ($0.status, $0.headers) = (status, headers) }
    }

    func subscribe(
      _ number: Int = 1, of person: String = "ana", in session: String = "token", alerts: Bool = true,
      channels: [String] = ["*"], through address: String = PushTests.endpoint, at now: Int64 = 1
    ) async throws -> Bool {
      let endpoint = address + "\(number)"
      return try await stores.writer.subscribe(
        PushSubscription(
          id: PushSubscription.id(of: endpoint), person: person, session: HubStore.digest(session), device: "phone",
          endpoint: endpoint, key: PushTests.browser, auth: PushTests.auth, wantsAlerts: alerts, channels: channels),
        at: now)
    }

    func say(_ seq: Int64, channel: String = "0011223344556677") async throws {
      let body = """
        {"kind":"channel","channel":"\(channel)","channel_name":"#trees","sender_name":"Birch","sender_time":\(seq),\
        "text":"hello \(seq)"}
        """
      let event = "{\"seq\":\(seq),\"at\":\(seq),\"trusted\":true,\"kind\":\"message\",\"body\":\(body)}"
      let batch = try EventBatch(parsing: Array("{\"epoch\":\"e\",\"events\":[\(event)]}".utf8))
      _ = try await stores.writer.take(batch, from: "hill", at: seq)
    }

    /// A message as one gateway has it; `at` and `sent`: by the clocks of the gateway and of the sender.
    func report(_ gateway: String, at: Int64, sent: Int64, came: Int64) async throws {
      let body = """
        {"kind":"channel","channel":"0011223344556677","sender_name":"Birch","sender_time":\(sent / 1000),"text":"fire"}
        """
      let event = "{\"seq\":\(came),\"at\":\(at),\"trusted\":true,\"kind\":\"message\",\"body\":\(body)}"
      let batch = try EventBatch(parsing: Array("{\"epoch\":\"e\",\"events\":[\(event)]}".utf8))
      _ = try await stores.writer.take(batch, from: gateway, at: came)
    }

    func alert(_ gateway: String) async throws {
      let alert = HubAlert(gateway: gateway, rule: "gateway_silent", subject: "", text: "silent", beganAt: 5)
      try await stores.writer.storeAlertChanges([.begins(alert, at: 5)])
    }

    var all: [PushSubscription] { get async throws { try await stores.writer.pushSubscriptions(of: nil) } }
  }

  @Test func `a burst is one push, and nothing is pushed again, also after a restart`() async throws {
    let location = scratch.location("hub.db")
    let site = try await Site(location)
    try await site.say(1)
    #expect(try await site.subscribe())
    await site.sender.look(at: 1000)
    #expect(site.took().isEmpty, "what was there before")
    for seq in 2...5 as ClosedRange<Int64> { try await site.say(seq) }
    try await site.alert("hill")
    await site.sender.look(at: 2000)
    #expect(site.took() == ["messages"])
    await site.sender.look(at: 30_000)
    #expect(site.took() == ["alerts"], "an alert is told at the second look")
    let other = try await Site(location)
    for time in [60_000, 90_000, 120_000] as [Int64] {
      await site.sender.look(at: time)
      await other.sender.look(at: time)
    }
    #expect(site.took() + other.took() == [])
    try await site.say(6)
    await other.sender.look(at: 150_000)
    await site.sender.look(at: 150_000)
    #expect(site.took() + other.took() == ["messages"], "of two hubs one pushes it")
    #expect(site.stores.metrics.now.pushSubscriptions == 1)
  }

  @Test func `a person gets what was chosen, and old news is none`() async throws {
    let site = try await Site(scratch.location("hub.db"))
    #expect(try await site.subscribe(alerts: false, channels: ["aa11223344556677"]))
    try await site.say(1)
    try await site.alert("hill")
    for time in [10_000, 20_000] as [Int64] { await site.sender.look(at: time) }
    #expect(site.took().isEmpty)
    try await site.say(2, channel: "aa11223344556677")
    await site.sender.look(at: PushSender.newsLasts + 10_000)
    #expect(site.took().isEmpty)
    try await site.say(30_000_000, channel: "aa11223344556677")
    await site.sender.look(at: 30_000_000)
    #expect(site.took() == ["messages"])
  }

  @Test func `a first report with an old time silences no push of what its sender has just sent`() async throws {
    let site = try await Site(scratch.location("hub.db"))
    #expect(try await site.subscribe())
    let now = 10 * Self.hour
    try await site.report("slow", at: Self.hour, sent: now - 5000, came: now)
    await site.sender.look(at: now)
    #expect(site.took() == ["messages"])
    try await site.report("right", at: now, sent: now - 5000, came: now + 1000)
    await site.sender.look(at: now + 60_000)
    #expect(site.took().isEmpty, "once")
    try await site.report("late", at: Self.hour, sent: Self.hour, came: now)
    try await site.report("late", at: Self.hour, sent: now + 20 * Self.hour, came: now + 1)
    await site.sender.look(at: now + 90_000)
    #expect(site.took().isEmpty, "old news, also of a sender whose clock is ahead")
  }

  @Test func `a message that its first reporter calls old is pushed when another one reports it as new`() async throws {
    let site = try await Site(scratch.location("hub.db"))
    #expect(try await site.subscribe(1))
    #expect(try await site.subscribe(2, channels: ["aa11223344556677"]))
    var now = 10 * Self.hour
    // The sender's clock is wrong, too: nothing in the message says that it is new.
    try await site.report("slow", at: Self.hour, sent: Self.hour, came: now)
    for _ in 0..<3 {
      await site.sender.look(at: now)
      now += 30_000
    }
    #expect(site.took().isEmpty)
    try await site.report("right", at: now, sent: Self.hour, came: now)
    site.answers(503)
    await site.sender.look(at: now)
    #expect(site.requests().map(\.url) == [Self.endpoint + "1"])
    site.answers(201)
    #expect(try await site.subscribe(3), "too late for it")
    now += Self.hour
    await site.sender.look(at: now)
    #expect(site.requests().map(\.url) == [Self.endpoint + "1"], "as often as it takes")
    await site.sender.look(at: now + Self.hour)
    #expect(site.took().isEmpty, "once")
  }

  @Test func `many messages of other channels hide none of a channel that was chosen`() async throws {
    let site = try await Site(scratch.location("hub.db"), most: 3)
    #expect(try await site.subscribe(alerts: false, channels: ["aa11223344556677"]))
    for seq in 1...9 as ClosedRange<Int64> {
      try await site.say(seq, channel: seq == 5 ? "aa11223344556677" : "0011223344556677")
    }
    for time in [1000, 2000, 3000] as [Int64] { await site.sender.look(at: time) }
    #expect(site.took() == ["messages"])
    for time in [30_000, 40_000, 50_000] as [Int64] { await site.sender.look(at: time) }
    #expect(site.took().isEmpty)
    let newest = try await site.stores.monitor.newestPosition()
    let all = try await site.stores.monitor.pushedMessages(after: 0, through: newest, since: 0, now: 0, channels: ["*"])
    #expect(all?.count == 9 && all?.number == newest)
    let recent = try await site.stores.monitor.pushedMessages(
      after: 0, through: newest, since: 6000, now: 0, channels: ["*"])
    #expect(recent?.count == 4, "by their senders' times, in seconds")
  }

  @Test func `a push has the number of all alerts`() async throws {
    let site = try await Site(scratch.location("hub.db"))
    for number in 1...120 { try await site.alert("hill\(number)") }
    let content = try await site.stores.monitor.pushedAlerts(after: 0, through: .max)
    #expect(content?.count == 120 && content?.title == "hill120")
  }

  @Test func `pushes end with the session and with the person, and pause when the session is over`() async throws {
    let site = try await Site(scratch.location("hub.db"))
    #expect(try await site.subscribe())
    try await site.stores.writer.endSession("token")
    #expect(try await site.all.isEmpty)
    try await site.stores.writer.beginSession("short", of: "ana", endsAt: 5000, at: 1)
    #expect(try await site.subscribe(in: "short"))
    try await site.say(1)
    await site.sender.look(at: 6000)
    #expect(site.took().isEmpty, "the provider is asked again first")
    _ = try await site.stores.writer.setPerson("eva", role: .administer, hash: "h", at: 1)
    #expect(try await site.stores.writer.removePerson("ana") == nil)
    #expect(try await site.all.isEmpty)
  }

  @Test func `a subscription that is gone ends, and a push service that fails is asked later and later`() async throws {
    let site = try await Site(scratch.location("hub.db"))
    #expect(try await site.subscribe())
    try await site.say(1)
    site.answers(503)
    var (time, looks): (Int64, [Int]) = (1000, [])
    for _ in 0..<20 {
      await site.sender.look(at: time)
      looks.append(site.took().count)
      time += 30_000
    }
    #expect(looks.prefix(4) == [1, 1, 0, 1] && looks.reduce(0, +) < 8, "\(looks)")
    let one = try #require(try await site.all.first)
    #expect(one.error == "status 503" && one.failingSince == 1000 && one.message == 0)
    await site.sender.look(at: time)
    #expect(site.stores.metrics.now.failingPushes == 1)
    site.answers(429, ["Retry-After": "7200"])
    let asked = time + Self.hour
    await site.sender.look(at: asked)
    #expect(try await site.all.first?.nextAt == asked + 2 * Self.hour)
    site.answers(201)
    await site.sender.look(at: asked + 2 * Self.hour)
    #expect(try await site.all.first?.error == nil)
    #expect(try await site.all.first?.failures == 0)
    site.answers(410)
    try await site.say(asked + 3 * Self.hour)
    await site.sender.look(at: asked + 3 * Self.hour)
    #expect(try await site.all.isEmpty)
    #expect(site.stores.metrics.now.pushes[.gone] == 1)
  }

  @Test func `the pause between two pushes begins when the push service has answered`() async throws {
    let site = try await Site(scratch.location("hub.db"))
    #expect(try await site.subscribe())
    try await site.say(1)
    site.takes(25_000)
    await site.sender.look(at: 1000)
    #expect(site.took().count == 1)
    #expect(try await site.all.first?.nextAt == 36_000)
  }

  @Test(
    arguments: [
      ("7200", 7_200_000), ("0", 0), ("99999999999999999999999", 86_400_000), ("100000", 86_400_000), ("-5", nil),
      ("+5", nil), ("", nil), ("Wed, 21 Oct 2026 07:28:00 GMT", nil),
    ] as [(String, Int64?)])
  func `a push service that asks for too long a pause gets the longest`(_ asked: String, _ pause: Int64?) {
    let answer = HTTPResponse(status: 429, headers: ["Retry-After": asked])
    #expect(PushOutcome(.success(answer)) == .failed("status 429", retryAfter: pause))
  }

  @Test func `a push service without an answer holds back no browser of another`() async throws {
    let site = try await Site(scratch.location("hub.db"))
    for number in 1...10 { #expect(try await site.subscribe(number)) }
    _ = try await site.stores.writer.setPerson("eva", role: .view, hash: "h", at: 1)
    try await site.stores.writer.beginSession("other", of: "eva", at: 1)
    for number in 1...10 {
      #expect(try await site.subscribe(number, of: "eva", in: "other", through: "https://web.push.apple.com/"))
    }
    try await site.say(1)
    site.isSilent("fcm")
    await site.sender.look(at: 1000)
    let first = site.requests().map(\.url)
    let ofSilent = first.filter { $0.contains("fcm") }
    #expect(ofSilent.count <= 8, "\(first)")
    #expect(first.count - ofSilent.count == 10, "\(first)")
    site.isSilent(nil)
    for time in [2000, 40_000] as [Int64] { await site.sender.look(at: time) }
    #expect(site.took().count == 10, "those who waited get it, too")
  }

  @Test func `a subscription that fails for three days ends`() {
    let one = PushSubscription(
      id: "i", person: "ana", session: "s", device: "d", endpoint: "e", key: "k", auth: "a", wantsAlerts: true,
      channels: [])
    let failed = PushOutcome.failed("no answer", retryAfter: nil)
    let first = PushSender.after(failed, one, at: 1000)
    #expect(first?.nextAt == 31_000 && first?.failures == 1)
    var last = one
    (last.failures, last.failingSince) = (60, 1000)
    #expect(PushSender.after(failed, last, at: 1000 + PushSender.givesUp - 1)?.nextAt != nil)
    #expect(PushSender.after(failed, last, at: 1000 + PushSender.givesUp) == nil)
    last.failures = 2
    #expect(PushSender.after(failed, last, at: 1000 + PushSender.givesUp)?.failures == 3, "the clock was set")
    #expect(PushSender.after(.gone, one, at: 1) == nil)
    #expect(PushSender.after(.failed("x", retryAfter: .max), one, at: 0)?.nextAt == 24 * Self.hour)
  }

  @Test func `subscriptions are bounded, of a person and of all`() async throws {
    let site = try await Site(scratch.location("hub.db"))
    for number in 1...10 { #expect(try await site.subscribe(number)) }
    #expect(try await !site.subscribe(11), "as many as a person may have")
    #expect(try await site.subscribe(10), "again in the same browser")
    #expect(try await site.all.count == 10)
    #expect(try await !site.stores.writer.endPush(PushSubscription.id(of: Self.endpoint + "1"), of: "eva"))
    #expect(try await site.stores.writer.endPush(PushSubscription.id(of: Self.endpoint + "1"), of: "ana"))
    #expect(try await site.subscribe(11))
  }

  @Test func `the key is made once, and stays`() async throws {
    let location = scratch.location("hub.db")
    let first = try await Site(location).sender.ownKey()
    let second = try await Site(location).sender.ownKey()
    #expect(try #require(first).point == second?.point)
  }
}

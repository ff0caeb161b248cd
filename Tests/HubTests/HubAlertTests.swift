// SPDX-License-Identifier: MIT

import JSON
import TestSupport
import Testing
import Timing

@testable import Hub

@Suite struct HubAlertTests {
  private let scratch = Scratch()

  private func store() throws -> HubStore { try HubStore(location: scratch.location("hub.db")) }

  private func event(
    _ seq: Int64, _ state: String, since: Int64 = 100, kind: String = "alert", rule: String = "backlogged",
    subject: String = "hub"
  ) throws -> HubEvent {
    let more = state == "acknowledged" ? #","by":"ana","note":"seen""# : ""
    return HubEvent(
      seq: seq, at: 1000 + seq, trusted: true, kind: kind,
      body: try JSONValue(
        parsing: #"{"rule":"\#(rule)","subject":"\#(subject)","state":"\#(state)","since":\#(since),"#
          + #""text":"waits"\#(more)}"#))
  }

  private func take(_ events: [HubEvent], _ store: HubStore, epoch: String = "e", at now: Int64 = 5000) async throws {
    let batch = PreparedBatch(events, of: epoch, in: .messages, from: "hill", after: nil, at: now)
    _ = try await store.keepUnordered([batch])
  }

  private func all(_ store: HubStore) async throws -> [HubAlert] {
    try await store.alerts(before: .max, openOnly: false, limit: 100).alerts
  }

  /// As consumers of brokers get them: in any order, and repeatedly.
  @Test(arguments: 0..<12 as Range<UInt64>)
  func `the events of an alert give one alert, in any order and with repetitions`(_ seed: UInt64) async throws {
    var random = SeededRandom(seed: seed)
    let store = try store()
    var events = try [event(1, "begin"), event(2, "acknowledged"), event(3, "end")]
    events += [events[0], events[2]]
    for event in events.shuffled(using: &random) { try await take([event], store) }
    let found = try await all(store)
    #expect(found.count == 1)
    let alert = try #require(found.first)
    #expect(alert.gateway == "hill" && alert.rule == "backlogged" && alert.subject == "hub" && alert.text == "waits")
    #expect(alert.beganAt == 100 && alert.endedAt == 1003 && alert.note == "seen")
    #expect(alert.acknowledgedBy == "hill: ana", "no person here, whatever the gateway says")
    #expect(try await store.alertCounts(of: []).isEmpty)
  }

  @Test func `an ended alert has its final text`() async throws {
    let store = try store()
    var end = try event(2, "end")
    end.body = try JSONValue(
      parsing: #"{"rule":"backlogged","subject":"hub","state":"end","since":100,"text":"1901 wait"}"#)
    try await take([event(1, "begin"), end], store)
    #expect(try await all(store).map(\.text) == ["1901 wait"])
  }

  @Test func `a new alert of the same subject is separate, and ends an earlier one whose end was lost`() async throws {
    let store = try store()
    try await take([event(1, "begin"), event(2, "begin", since: 200)], store)
    let found = try await all(store)
    #expect(found.map(\.beganAt) == [200, 100] && found[0].endedAt == nil && found[1].endedAt == 1002)
    #expect(try await store.alertCounts(of: ["hill", "valley"]) == ["hill": 1])
    // The older alert's own end arrives late, and the newer alert stays open.
    try await take([event(3, "end")], store)
    #expect(try await all(store).map { $0.endedAt == nil } == [true, false])
  }

  @Test func `events of older gateways and invalid alerts are stored as events and cause no alert`() async throws {
    let store = try store()
    let bodies = [
      #"{"source":"battery","state":"low","battery_mv":3300}"#, "{}", #"{"rule":"x","state":"begin"}"#,
      #"{"rule":"X; DROP","state":"begin","since":1}"#, #"{"rule":7,"state":"begin","since":1}"#,
      #"{"rule":"x","state":"maybe","since":1}"#, #"{"rule":"x","state":"begin","since":"1"}"#,
    ]
    let events = try bodies.enumerated().map { number, body in
      HubEvent(seq: Int64(number + 1), at: 1, trusted: true, kind: "alert", body: try JSONValue(parsing: body))
    }
    try await take(events, store)
    #expect(try await all(store).isEmpty)
    let long = String(repeating: "x", count: 5000) + "\\u0000"
    let body = #"{"rule":"x","subject":"\#(long)","state":"begin","since":1,"text":"\#(long)"}"#
    try await take(
      [HubEvent(seq: 99, at: 1, trusted: true, kind: "alert", body: try JSONValue(parsing: body))], store)
    let alert = try #require(try await all(store).first)
    #expect(alert.subject.utf8.count == HubBounds.keyBytes && alert.text.utf8.count == AlertReport.textBytes)
  }

  @Test func `an event about a low battery causes an alert`() async throws {
    let store = try store()
    func power(_ seq: Int64, _ state: String) throws -> HubEvent {
      HubEvent(
        seq: seq, at: seq, trusted: true, kind: "power",
        body: try JSONValue(
          parsing: #"{"source":"battery","state":"\#(state)","rule":"battery_low","since":7,"text":"low: 3.3 V"}"#))
    }
    try await take([power(1, "low")], store)
    #expect(try await store.alertCounts(of: []) == ["hill": 1])
    try await take([power(2, "ok")], store)
    #expect(try await all(store).map(\.endedAt) == [2])
  }

  @Test func `several hubs store the same alert once, and its first acknowledgement counts`() async throws {
    let (one, other) = (try store(), try store())
    let alert = HubAlert(gateway: "hill", rule: "gateway_silent", subject: "", text: "silent", beganAt: 50)
    for hub in [one, other, one] { try await hub.storeAlertChanges([.begins(alert, at: 60)]) }
    let found = try await all(other)
    #expect(found.count == 1)
    let id = try #require(found.first?.id)
    #expect(try await one.acknowledgeAlert(id, by: "ana", note: nil, at: 70)?.acknowledgedBy == "ana")
    #expect(try await other.acknowledgeAlert(id, by: "ben", note: "too late", at: 80)?.acknowledgedBy == "ana")
    #expect(try await one.acknowledgeAlert(id + 1, by: "ana", note: nil, at: 70) == nil)
    for hub in [other, one] { try await hub.storeAlertChanges([.ends(alert, at: 90)]) }
    // The slower hub notices the silence late, by the same last contact.
    try await other.storeAlertChanges([.begins(alert, at: 95)])
    #expect(try await all(one).map(\.endedAt) == [90])
  }

  @Test func `alerts are listed by rule and by gateways, and acknowledged together`() async throws {
    let store = try store()
    let silent = "gateway_silent"
    for (gateway, rule) in [("a", silent), ("b", silent), ("b", "retention_held"), ("c", silent)] {
      let alert = HubAlert(gateway: gateway, rule: rule, subject: "", text: "x", beganAt: 50)
      try await store.storeAlertChanges([.begins(alert, at: 60)])
    }
    func listed(_ gateways: [String], _ rule: String?) async throws -> [String] {
      let found = try await store.alerts(before: .max, openOnly: true, gateways: gateways, rule: rule, limit: 9).alerts
      return found.map { "\($0.gateway) \($0.rule)" }
    }
    #expect(try await listed([], silent) == ["c gateway_silent", "b gateway_silent", "a gateway_silent"])
    #expect(try await listed(["a", "b"], nil) == ["b retention_held", "b gateway_silent", "a gateway_silent"])
    #expect(try await listed(["a", "b"], "retention_held") == ["b retention_held"])
    let ids = try await all(store).map(\.id)
    let seen = try await store.acknowledgeAlerts(ids + [999], by: "ana", note: "the mast", at: 70)
    #expect(seen.count == 4 && seen.allSatisfy { $0.acknowledgedBy == "ana" && $0.note == "the mast" })
    #expect(try await store.alertCensus().unacknowledged == 0)
  }

  @Test func `a gateway that lost its database ends its forgotten alerts by its state`() async throws {
    let store = try store()
    try await take([event(1, "begin")], store, at: 5000)
    func tell(_ state: String, at time: Int64) async throws {
      _ = try await store.keep([GatewayState(gateway: "hill", name: "gateway", at: time, body: state)])
      try await store.endLostAlerts(at: time)
    }
    try await tell(#"{"alerts":1}"#, at: 100_000)
    #expect(try await store.alertCounts(of: []) == ["hill": 1])
    try await tell("{}", at: 200_000)
    #expect(try await store.alertCounts(of: []) == ["hill": 1], "an older gateway says nothing of them")
    try await tell(#"{"alerts":0}"#, at: 6000)
    #expect(try await store.alertCounts(of: []) == ["hill": 1], "the state may be older than the event")
    try await tell(#"{"alerts":0}"#, at: 300_000)
    #expect(try await store.alertCounts(of: []).isEmpty)
  }

  @Test func `a lying gateway cannot send the hub's own alerts, fill the list or displace other alerts`()
    async throws
  {
    // A number stands for many events here.
    let store = try HubStore(location: scratch.location("hub.db"), alertsOnConflicts: false)
    func lyingEvent(_ rule: String, _ number: Int64, _ state: String) throws -> HubEvent {
      HubEvent(
        seq: number + 1, at: number.isMultiple(of: 2) ? .min : .max, trusted: true, kind: "alert",
        body: try JSONValue(
          parsing: #"{"rule":"\#(rule)","subject":"\#(number)","state":"\#(state)","#
            + #""since":\#(number - 9_007_199_254_740_991)}"#))
    }
    try await take([event(1, "begin"), event(2, "end")], store)
    for (number, rule) in [
      "gateway_silent", "gateway_conflict", "gateways_refused", "hub_disk_full", "hub_database", "hub_store_lost",
      "retention_held",
    ]
    .enumerated() {
      try await take(
        [lyingEvent(rule, Int64(number), "begin"), lyingEvent(rule, Int64(number), "end")], store, epoch: "own")
    }
    #expect(try await all(store).map(\.rule) == ["backlogged"], "they would be taken for the hub's")
    for start in stride(from: 0 as Int64, to: 3000, by: 500) {
      let events = try (start..<start + 500).map { try lyingEvent("lie", $0, "begin") }
      let batch = PreparedBatch(events, of: "lies", in: .messages, from: "liar", after: nil, at: 6000)
      _ = try await store.keepUnordered([batch])
    }
    #expect(try await store.alertCounts(of: []) == ["liar": 1024])
    let kept = try await store.number("SELECT count(*) FROM alerts WHERE gateway = 'liar'")
    #expect(kept <= 1024 + 1000 + 64)
    #expect(try await store.number("SELECT count(*) FROM alerts WHERE gateway = 'hill'") == 1)
  }

  @Test func `ended alerts are bounded, although each uses two sequence numbers`() async throws {
    let store = try store()
    for number in 1...1300 as ClosedRange<Int64> {
      let events = try ["begin", "end"].enumerated().map {
        try event(2 * number + Int64($0), $1, subject: "\(number)")
      }
      try await take(events, store)
    }
    #expect(try await store.number("SELECT count(*) FROM alerts") <= 1000 + 64)
  }

  @Test func `acknowledged alerts are bounded, too`() async throws {
    let store = try store()
    try await take((1...3000).map { try event(Int64($0), "acknowledged", subject: "\($0)") }, store)
    #expect(try await store.alertCounts(of: []) == ["hill": 1024])
  }

  @Test func `an alert about refused publications has their number from the first one on`() async throws {
    let store = try store()
    try await store.reportRefusedGateways("publications are refused", 1, at: 5)
    let text = try await store.alerts(before: .max, openOnly: true, limit: 1).alerts.first?.text
    #expect(text == "publications are refused; 1 so far")
  }

  @Test func `alerts that are open at the gateway do not prevent that others end`() async throws {
    let store = try store()
    try await take((1...1000).map { try event(Int64($0), "begin", subject: "\($0)") }, store)
    let batch = PreparedBatch([try event(1, "begin")], of: "e", in: .messages, from: "valley", after: nil, at: 5000)
    _ = try await store.keepUnordered([batch])
    _ = try await store.keep([
      GatewayState(gateway: "hill", name: "gateway", at: 100_000, body: #"{"alerts":50}"#),
      GatewayState(gateway: "valley", name: "gateway", at: 100_000, body: #"{"alerts":0}"#),
    ])
    try await store.endLostAlerts(at: 100_000)
    #expect(try await store.alertCounts(of: []) == ["hill": 1000])
  }
}

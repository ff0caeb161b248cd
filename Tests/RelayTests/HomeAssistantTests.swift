// SPDX-License-Identifier: MIT

import MQTT
import Store
import TestSupport
import Testing

@testable import Relay

@Suite struct HomeAssistantTests {
  @Test func `a description counts as sent when it is published, not when it is made`() throws {
    let scratch = Scratch(inMemory: true)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    var home = HomeAssistant(
      prefix: "ha", notify: [], showsAlerts: false, gateway: "hill", statusTopic: "s", commandTopic: nil)
    let node = String(repeating: "ab", count: 32)
    let readings = #"[{"type":"voltage","channel":1,"value":3.9},{"type":"humidity","channel":1,"value":40}]"#
    let body = Array(#"{"node":"\#(node)","readings":\#(readings)}"#.utf8)
    let event = JournalEvent(seq: 1, at: 1, trusted: true, kind: "telemetry", body: body)
    // The broker refuses an event before this one: the batch is made again.
    let first = home.messages(for: event, store)
    let again = home.messages(for: event, store)
    #expect(first == again && first.count == 3)
    home.published(first[0])
    #expect(home.isDescribed(first[0]) && !home.isDescribed(first[1]) && !home.isDescribed(first[2]))
    #expect(home.messages(for: event, store) == Array(first.dropFirst()))
    for message in first { home.published(message) }
    #expect(home.messages(for: event, store) == [first[2]], "the state is sent each time")
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import TestSupport
import Testing

@testable import Relay
@testable import Store

@Suite struct TopicTests {
  private func topic(_ name: String) throws -> String {
    try TopicTemplate("mesh/{sender_name}/x").render(
      kind: "message", gateway: "g", body: .object([("sender_name", .string(name))]))
  }

  @Test func `characters over which a broker hangs up are replaced in a topic`() throws {
    let bad: [UInt32] = [0, 1, 0x1F, 0x7F, 0x80, 0x85, 0x9F, 0xFDD0, 0xFDEF, 0xFFFE, 0xFFFF, 0x1FFFE, 0x10FFFF]
    for value in bad {
      let scalar = try #require(Unicode.Scalar(value))
      #expect(try topic("a\(Character(scalar))b") == "mesh/a_b/x", "U+\(String(value, radix: 16))")
    }
    // A combining accent forms one Character with the wildcard.
    #expect(try topic("+\u{301}#\u{301}/\u{301}").unicodeScalars.contains { "+#".unicodeScalars.contains($0) } == false)
    #expect(try topic("Jörg 🙂 \u{A0}\u{FFFD}") == "mesh/Jörg 🙂 \u{A0}\u{FFFD}/x")
    #expect(try topic("") == "mesh/none/x")
  }

  @Test func `a name cannot make a topic of the broker's own`() throws {
    let template = try TopicTemplate("{sender_name}/x")
    let body = JSONValue.object([("sender_name", .string("$SYS"))])
    #expect(template.render(kind: "message", gateway: "g", body: body) == "_SYS/x")
    #expect(try TopicTemplate("$share/{kind}").render(kind: "message", gateway: "g", body: body) == "$share/message")
  }

  private func upstream(_ name: String, topic: String, commands: String?) throws -> UpstreamSettings {
    let mqtt = UpstreamSettings.MQTTSettings(
      topic: try TopicTemplate(topic), statusTopic: try TopicTemplate("s"),
      commandTopic: try TopicTemplate(commands ?? "unused"))
    return UpstreamSettings(
      kind: .mqtt(mqtt), journal: Upstream.Settings(name: name, allowed: commands == nil ? [] : ["send"]),
      url: "mqtt://host")
  }

  @Test func `a name from the air cannot make a topic that the gateway reads`() throws {
    let scratch = Scratch()
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"))
    var all = [
      try upstream("a", topic: "m/{sender_name}", commands: nil), try upstream("b", topic: "x", commands: "m/command"),
      try upstream("c", topic: "y", commands: "m/command_"),
    ]
    UpstreamSettings.separate(&all)
    guard case .mqtt(let settings) = all[0].kind else { return }
    #expect(settings.foreignCommandTopics.count == 2)
    let carrier = try MQTTCarrier(all[0], settings, proxy: nil, store: store, on: EventLoop())
    #expect(carrier.apart("m/command") == "m/command__" && carrier.apart("m/other") == "m/other")
  }

  @Test func `another upstream's command topic changes on a reload without a new connection of the others`() throws {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()))
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"), clocks: loop.clocks)
    var all = [
      try upstream("a", topic: "m/{sender_name}", commands: nil), try upstream("b", topic: "x", commands: "m/command"),
    ]
    UpstreamSettings.separate(&all)
    let relay = try Relay(all, store: store, on: loop, log: Log(level: .error, sink: { _, _ in }))
    defer { relay.stop() }
    let before = relay.upstreams
    all[1] = try upstream("b", topic: "x", commands: "m/other")
    UpstreamSettings.separate(&all)
    #expect(try relay.change(to: all).map(\.name) == ["b"])
    let kept = try #require(relay.upstreams.first)
    #expect(kept === before.first && !kept.isClosed && relay.upstreams.last !== before.last)
    let carrier = try #require(kept.carrier as? MQTTCarrier)
    #expect(carrier.apart("m/other") == "m/other_" && carrier.apart("m/command") == "m/command")
  }

  @Test func `an invalid command counts against the limit, and writes nothing`() throws {
    let scratch = Scratch()
    let loop = EventLoop()
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"))
    var lines: [String] = []
    let desk = CommandIntake(
      Upstream.Settings(name: "b", allowed: ["send"], commandsPerMinute: 3), store: store, on: loop,
      log: Log(level: .debug, sink: { _, line in lines.append(line) }))
    var answers: [String] = []
    let junk = ["{}", "x", #"{"id":"a","ok":false,"code":"invalid"}"#, #"{"kind":"command","body":{}}"#, "{}", "{}"]
    for text in junk + [#"{"id":"a","command":"send"}"#] {
      _ = loop.begin {
        answers.append((await desk.take(Array(text.utf8))).map { String(decoding: $0, as: UTF8.self) } ?? "none")
      }
    }
    let before = store.lastSeq
    loop.afterTurn { store.commit() }
    #expect(turn(loop) { answers.count == 7 })
    #expect(answers.map(\.isEmpty) == [false, false, true, false, true, true, false], "\(answers)")
    #expect(answers.last?.contains("at most 3 commands a minute") == true && desk.refused == 7)
    #expect(store.lastSeq == before, "invalid commands are not journaled")
    #expect(lines.count == 2, "each kind of refusal is logged once: \(lines)")
  }

  @Test(arguments: ["a+", "a+\u{301}", "#\u{301}", "a\u{85}", ""])
  func `a template that no broker accepts is refused`(_ text: String) {
    #expect(throws: TopicTemplate.Failure.self) { try TopicTemplate(text) }
  }
}

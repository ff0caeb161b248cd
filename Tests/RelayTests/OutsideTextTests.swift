// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import TestSupport
import Testing

@testable import Relay
@testable import Store

/// Executes commands when the test permits it.
private final class SlowHost: RelayHost {
  var underWay: [(id: String, answer: Promise<CommandAnswer>)] = []

  func carryOut(_ command: RemoteCommand) async -> CommandAnswer {
    let answer = Promise<CommandAnswer>()
    underWay.append((command.id, answer))
    // `try?`: this task is never cancelled.
    return (try? await answer.value()) ?? .notKept(message: "cancelled")
  }

  func documentsChanged() {}
  func take(_ update: ChannelUpdate) -> ChannelUpdateFate { .skipped }
  var exchangedChannels: [String] { [] }
  var takenGateways: [String] { [] }
}

/// Texts from servers and from a configuration that look the same are different if their bytes differ.
@Suite struct OutsideTextTests {
  private let one = "caf\u{E9}"
  private let two = "cafe\u{301}"

  @Test func `two commands whose ids look the same are both carried out, each with its answer`() throws {
    let scratch = Scratch()
    let loop = EventLoop()
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"))
    let desk = CommandIntake(
      Upstream.Settings(name: "hub", allowed: ["send"]), store: store, on: loop, log: Log())
    let host = SlowHost()
    desk.host = host
    var answers: [String] = []
    for id in [one, two, one] {
      let command = JSONWriter.object { json in
        json.field("id", id)
        json.field("command", "send")
      }
      _ = loop.begin {
        answers.append((await desk.take(command)).map { String(decoding: $0, as: UTF8.self) } ?? "none")
      }
    }
    loop.afterTurn { store.commit() }
    #expect(turn(loop) { host.underWay.count == 2 })
    #expect(host.underWay.map { Array($0.id.utf8) } == [Array(one.utf8), Array(two.utf8)])
    for (number, command) in host.underWay.enumerated() { command.answer.keep(.done(Array("\(number)".utf8))) }
    #expect(turn(loop) { answers.count == 3 })
    #expect(
      answers.filter { $0.contains("\"result\":0") }.count == 2
        && answers.filter { $0.contains("\"result\":1") }.count == 1)
  }

  private func broker(topic: String, clientID: String? = nil, notify: [String] = []) throws -> UpstreamSettings {
    let mqtt = UpstreamSettings.MQTTSettings(
      clientID: clientID, topic: try TopicTemplate(topic), statusTopic: try TopicTemplate("s"),
      homeAssistantNotify: notify)
    return UpstreamSettings(kind: .mqtt(mqtt), journal: Upstream.Settings(name: "b"), url: "mqtt://host")
  }

  @Test func `a reload sees the difference between topics with different forms of é`() throws {
    let before = try broker(topic: one, clientID: one, notify: [one])
    #expect(before.isExactly(try broker(topic: one, clientID: one, notify: [one])))
    #expect(!before.isExactly(try broker(topic: two, clientID: one, notify: [one])))
    #expect(!before.isExactly(try broker(topic: one, clientID: two, notify: [one])))
    #expect(!before.isExactly(try broker(topic: one, clientID: one, notify: [two])))
  }

  @Test func `a short acknowledgement is a number in the range of those in JSON`() {
    func position(_ text: String) -> Int64? { HubOverHTTP.position(Array(text.utf8)) }
    #expect(position("0") == 0 && position("17") == 17)
    #expect(position("9007199254740992") == 9_007_199_254_740_992)
    for text in ["", "-1", "x", "1.5", "9007199254740993", "9223372036854775807", "99999999999999999999"] {
      #expect(position(text) == nil, "\(text)")
    }
  }

  @Test func `a broker's address is split by its bytes`() {
    #expect(
      UpstreamSettings.broker("ws://host/\u{301}x").map { Array(($0.path ?? "").utf8) } == Array("/\u{301}x".utf8))
    #expect(UpstreamSettings.broker("wss://host")?.path == "/" && UpstreamSettings.broker("mqtts://host")?.port == 8883)
    for url in [
      "mqtt:/\u{301}/host", "mqtt\u{301}://host", "mqtt://host/\u{301}", "ws://a@\u{301}host/", "ws://host/a\nb",
    ] {
      #expect(UpstreamSettings.broker(url) == nil)
    }
  }
}

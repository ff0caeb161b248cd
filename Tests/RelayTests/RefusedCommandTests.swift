// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import MQTT
import TestSupport
import Testing
import Timing

@testable import Relay
@testable import Store

/// A gateway whose disk refuses the first commands.
private final class FullDisk: RelayHost {
  private var left: Int
  private(set) var taken: [String] = []
  var exchangedChannels: [String] { [] }
  var takenGateways: [String] { [] }

  init(refusing count: Int) { left = count }

  func carryOut(_ command: RemoteCommand) async -> CommandAnswer {
    guard left == 0 else {
      left -= 1
      return .notKept(message: "the disk is full")
    }
    taken.append(command.id)
    return .done(Array("{}".utf8))
  }
  func documentsChanged() {}
  func take(_ update: ChannelUpdate) -> ChannelUpdateFate { .skipped }
}

/// Commands that the disk refuses at first.
@Suite struct RefusedCommandTests {
  @Test func `a broker's command that the disk refuses is tried again over the same connection`() throws {
    let (scratch, loop, host) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()), FullDisk(refusing: 60))
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"), clocks: loop.clocks)
    loop.afterTurn { store.commit() }
    let settings = UpstreamSettings.MQTTSettings(
      topic: try TopicTemplate("t"), statusTopic: try TopicTemplate("s"), commandTopic: try TopicTemplate("command"))
    let carrier = try MQTTCarrier(
      UpstreamSettings(
        kind: .mqtt(settings), journal: Upstream.Settings(name: "b", allowed: ["send"]), url: "mqtt://host"), settings,
      proxy: nil, store: store, on: loop)
    var lines: [String] = []
    let intake = CommandIntake(
      Upstream.Settings(name: "b", allowed: ["send"], commandsPerMinute: 10), store: store, on: loop,
      log: Log(level: .warning, sink: { _, line in lines.append(line) }))
    intake.host = host
    carrier.commands = intake
    var acknowledged = 0
    for number in 1...10 {
      let command = MQTTMessage(
        topic: "command", payload: Array(#"{"id":"c\#(number)","command":"send","to":"x","text":"y"}"#.utf8))
      carrier.client.onMessage(command, { acknowledged += 1 })
    }
    loop.pass(.seconds(5))
    #expect(acknowledged == 0 && host.taken.isEmpty)
    loop.pass(.seconds(120))
    #expect(acknowledged == 10 && Set(host.taken).count == 10, "a try that the disk refused is not one of the ten")
    #expect(lines.count == 1, "\(lines)")
    carrier.close()
    withExtendedLifetime(intake) {}
  }

  @Test func `a broker's command that waits in an old session is refused, and told, when none is allowed any more`()
    throws
  {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()))
    let store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: "hill"), clocks: loop.clocks)
    loop.afterTurn { store.commit() }
    let settings = UpstreamSettings.MQTTSettings(
      topic: try TopicTemplate("t"), statusTopic: try TopicTemplate("s"), commandTopic: try TopicTemplate("command"))
    let carrier = try MQTTCarrier(
      UpstreamSettings(kind: .mqtt(settings), journal: Upstream.Settings(name: "b"), url: "mqtt://host"), settings,
      proxy: nil, store: store, on: loop)
    var lines: [String] = []
    let intake = CommandIntake(
      Upstream.Settings(name: "b"), store: store, on: loop,
      log: Log(level: .warning, sink: { _, line in lines.append(line) }))
    carrier.commands = intake
    var acknowledged = 0
    let command = MQTTMessage(
      topic: "command", payload: Array(#"{"id":"c","command":"send","to":"x","text":"y"}"#.utf8))
    carrier.client.onMessage(command, { acknowledged += 1 })
    loop.pass(.seconds(5))
    let answer = try store.commandAnswer("c", of: "b").map { String(decoding: $0, as: UTF8.self) }
    #expect(acknowledged == 1 && answer?.contains("not_allowed") == true, "\(answer ?? "none")")
    #expect(intake.unpermitted == ["send"] && lines.contains { $0.contains("the command send is refused") }, "\(lines)")
    carrier.close()
    withExtendedLifetime((intake, scratch)) {}
  }

  @Test func `the reply of a hook that the disk refuses is not given up`() throws {
    signal(SIGPIPE, SIG_IGN)
    let (scratch, loop, host) = (Scratch(), EventLoop(), FullDisk(refusing: 1))
    chmod(scratch.folder.path(), 0o777)
    let program = scratch.write("hook.sh", "#!/bin/sh\ncat >/dev/null\necho hello\n")
    chmod(program, 0o755)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    loop.afterTurn { store.commit() }
    let log = Log(level: .error, sink: { _, _ in })
    let hook = HookCarrier(
      .init(
        run: [program], user: geteuid() == 0 ? "nobody" : nil, timeout: .seconds(10), memory: 1 << 28, replies: true,
        socket: ""), name: "h", takesGaps: true, store: store, on: loop, log: log)
    let intake = CommandIntake(
      Upstream.Settings(name: "hook/h", allowed: ["send"]), store: store, on: loop, log: log)
    intake.host = host
    hook.commands = intake
    let body = Array(#"{"kind":"channel","channel":"00112233445566778899aabbccddeeff","text":"hi"}"#.utf8)
    let event = JournalEvent(seq: 1, at: 1, trusted: true, kind: "message", body: body)
    var verdicts: [Verdict] = []
    _ = loop.begin { for _ in 1...2 { verdicts.append(await hook.carry(Batch(event, lane: nil))) } }
    #expect(turn(loop) { verdicts.count == 2 }, "\(verdicts)")
    #expect(verdicts.first == .retry(reason: "the reply could not be stored", after: nil), "\(verdicts)")
    #expect(verdicts.last == .acknowledged(through: 1) && host.taken.count == 1)
    withExtendedLifetime(intake) {}
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import TestSupport
import Testing
import Timing

@testable import Relay
@testable import Store

/// A hub with three messages of one channel.
private final class MessagesSource: UpdatesSource {
  weak var updates: (any UpdatesListener)?

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    let body = #"{"gateway":"a","channel":"0011223344556677","sender_name":"Ana","sender_time":1,"text":"hello"}"#
    let updates = (1...3).map { #"{"seq":\#($0),"at":\#($0),"id":"x","body":\#(body)}"# }.joined(separator: ",")
    let text =
      switch question {
      case .state: #"{"buckets":[{"bucket":"channel/0011223344556677","seq":3,"at":3}]}"#
      case .page: #"{"first":1,"last":3,"last_at":3,"updates":[\#(updates)]}"#
      }
    // `try?`: what is written here is JSON.
    return try? JSONValue(parsing: Array(text.utf8))
  }
}

private final class Host: RelayHost {
  var fates: [ChannelUpdateFate] = [.leftOut(.notAccepted), .leftOut(.unknownAge), .sent]
  func carryOut(_ command: RemoteCommand) async -> CommandAnswer { .done(Array("1".utf8)) }
  func documentsChanged() {}
  func take(_ update: ChannelUpdate) -> ChannelUpdateFate { fates.removeFirst() }
  var exchangedChannels: [String] { ["0011223344556677"] }
  var takenGateways: [String] { [] }
}

@Suite struct LeftOutTests {
  @Test func `what is not sent is counted by why, and said once an hour`() {
    var reports = LeftOutReports()
    let first = reports.add(.notAccepted, now: MonotonicTime(seconds: 0))
    #expect(first?.contains("1 of gateways that relay.gateways does not name") == true)
    for second in 1..<3600 { #expect(reports.add(.unknownAge, now: MonotonicTime(seconds: Double(second))) == nil) }
    let second = reports.add(.notAccepted, now: MonotonicTime(seconds: 3600))
    #expect(second?.contains("1 of gateways") == true && second?.contains("3599 that waited") == true)
    #expect(reports.counts == [.notAccepted: 2, .unknownAge: 3599])
  }

  @Test func `a report that is left out does not keep another one of the same message from being judged`() throws {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()))
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    loop.afterTurn { store.commit() }
    var lines: [String] = []
    let log = Log(level: .notice, sink: { _, line in lines.append(line) })
    let intake = CommandIntake(
      CommandIntake.Settings(allowed: [], perMinute: 10), upstream: "hub", store: store, on: loop, log: log)
    let (source, host) = (MessagesSource(), Host())
    let sync = BucketSync(
      upstream: "hub", rights: [], store: store, source: source, commands: intake, on: loop, log: log,
      acknowledged: { 0 })
    sync.host = host
    defer { sync.stop() }
    sync.reachable(true)
    for _ in 0..<200 where !host.fates.isEmpty {
      let timer = loop.schedule(at: loop.now + .seconds(1)) {}
      loop.turn(wait: true)
      timer.cancel()
    }
    for _ in 0..<20 {
      let timer = loop.schedule(at: loop.now + .seconds(1)) {}
      loop.turn(wait: true)
      timer.cancel()
    }
    #expect(host.fates.isEmpty)
    #expect(sync.report.leftOut == [.notAccepted: 1, .unknownAge: 1])
    #expect(sync.report.buckets.first?.applied == 1 && sync.report.buckets.first?.skipped == 2)
    #expect(lines.filter { $0.contains("left out") }.count == 1)
  }
}

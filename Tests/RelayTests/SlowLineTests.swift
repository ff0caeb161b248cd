// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Store
import TestSupport
import Testing

@testable import Relay

/// A hub behind a line that transfers ten updates in the time that an answer has.
private final class SlowSource: UpdatesSource {
  static let newest: Int64 = 40
  weak var updates: BucketSync?
  private(set) var limits: [Int] = []

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    guard case .page(_, let from, _, let limit, _) = question else {
      return json(#"{"buckets":[{"bucket":"commands","seq":\#(Self.newest),"at":1}]}"#)
    }
    limits.append(limit)
    if limit > 10 { throw BucketSync.Trouble(message: "it does not end", isTooLong: true) }
    let last = min(Self.newest, from.seq + Int64(limit))
    let updates = (from.seq + 1...last).map {
      #"{"seq":\#($0),"at":1,"id":"c\#($0)","body":{"command":"status"}}"#
    }
    let isMore = last < Self.newest
    return json(
      #"{"first":1,"last":\#(last),"last_at":1,"more":\#(isMore),"updates":[\#(updates.joined(separator: ","))]}"#)
  }

  // `try?`: this text is JSON.
  private func json(_ text: String) -> JSONValue? { try? JSONValue(parsing: Array(text.utf8)) }
}

@Suite struct SlowLineTests {
  @Test func `a page that does not end in time is asked for in halves, until the line transfers it`() throws {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()))
    let store = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: loop.clocks)
    loop.afterTurn { store.commit() }
    var lines: [String] = []
    let log = Log(level: .notice, sink: { _, line in lines.append(line) })
    let intake = CommandIntake(
      Upstream.Settings(name: "hub", allowed: [], commandsPerMinute: 10), store: store, on: loop, log: log)
    let source = SlowSource()
    let sync = BucketSync(
      upstream: "hub", rights: [], store: store, source: source, commands: intake, on: loop, log: log,
      acknowledged: { 0 })
    defer { sync.stop() }
    sync.reachable(true)
    loop.pass(.seconds(1800))
    #expect(source.limits.prefix(5) == [100, 50, 25, 12, 6])
    #expect(source.limits.dropFirst(5).allSatisfy { $0 == 6 }, "\(source.limits)")
    let commands = try #require(sync.report.buckets.first { $0.name == "commands" })
    #expect(commands.seq == SlowSource.newest && commands.behind == 0)
    #expect(lines.contains { $0.contains("it does not end") }, "\(lines)")
  }
}

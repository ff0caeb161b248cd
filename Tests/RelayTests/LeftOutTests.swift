// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import TestSupport
import Testing
import Timing

@testable import Relay
@testable import Store

/// A hub with three updates of one channel in each list: of the same message, or of three.
private final class MessagesSource: UpdatesSource {
  weak var updates: BucketSync?
  private let lists: [String]
  private let ids: [String]
  /// The first update that the hub still has.
  var first = 1

  init(_ lists: [String] = ["channel/0011223344556677"], ids: [String] = ["x", "x", "x"]) {
    self.lists = lists
    self.ids = ids
  }

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    let body = #"{"gateway":"a","channel":"0011223344556677","sender_name":"Ana","sender_time":1,"text":"hello"}"#
    let updates = (first...3).map { #"{"seq":\#($0),"at":\#($0),"id":"\#(ids[$0 - 1])","body":\#(body)}"# }
    let states = lists.map { #"{"bucket":"\#($0)","seq":3,"at":3}"# }
    let text =
      switch question {
      case .state: #"{"buckets":[\#(states.joined(separator: ","))]}"#
      case .page: #"{"first":\#(first),"last":3,"last_at":3,"updates":[\#(updates.joined(separator: ","))]}"#
      }
    // `try?`: this text is JSON.
    return try? JSONValue(parsing: Array(text.utf8))
  }
}

/// A hub with documents and a channel with a message every second, none of which is new here.
private final class ChattySource: UpdatesSource {
  weak var updates: BucketSync?
  var said: Int64 = 1
  var documents: Int64 = 0
  private(set) var pages: [String: Int] = [:]

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    let channel = "channel/0011223344556677"
    let key = "node/" + String(repeating: "ab", count: 32) + "/note"
    let text: String
    switch question {
    case .state:
      text =
        #"{"buckets":[{"bucket":"\#(channel)","seq":\#(said),"at":3},{"bucket":"documents","seq":\#(documents),"at":1}]}"#
    case .page(let bucket, let from, _, _, _):
      pages[bucket, default: 0] += 1
      let last = bucket == channel ? said : documents
      let body = #"{"key":"\#(key)","value":"\#(last)","updated_at":\#(last),"by_hub":true}"#
      let document = bucket == "documents" ? #"{"seq":\#(last),"at":1,"id":"\#(last)","body":\#(body)}"# : ""
      text = #"{"first":\#(from.seq + 1),"last":\#(last),"last_at":1,"updates":[\#(document)]}"#
    }
    // `try?`: this text is JSON.
    return try? JSONValue(parsing: Array(text.utf8))
  }

  func say() {
    said += 1
    updates?.hasNew("channel/0011223344556677", said)
  }

  func document() {
    documents += 1
    updates?.hasNew("documents", documents)
  }
}

private final class Host: RelayHost {
  var knowsWhatRadioHeard = true
  var fates: [ChannelUpdateFate] = [.leftOut(.notAccepted), .leftOut(.unknownAge), .sent]
  func carryOut(_ command: RemoteCommand) async -> CommandAnswer { .done(Array("1".utf8)) }
  func documentsChanged() {}
  func take(_ update: ChannelUpdate) -> ChannelUpdateFate { fates.removeFirst() }
  var exchangedChannels: [String] { ["0011223344556677"] }
  var takenGateways: [String] = []
}

@Suite struct LeftOutTests {
  @Test func `unsent messages are counted by reason, and logged once an hour`() {
    var reports = LeftOutMessages()
    let first = reports.add(.notAccepted, "a", now: MonotonicTime(seconds: 0))
    #expect(first?.contains("1 of gateways that relay.gateways does not name") == true)
    for second in 1..<3600 {
      #expect(reports.add(.unknownAge, "\(second)", now: MonotonicTime(seconds: Double(second))) == nil)
    }
    let second = reports.add(.notAccepted, "b", now: MonotonicTime(seconds: 3600))
    #expect(second?.contains("1 of gateways") == true && second?.contains("3599 that waited") == true)
    #expect(reports.counts == [.notAccepted: 2, .unknownAge: 3599])
    _ = reports.add(.tooOld, "b", now: MonotonicTime(seconds: 3601))
    #expect(reports.counts == [.notAccepted: 1, .unknownAge: 3599, .tooOld: 1], "why it is left out at last")
    reports.remove("b")
    #expect(reports.counts == [.notAccepted: 1, .unknownAge: 3599])
  }

  @Test func `a message that is in two lists counts once as left out`() throws {
    let source = MessagesSource(["channel/0011223344556677", "heard"], ids: ["x", "y", "z"])
    let host = Host()
    host.takenGateways = ["a"]
    host.fates = Array(repeating: .leftOut(.tooOld), count: 6)
    let bench = try UpdatesBench(source, host)
    defer { bench.end() }
    let (loop, sync) = (bench.loop, bench.sync)
    sync.reachable(true)
    #expect(loop.pass(.seconds(60)) { host.fates.isEmpty })
    loop.pass(.seconds(5))
    #expect(sync.report.leftOut == [.tooOld: 3])
  }

  @Test(arguments: [
    (["channel/0011223344556677", "heard"], ["a"], ["heard"]),
    (["channel/0011223344556677"], [], ["channel/0011223344556677"]),
    // A hub that has just begun the list, or has none.
    (["channel/0011223344556677"], ["a"], ["channel/0011223344556677"]),
  ])
  func `missed messages of a channel are reported once, by the selected reporters' list if it exists`(
    _ lists: [String], _ gateways: [String], _ told: [String]
  ) throws {
    let source = MessagesSource(lists, ids: ["x", "y", "z"])
    source.first = 3
    let host = Host()
    host.takenGateways = gateways
    host.fates = Array(repeating: .sent, count: 6)
    let bench = try UpdatesBench(source, host)
    defer { bench.end() }
    bench.sync.reachable(true)
    #expect(bench.loop.pass(.seconds(60)) { host.fates.count == 6 - lists.count })
    bench.loop.pass(.seconds(5))
    var gaps: [String] = []
    try bench.store.readJournal(after: 0, limit: 100) { event, _ in
      // `try?`: the gateway has written the body itself.
      let body = try? JSONValue(parsing: event.body)
      if event.kind == "bucket_gap" { gaps.append("\(body?["bucket"]?.string ?? "")/\(body?["count"]?.integer ?? 0)") }
      return true
    }
    #expect(gaps == told.map { "\($0)/2" })
    #expect(bench.lines.filter { $0.contains("are lost") }.count == 1, "\(bench.lines)")
  }

  @Test func `a channel without new messages is fetched rarely, and delays no document`() throws {
    let (source, host) = (ChattySource(), Host())
    let bench = try UpdatesBench(source, host, rights: ["documents"])
    defer { bench.end() }
    let (loop, sync) = (bench.loop, bench.sync)
    sync.reachable(true)
    let channel = "channel/0011223344556677"
    for _ in 0..<600 {
      source.say()
      loop.pass(.seconds(1))
    }
    #expect((64...90).contains(source.pages[channel] ?? 0), "\(source.pages)")
    #expect(
      sync.report.trouble?.contains(channel) == true
        && bench.lines.filter { $0.contains("brought nothing new") }.count == 1)
    source.document()
    #expect(loop.pass(.seconds(2)) { source.pages["documents"] == 1 }, "\(source.pages)")
    // The present updates are fetched in their turn, and for the rest of the time the sync is quiet.
    #expect(loop.pass(.seconds(31)) { sync.report.trouble == nil } && sync.report.buckets.allSatisfy { $0.behind == 0 })
  }

  @Test func `messages of other gateways wait until the radio's messages have been read`() throws {
    let (source, host) = (MessagesSource(), Host())
    host.knowsWhatRadioHeard = false
    let bench = try UpdatesBench(source, host)
    defer { bench.end() }
    let (loop, sync) = (bench.loop, bench.sync)
    sync.reachable(true)
    loop.pass(.seconds(3600))
    #expect(host.fates.count == 3 && sync.report.trouble?.contains("wait until the radio") == true)
    host.knowsWhatRadioHeard = true
    sync.radioWasRead()
    loop.pass(.seconds(5))
    #expect(host.fates.isEmpty && sync.report.trouble == nil)
  }

  @Test func `a report that is left out does not exclude another report of the same message`() throws {
    let (source, host) = (MessagesSource(), Host())
    let bench = try UpdatesBench(source, host)
    defer { bench.end() }
    let (loop, sync) = (bench.loop, bench.sync)
    sync.reachable(true)
    loop.pass(.seconds(200)) { host.fates.isEmpty }
    loop.pass(.seconds(20))
    #expect(host.fates.isEmpty)
    #expect(sync.report.leftOut.isEmpty, "it was sent at last")
    #expect(sync.report.buckets.first?.statistics.applied == 1 && sync.report.buckets.first?.statistics.skipped == 2)
    #expect(bench.lines.filter { $0.contains("were not sent") }.count == 1)
  }
}

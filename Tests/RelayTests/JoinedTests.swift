// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import JSON
import MeshCrypto
import SQLite
import TestSupport
import Testing
import Timing

@testable import Relay
@testable import Store

/// A restored hub: it has three messages of a channel, and sends them to gateways that have reported the channel since.
private final class ForgetfulSource: UpdatesSource {
  weak var updates: BucketSync?
  var isJoined = false
  /// It knows the gateway's channel and forgets it in turns, from one question to the next.
  var alternates = false
  private var last: Int64 = 3
  private(set) var pages = 0
  private let bucket: String
  /// It has a command, too.
  var hasCommand = false
  private(set) var commandPages = 0
  /// Called when a page was asked for.
  var onPage: () -> Void = {}

  init(_ bucket: String) { self.bucket = bucket }

  func say() {
    last += 1
    updates?.hasNew(bucket, last)
  }

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    let body = #"{"gateway":"a","sender_name":"Ana","sender_time":1,"text":"hello"}"#
    let command = hasCommand ? #"{"bucket":"commands","seq":1,"at":1},"# : ""
    var text = #"{"buckets":[\#(command){"bucket":"\#(bucket)","seq":\#(last),"at":\#(last)}]}"#
    if case .page("commands", _, _, _, _) = question {
      commandPages += 1
      text = #"{"first":1,"last":1,"last_at":1,"updates":[{"seq":1,"at":1,"id":"c","body":{}}]}"#
    } else if case .page(_, let from, _, _, _) = question {
      pages += 1
      onPage()
      if alternates { isJoined.toggle() }
      let numbers = isJoined && from.seq < last ? Array(from.seq + 1...last) : []
      let updates = numbers.map { #"{"seq":\#($0),"at":\#($0),"id":"x\#($0)","body":\#(body)}"# }
      let joined = isJoined ? "" : #""joined":false,"#
      text = #"{"first":1,"last":\#(last),"last_at":\#(last),\#(joined)"updates":[\#(updates.joined(separator: ","))]}"#
    }
    // `try?`: this text is JSON.
    return try? JSONValue(parsing: Array(text.utf8))
  }
}

private final class Host: RelayHost {
  var exchangedChannels: [String]
  let takenGateways: [String] = []
  var taken = 0

  init(_ digest: String) { exchangedChannels = [digest] }

  func carryOut(_ command: RemoteCommand) async -> CommandAnswer { .done(Array("1".utf8)) }
  func documentsChanged() {}
  func take(_ update: ChannelUpdate) -> ChannelUpdateFate {
    taken += 1
    return .sent
  }
}

@Suite struct JoinedTests {
  @Test func `a channel that is joined during a fetch voids its page without a warning or a pause`() throws {
    let digest = ChannelSecret.publicChannel.digest
    let (source, host) = (ForgetfulSource("channel/\(digest)"), Host(digest))
    source.isJoined = true
    let bench = try UpdatesBench(source, host)
    defer { bench.end() }
    source.onPage = { [unowned source] in
      guard host.exchangedChannels.count == 1 else { return }
      host.exchangedChannels.append("0011223344556677")
      source.updates?.wantsChanged()
    }
    bench.sync.reachable(true)
    bench.loop.pass(.milliseconds(100))
    #expect(host.taken == 3 && host.exchangedChannels.count == 2 && source.pages == 2)
    #expect(bench.lines.isEmpty && bench.sync.report.trouble == nil, "\(bench.lines)")
  }

  @Test func `a full queue of commands does not hold up the messages of channels`() throws {
    let digest = ChannelSecret.publicChannel.digest
    let (source, host) = (ForgetfulSource("channel/\(digest)"), Host(digest))
    (source.isJoined, source.hasCommand) = (true, true)
    let bench = try UpdatesBench(source, host)
    defer { bench.end() }
    bench.store.write { store throws(SQLiteError) in
      for number in 1...300 { _ = try store.queueCommand(Array("{}".utf8), id: "q\(number)", of: "hub", age: 0) }
    }
    try bench.store.commitNow()
    bench.sync.reachable(true)
    bench.loop.pass(.seconds(60))
    for _ in 1...3 {
      source.say()
      bench.loop.pass(.seconds(20))
    }
    #expect(host.taken == 6 && source.commandPages == 0)
    #expect(bench.sync.report.trouble == "too many commands are waiting here" && bench.lines.count == 1)
    bench.loop.pass(.seconds(1200))
    #expect(source.commandPages == 1 && bench.sync.report.trouble == nil)
  }

  @Test(arguments: [true, false])
  func `a hub that forgot a gateway's channels is told about them, and then delivers their messages`(
    _ wasFollowed: Bool
  ) throws {
    let digest = ChannelSecret.publicChannel.digest
    let bucket = "channel/\(digest)"
    let (source, host) = (ForgetfulSource(bucket), Host(digest))
    let bench = try UpdatesBench(source, host)
    defer { bench.end() }
    let (loop, store, sync) = (bench.loop, bench.store, bench.sync)
    store.write { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
      if wasFollowed { try store.setBucket(bucket, of: "hub", to: BucketPosition(seq: 1, at: 1, since: 1)) }
    }
    try store.commitNow()
    func channelEvents() throws -> Int {
      try Int(store.database.value("SELECT count(*) FROM journal WHERE kind = 'channel'")?.integer ?? 0)
    }
    sync.reachable(true)
    loop.pass(.seconds(60))
    #expect(try channelEvents() == 1 && host.taken == 0)
    #expect(sync.report.buckets.first { $0.name == bucket }?.behind == (wasFollowed ? 2 : 0))
    #expect((sync.report.trouble != nil) == wasFollowed)
    loop.pass(.seconds(3600))
    #expect(try channelEvents() <= 13 && source.pages <= 90, "\(source.pages) questions")
    source.isJoined = true
    loop.pass(.seconds(600))
    #expect(host.taken == (wasFollowed ? 2 : 0) && sync.report.trouble == nil)
  }

  @Test func `a hub that forgets a channel again and again costs a bounded number of events`() throws {
    let digest = ChannelSecret.publicChannel.digest
    let bucket = "channel/\(digest)"
    let (source, host) = (ForgetfulSource(bucket), Host(digest))
    let bench = try UpdatesBench(source, host)
    defer { bench.end() }
    source.alternates = true
    bench.store.write { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
    }
    bench.sync.reachable(true)
    for _ in 1...3000 {
      source.say()
      bench.loop.pass(.seconds(1))
    }
    let told = try bench.store.database.value("SELECT count(*) FROM journal WHERE kind = 'channel'")?.integer ?? 0
    #expect((64...76).contains(told) && source.pages > 100, "\(told) events, \(source.pages) questions")
  }
}

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

/// A hub that was put back: it has three messages of a channel, and gives them to whoever has told of it since.
private final class ForgetfulSource: UpdatesSource {
  weak var updates: (any UpdatesListener)?
  var isJoined = false
  private(set) var pages = 0
  private let bucket: String

  init(_ bucket: String) { self.bucket = bucket }

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    let body = #"{"gateway":"a","sender_name":"Ana","sender_time":1,"text":"hello"}"#
    var text = #"{"buckets":[{"bucket":"\#(bucket)","seq":3,"at":3}]}"#
    if case .page(_, let from, _, _, _) = question {
      pages += 1
      let numbers = isJoined ? Array(from.seq + 1..<4) : []
      let updates = numbers.map { #"{"seq":\#($0),"at":\#($0),"id":"x\#($0)","body":\#(body)}"# }
      let joined = isJoined ? "" : #""joined":false,"#
      text = #"{"first":1,"last":3,"last_at":3,\#(joined)"updates":[\#(updates.joined(separator: ","))]}"#
    }
    // `try?`: what is written here is JSON.
    return try? JSONValue(parsing: Array(text.utf8))
  }
}

private final class Host: RelayHost {
  let exchangedChannels: [String]
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
  @Test(arguments: [true, false])
  func `a hub that forgot which channels a gateway has is told, and gives then what it has`(_ wasFollowed: Bool) throws
  {
    let (scratch, loop) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()))
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    loop.afterTurn { store.commit() }
    let log = Log(level: .error, sink: { _, _ in })
    let (digest, upstream) = (ChannelSecret.publicChannel.digest, "hub")
    let bucket = "channel/\(digest)"
    store.write { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
      if wasFollowed { try store.setBucket(bucket, of: upstream, to: BucketPosition(seq: 1, at: 1, since: 1)) }
    }
    try store.commitNow()
    let intake = CommandIntake(
      CommandIntake.Settings(allowed: [], perMinute: 10), upstream: upstream, store: store, on: loop, log: log)
    let (source, host) = (ForgetfulSource(bucket), Host(digest))
    let sync = BucketSync(
      upstream: upstream, rights: [], store: store, source: source, commands: intake, on: loop, log: log,
      acknowledged: { 0 })
    sync.host = host
    defer { sync.stop() }
    func told() throws -> Int {
      try Int(store.database.value("SELECT count(*) FROM journal WHERE kind = 'channel'")?.integer ?? 0)
    }
    sync.reachable(true)
    loop.pass(.seconds(60))
    #expect(try told() == 1 && host.taken == 0)
    #expect(sync.report.buckets.first { $0.name == bucket }?.behind == (wasFollowed ? 2 : 0))
    #expect((sync.report.trouble != nil) == wasFollowed)
    loop.pass(.seconds(3600))
    #expect(try told() <= 13 && source.pages <= 90, "\(source.pages) questions")
    source.isJoined = true
    loop.pass(.seconds(600))
    #expect(host.taken == (wasFollowed ? 2 : 0) && sync.report.trouble == nil)
  }
}

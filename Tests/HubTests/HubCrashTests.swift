// SPDX-License-Identifier: MIT

import CrashDisk
import EarlierSchemas
import Foundation
import JSON
import SQLite
import TestSupport
import Testing

@testable import Hub

/// What a power cut leaves of a hub's SQLite file, at any sync of any transaction (issue 28).
@Suite struct HubCrashTests {
  private static let now: Int64 = 1_795_392_000_000
  private let scratch = Scratch(inMemory: true)
  private let target = Scratch(inMemory: true)

  private func trial(seed: UInt64) -> CrashTrial {
    CrashTrial(on: CrashDisk(watching: scratch.folder.path()), imagesIn: target.folder.path(), seed: seed) {
      [target] isWhole in
      let location = target.location("hub.db")
      var verdict = CrashTrial.Verdict(state: 0)
      do {
        let database = try SQLiteHubDatabase(location: location)
        _ = try database.number("PRAGMA wal_checkpoint(TRUNCATE)")
        if isWhole, try database.first("PRAGMA integrity_check(1)", read: { $0.text(0) }) != "ok" {
          verdict.faults.append("it is damaged")
        }
      }
      var hasher = Hasher()
      try Data(contentsOf: URL(filePath: location)).withUnsafeBytes { hasher.combine(bytes: $0) }
      verdict.state = hasher.finalize()
      return verdict
    }
  }

  private func batch(_ seq: Int64, _ kind: String, _ body: String, of epoch: String = "e") throws -> EventBatch {
    let event = "{\"seq\":\(seq),\"at\":\(Self.now),\"trusted\":true,\"kind\":\"\(kind)\",\"body\":\(body)}"
    return try EventBatch(parsing: Array("{\"epoch\":\"\(epoch)\",\"events\":[\(event)]}".utf8))
  }

  /// Every kind of transaction of a hub.
  private func live(_ hub: HubStore, _ trial: CrashTrial) async throws {
    func step(_ name: String, _ work: () async throws -> Void) async throws {
      trial.begin(name)
      try await work()
      trial.end()
    }
    let message =
      #"{"kind":"channel","channel":"0011223344556677","sender_name":"Birch","sender_time":100,"text":"hi"}"#
    let key = String(repeating: "ab", count: 32)
    let events: [(String, String)] = [
      ("channel", ##"{"slot":1,"name":"#trees","channel":"0011223344556677"}"##), ("message", message),
      ("contact", #"{"key":"\#(key)","name":"Birch","type":"chat"}"#),
      ("contact_removed", #"{"key":"\#(key)","overwritten":false}"#),
      ("advert", #"{"key":"\#(key)","name":"Birch"}"#), ("telemetry", #"{"node":"\#(key)"}"#),
      ("radio", #"{"key":"\#(key)","name":"hill"}"#), ("gap", #"{"first":1,"last":2,"count":2,"reason":"age"}"#),
      ("alert", #"{"id":1,"rule":"silent","subject":"x","state":"begin","text":"is silent","began_at":4}"#),
      ("alert", #"{"id":1,"rule":"silent","subject":"x","state":"end","text":"is silent","began_at":4,"ended_at":5}"#),
      ("document", #"{"key":"settings/log_level","value":"info","updated_at":5}"#),
      ("command", #"{"id":"c1","error":"no","code":"x"}"#), ("packet", #"{"raw":"00"}"#),
    ]
    try await step("a command waits") {
      let body = try JSONValue(parsing: #"{"command":"send","to":"x","text":"y"}"#)
      _ = try await hub.enqueue(body, id: "c1", for: "hill", by: "me", at: Self.now)
      _ = try await hub.enqueue(body, id: "c2", for: "hill", by: "me", at: Self.now)
    }
    for (place, (kind, body)) in events.enumerated() {
      try await step("an event: \(kind)") {
        let answer = try await hub.take(batch(Int64(place) + 1, kind, body), from: "hill", at: Self.now)
        #expect(answer == .acknowledged(Int64(place) + 1))
      }
    }
    try await step("batches of several gateways at once, and an old one again") {
      var batches = [PreparedBatch(try batch(1, "channel", events[0].1), from: "hill", after: nil, at: Self.now)]
      for gateway in ["valley", "ridge"] {
        for (place, (kind, body)) in events.prefix(2).enumerated() {
          let batch = try batch(Int64(place) + 1, kind, body)
          batches.append(PreparedBatch(batch, from: gateway, after: nil, at: Self.now))
        }
      }
      _ = try await hub.take(batches)
    }
    try await step("another history under the same numbers") {
      _ = try await hub.take(batch(2, "message", #"{"kind":"cli","text":"other"}"#), from: "hill", at: Self.now)
    }
    try await step("a command that has ended, and one that expires") {
      let body = try JSONValue(parsing: #"{"command":"status"}"#)
      let answer = try JSONValue(parsing: #"{"ok":true}"#)
      try await hub.record(body, answer: answer, id: "c3", for: "hill", by: "me", at: Self.now)
      try await hub.expireCommands(of: "hill", at: Self.now + 40 * 86_400_000)
      try await hub.keepMark()
    }
    try await step("documents, states, a token") {
      _ = try await hub.editDocument("settings/log_level", "\"debug\"", of: "hill", at: Self.now)
      _ = try await hub.keep([GatewayState(gateway: "hill", name: "status", at: Self.now, body: "{}")])
      let binding = TokenBinding(token: "ab", gateway: "new")
      #expect(try await hub.bind(binding, hasOwn: false, tokens: ["ab"], at: Self.now) == .bound)
    }
    try await step("people") {
      #expect(try await hub.setPerson("ann", role: .administer, hash: "h", at: Self.now) == nil)
      #expect(try await hub.setPerson("bob", role: .view, hash: "h", at: Self.now) == nil)
      _ = try await hub.welcome("id", called: "cid", .view, at: Self.now)
      try await hub.beginSession("t", of: "ann", browser: "b", at: Self.now)
      try await hub.useSession("t", of: "ann", since: 0, at: Self.now + 1)
      try await hub.keepTokenUses(["x": Self.now], at: Self.now)
      try await hub.endSession("t")
      #expect(try await hub.removePerson("bob") == nil)
    }
    try await step("alerts of the hub") {
      try await hub.reportRefusedGateways("refused", 1, at: Self.now)
      _ = try await hub.acknowledgeAlert(1, by: "ann", note: "seen", at: Self.now)
      try await hub.endLostAlerts(at: Self.now)
    }
    try await step("the log is copied into the file, in part and as a whole") {
      try await hub.copyLog(whole: false)
      try await hub.copyLog(whole: true)
    }
    try await step("retention") {
      let plan = PurgePlan(gateway: nil, age: { _ in 1 })
      let later = Self.now + 100 * 86_400_000
      _ = try await Purge(hub, plan, at: later, clock: later, deletes: true, paused: { _ in }).run()
      try await hub.keep([Purge.Part: RetentionProgress]())
    }
    try await step("events after retention") {
      for seq in 14...20 as ClosedRange<Int64> {
        _ = try await hub.take(batch(seq, "advert", "{}"), from: "hill", at: Self.now)
      }
    }
  }

  @Test func `a power cut loses nothing that was acknowledged, and leaves no part of a transaction`() async throws {
    let trial = trial(seed: 11_000_000)
    var hub: HubStore?
    try trial.prepare { hub = try HubStore(location: scratch.location("hub.db")) }
    try await live(#require(hub), trial)
    #expect(trial.faults == [])
    #expect(trial.syncs > 40)
    trial.disk.onSync = nil
  }

  @Test func `a hub's first start and its upgrades can be cut anywhere`() throws {
    let trial = trial(seed: 12_000_000)
    try trial.step("the first start", isFree: true) {
      _ = try SQLiteHubDatabase(location: scratch.location("hub.db"))
    }
    #expect(trial.faults == [])
    #expect(trial.syncs > 5)
    trial.disk.onSync = nil
  }

  @Test func `a hub's database of each earlier program keeps all that it has in its upgrade, wherever that is cut`()
    async throws
  {
    #expect(EarlierSchema.hub.newest == HubSchema.newest, "a new step has to be undone, too")
    do {
      let hub = try HubStore(location: scratch.location("hub.db"))
      let trial = CrashTrial(on: CrashDisk(watching: target.folder.path()), imagesIn: target.folder.path(), seed: 0) {
        _ in CrashTrial.Verdict(state: 0)
      }
      trial.disk.onSync = nil
      try await live(hub, trial)
    }
    for version in EarlierSchema.hub.versions {
      let (older, image) = (Scratch(inMemory: true), Scratch(inMemory: true))
      let location = older.location("hub.db")
      try FileManager.default.copyItem(atPath: scratch.location("hub.db"), toPath: location)
      try EarlierSchema.hub.undo(to: version, in: location)
      let made = try Database(location: scratch.location("made-\(version).db"))
      try made.migrate(HubSchema.steps(.sqlite).prefix(version).map { Migration(number: $0.number, sql: $0.sql) })
      let (shape, columns, before) = try {
        let database = try Database(location: location)
        let columns = try EarlierSchema.columns(of: database).filter { !$0.hasPrefix("sqlite_") }
        return (
          try EarlierSchema.shape(of: database), columns, try EarlierSchema.rows(of: columns, in: database)
        )
      }()
      let expected = try EarlierSchema.shape(of: made)
      #expect(shape == expected, "\(version): \(shape.symmetricDifference(expected).sorted())")
      let trial = CrashTrial(
        on: CrashDisk(watching: older.folder.path()), imagesIn: image.folder.path(), seed: UInt64(version) * 10_000
      ) { _ in
        _ = try SQLiteHubDatabase(location: image.location("hub.db"))
        let database = try Database(location: image.location("hub.db"))
        let after = try EarlierSchema.rows(of: columns, in: database)
        var verdict = CrashTrial.Verdict(state: 0)
        verdict.faults = before.keys.sorted().filter { before[$0] != after[$0] }
        if try EarlierSchema.shape(of: database).count <= shape.count { verdict.faults.append("it is not upgraded") }
        return verdict
      }
      try trial.step("the upgrade from \(version)") { _ = try SQLiteHubDatabase(location: location) }
      trial.disk.onSync = nil
      #expect(trial.faults == [])
      #expect(trial.syncs > HubSchema.newest - version)
    }
  }

  @Test func `images find a hub's disk that lies`() async throws {
    let trial = trial(seed: 13_000_000)
    var hub: HubStore?
    try trial.prepare { hub = try HubStore(location: scratch.location("hub.db")) }
    trial.disk.ignoresSyncs = true
    trial.begin("an event")
    _ = try await hub?.take(batch(1, "advert", "{}"), from: "hill", at: Self.now)
    trial.end()
    #expect(trial.faults.contains { $0.contains("neither the promised state") })
    trial.disk.onSync = nil
  }
}

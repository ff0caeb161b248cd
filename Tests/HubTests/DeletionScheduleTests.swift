// SPDX-License-Identifier: MIT

import Companion
import Foundation
import JSON
import SQLite
import Store
import TestSupport
import Testing
import Timing

@testable import Hub

/// A gateway with its database, and what it has shipped to each hub.
private final class DeletingGateway {
  let name: String
  let store: Store
  /// The next event for each hub, in each lane.
  var sent: [[Lane: Int64]] = [[:], [:]]
  /// Events as they were, for a clone of its card.
  var captured: [HubEvent] = []
  private let scratch = Scratch(inMemory: true)

  init(_ name: String) throws {
    self.name = name
    store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: name))
    try write { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
    }
  }

  func write(_ work: (Store) throws(SQLiteError) -> Void) throws {
    store.write(work)
    try store.commitNow()
  }

  /// Returns the message's number.
  func hear(_ message: QueuedMessage, _ path: UInt8?) throws -> Int64 {
    var id: Int64 = 0
    let moment = Moment(milliseconds: 1_795_000_000_000 + store.lastSeq, trusted: true)
    try write { store throws(SQLiteError) in
      id = try store.insert(message, at: moment).id
      guard let path else { return }
      let packet = Packet(
        route: .flood, type: .groupText, transportCodes: nil, pathLength: PathLength(raw: 1), path: [path], payload: [1]
      )
      let copy = HeardCopy(packet, snr: SNR(quarters: 1), rssi: -90, at: moment.milliseconds, region: nil)
      try store.tellCopies([copy], of: .received(id), at: moment)
    }
    return id
  }

  func delete(_ id: Int64, isSent: Bool = false) throws {
    try write { store throws(SQLiteError) in
      _ = try store.delete(
        messages: isSent ? [] : [id], outgoing: isSent ? [id] : [], at: Moment(milliseconds: 1, trusted: true))
    }
  }

  /// Sends a text in the channel; returns its number.
  func send(_ text: String) throws -> Int64 {
    let moment = Moment(milliseconds: 1_795_000_000_000 + store.lastSeq, trusted: true)
    var message = OutgoingMessage(
      key: "k\(store.lastSeq)", origin: "test", priority: 0, kind: .channel,
      channel: "1155f1870f917786", text: Text(text), created: moment, lifetime: 1000)
    try write { store throws(SQLiteError) in
      message = try store.insertOutgoing(message) ?? message
      (message.state, message.senderTime, message.endedAt) = (.sent, 9, moment.milliseconds + 5)
      try store.updateOutgoing(message, at: Moment(milliseconds: moment.milliseconds + 5, trusted: true))
    }
    return message.id
  }

  func events(_ lane: Lane, after: Int64, limit: Int) throws -> [HubEvent] {
    var found: [HubEvent] = []
    try store.readJournal(after: after, lane: lane) { event, isSound in
      guard Lane(kind: event.kind) == lane else { return true }
      #expect(isSound, "\(event.seq)")
      // `try?`: an event that is no JSON fails the test that counts them.
      let body = (try? JSONValue(parsing: event.body)) ?? .null
      found.append(HubEvent(seq: event.seq, at: event.at, trusted: event.trusted, kind: event.kind, body: body))
      return found.count < limit
    }
    return found
  }
}

/// A hub, and a copy of its files.
private final class RestoredHub {
  private var scratch = Scratch(inMemory: true)
  private var copy: (Scratch, [[Lane: Int64]])?
  private(set) var store: HubStore

  init() throws { store = try HubStore(location: scratch.location("hub.db")) }

  func copy(_ sent: [[Lane: Int64]]) throws { copy = (try files(of: scratch), sent) }

  /// Returns what the copy had of each gateway.
  func restore() throws -> [[Lane: Int64]]? {
    guard let copy else { return nil }
    scratch = try files(of: copy.0)
    store = try HubStore(location: scratch.location("hub.db"))
    return copy.1
  }

  private func files(of source: Scratch) throws -> Scratch {
    let target = Scratch(inMemory: true)
    for name in ["hub.db", "hub.db-wal"] where FileManager.default.fileExists(atPath: source.location(name)) {
      try FileManager.default.copyItem(atPath: source.location(name), toPath: target.location(name))
    }
    return target
  }

  /// The texts that its files have after a vacuum.
  func bytes() async throws -> Data {
    let target = Scratch(inMemory: true)
    try await store.vacuum(into: target.location("all.db"))
    return try #require(FileManager.default.contents(atPath: target.location("all.db")))
  }
}

extension HubStore {
  fileprivate func vacuum(into file: String) throws { try database.run("VACUUM INTO ?1", file) }
}

/// Random deletions, catch-ups, repetitions, clones, restored hubs, and gateways that go over to another hub.
@Suite struct DeletionScheduleTests {
  private static let schedules = ProcessInfo.processInfo.environment["MESHPOST_SCHEDULES"].flatMap(Int.init) ?? 40

  @Test func `nothing that was deleted comes back, and nothing else goes`() async throws {
    for seed in 1...Self.schedules { try await run(UInt64(seed)) }
  }

  private struct Heard {
    let text: String
    let message: QueuedMessage
    /// Its number at each gateway, as far as that has heard it; negative: that has deleted it.
    var ids: [Int64]
  }

  private func run(_ seed: UInt64) async throws {
    var random = SeededRandom(seed: seed)
    let gateways = [try DeletingGateway("a"), try DeletingGateway("b")]
    let hubs = [try RestoredHub(), try RestoredHub()]
    var (all, sent): ([Heard], [(text: String, one: Int, id: Int64, isDeleted: Bool)]) = ([], [])
    for step in 0..<50 {
      let one = Int.random(in: 0..<2, using: &random)
      let (gateway, hub) = (gateways[one], Int.random(in: 0..<2, using: &random))
      switch Int.random(in: 0..<15, using: &random) {
      case 0...2:
        let (time, text) = (UInt32(1000 + step), "word\(seed)x\(step)end")
        let said = ChannelMessage(
          snr: nil, slot: 0, path: ReceivedPath(raw: 0), senderTime: time, text: Text("Al\(step)der: \(text)"))
        let whispered = ContactMessage(
          snr: nil, sender: KeyPrefix(value: 1), path: ReceivedPath(raw: 0), senderTime: time, text: Text(text))
        let message: QueuedMessage = step % 4 == 0 ? .contact(whispered) : .channel(said)
        var heard = Heard(text: text, message: message, ids: [0, 0])
        for place in 0..<2 where place == one || Bool.random(using: &random) {
          heard.ids[place] = try gateways[place].hear(message, Bool.random(using: &random) ? UInt8(step) : nil)
        }
        all.append(heard)
      case 3:
        // The mesh repeats it, or the radio is read again.
        guard let place = all.indices.randomElement(using: &random), all[place].ids[one] != 0 else { continue }
        let id = try gateway.hear(all[place].message, 77)
        #expect(id == abs(all[place].ids[one]))
      case 4...5:
        guard let place = all.indices.randomElement(using: &random), all[place].ids[one] > 0 else { continue }
        for lane in Lane.allCases { gateway.captured += try gateway.events(lane, after: 0, limit: .max) }
        try gateway.delete(all[place].ids[one])
        all[place].ids[one] = -all[place].ids[one]
      case 6...8: try await ship(gateway, to: hubs[hub], hub, limit: Int.random(in: 1...9, using: &random))
      case 9:
        // An answer was lost, or a clone sends, in this epoch or a new one.
        let had = gateway.captured.filter { $0.seq <= gateway.sent[hub][Lane(kind: $0.kind)] ?? 0 }
        guard let seen = had.randomElement(using: &random) else { continue }
        let isNew = Bool.random(using: &random)
        var batch = PreparedBatch(
          [seen], of: isNew ? "clone" : gateway.store.epoch, in: nil, from: gateway.name, after: nil, at: 1)
        (batch.before, batch.handlesConflicts) = (isNew ? gateway.store.epoch : nil, true)
        _ = try await hubs[hub].store.take([batch])
      case 11...12:
        let text = "sent\(seed)x\(step)end"
        sent.append((text, one, try gateway.send(text), false))
      case 13:
        guard let place = sent.indices.randomElement(using: &random), !sent[place].isDeleted else { continue }
        for lane in Lane.allCases {
          gateways[sent[place].one].captured += try gateways[sent[place].one].events(lane, after: 0, limit: .max)
        }
        try gateways[sent[place].one].delete(sent[place].id, isSent: true)
        sent[place].isDeleted = true
      case 10: try hubs[hub].copy(gateways.map { $0.sent[hub] })
      default:
        guard let had = try hubs[hub].restore() else { continue }
        for (gateway, sent) in zip(gateways, had) { gateway.sent[hub] = sent }
      }
    }
    for (place, hub) in hubs.enumerated() {
      for gateway in gateways { try await ship(gateway, to: hub, place, limit: .max) }
      let bytes = try await hub.bytes()
      for one in sent {
        #expect(
          (bytes.range(of: Data(one.text.utf8)) == nil) == one.isDeleted, "schedule \(seed), hub \(place): \(one)")
      }
      for heard in all {
        let isKept = heard.ids.contains { $0 > 0 }
        let isThere = bytes.range(of: Data(heard.text.utf8)) != nil
        #expect(isThere == isKept, "schedule \(seed), hub \(place): \(heard.text) \(heard.ids)")
      }
      let shown = try await hub.store.number("SELECT count(*) FROM messages WHERE body <> ''")
      let expected = all.reduce(0) { count, heard in
        // A direct message is each gateway's own.
        if case .contact = heard.message { return count + heard.ids.count { $0 > 0 } }
        return count + (heard.ids.contains { $0 > 0 } ? 1 : 0)
      }
      #expect(shown == Int64(expected), "schedule \(seed), hub \(place)")
    }
  }

  private func ship(
    _ gateway: DeletingGateway, to hub: RestoredHub, _ place: Int, limit: Int
  ) async throws {
    for lane in Lane.allCases {
      let events = try gateway.events(lane, after: gateway.sent[place][lane] ?? 0, limit: limit)
      guard let last = events.last?.seq else { continue }
      var batch = PreparedBatch(
        events, of: gateway.store.epoch, in: EventBatch.Lane(rawValue: lane.rawValue), from: gateway.name, after: nil,
        at: 1)
      batch.handlesConflicts = true
      let answer = try await hub.store.take([batch])
      if case .acknowledged = answer.first { gateway.sent[place][lane] = last } else { Issue.record("\(answer)") }
    }
  }
}

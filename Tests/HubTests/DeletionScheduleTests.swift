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

private typealias Sent = (epoch: String, seqs: [Lane: Int64])

/// A gateway with its database, and what it has shipped to each hub.
private final class DeletingGateway {
  let name: String
  private(set) var store: Store
  /// The next event for each hub, in each lane.
  var sent: [[Lane: Int64]] = [[:], [:]]
  /// Events as they were, for a clone of its card.
  var captured: [(epoch: String, event: HubEvent)] = []
  /// The texts of events, by their numbers and times, as far as they were read.
  private(set) var texts: [String: String] = [:]
  private var scratch = Scratch(inMemory: true)
  private var backup: Scratch?
  /// After each restore the clock is elsewhere.
  private var clock: Int64 = 1_795_000_000_000

  init(_ name: String) throws {
    self.name = name
    store = try Store(Store.Settings(location: scratch.location("gw.db"), gatewayID: name))
    try write { store throws(SQLiteError) in
      _ = try store.setChannel(Channel(slot: 0, name: "Public", secret: .publicChannel))
    }
  }

  func back() throws {
    let target = Scratch(inMemory: true)
    let copy = try store.beginBackup(to: target.location("backup"))
    while try !copy.step(pages: 100) {}
    backup = target
  }

  /// Puts its database back, in a new epoch, of which no hub has anything. False: there is no backup.
  func restore() throws -> Bool {
    guard let backup else { return false }
    let target = Scratch(inMemory: true)
    let settings = Store.Settings(location: target.location("gw.db"), gatewayID: name)
    _ = try Store.restore(backup.location("backup"), settings: settings)
    (store, scratch) = (try Store(settings), target)
    try store.renewEpoch()
    (sent, clock) = ([[:], [:]], clock + 1_000_000)
    return true
  }

  func write(_ work: (Store) throws(SQLiteError) -> Void) throws {
    store.write(work)
    try store.commitNow()
  }

  /// Returns the message's number.
  func hear(_ message: QueuedMessage, _ path: UInt8?) throws -> Int64 {
    var id: Int64 = 0
    let moment = Moment(milliseconds: clock + store.lastSeq, trusted: true)
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
    let moment = Moment(milliseconds: clock + store.lastSeq, trusted: true)
    var message = OutgoingMessage(
      key: "k\(clock)-\(store.lastSeq)", origin: "test", priority: 0, kind: .channel,
      channel: "1155f1870f917786", text: Text(text), created: moment, lifetime: 1000)
    try write { store throws(SQLiteError) in
      message = try store.insertOutgoing(message) ?? message
      (message.state, message.senderTime, message.endedAt) = (.sent, 9, moment.milliseconds + 5)
      try store.updateOutgoing(message, at: Moment(milliseconds: moment.milliseconds + 5, trusted: true))
    }
    return message.id
  }

  /// What it has sent to a hub, which counts in this epoch alone.
  func sent(to hub: Int) -> Sent { (store.epoch, sent[hub]) }

  func capture() throws {
    for lane in Lane.allCases {
      captured += try events(lane, after: 0, limit: .max).map { (epoch: store.epoch, event: $0) }
    }
  }

  func events(_ lane: Lane, after: Int64, limit: Int) throws -> [HubEvent] {
    var found: [HubEvent] = []
    try store.readJournal(after: after, lane: lane) { event, isSound in
      guard Lane(kind: event.kind) == lane else { return true }
      #expect(isSound, "\(event.seq)")
      // `try?`: an event that is no JSON fails the test that counts them.
      let body = (try? JSONValue(parsing: event.body)) ?? .null
      if ["message", "outgoing"].contains(event.kind), let text = body["text"]?.string {
        texts["\(event.seq)/\(event.at)"] = text
      }
      found.append(HubEvent(seq: event.seq, at: event.at, trusted: event.trusted, kind: event.kind, body: body))
      return found.count < limit
    }
    return found
  }
}

/// A hub, and a copy of its files.
private final class RestoredHub {
  /// For each gateway the texts that it has reported here, and those that it has deleted here.
  struct Told {
    var (reported, deleted): ([Set<String>], [Set<String>]) = ([[], []], [[], []])

    func has(_ text: String, of one: Int) -> Bool { reported[one].contains(text) && !deleted[one].contains(text) }
  }

  private var scratch = Scratch(inMemory: true)
  private var copy: (files: Scratch, sent: [Sent], told: Told)?
  private(set) var told = Told()
  private(set) var store: HubStore

  init() throws { store = try HubStore(location: scratch.location("hub.db")) }

  func copy(_ sent: [Sent]) throws { copy = (try files(of: scratch), sent, told) }

  /// It has stored these events of a gateway.
  func note(_ events: [HubEvent], of one: Int, _ gateway: DeletingGateway) {
    for event in events {
      let own = "\(event.seq)/\(event.at)"
      if event.kind == "deletion" {
        let named = (event.body["events"]?.array ?? []).map { "\($0["seq"]?.integer ?? 0)/\($0["at"]?.integer ?? 0)" }
        told.deleted[one].formUnion((named + [own]).compactMap { gateway.texts[$0] })
      } else if let text = gateway.texts[own] {
        told.reported[one].insert(text)
      }
    }
  }

  /// Returns what the copy had of each gateway.
  func restore() throws -> [Sent]? {
    guard let copy else { return nil }
    (scratch, told) = (try files(of: copy.files), copy.told)
    store = try HubStore(location: scratch.location("hub.db"))
    return copy.sent
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

/// Random deletions, catch-ups, repetitions, clones, restored hubs and gateways, and gateways that go over to another hub.
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

  private struct Sending {
    let text: String
    let one: Int
    let id: Int64
    var isDeleted = false
    /// Its gateway was put back from before it.
    var isLost = false
  }

  private func run(_ seed: UInt64) async throws {
    var random = SeededRandom(seed: seed)
    let gateways = [try DeletingGateway("a"), try DeletingGateway("b")]
    let hubs = [try RestoredHub(), try RestoredHub()]
    var (all, sent): ([Heard], [Sending]) = ([], [])
    /// What each gateway had when it was copied.
    var copies: [(ids: [Int64], sent: [Sending])?] = [nil, nil]
    for step in 0..<50 {
      let one = Int.random(in: 0..<2, using: &random)
      let (gateway, hub) = (gateways[one], Int.random(in: 0..<2, using: &random))
      switch Int.random(in: 0..<17, using: &random) {
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
        try gateway.capture()
        try gateway.delete(all[place].ids[one])
        all[place].ids[one] = -all[place].ids[one]
      case 6...8: try await ship(gateway, one, to: hubs[hub], hub, limit: Int.random(in: 1...9, using: &random))
      case 9:
        // An answer was lost, or a clone sends, in this epoch or a new one.
        let had = gateway.captured.filter { epoch, event in
          epoch != gateway.store.epoch || event.seq <= gateway.sent[hub][Lane(kind: event.kind)] ?? 0
        }
        guard let seen = had.randomElement(using: &random) else { continue }
        let isNew = Bool.random(using: &random)
        var batch = PreparedBatch(
          [seen.event], of: isNew ? "clone" : seen.epoch, in: nil, from: gateway.name, after: nil, at: 1)
        (batch.before, batch.handlesConflicts) = (isNew ? seen.epoch : nil, true)
        if case .acknowledged = try await hubs[hub].store.take([batch]).first {
          hubs[hub].note([seen.event], of: one, gateway)
        }
      case 11...12:
        let text = "sent\(seed)x\(step)end"
        sent.append(Sending(text: text, one: one, id: try gateway.send(text)))
      case 13:
        guard let place = sent.indices.randomElement(using: &random), !sent[place].isDeleted, !sent[place].isLost
        else { continue }
        try gateways[sent[place].one].capture()
        try gateways[sent[place].one].delete(sent[place].id, isSent: true)
        sent[place].isDeleted = true
      case 10: try hubs[hub].copy(gateways.map { $0.sent(to: hub) })
      case 15:
        try gateway.back()
        copies[one] = (all.map { $0.ids[one] }, sent)
      case 16:
        guard let copy = copies[one], try gateway.restore() else { continue }
        for place in all.indices { all[place].ids[one] = place < copy.ids.count ? copy.ids[place] : 0 }
        for place in sent.indices where sent[place].one == one {
          // Nor does the gateway know any more that it has deleted it.
          if place < copy.sent.count {
            sent[place] = copy.sent[place]
          } else {
            (sent[place].isDeleted, sent[place].isLost) = (false, true)
          }
        }
      default:
        guard let had = try hubs[hub].restore() else { continue }
        for (gateway, sent) in zip(gateways, had) {
          gateway.sent[hub] = sent.epoch == gateway.store.epoch ? sent.seqs : [:]
        }
      }
    }
    for (place, hub) in hubs.enumerated() {
      for (one, gateway) in gateways.enumerated() { try await ship(gateway, one, to: hub, place, limit: .max) }
      let bytes = try await hub.bytes()
      func check(_ text: String, isThere expected: Bool) {
        #expect((bytes.range(of: Data(text.utf8)) != nil) == expected, "schedule \(seed), hub \(place): \(text)")
      }
      for one in sent {
        let has = hub.told.has(one.text, of: one.one)
        check(one.text, isThere: has)
        #expect(!one.isDeleted || !has, "schedule \(seed), hub \(place): \(one)")
        #expect(one.isDeleted || one.isLost || hub.told.reported[one.one].contains(one.text))
      }
      var expected = 0
      for heard in all {
        let having = (0..<2).count { hub.told.has(heard.text, of: $0) }
        check(heard.text, isThere: having > 0)
        for (one, id) in heard.ids.enumerated() where id != 0 {
          let isRight = id < 0 ? !hub.told.has(heard.text, of: one) : hub.told.reported[one].contains(heard.text)
          #expect(isRight, "schedule \(seed), hub \(place): \(heard.text) \(heard.ids)")
        }
        // A direct message is each gateway's own.
        if case .contact = heard.message { expected += having } else { expected += min(1, having) }
      }
      let shown = try await hub.store.number("SELECT count(*) FROM messages WHERE body <> ''")
      #expect(shown == Int64(expected), "schedule \(seed), hub \(place)")
    }
  }

  private func ship(
    _ gateway: DeletingGateway, _ one: Int, to hub: RestoredHub, _ place: Int, limit: Int
  ) async throws {
    for lane in Lane.allCases {
      let events = try gateway.events(lane, after: gateway.sent[place][lane] ?? 0, limit: limit)
      guard let last = events.last?.seq else { continue }
      var batch = PreparedBatch(
        events, of: gateway.store.epoch, in: EventBatch.Lane(rawValue: lane.rawValue), from: gateway.name, after: nil,
        at: 1)
      batch.handlesConflicts = true
      let answer = try await hub.store.take([batch])
      guard case .acknowledged = answer.first else {
        Issue.record("\(answer)")
        continue
      }
      gateway.sent[place][lane] = last
      hub.note(events, of: one, gateway)
    }
  }
}

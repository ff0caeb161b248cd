// SPDX-License-Identifier: MIT

import JSON
import TestSupport
import Testing
import Timing

@testable import Hub

/// Two different events with one number of an epoch.
@Suite struct ConflictingEventTests {
  private let scratch = Scratch(inMemory: true)

  private static func event(_ seq: Int64, _ text: String, kind: String = "message", at: Int64? = nil) -> HubEvent {
    HubEvent(
      seq: seq, at: at ?? seq * 10, trusted: true, kind: kind,
      body: .object([("text", .string(text)), ("sender_time", .integer(seq))]))
  }

  private static func batch(
    _ events: [HubEvent], epoch: String = "e", before: String? = nil, after: Int64? = nil, knows: Bool = true
  ) -> PreparedBatch {
    var batch = PreparedBatch(events, of: epoch, in: .messages, from: "g", after: after, at: 1000)
    (batch.before, batch.handlesConflicts) = (before, knows)
    return batch
  }

  /// `epoch/seq text` of all events, in order of arrival.
  private func all(_ store: HubStore) async throws -> [String] {
    let page = try JSONValue(parsing: try await store.events(gateway: "g", kind: nil, after: 0, limit: 1000))
    return (page["events"]?.array ?? []).map {
      "\($0["epoch"]?.string ?? "")/\($0["seq"]?.integer ?? 0) \($0["body"]?["text"]?.string ?? "")"
    }
  }

  @Test func `a repeated event is acknowledged, and a different one under its number needs a new epoch`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let (one, two, three) = (Self.event(1, "one"), Self.event(2, "two"), Self.event(3, "three"))
    #expect(try await store.take([Self.batch([one, two, three])]) == [.acknowledged(3)])
    #expect(try await store.take([Self.batch([one, two])]) == [.acknowledged(3)], "the same again")
    let others = [Self.event(2, "another"), Self.event(3, "a third")]
    #expect(
      try await store.take([Self.batch([one] + others), Self.batch([Self.event(4, "four")])])
        == [.conflict(2), .outOfOrder(3)])
    #expect(try await store.progress(gateway: "g", epoch: "e")?.lanes[.messages] == 3)
    // The gateway begins a new epoch, and does not know how much of the previous one the hub has.
    let again = [one] + others + [Self.event(4, "four")]
    #expect(try await store.take([Self.batch(again, epoch: "f", before: "e")]) == [.acknowledged(4)])
    #expect(try await all(store) == ["e/1 one", "e/2 two", "e/3 three", "e/4 four", "f/2 another", "f/3 a third"])
    #expect(try await store.progress(gateway: "g", epoch: "f")?.lanes[.messages] == 4)
  }

  @Test func `for senders that cannot handle conflicts, both histories are kept, each event once`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let forged = (1...3 as ClosedRange<Int64>).map { Self.event($0, "forged \($0)") }
    _ = try await store.take([Self.batch(forged, knows: false)])
    let real = (1...4 as ClosedRange<Int64>).map { Self.event($0, "real \($0)") }
    for _ in 0..<2 { #expect(try await store.take([Self.batch(real, knows: false)]) == [.acknowledged(4)]) }
    let third = [Self.event(2, "a third")]
    for _ in 0..<2 { _ = try await store.keepUnordered([Self.batch(third, knows: false)]) }
    let found = try await all(store)
    #expect(found.count == 8 && Set(found).count == 8, "\(found)")
    for text in ["e/1 forged 1", "e/2 forged 2", "e/3 forged 3", "e/4 real 4"] { #expect(found.contains(text)) }
    for text in ["/1 real 1", "/2 real 2", "/3 real 3", "/2 a third"] {
      #expect(found.contains { $0.hasPrefix("e.") && $0.hasSuffix(text) }, "\(text)")
    }
    let messages = try JSONValue(parsing: try await store.joinedMessages(channel: nil, after: 0, limit: 100))
    #expect(messages["messages"]?.array?.count == 8, "readers of messages see all")
  }

  /// As a consumer gets publications that waited at the broker.
  @Test func `two histories in one transaction are both kept, each event once`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let one = (1...3 as ClosedRange<Int64>).map { Self.event($0, "one \($0)") }
    let other = (2...4 as ClosedRange<Int64>).map { Self.event($0, "other \($0)") }
    for _ in 0..<2 {
      _ = try await store.keepUnordered([Self.batch(one, knows: false), Self.batch(other, knows: false)])
    }
    let texts = try await all(store).map { $0.split(separator: "/").last ?? "" }
    #expect(texts.sorted() == ["1 one 1", "2 one 2", "2 other 2", "3 one 3", "3 other 3", "4 other 4"])
    // An event of another history is also found when it arrives in a new epoch.
    _ = try await store.keepUnordered([Self.batch(other, epoch: "f", before: "e", knows: false)])
    #expect(try await all(store).count == 6)
  }

  @Test func `each of two histories keeps its order, whoever sends them`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let one = (1...3 as ClosedRange<Int64>).map { Self.event($0, "one \($0)") }
    let other = (1...6 as ClosedRange<Int64>).map { Self.event($0, "other \($0)") }
    _ = try await store.keepUnordered([Self.batch(one, knows: false)])
    #expect(try await store.keepUnordered([Self.batch(other, knows: false)]).count == 6)
    // Both in one transaction.
    let (left, right) = ([Self.event(7, "one 7")], (7...8 as ClosedRange<Int64>).map { Self.event($0, "other \($0)") })
    _ = try await store.keepUnordered([Self.batch(left, knows: false), Self.batch(right, knows: false)])
    let texts = try await all(store).map { $0.split(separator: " ", maxSplits: 1).last ?? "" }
    #expect(texts.filter { $0.hasPrefix("one") } == ["one 1", "one 2", "one 3", "one 7"])
    #expect(texts.filter { $0.hasPrefix("other") } == (1...8).map { "other \($0)" })
    let messages = try JSONValue(parsing: try await store.joinedMessages(channel: nil, after: 0, limit: 100))
    #expect(messages["messages"]?.array?.count == 12)
  }

  @Test(arguments: 0..<20 as Range<UInt64>)
  func `two clones that share a broker become two epochs, in any order of their events`(_ seed: UInt64) async throws {
    var random = SeededRandom(seed: seed)
    let store = try HubStore(location: scratch.location("clones\(seed).db"))
    let shared = (1...3 as ClosedRange<Int64>).map { Self.event($0, "both \($0)") }
    let clones = ["left", "right"].map { name in
      shared + (4...40 as ClosedRange<Int64>).map { Self.event($0, "\(name) \($0)") }
    }
    var rest = clones.map { $0[...] }
    while let index = [0, 1].filter({ !rest[$0].isEmpty }).randomElement(using: &random) {
      var batches: [PreparedBatch] = []
      for index in [index, 1 - index].prefix(.random(in: 1...2, using: &random)) where !rest[index].isEmpty {
        let some = rest[index].prefix(.random(in: 1...3, using: &random))
        batches.append(Self.batch(Array(some), knows: false))
        // Some events are repeated, as after a lost connection.
        rest[index] = rest[index].dropFirst(some.count - (some.count > 1 ? .random(in: 0...1, using: &random) : 0))
      }
      _ = try await store.keepUnordered(batches)
    }
    let found = try await all(store)
    let names = Set(found.map { $0.split(separator: "/")[0] })
    let texts = Set(found.map { $0.split(separator: " ", maxSplits: 1)[1] })
    #expect(names.count == 2, "seed \(seed)")
    #expect(texts.count == 77, "seed \(seed)")
    #expect(found.count == texts.count, "seed \(seed)")
    #expect(try await store.number("SELECT count(*) FROM epochs") == 2)
    // Repeating everything changes nothing.
    for clone in clones { #expect(try await store.keepUnordered([Self.batch(clone, knows: false)]).isEmpty) }
  }

  @Test func `an epoch has a limited number of other histories, and each of them continues`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    for number in 0...HubStore.mostHistories {
      let batch = Self.batch([Self.event(1, "first of \(number)")], knows: false)
      #expect(try await store.keepUnordered([batch]).count == 1)
    }
    let more = Self.batch([Self.event(1, "one more")], knows: false)
    let failure = await #expect(throws: HubDatabaseError.self) { try await store.keepUnordered([more]) }
    #expect(failure?.kind == .unfit)
    #expect(failure?.message.contains("17 histories") == true)
    for number in 0...HubStore.mostHistories {
      let batch = Self.batch([Self.event(2, "second of \(number)")], knows: false)
      #expect(try await store.take([batch]) == [.acknowledged(2)])
    }
    let (epochs, events) = (try await store.number("SELECT count(*) FROM epochs"), try await all(store).count)
    #expect(epochs == 17 && events == 34)
  }

  @Test func `an event that is in its first epoch and in a new one within one transaction is kept once`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let events = (1...2 as ClosedRange<Int64>).map { Self.event($0, "event \($0)") }
    _ = try await store.keepUnordered([
      Self.batch(events, epoch: "a", before: "e", knows: false), Self.batch(events, knows: false),
      Self.batch(events, epoch: "b", before: "e", knows: false),
    ])
    #expect(try await all(store).sorted() == ["e/1 event 1", "e/2 event 2"])
  }

  @Test func `an event of an old epoch that arrives after the new epoch is kept once`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let events = (1...3 as ClosedRange<Int64>).map { Self.event($0, "event \($0)") }
    _ = try await store.take([Self.batch([events[0]])])
    #expect(try await store.take([Self.batch(events, epoch: "f", before: "e")]) == [.acknowledged(3)])
    for _ in 0..<2 { #expect(try await store.take([Self.batch([events[1], events[2]])]) == [.acknowledged(3)]) }
    #expect(try await all(store) == ["e/1 event 1", "f/2 event 2", "f/3 event 3"])
  }

  /// An emptied hub first meets the copy of a card, which has begun a new epoch, and then the card itself.
  @Test func `events of a copy's own epoch are kept once if the hub did not know the first epoch`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let (one, two, three) = (Self.event(1, "one"), Self.event(2, "two"), Self.event(3, "three"))
    _ = try await store.take([Self.batch([one, two], epoch: "f", before: "e")])
    #expect(try await store.take([Self.batch([one, two, three], epoch: "e")]) == [.acknowledged(3)])
    #expect(try await all(store) == ["f/1 one", "f/2 two", "e/3 three"])
  }

  @Test func `an event that was not stored in its first epoch is not skipped in a new one`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    _ = try await store.take([Self.batch([Self.event(1, "here")])])
    let other = [Self.event(1, "another")]
    let both = [Self.batch(other), Self.batch(other, epoch: "f", before: "e")]
    #expect(try await store.take(both) == [.conflict(1), .outOfOrder(0)])
    #expect(try await store.take([both[1]]) == [.acknowledged(1)])
    #expect(try await all(store) == ["e/1 here", "f/1 another"])
  }

  @Test func `a position is answered up to the requested sequence number, with the digest of its event`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let events = (1...5 as ClosedRange<Int64>).map { Self.event($0, "event \($0)") }
    _ = try await store.take([Self.batch(events)])
    for (asked, answered) in [(3, 3), (9, 5)] as [(Int64, Int64)] {
      let asked = HubStore.Progress { $0 == .packets ? nil : asked }
      let found = try #require(try await store.progress(gateway: "g", epoch: "e", through: asked))
      let event = events[Int(answered) - 1]
      #expect(found.lanes == [.messages: answered])
      #expect(found.digests == [.messages: EventContent.digest(at: event.at, kind: event.kind, body: event.body)])
    }
    #expect(try await store.progress(gateway: "g", epoch: "f", through: HubStore.Progress { _ in 3 }) == nil)
  }

  @Test(arguments: [true, false]) func `two histories cause one alert at the hub, with the number of events`(
    _ knows: Bool
  ) async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    _ = try await store.take([Self.batch((1...5 as ClosedRange<Int64>).map { Self.event($0, "here \($0)") })])
    #expect(try await store.alerts(before: .max, openOnly: false, limit: 9).alerts.isEmpty)
    let others = (2...4 as ClosedRange<Int64>).map { Self.event($0, "other \($0)") }
    for event in others + others { _ = try await store.take([Self.batch([event], knows: knows)]) }
    let alert = try #require(try await store.alerts(before: .max, openOnly: true, limit: 9).alerts.first)
    #expect(alert.rule == "gateway_conflict" && alert.gateway == "g" && alert.text.contains("event 2 of epoch e "))
    // A repetition by a gateway without knowledge of conflicts is no further conflict; a gateway with this knowledge is refused each time.
    #expect(alert.text.hasSuffix("; \(knows ? 6 : 3) so far"), "\(alert.text)")
    try await store.endIdleAlerts(.gatewayConflict, since: 999, at: 2000)
    #expect(try await store.alertCounts(of: []) == ["g": 1], "there was another since")
    try await store.endLostAlerts(at: 5_000_000)
    #expect(try await store.alertCounts(of: []) == ["g": 1], "it is the hub's own")
    try await store.endIdleAlerts(.gatewayConflict, since: 1000, at: 2000)
    let over = try await store.alerts(before: .max, openOnly: false, limit: 9).alerts
    #expect(over.map(\.endedAt) == [2000])
  }

  @Test
  func `two gateways that take one link from each other cause one alert, and a rule that is off causes none`()
    async throws
  {
    let quiet = try HubStore(location: scratch.location("quiet.db"), alertsOnConflicts: false)
    try await quiet.reportContestedLink(of: "g", at: 1)
    #expect(try await quiet.alertCounts(of: []).isEmpty)
    let store = try HubStore(location: scratch.location("hub.db"))
    for time in 1...3 { try await store.reportContestedLink(of: "g", at: Int64(time)) }
    let alerts = try await store.alerts(before: .max, openOnly: true, limit: 9).alerts
    #expect(alerts.count == 1 && alerts[0].text.contains("take the link from each other"))
    #expect(alerts[0].text.hasSuffix("; 3 so far"))
  }

  @Test func `a difference in fields that change with each transmission is no conflict`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    func state(_ folded: Int64?) -> HubEvent {
      var event = Self.event(1, "state", kind: "advert")
      if let folded { event.body = .object((event.body.fields ?? []) + [("folded", .integer(folded))]) }
      return event
    }
    var message = Self.event(2, "hello")
    _ = try await store.take([Self.batch([state(5), message])])
    // A newer program adds fields to a message.
    message.body = .object((message.body.fields ?? []) + [("snr", .integer(3)), ("path", .string("a1"))])
    #expect(try await store.take([Self.batch([state(nil), message])]) == [.acknowledged(2)])
    // A gap in the place of an event does not remove that event.
    let gap = Self.event(2, "lost", kind: "gap")
    #expect(try await store.take([Self.batch([gap])]) == [.acknowledged(2)])
    // A gap never replaces a stored event.
    _ = try await store.take([Self.batch([Self.event(3, "lost", kind: "gap")])])
    #expect(try await store.take([Self.batch([Self.event(3, "found")])]) == [.conflict(3)])
  }

  @Test(arguments: [nil, "e"]) func `a batch that is repeated within one transaction of a new epoch is kept once`(
    _ before: String?
  ) async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let (one, two) = (Self.event(1, "one"), Self.event(2, "two"))
    let batches = [
      Self.batch([one, two], epoch: "f", before: before), Self.batch([one, two], epoch: "f", before: before),
    ]
    #expect(try await store.take(batches) == [.acknowledged(2), .acknowledged(2)])
    #expect(try await all(store) == ["f/1 one", "f/2 two"])
    // A repetition with fewer fields is the same event.
    let three = [Self.event(3, "three")]
    _ = try await store.take([Self.batch(three, epoch: "f", before: before), Self.batch(three, epoch: "f")])
    #expect(try await all(store) == ["f/1 one", "f/2 two", "f/3 three"])
  }

  @Test func `a gap of one history is stored, whatever event the other history has under its number`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let first = (1...9 as ClosedRange<Int64>).map { Self.event($0, "first \($0)") }
    _ = try await store.take([Self.batch(first)])
    let second = [Self.event(7, "2 to 7", kind: "gap"), Self.event(8, "second 8")]
    for _ in 0..<2 {
      #expect(try await store.take([Self.batch(second, epoch: "f", before: "e")]) == [.acknowledged(8)])
    }
    #expect(try await all(store).suffix(2) == ["f/7 2 to 7", "f/8 second 8"])
    // The other epoch gets the event once.
    _ = try await store.take([Self.batch(second, epoch: "h", before: "f")])
    #expect(try await all(store).count == 11)
  }

  @Test func `each lost database of a gateway is reported, although each report begins an epoch`()
    async throws
  {
    let store = try HubStore(location: scratch.location("hub.db"))
    let losses: [(epoch: String, lost: String, last: Int64)] = [("f", "e", 44), ("h", "f", 23), ("k", "h", 23)]
    for (epoch, lost, last) in losses {
      let gap = HubEvent(
        seq: 1, at: last, trusted: true, kind: "gap",
        body: .object([
          ("reason", .string("damaged")), ("epoch", .string(lost)), ("last", .integer(last)), ("text", .string(lost)),
        ]))
      for _ in 0..<2 {
        let batch = Self.batch([gap, Self.event(2, "after \(lost)")], epoch: epoch, after: 0)
        #expect(try await store.take([batch]) == [.acknowledged(2)])
      }
      // The same loss in an epoch that was renewed is known.
      _ = try await store.take([Self.batch([gap], epoch: "renewed \(epoch)", before: epoch)])
    }
    #expect(
      try await all(store) == ["f/1 e", "f/2 after e", "h/1 f", "h/2 after f", "k/1 h", "k/2 after h"])
  }

  @Test func `lost databases of an unknown epoch are distinguished by their saved files`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    for (epoch, saved) in [("f", "one"), ("h", "two")] {
      let gap = HubEvent(
        seq: 1, at: 1, trusted: true, kind: "gap",
        body: .object([("reason", .string("damaged")), ("saved", .string(saved)), ("text", .string(saved))]))
      _ = try await store.take([Self.batch([gap], epoch: epoch, after: 0)])
    }
    #expect(try await all(store) == ["f/1 one", "h/1 two"])
  }

  @Test func `a position contains the digest of its event`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let last = Self.event(7, "seven")
    _ = try await store.take([Self.batch([Self.event(1, "one"), last])])
    let progress = try #require(try await store.progress(gateway: "g", epoch: "e"))
    #expect(progress.digests == [.messages: EventContent.digest(at: last.at, kind: last.kind, body: last.body)])
    #expect(progress.digests[.messages] != EventContent.digest(at: 70, kind: "message", body: .object([])))
  }

  /// A model of gateways and hubs: gateways hear, send, are restored and cloned; hubs are restored, and other clients write in a gateway's name.
  private struct Model {
    var journal: [(seq: Int64, text: String)] = []
    var (epoch, first, before): (String, Int64, String?) = ("e0", 1, nil)
    var cursor: Int64 = 0
    var last: Int64 { journal.last?.seq ?? 0 }
  }

  @Test(arguments: 0..<25 as Range<UInt64>)
  func `after random restores, clones and forgeries, the hub has all events of a gateway once`(_ seed: UInt64)
    async throws
  {
    var random = SeededRandom(seed: seed)
    let store = try HubStore(location: scratch.location("hub\(seed).db"))
    var (gateways, images) = ([Model()], [Model()])
    var (heard, epochs) = (0, 0)
    for _ in 0..<Int.random(in: 5...25, using: &random) {
      let index = Int.random(in: 0..<gateways.count, using: &random)
      switch Int.random(in: 0..<8, using: &random) {
      case 0...3:
        for _ in 0..<Int.random(in: 1...6, using: &random) {
          heard += 1
          gateways[index].journal.append((gateways[index].last + 1, "message \(heard)"))
        }
      case 4: images.append(gateways[index])
      case 5: gateways[index] = images.randomElement(using: &random) ?? gateways[index]
      case 6 where gateways.count < 3: gateways.append(gateways[index])
      case 6:
        // Another client with the token is ahead of the gateway.
        let seq = gateways[index].last + .random(in: 1...3, using: &random)
        _ = try await store.take([
          Self.batch([Self.event(seq, "forged \(heard) \(seq)")], epoch: gateways[index].epoch, knows: false)
        ])
      default: try await send(&gateways[index], to: store, &epochs, &random)
      }
    }
    for index in gateways.indices { try await send(&gateways[index], to: store, &epochs, &random, all: true) }
    let texts = try await all(store).map { $0.split(separator: " ", maxSplits: 1).last.map(String.init) ?? "" }
    for (number, gateway) in gateways.enumerated() {
      for event in gateway.journal {
        #expect(texts.contains(event.text), "seed \(seed): gateway \(number), \(event)")
      }
    }
    // Clones share the messages from before they were separated: each is stored once, and the others separately.
    let twice = Dictionary(grouping: texts) { $0 }.filter { $0.value.count > 1 }.keys.sorted()
    #expect(twice.isEmpty, "seed \(seed)")
  }

  /// Sends like a gateway: asks for the hub's position, compares, and continues from there or in a new epoch.
  private func send(
    _ gateway: inout Model, to store: HubStore, _ epochs: inout Int, _ random: inout SeededRandom, all: Bool = false
  ) async throws {
    func renew() {
      if gateway.first <= gateway.last { gateway.before = gateway.epoch }
      epochs += 1
      (gateway.epoch, gateway.first) = ("e\(epochs)", gateway.last + 1)
    }
    for _ in 0..<100 {
      let progress = try await store.progress(gateway: "g", epoch: gateway.epoch)
      var position = min(gateway.cursor, gateway.first - 1)
      if let has = progress?.lanes[.messages] {
        let own = gateway.journal.first { $0.seq == has }.map { Self.event($0.seq, $0.text) }
        let digest = own.map { EventContent.digest(at: $0.at, kind: $0.kind, body: $0.body) }
        guard has <= gateway.last, digest == nil || digest == progress?.digests[.messages] else {
          renew()
          continue
        }
        position = has
      }
      let waiting = gateway.journal.filter { $0.seq > position }
      guard !waiting.isEmpty else {
        gateway.cursor = position
        return
      }
      let events = waiting.prefix(.random(in: 1...5, using: &random)).map { Self.event($0.seq, $0.text) }
      let before = (events.first?.seq ?? 0) < gateway.first ? gateway.before : nil
      let answer = try await store.take([
        Self.batch(events, epoch: gateway.epoch, before: before, after: progress?.lanes[.messages])
      ])
      switch answer.first {
      case .conflict: renew()
      case .acknowledged(let through): gateway.cursor = min(through, gateway.last)
      case .outOfOrder, nil: break
      }
      if !all, Bool.random(using: &random) { return }
    }
    Issue.record("it does not come to an end")
  }
}

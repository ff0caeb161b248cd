// SPDX-License-Identifier: MIT

import JSON
import TestSupport
import Testing

@testable import Hub

/// The number of a gateway's epochs is limited, and only epochs with events count. So is that of its contacts.
@Suite struct EpochLimitTests {
  private let scratch = Scratch(inMemory: true)

  private static func batch(
    _ epoch: Int64, _ events: [HubEvent]? = nil, after: Int64? = nil, knows: Bool = true
  ) -> PreparedBatch {
    let event = HubEvent(
      seq: 1, at: epoch, trusted: true, kind: "outgoing", body: .object([("text", .string("\(epoch)"))]))
    var batch = PreparedBatch(events ?? [event], of: "e\(epoch)", in: .messages, from: "g", after: after, at: 1000)
    batch.handlesConflicts = knows
    return batch
  }

  private func epochs(_ store: HubStore) async throws -> Int64 { try await store.number("SELECT count(*) FROM epochs") }

  @Test func `a batch of which nothing is stored makes no epoch`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    _ = try await store.take([Self.batch(1)])
    #expect(try await store.take([Self.batch(2, [])]) == [.acknowledged(0)])
    #expect(try await store.take([Self.batch(3, after: 9)]) == [.outOfOrder(0)])
    #expect(try await epochs(store) == 1)
    #expect(try await store.gateways("g").first?.epoch == "e1")
    #expect(try await store.progress(gateway: "g", epoch: "e2") == nil)
    // Of this epoch everything is here already, under another one.
    var again = Self.batch(
      4,
      [
        HubEvent(
          seq: 1, at: 1, trusted: true, kind: "outgoing", body: .object([("text", .string("1"))]))
      ])
    again.before = "e1"
    #expect(try await store.take([again]) == [.acknowledged(1)])
    #expect(try await store.progress(gateway: "g", epoch: "e4")?.lanes[.messages] == 1)
  }

  @Test func `a further epoch is refused, with and without events, and those before it continue`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let most = HubStore.mostEpochs
    _ = try await store.take((1..<most).map { Self.batch($0) })
    #expect(try await store.alerts(before: .max, openOnly: false, limit: 9).alerts.isEmpty)
    _ = try await store.take([Self.batch(most)])
    #expect(try await epochs(store) == most)
    let alert = try await store.alerts(before: .max, openOnly: true, limit: 9).alerts.first
    #expect(alert?.rule == "gateway_conflict" && alert?.gateway == "g")
    #expect(alert?.text.contains("\(most) epochs") == true, "\(alert?.text ?? "")")
    for events in [nil, []] as [[HubEvent]?] {
      let refused = await #expect(throws: HubDatabaseError.self) {
        try await store.take([Self.batch(most + 1, events)])
      }
      #expect(refused?.kind == .unfit && refused?.message.contains("\(most) epochs") == true)
    }
    let other = HubEvent(seq: 1, at: 5, trusted: true, kind: "outgoing", body: .object([("text", .string("other"))]))
    let further = Self.batch(1, [other], knows: false)
    await #expect(throws: HubDatabaseError.self, "a further history is an epoch, too") {
      try await store.take([further])
    }
    #expect(try await epochs(store) == most)
    #expect(try await store.take([Self.batch(1)]) == [.acknowledged(1)])
  }

  @Test func `of a gateway's contacts the newest are kept`() async throws {
    let store = try HubStore(location: scratch.location("hub.db"))
    let most = Int64(HubStore.mostContacts)
    let events = (1...(most + 300)).map { number in
      HubEvent(
        seq: number, at: number, trusted: true, kind: "contact", body: .object([("key", .string("k\(number)"))]))
    }
    _ = try await store.take([
      PreparedBatch(events, of: "e", in: .nodes, from: "g", after: nil, at: 1_000_000),
      PreparedBatch(Array(events.prefix(300)), of: "e", in: .nodes, from: "other", after: nil, at: 1_000_000),
    ])
    #expect(try await store.number("SELECT count(*) FROM contacts WHERE gateway = 'g'") == most)
    #expect(try await store.number("SELECT min(at) FROM contacts WHERE gateway = 'g'") == 301)
    #expect(try await store.number("SELECT count(*) FROM contacts WHERE gateway = 'other'") == 300)
  }
}

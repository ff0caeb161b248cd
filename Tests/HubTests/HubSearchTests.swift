// SPDX-License-Identifier: MIT

import JSON
import TestSupport
import Testing
import Timing

@testable import Hub

/// Messages are found by blocks as they are found one by one.
@Suite struct HubSearchTests {
  private let scratch = Scratch(inMemory: true)
  private static let channels = ["0011223344556677", "8899aabbccddeeff"]
  private static let now: Int64 = 1_795_000_000_000
  private static let minute: Int64 = 60_000
  private static let count: Int64 = 40

  /// Each message is of one of two channels and heard by one of two gateways, a minute after the one before.
  private static func batch(_ number: Int64) -> PreparedBatch {
    let all: [(Int64, String)] = [(3, "Zürich"), (5, "repeater"), (7, "山の上"), (11, "up")]
    let words = all.filter { number % $0.0 == 0 }.map(\.1)
    let body = JSONValue.object([
      ("kind", .string("channel")), ("channel", .string(channels[Int(number % 2)])),
      ("sender_name", .string(number % 4 == 0 ? "Birch" : "Ana")), ("sender_time", .integer(number)),
      ("text", .string((["message \(number)"] + words).joined(separator: " "))),
    ])
    let at = now + number * minute
    let event = HubEvent(seq: number, at: at, trusted: true, kind: "message", body: body)
    return PreparedBatch(
      [event], of: "e", in: .messages, from: number % 3 == 1 ? "a" : "b", after: nil, at: at)
  }

  private func store() async throws -> HubStore {
    let store = try HubStore(location: scratch.location("hub.db"))
    for number in 1...Self.count { _ = try await store.take([Self.batch(number)]) }
    return store
  }

  private func indexer(_ store: HubStore) -> SearchIndexer {
    SearchIndexer(reader: store, writer: store, messages: 8, leastRest: .zero)
  }

  /// The times of the messages of all pages, in minutes: their numbers.
  private func walk(_ store: HubStore, _ query: ListQuery) async throws -> [Int64] {
    var asked = query
    var found: [Int64] = []
    for _ in 0..<100 {
      let page = try JSONValue(parsing: await store.messages(asked))
      found += (page["messages"]?.array ?? []).compactMap { $0["at"]?.integer.map { ($0 - Self.now) / Self.minute } }
      guard let next = page["next"]?.integer else { return found }
      if query.isNewestFirst { asked.before = next } else { asked.after = next }
    }
    Issue.record("the list has no end")
    return found
  }

  private static func queries() throws -> [ListQuery] {
    var queries: [ListQuery] = []
    for after in [nil, 0] as [Int64?] {
      for words in ["zurich", "ZURICH peat", "の", "essage 1", "up", "up zur", "bir", "nothing"] {
        queries.append(ListQuery(after: after, limit: 3, words: try SearchTerms(words)))
      }
      let some = try SearchTerms("zurich")
      queries += [
        ListQuery(after: after, limit: 3, from: try SearchTerms("birch")),
        ListQuery(after: after, limit: 3, channel: channels[1]),
        ListQuery(after: after, limit: 3, words: some, channel: channels[0], gateway: "b"),
        ListQuery(after: after, limit: 3, since: now + 5 * minute, until: now + 20 * minute, words: some),
        ListQuery(after: after, limit: 3, until: now + 20 * minute, words: some, gateway: "b"),
      ]
    }
    return queries
  }

  private func answers(_ store: HubStore) async throws -> [[Int64]] {
    var answers: [[Int64]] = []
    for query in try Self.queries() { answers.append(try await walk(store, query)) }
    return answers
  }

  @Test func `a search finds the same before its index is made, meanwhile and afterwards`() async throws {
    let store = try await store()
    let before = try await answers(store)
    let thirds = Array((1...Self.count).reversed().filter { $0.isMultiple(of: 3) })
    #expect(before.first == thirds)
    #expect(before.filter(\.isEmpty).count == 2, "only one question has no answer")
    #expect(try await indexer(store).step())
    #expect(try await answers(store) == before)
    while try await indexer(store).step() {}
    #expect(try await store.lastIndexed() > 0)
    #expect(try await answers(store) == before)
    _ = try await store.take([Self.batch(Self.count + 2)])
    #expect(try await walk(store, ListQuery(words: try SearchTerms("zurich"))).first == Self.count + 2)
  }

  @Test func `an answer whose time is over after one block goes on before it`() async throws {
    let store = try await store()
    while try await indexer(store).step() {}
    let slots = SearchBlock.slots(words: try SearchTerms("message")?.words ?? [], channel: nil)
    let last = try await store.lastIndexed()
    var (start, found) = (last + 1, [Int64]())
    for _ in 0..<10 {
      // `most`: each block is enough.
      let page = try await store.candidates(slots, from: start, isNewestFirst: true, most: 0, ReadBudget())
      found += page.positions
      guard let next = page.next else { break }
      #expect(next < start)
      start = next
    }
    #expect(found == Array((1...last).reversed()))
  }

  @Test func `deleted messages are in no answer, and a block goes with its last message`() async throws {
    let store = try await store()
    while try await indexer(store).step() {}
    _ = try await store.removeGateway("b") { _ in }
    let left = (1...Self.count).filter { $0 % 3 == 1 }
    #expect(try await walk(store, ListQuery(after: 0, words: try SearchTerms("message"))) == left)
    let oldest = try await store.positions(after: 0, limit: 6)
    try await store.delete(.messages, oldest)
    while try await indexer(store).step() {}
    #expect(try await store.number("SELECT count(*) FROM search_blocks") == 3)
    #expect(try await store.number("SELECT count(DISTINCT through) FROM search_places") == 3)
    #expect(try await walk(store, ListQuery(after: 0, words: try SearchTerms("message"))) == Array(left.dropFirst(6)))
  }

  @Test func `a report of a message that is gone ends no list of its gateway`() async throws {
    let store = try await store()
    // As another hub's purge does while a late report comes.
    #expect(try await store.number("DELETE FROM messages WHERE position = 38 RETURNING position") == 38)
    let left = (1...Self.count).filter { $0 % 3 != 1 && $0 != 38 }
    for after in [nil, 0] as [Int64?] {
      let found = try await walk(store, ListQuery(after: after, limit: 3, gateway: "b"))
      #expect(found == (after == nil ? left.reversed() : left))
    }
  }

  @Test func `a message is in the slots of every part of its words`() throws {
    let texts = ["Zürich repeater 山の上", "73 de HB9XYZ", "ab", ""]
    var block = SearchBlock()
    for (place, text) in texts.enumerated() {
      let body = JSONValue.object([("text", .string(text))]).text
      block.add(Int64(place * place) * 1_048_576 + 7, channel: place == 1 ? Self.channels[0] : nil, body: body)
    }
    #expect(SearchBlock.positions(block.distances) == block.positions)
    let rows = Dictionary(uniqueKeysWithValues: block.rows.map { ($0.slot, $0.places) })
    func find(_ words: String, channel: String? = nil) throws -> [Int64] {
      let slots = SearchBlock.slots(words: try SearchTerms(words)?.words ?? [], channel: channel)
      #expect(!slots.isEmpty)
      var places = SearchBlock.Places(rows[slots[0]] ?? "")
      for slot in slots { places.formIntersection(SearchBlock.Places(rows[slot] ?? "")) }
      return places.positions(of: block.positions)
    }
    for part in ["zur", "URICH", "epeat", "の上", "rich ater"] { #expect(try find(part).contains(7), "\(part)") }
    #expect(try find("hb9").contains(1_048_583))
    #expect(try find("de", channel: Self.channels[0]) == [1_048_583])
    #expect(try find("something else").isEmpty)
    #expect(SearchBlock.slots(words: try SearchTerms("ab c")?.words ?? [], channel: nil).isEmpty)
  }

  @Test func `strangers' long texts cost 700 bytes a message in the index, and each is found in its slots`() throws {
    var random = SeededRandom(seed: 39)
    var block = SearchBlock()
    var texts: [String] = []
    for place in 0..<900 as Range<Int64> {
      let letters = (0..<2000).map { _ in UInt8.random(in: 0x61...0x7A, using: &random) }
      texts.append(String(decoding: letters, as: UTF8.self))
      block.add(place, channel: nil, body: "{\"text\":\"\(texts.last ?? "")\"}")
    }
    let rows = Dictionary(uniqueKeysWithValues: block.rows.map { ($0.slot, $0.places) })
    #expect(rows.values.reduce(0) { $0 + $1.utf8.count } < texts.count * 700)
    for (place, text) in texts.enumerated().filter({ $0.offset % 50 == 0 || $0.offset == 899 }) {
      let slots = SearchBlock.slots(words: [Array(text.utf8.prefix(30))], channel: nil)
      var found = SearchBlock.Places(rows[slots[0]] ?? "")
      for slot in slots { found.formIntersection(SearchBlock.Places(rows[slot] ?? "")) }
      let positions = found.positions(of: block.positions)
      #expect(positions.contains(Int64(place)) && positions.count < 100, "\(place): \(positions.count)")
    }
  }

  @Test func `a slot's messages are the same as a list and as bits`() throws {
    for step in [1, 2, 3, 7, 63, 64, 65, 500, 4095] {
      var block = SearchBlock()
      for place in 0..<SearchBlock.mostMessages {
        block.add(Int64(place) + 1, channel: place.isMultiple(of: step) ? "c" : nil, body: "")
      }
      let rows = block.rows
      #expect(rows.count == 1 && rows[0].places.utf8.count <= 684)
      let told = SearchBlock.Places(rows[0].places).positions(of: block.positions)
      #expect(told == stride(from: 1, through: 4096, by: step).map { Int64($0) }, "\(step)")
    }
  }
}

// SPDX-License-Identifier: MIT

import JSON
import SQLite
import TestSupport
import Testing

@testable import Hub

/// The waiting time of commands under any changes of the hub's clock while it is stopped, with invented clocks.
@Suite struct QueueClockTests {
  private let scratch = Scratch(inMemory: true)
  private static let now: Int64 = 1_795_000_000_000
  private static let hour: Int64 = 3_600_000

  private static func clocks(
    _ boot: String = "one", uptime: Int64, wall: Int64, isSynchronised: Bool = true
  ) -> HubStore.ClockReading {
    HubStore.ClockReading(boot: boot, uptime: uptime, wall: wall, isSynchronised: isSynchronised)
  }

  /// The store after a start of the hub.
  private func store() throws -> HubStore { try HubStore(location: scratch.location("hub.db")) }

  private func enqueue(_ id: String, _ clocks: HubStore.ClockReading, expires: Int = 600) async throws {
    let body = try JSONValue(parsing: #"{"command":"send","expires_s":\#(expires)}"#)
    let queued = try await store().enqueue(body, id: id, for: "g", by: "me", at: clocks.wall, clocks: clocks)
    #expect(queued != .full)
  }

  private func ages(_ clocks: HubStore.ClockReading) async throws -> [Int64] {
    let page = try JSONValue(
      parsing: await store().updates(
        "commands", of: "g", from: HubStore.Position(after: 0), until: nil, limit: 9, clocks: clocks))
    return page["updates"]?.array?.compactMap { $0["age_ms"]?.integer } ?? []
  }

  private func state(_ id: String) async throws -> HubStore.CommandState? {
    try await store().command(id, of: "g")?.state
  }

  @Test(arguments: [-7_200_000, 0, 7_200_000], [true, false])
  func `a clock that is set while the hub is stopped does not change the age of commands`(
    change: Int64, isSynchronised: Bool
  ) async throws {
    func clocks(_ passed: Int64) -> HubStore.ClockReading {
      Self.clocks(
        uptime: 5000 + passed, wall: Self.now + passed + (passed > 0 ? change : 0), isSynchronised: isSynchronised)
    }
    try await enqueue("long", clocks(0))
    try await enqueue("short", clocks(1000), expires: 3)
    #expect(try await ages(clocks(11_000)) == [11_000, 10_000])
    try await enqueue("next", clocks(11_000))
    #expect(try await state("long") == .queued)
    #expect(try await state("short") == .expired)
  }

  @Test func `a command expires however many others wait before it`() async throws {
    let store = try store()
    let clocks = Self.clocks(uptime: 1000, wall: Self.now)
    let long = try JSONValue(parsing: #"{"command":"send","expires_s":10000}"#)
    for number in 0..<100 {
      _ = try await store.enqueue(long, id: "c\(number)", for: "g", by: "me", at: Self.now, clocks: clocks)
    }
    try await enqueue("short", clocks, expires: 3)
    let later = Self.clocks(uptime: 6000, wall: Self.now)
    try await store.expireCommands(of: "g", at: Self.now, clocks: later)
    #expect(try await state("short") == .expired)
    #expect(try await state("c99") == .queued)
  }

  @Test func `time over a reboot counts if the clock was synchronised before and after, and only then`() async throws {
    try await enqueue("c", Self.clocks(uptime: 9000, wall: Self.now), expires: 10_000)
    func second(_ uptime: Int64, _ passed: Int64, isSynchronised: Bool) -> HubStore.ClockReading {
      Self.clocks("two", uptime: uptime, wall: Self.now + passed, isSynchronised: isSynchronised)
    }
    #expect(try await ages(second(60_000, 365 * 24 * Self.hour, isSynchronised: false)) == [0])
    #expect(try await ages(second(60_000, Self.hour, isSynchronised: true)) == [Self.hour])
    #expect(try await ages(second(60_000, -Self.hour, isSynchronised: true)) == [0])
    let year = second(60_000, 365 * 24 * Self.hour, isSynchronised: true)
    #expect(try await ages(year) == [HubStore.longestAway], "no more than that at once")
    // The hub starts without a clock, which is set later, and then again.
    try await enqueue("d", second(60_000, 5 * Self.hour, isSynchronised: false), expires: 10_000)
    #expect(try await ages(second(70_000, 5 * Self.hour, isSynchronised: false)) == [10_000, 9_999])
    let set = second(80_000, 2 * Self.hour, isSynchronised: true)
    try await enqueue("e", set, expires: 10_000)
    #expect(try await ages(set) == [2 * Self.hour, 2 * Self.hour - 1, 0])
    #expect(try await ages(second(90_000, 9 * Self.hour, isSynchronised: true)).last == 10_000)
  }

  @Test func `a command that was queued before the upgrade waits from then on, whatever clock gave its time`()
    async throws
  {
    do {
      let old = try Database(location: scratch.location("hub.db"))
      let before = HubSchema.steps(.sqlite).prefix { !$0.sql.contains("queue_clock") }
      try old.migrate(before.map { Migration(number: $0.number, sql: $0.sql) })
      let ahead = Self.now * 2
      try old.execute(
        """
        INSERT INTO commands(gateway, id, body, state, author, created_at)
          VALUES ('g', 'old', '{"command":"send","expires_s":600}', 'queued', 'me', \(ahead));
        INSERT INTO buckets VALUES ('g', 'commands', 1, 1, \(ahead));
        INSERT INTO updates(gateway, bucket, seq, id, at, body) VALUES ('g', 'commands', 1, 'old', \(ahead), '{}')
        """)
    }
    let clocks = Self.clocks(uptime: 1000, wall: Self.now)
    #expect(try await ages(clocks) == [0], "no mark yet")
    try await enqueue("new", clocks)
    let later = Self.clocks(uptime: 602_000, wall: Self.now)
    #expect(try await ages(later) == [601_000, 600_999])
    try await enqueue("last", later)
    #expect(try await state("old") == .expired)
    #expect(try await state("new") == .queued)
  }
}

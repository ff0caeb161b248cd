// SPDX-License-Identifier: MIT

/// The index of what messages have: blocks of messages, each made at once when all of its messages are there. The newest messages, and those that are
/// there before their block, are looked at one by one.
extension HubStore {
  /// Blocks of one answer, and of one query for them.
  private static let (mostBlocks, mostAtOnce) = (2000, 32)

  /// The messages to look at, in the order of the answer.
  struct Candidates {
    var positions: [Int64] = []
    /// Where further ones begin; `nil`: these are all.
    var next: Int64?
  }

  /// The messages that may have all of these slots, behind `start`: at least `most` of them, if there are as many.
  func candidates(
    _ slots: [Int64], from start: Int64, isNewestFirst: Bool, most: Int, _ budget: ReadBudget
  ) throws(HubDatabaseError) -> Candidates {
    var found = Candidates()
    let indexed = try lastIndexed()
    if isNewestFirst, start > indexed {
      try addUnindexed(to: &found, after: indexed, before: start, "DESC", most)
      if found.next != nil { return found }
    }
    var blocks = try blocks(through: indexed, from: start, isNewestFirst: isNewestFirst)
    let isCut = blocks.count > Self.mostBlocks
    if isCut { blocks.removeLast(blocks.count - Self.mostBlocks) }
    var (rest, count) = (blocks[...], 1)
    while !rest.isEmpty {
      let piece = Array(rest.prefix(count))
      rest = rest.dropFirst(piece.count)
      count = min(count * 2, Self.mostAtOnce)
      for positions in try look(piece, for: slots) {
        found.positions += isNewestFirst ? positions.reversed().filter { $0 < start } : positions.filter { $0 > start }
      }
      let isEnough = found.positions.count >= most || budget.isLate || rest.isEmpty && isCut
      guard isEnough, let last = piece.last else { continue }
      if isNewestFirst {
        // The first message that was not looked at is the last one of the block before.
        let next = try database.number("SELECT coalesce(max(through), 0) FROM search_blocks WHERE through < ?1", last)
        found.next = next > 0 ? next + 1 : nil
      } else {
        found.next = last
      }
      return found
    }
    if !isNewestFirst { try addUnindexed(to: &found, after: max(start, indexed), before: .max, "ASC", most) }
    return found
  }

  /// The last message with a block; 0: there is none.
  func lastIndexed() throws(HubDatabaseError) -> Int64 {
    try number("SELECT coalesce(max(through), 0) FROM search_blocks")
  }

  private func addUnindexed(
    to found: inout Candidates, after: Int64, before: Int64, _ order: String, _ most: Int
  ) throws(HubDatabaseError) {
    let settled = database.unsettledPosition.map { "AND position < \($0)" } ?? ""
    let rows = try database.rows(
      """
      SELECT position FROM messages WHERE position > ?1 AND position < ?2 \(settled) ORDER BY position \(order) LIMIT ?3
      """, [after, before, most]
    ) { $0.integer(0) }
    found.positions += rows
    if rows.count == most { found.next = rows.last }
  }

  /// The last messages of the blocks behind `start`: as many as an answer reads, and one more. `indexed`: another block may have been made meanwhile.
  private func blocks(
    through indexed: Int64, from start: Int64, isNewestFirst: Bool
  ) throws(HubDatabaseError) -> [Int64] {
    func read(_ condition: String, _ position: Int64, _ limit: Int) throws(HubDatabaseError) -> [Int64] {
      let sql = "SELECT through FROM search_blocks WHERE through <= ?1 AND through \(condition) LIMIT ?3"
      return try database.rows(sql, [indexed, position, limit]) { $0.integer(0) }
    }
    let limit = Self.mostBlocks + 1
    guard isNewestFirst else { return try read("> ?2 ORDER BY through", start, limit) }
    // The block with the position before `start`, which may be its last one. Not the one with `start` itself: an answer whose time is over after that
    // block would end where it began.
    let own = try read(">= ?2 ORDER BY through", start - 1, 1)
    let others = try read("< ?2 ORDER BY through DESC", start - 1, limit)
    return own + others
  }

  /// The messages of each of these blocks that are in all slots, in their order.
  private func look(_ blocks: [Int64], for slots: [Int64]) throws(HubDatabaseError) -> [[Int64]] {
    var places: [Int64: (places: SearchBlock.Places, slots: Int)] = [:]
    try database.read([
      HubCall(
        "SELECT p.through, p.places FROM @rows JOIN search_places p ON p.through = v.block AND p.slot = v.slot",
        ["block": blocks.flatMap { block in slots.map { _ in block } }, "slot": blocks.flatMap { _ in slots }]
      ) { row in
        let these = SearchBlock.Places(row.text(1))
        guard var known = places[row.integer(0)] else {
          places[row.integer(0)] = (these, 1)
          return
        }
        known.places.formIntersection(these)
        known.slots += 1
        places[row.integer(0)] = known
      }
    ])
    let wanted = blocks.filter { block in
      places[block].map { $0.slots == slots.count && !$0.places.isEmpty } ?? false
    }
    guard !wanted.isEmpty else { return [] }
    var positions: [Int64: [Int64]] = [:]
    try database.read([
      HubCall(
        "SELECT b.through, b.positions FROM @rows JOIN search_blocks b ON b.through = v.block", ["block": wanted]
      ) { positions[$0.integer(0)] = SearchBlock.positions($0.text(1)) }
    ])
    return wanted.compactMap { block in positions[block].flatMap { places[block]?.places.positions(of: $0) } }
  }

  // MARK: Making blocks

  struct Unindexed: Sendable {
    let position: Int64
    let channel: String?
    /// Empty if it is too large to be searched.
    let body: String
  }

  /// The next messages without a block: readers see all before them.
  func unindexed(after position: Int64, limit: Int) throws(HubDatabaseError) -> [Unindexed] {
    let settled = database.unsettledPosition.map { "AND position < \($0)" } ?? ""
    return try database.rows(
      """
      SELECT position, channel, CASE WHEN \(bytes("body")) <= \(Self.maxSearchedBytes) THEN body ELSE '' END
      FROM messages WHERE position > ?1 \(settled) ORDER BY position LIMIT ?2
      """, [position, limit]
    ) { Unindexed(position: $0.integer(0), channel: $0.textIfAny(1), body: $0.text(2)) }
  }

  /// Whether so many messages have no block.
  func hasUnindexed(_ count: Int, after position: Int64) throws(HubDatabaseError) -> Bool {
    let settled = database.unsettledPosition.map { "AND position < \($0)" } ?? ""
    let place = try database.number(
      "SELECT position FROM messages WHERE position > ?1 \(settled) ORDER BY position LIMIT 1 OFFSET ?2", position,
      count - 1)
    return place > 0
  }

  /// Keeps a block of the messages behind `before`, unless another hub has made one.
  func keep(_ block: SearchBlock, after before: Int64) throws(HubDatabaseError) {
    let (through, rows) = (Array(block.positions.suffix(1)), block.rows)
    let distances = [block.distances]
    try database.transaction { () throws(HubDatabaseError) -> Void in
      try database.lock("meshpost search")
      guard try lastIndexed() == before else { return }
      let calls = [
        HubCall(into: "search_blocks", ["through": through, "positions": distances]),
        HubCall(
          into: "search_places",
          ["through": rows.flatMap { _ in through }, "slot": rows.map(\.slot), "places": rows.map(\.places)]),
      ]
      try database.perform(calls, begins: false, ends: false)
    }
  }

  /// Deletes the oldest block if all its messages are gone, and another block is there. `false`: it stays.
  func deleteEmptyBlock() throws(HubDatabaseError) -> Bool {
    let oldest = try number(
      """
      SELECT coalesce(min(through), 0) FROM search_blocks WHERE through < (SELECT min(position) FROM messages)
      AND through < (SELECT max(through) FROM search_blocks)
      """)
    guard oldest > 0 else { return false }
    try database.write([
      HubCall("DELETE FROM search_places WHERE through = CAST(@1 AS BIGINT)", values: [oldest]),
      HubCall("DELETE FROM search_blocks WHERE through = CAST(@1 AS BIGINT)", values: [oldest]),
    ])
    return true
  }
}

/// Makes blocks of the messages that came, while the hub serves.
struct SearchIndexer: Sendable {
  private static let interval: Duration = .seconds(60)
  /// The pause after a step, as a multiple of its duration.
  private static let rest = 4
  private static let rowsAtOnce = 256

  let reader: HubStore
  let writer: HubStore
  var messages = SearchBlock.mostMessages
  var leastRest: Duration = .milliseconds(20)

  /// Runs until it is cancelled.
  func run() async {
    let rare = ThrottledLog(HubLog.write)
    // `try?`: it is cancelled while it sleeps.
    while (try? await Task.sleep(for: Self.interval)) != nil {
      do {
        while try await step() {}
      } catch {
        // A hub that stops ends its queries, too.
        if Task.isCancelled { return }
        rare.say("the index of messages: \(error)")
      }
    }
  }

  /// Makes the next block, or deletes one whose messages are gone. `false`: there is nothing to do.
  func step() async throws -> Bool {
    let before = try await reader.lastIndexed()
    guard try await reader.hasUnindexed(messages, after: before) else {
      return try await paused { try await writer.deleteEmptyBlock() }
    }
    var (block, last) = (SearchBlock(), before)
    while block.positions.count < messages {
      let (from, limit) = (last, min(Self.rowsAtOnce, messages - block.positions.count))
      let rows = try await paused { try await reader.unindexed(after: from, limit: limit) }
      // Some have been deleted meanwhile.
      guard let next = rows.last?.position else { return false }
      for row in rows { block.add(row.position, channel: row.channel, body: row.body) }
      last = next
    }
    let made = block
    try await paused { try await writer.keep(made, after: before) }
    return true
  }

  private func paused<Value>(_ work: () async throws -> Value) async throws -> Value {
    let begun = ContinuousClock.now
    let value = try await work()
    try await Task.sleep(for: max((ContinuousClock.now - begun) * Self.rest, leastRest))
    return value
  }
}

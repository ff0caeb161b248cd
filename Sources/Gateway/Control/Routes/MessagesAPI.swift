// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import HTTP
import JSON
import Messaging
import Store

/// `/v1/messages`: messages of both directions in one order, by words, sender, channel and time; also following new
/// ones.
struct MessagesAPI {
  /// Steps of indexing for which a search waits; the daemon does more in its spare time.
  private static let maxSteps: Int64 = 8

  let dependencies: ControlAPI.Dependencies

  /// The newest `limit` matching messages (100), or the first after a position; `follow=1` continues with new ones.
  func show(_ request: HTTPRequest, _ reply: Reply) async throws -> Answer {
    let query = try query(request)
    let limit = Int(clamping: ControlAPI.number(request, "limit") ?? 100)
    let hasAfter = request.query["after"] != nil
    let rows = MessageRow(
      store: dependencies.store, relay: request.query["upstreams"] == "1" ? dependencies.relay : nil,
      showsWays: request.query["ways"] == "1")
    if request.query["follow"] == "1" {
      guard query.words == nil else { throw Refusal.invalid("q and follow cannot be combined") }
      return try await follow(query, limit: limit, hasAfter: hasAfter, rows, reply)
    }
    defer { dependencies.operations.memoryWasUsed() }
    if query.usesIndex { try await prepare() }
    // Words that cannot be searched for are refused before the answer begins.
    try dependencies.store.eachRow(query, limit: 0) { _ in false }
    return try await list(query, limit: limit, hasAfter: hasAfter, rows, reply)
  }

  private func query(_ request: HTTPRequest) throws(Refusal) -> MessageQuery {
    let addressing = Addressing(dependencies.store)
    var query = MessageQuery(
      words: request.query["q"], since: ControlAPI.number(request, "since"), until: ControlAPI.number(request, "until"),
      after: try place(request, "after") ?? .first, before: try place(request, "before") ?? .last,
      radio: try RadiosAPI.wanted(request, dependencies.store))
    if let name = request.query["from"] { query.from = try addressing.contact(name).contact }
    if let name = request.query["with"] { query.with = try addressing.contact(name).contact }
    if let name = request.query["channel"] { query.channel = try addressing.channel(name).secret }
    if let name = request.query["conversation"] { query.conversation = try ConversationsAPI.name(name) }
    switch request.query["direction"] {
    case "sent": query.directions = .sent
    case "both": query.directions = .both
    default: query.directions = .received
    }
    return query
  }

  private func place(_ request: HTTPRequest, _ name: String) throws(Refusal) -> MessagePlace? {
    guard let text = request.query[name] else { return nil }
    guard let place = MessagePlace(text) else { throw .invalid("\(name): expected a row's id or cursor") }
    return place
  }

  /// Adds the latest messages to the indexes.
  private func prepare() async throws {
    guard try await !prepareIfNear() else { return }
    let waiting = try dependencies.store.unindexedMessages()
    throw Refusal.full("the search index is being built, \(waiting) messages left: try again in a minute")
  }

  /// Adds the latest messages to the indexes. False: they lack so many that this would take long.
  func prepareIfNear() async throws(StoreError) -> Bool {
    let store = dependencies.store
    var (waiting, steps): (Int64, Int64) = (try store.unindexedMessages(), 0)
    guard waiting <= Self.maxSteps * Store.indexStep else { return false }
    while waiting > 0, steps < Self.maxSteps {
      try await store.save { store throws(SQLiteError) in _ = try store.indexMessages() }
      waiting = try store.unindexedMessages()
      steps += 1
    }
    return true
  }

  private func list(
    _ query: MessageQuery, limit: Int, hasAfter: Bool, _ rows: MessageRow, _ reply: Reply
  ) async throws -> Answer {
    if !hasAfter, limit <= ControlAPI.pageRows {
      let lines = try await newest(query, limit, rows)
      return try await reply.rows(lines)
    }
    var query = query
    if !hasAfter { query.after = try await beginning(ofNewest: limit, query) }
    var (rest, left): (MessageQuery?, Int) = (query, limit)
    return try await reply.rows {
      guard let next = rest, left > 0 else { return ([], true) }
      let page = try Self.page(next, min(ControlAPI.pageRows, left), rows)
      left -= page.count
      rest = page.rest
      return (page.lines, rest == nil || left <= 0)
    }
  }

  /// The next rows, and the query that continues after them; `nil`: these are all. There may be none yet: a page looks at a part of the messages.
  private static func page(
    _ query: MessageQuery, _ most: Int, _ rows: MessageRow
  ) throws -> (lines: [UInt8], count: Int, rest: MessageQuery?) {
    let (part, rest) = try rows.store.oldestPart(of: query)
    var lines: [UInt8] = []
    var (count, last) = (0, query.after)
    try rows.store.eachRow(part, oldestFirst: true, limit: most) { row in
      lines += ControlAPI.line { rows.write(row, to: &$0) }
      last = row.place
      count += 1
      return true
    }
    guard count == most else { return (lines, count, rest) }
    // The part may have more.
    var next = query
    next.after = last
    return (lines, count, next)
  }

  /// Messages that are passed in one turn on the way back to the first that is wanted.
  private static let passedAtOnce = 1000

  /// The position before the newest `limit` messages, so that they can be sent oldest first. Others have their turns meanwhile.
  private func beginning(ofNewest limit: Int, _ query: MessageQuery) async throws -> MessagePlace {
    var (rest, left): (MessageQuery?, Int) = (query, limit)
    var oldest = MessagePlace.last
    while left > 0, var next = rest {
      let (part, more) = try dependencies.store.newestPart(of: next)
      let most = min(left, Self.passedAtOnce)
      var count = 0
      try dependencies.store.eachRow(part, limit: most) { row in
        oldest = row.place
        count += 1
        return true
      }
      left -= count
      // The part may have more.
      next.before = oldest
      rest = count == most ? next : more
      try await dependencies.loop.nextTurn()
    }
    return left == limit ? .last : Self.place(before: oldest)
  }

  /// Reads backwards, so that the index is used once for most pages. Others have their turns while few messages match.
  private func newest(_ query: MessageQuery, _ limit: Int, _ rows: MessageRow) async throws -> [UInt8] {
    var found: [ConversationRow] = []
    var rest: MessageQuery? = query
    while found.count < limit, let next = rest {
      let (part, more) = try dependencies.store.newestPart(of: next)
      try dependencies.store.eachRow(part, limit: limit - found.count) { row in
        found.append(row)
        return true
      }
      rest = more
      if more != nil { try await dependencies.loop.nextTurn() }
    }
    return found.reversed().flatMap { row in ControlAPI.line { rows.write(row, to: &$0) } }
  }

  // MARK: Following

  /// First sends existing messages, then those of new journal events: sent messages come with each of their states.
  private func follow(
    _ query: MessageQuery, limit: Int, hasAfter: Bool, _ rows: MessageRow, _ reply: Reply
  ) async throws -> Answer {
    let store = dependencies.store
    var query = query
    if !hasAfter { query.after = limit == 0 ? .last : try await beginning(ofFollowed: limit, query) }
    var (isBegun, seq) = (hasAfter ? false : limit == 0, store.lastSeq)
    // Filters such as `from` are applied to all messages, because some may not be indexed yet.
    var all = MessageQuery(after: query.after, radio: query.radio)
    all.directions = query.directions
    var shown: Int64 = 0
    return try await reply.rows(follow: true) {
      if !isBegun {
        let (part, rest) = try store.oldestPart(of: all)
        var lines: [UInt8] = []
        var count = 0
        try store.eachRow(part, oldestFirst: true, limit: ControlAPI.pageRows) { row in
          if Self.fits(row, query) { lines += ControlAPI.line { rows.write(row, to: &$0) } }
          all.after = row.place
          shown = max(shown, row.place.message)
          count += 1
          return true
        }
        guard count < ControlAPI.pageRows else { return (lines, false) }
        isBegun = rest == nil
        all = rest ?? all
        return (lines, false)
      }
      let (lines, count) = try Self.news(after: &seq, query, shown: shown, rows)
      return (lines, count < ControlAPI.pageRows)
    }
  }

  /// Rows of the messages in new events of the journal.
  private static func news(
    after seq: inout Int64, _ query: MessageQuery, shown: Int64, _ rows: MessageRow
  ) throws(StoreError) -> (lines: [UInt8], count: Int) {
    var (events, last): ([(kind: String, body: [UInt8])], Int64) = ([], seq)
    var lines: [UInt8] = []
    try rows.store.readJournal(after: seq, limit: ControlAPI.pageRows) { event, isSound in
      // The journal is deleted from its beginning, so missing events come before all existing ones.
      lines += ControlAPI.missed(before: event.seq, after: last)
      last = event.seq
      events.append((isSound ? event.kind : "", event.body))
      return true
    }
    seq = last
    for event in events {
      guard let row = try row(of: event, rows.store), fits(row, query) else { continue }
      if case .received(let message) = row, message.id <= shown { continue }
      lines += ControlAPI.line { rows.write(row, to: &$0) }
    }
    return (lines, events.count)
  }

  static func row(of event: (kind: String, body: [UInt8]), _ store: Store) throws(StoreError)
    -> ConversationRow?
  {
    guard event.kind == EventKind.message.rawValue || event.kind == EventKind.outgoing.rawValue else { return nil }
    // `try?`: stored bodies were JSON when they were written; `journal` shows a damaged row.
    let body = try? JSONValue(parsing: event.body)
    if event.kind == EventKind.outgoing.rawValue {
      guard let key = body?["id"]?.string, var message = try store.outgoing(key: key),
        let place = try store.place(ofOutgoing: message.id)
      else { return nil }
      // The state of the event: the row may have a later one.
      message.state = body?["state"]?.string.flatMap { OutgoingState(rawValue: $0) } ?? message.state
      message.reason = body?["reason"]?.string
      return .sent(message, place)
    }
    guard let id = body?["id"]?.integer else { return nil }
    return try store.message(id: id).map { .received($0) }
  }

  /// Messages that are searched for those shown before following.
  private static let maxLookedBack = 10_000

  private func beginning(ofFollowed limit: Int, _ query: MessageQuery) async throws -> MessagePlace {
    var (count, looked) = (0, 0)
    var all = MessageQuery(radio: query.radio)
    all.directions = query.directions
    var place = try dependencies.store.endOfMessages()
    var rest: MessageQuery? = all
    while count < limit, looked < Self.maxLookedBack, let next = rest {
      let (part, more) = try dependencies.store.newestPart(of: next)
      try dependencies.store.eachRow(part, limit: Self.maxLookedBack - looked) { row in
        looked += 1
        guard Self.fits(row, query) else { return true }
        place = row.place
        count += 1
        return count < limit
      }
      rest = more
      if more != nil { try await dependencies.loop.nextTurn() }
    }
    return count > 0 ? Self.place(before: place) : place
  }

  private static func place(before place: MessagePlace) -> MessagePlace {
    MessagePlace(
      message: place.outgoing == 0 ? place.message - 1 : place.message,
      outgoing: place.outgoing == 0 ? .max : place.outgoing - 1)
  }

  private static func fits(_ row: ConversationRow, _ query: MessageQuery) -> Bool {
    switch row {
    case .received(let message): query.directions.contains(.received) && fits(message, query)
    case .sent(let message, _): query.directions.contains(.sent) && fits(message, query)
    }
  }

  private static func fits(_ message: OutgoingMessage, _ query: MessageQuery) -> Bool {
    if let radio = query.radio, message.radio != radio { return false }
    if let channel = query.channel, message.channel != channel.digest { return false }
    if let with = query.with, message.recipient != with.key { return false }
    if let conversation = query.conversation, ConversationName(of: message) != conversation { return false }
    return query.from == nil
  }

  private static func fits(_ message: StoredMessage, _ query: MessageQuery) -> Bool {
    if let radio = query.radio, message.radio != radio, message.radio != Store.everyRadio { return false }
    if let channel = query.channel, message.channel != channel.digest { return false }
    if let with = query.with, message.sender != with.key.prefix { return false }
    if let conversation = query.conversation, ConversationName(of: message) != conversation { return false }
    guard let from = query.from else { return true }
    let isAuthor = message.author.map { from.key.bytes.starts(with: $0) } ?? false
    return message.sender == from.key.prefix || isAuthor || message.kind == .channel && message.senderName == from.name
  }
}

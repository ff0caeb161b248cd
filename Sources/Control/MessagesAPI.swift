// SPDX-License-Identifier: MIT

import Companion
import HTTP
import JSON
import Messaging
import Store

/// `/v1/messages`: what came, by words, sender, channel and time; and what comes.
final class MessagesAPI {
  typealias Stream = (HTTPResponder, _ follow: Bool, @escaping RowStream.Producer) -> Void

  /// Rows of a page that are read at once.
  private static let pageRows = 100
  /// Steps of indexing that a search waits for; more are left to the daemon's spare time.
  private static let mostSteps: Int64 = 8

  private let parts: ControlAPI.Parts
  private let stream: Stream

  init(_ parts: ControlAPI.Parts, _ stream: @escaping Stream) {
    self.parts = parts
    self.stream = stream
  }

  /// The newest `limit` that fit (100), or the first that fit after an id; `follow=1` goes on with what comes.
  func handle(_ request: HTTPRequest, _ responder: HTTPResponder) {
    do throws(Refusal) {
      let query = try query(request)
      let limit = Int(clamping: min(max(ControlAPI.number(request, "limit") ?? 100, 0), 1_000_000))
      let hasAfter = request.query["after"] != nil
      if request.query["follow"] == "1" {
        guard query.words == nil else { throw .invalid("words cannot be followed: leave out q, or follow") }
        return follow(query, limit: hasAfter ? 0 : limit, responder)
      }
      if query.words != nil || query.from != nil || query.channel != nil { try prepare() }
      try list(query, limit: limit, hasAfter: hasAfter, responder)
      parts.memoryWasUsed()
    } catch {
      Answering.refuse(responder, error)
    }
  }

  private func query(_ request: HTTPRequest) throws(Refusal) -> MessageQuery {
    let addressing = Addressing(parts.store)
    var query = MessageQuery(
      words: request.query["q"], since: try time(request, "since"), until: try time(request, "until"),
      after: ControlAPI.number(request, "after") ?? 0, before: ControlAPI.number(request, "before") ?? .max)
    if let name = request.query["from"] { query.from = try addressing.contact(name).contact }
    if let name = request.query["channel"] { query.channel = try addressing.channel(name).secret }
    return query
  }

  private func time(_ request: HTTPRequest, _ name: String) throws(Refusal) -> Int64? {
    guard request.query[name] != nil else { return nil }
    guard let number = ControlAPI.number(request, name) else {
      throw .invalid("\(name): milliseconds since 1970 are wanted")
    }
    return number
  }

  /// What came last is taken into the index.
  private func prepare() throws(Refusal) {
    let waiting: Int64
    do throws(StoreError) {
      waiting = try parts.store.unindexedMessages()
    } catch {
      throw .store(error)
    }
    guard waiting <= Self.mostSteps * Store.indexStep else {
      throw .full("the index of words is being made, \(waiting) messages to go: try again in a minute")
    }
    do throws(StoreError) {
      for _ in 0..<Self.mostSteps where try parts.store.unindexedMessages() > 0 {
        parts.store.write({ store throws(SQLiteError) in _ = try store.indexMessages() }) { [log = parts.log] failure in
          if let failure { log.info("messages are not indexed: \(failure)") }
        }
        try parts.store.commitNow()
      }
    } catch {
      throw .store(error)
    }
  }

  private func list(
    _ query: MessageQuery, limit: Int, hasAfter: Bool, _ responder: HTTPResponder
  ) throws(Refusal) {
    if !hasAfter, limit <= Self.pageRows { return try newest(query, limit, responder) }
    var query = query
    let store = parts.store
    do throws(SearchError) {
      // Newest last: the oldest of the newest is where to begin.
      if !hasAfter {
        var oldest = Int64.max
        try store.eachMessage(query, limit: limit) { message in
          oldest = message.id
          return true
        }
        query.after = oldest == .max ? .max - 1 : oldest - 1
      }
    } catch {
      throw Self.refusal(error)
    }
    var left = limit
    stream(responder, false) {
      var lines: [UInt8] = []
      var count = 0
      let most = min(Self.pageRows, left)
      try store.eachMessage(query, oldestFirst: true, limit: most) { message in
        lines += ControlAPI.line { Self.write(message, store, to: &$0) }
        query.after = message.id
        count += 1
        return true
      }
      left -= count
      return (lines, count < most || left <= 0)
    }
  }

  /// One page, read backwards: the words are looked up once.
  private func newest(_ query: MessageQuery, _ limit: Int, _ responder: HTTPResponder) throws(Refusal) {
    var found: [StoredMessage] = []
    do throws(SearchError) {
      try parts.store.eachMessage(query, limit: limit) { message in
        found.append(message)
        return true
      }
    } catch {
      throw Self.refusal(error)
    }
    var lines = found.reversed().flatMap { message in ControlAPI.line { Self.write(message, parts.store, to: &$0) } }
    stream(responder, false) {
      defer { lines = [] }
      return (lines, true)
    }
  }

  private static func refusal(_ error: SearchError) -> Refusal {
    switch error {
    case .words(let words): .invalid("\(words)")
    case .store(let failure): .store(failure)
    }
  }

  private func follow(_ query: MessageQuery, limit: Int, _ responder: HTTPResponder) {
    let store = parts.store
    var after = query.after
    var isBegun = limit == 0
    stream(responder, true) {
      if !isBegun {
        isBegun = true
        var count = 0
        after = try store.lastMessageID()
        try store.eachMessage(MessageQuery(), limit: Self.mostLookedBack) { message in
          guard Self.fits(message, query) else { return true }
          after = message.id - 1
          count += 1
          return count < limit
        }
      }
      var lines: [UInt8] = []
      var count = 0
      try store.eachMessage(MessageQuery(after: after), oldestFirst: true, limit: Self.pageRows) { message in
        if Self.fits(message, query) { lines += ControlAPI.line { Self.write(message, store, to: &$0) } }
        after = message.id
        count += 1
        return true
      }
      return (lines, count < Self.pageRows)
    }
  }

  /// Messages among which those that are shown before following are looked for.
  private static let mostLookedBack = 10_000

  private static func fits(_ message: StoredMessage, _ query: MessageQuery) -> Bool {
    if let channel = query.channel, message.channel != channel.digest { return false }
    guard let from = query.from else { return true }
    let isAuthor = message.author.map { from.key.bytes.starts(with: $0) } ?? false
    return message.sender == from.key.prefix || isAuthor || message.kind == .channel && message.senderName == from.name
  }

  private static func write(_ message: StoredMessage, _ store: Store, to json: inout JSONWriter) {
    // `try?`: without its name the channel still has its digest.
    let channel = message.slot.flatMap { slot in (try? store.channel(slot: slot)) ?? nil }
    EventBody.write(message, channelName: channel?.name, to: &json)
    json.field("sender_alias", message.sender.flatMap { DocumentAPI.alias(ofKey: $0.hex, store) })
    json.field("received_at", message.received.milliseconds)
    json.field("clock_trusted", message.received.trusted)
    json.field("copies", message.copies)
    ReactionList.write(to: .message(message.id), store, &json)
  }
}

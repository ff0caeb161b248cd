// SPDX-License-Identifier: MIT

import ControlShapes
import JSON
import Messaging
import SQLite
import Store

/// `/v1/messages/delete`: deletes messages for good. Neither pages nor servers may.
struct DeletionAPI {
  let dependencies: ControlAPI.Dependencies
  let conversations: ConversationsAPI
  private var store: Store { dependencies.store }

  /// Messages by their numbers and ids are deleted when this returns; a conversation's in the background. With `count` nothing is deleted.
  func delete(_ body: RequestBody, _ news: News) async throws -> Answer {
    try body.hasOnly(["messages", "outgoing", "ids", "conversation", "before", "count"])
    let onlyCounts = try body.flag("count")
    let before = try body.integer("before", in: 0...JSONValue.wholeNumbers.upperBound)
    let numbers = try numbers(body)
    guard let wanted = try body.optional("conversation") else {
      guard before == nil else { throw Refusal.invalid("before: only for a conversation") }
      return try await delete(numbers.received, numbers.sent, onlyCounts, news)
    }
    guard numbers.received.isEmpty, numbers.sent.isEmpty else {
      throw Refusal.invalid("either a conversation, or messages")
    }
    let name = try ConversationName(wanted) ?? conversations.conversation(with: wanted, isWhole: true)
    try await conversations.prepareWithIndexes()
    guard try conversations.isThere(name) else { throw Refusal.notFound(.conversation(wanted)) }
    let title = try conversations.title(of: name)
    var found = try store.deletable(name, before: before)
    if !onlyCounts {
      // What had not ended when it was stored stays, and is told.
      try await store.save { store throws(SQLiteError) in found = try store.delete(name, before: before) }
      dependencies.operations.deletionBegan()
      conversations.tell(name, ofRadio: store.radio, news)
    }
    return answer(found, of: name, title)
  }

  private func delete(
    _ received: [Int64], _ sent: [Int64], _ onlyCounts: Bool, _ news: News
  ) async throws -> Answer {
    guard !received.isEmpty || !sent.isEmpty else { throw Refusal.invalid("no messages, and no conversation") }
    if !onlyCounts {
      try await conversations.prepareWithIndexes()
      let moment = dependencies.synchronizer.now
      try await store.save { store throws(SQLiteError) in
        _ = try store.delete(messages: received, outgoing: sent, at: moment)
      }
      dependencies.operations.deletionBegan()
      news.tell()
    }
    return answer(Store.Deletable(received: Int64(received.count), sent: Int64(sent.count), waiting: 0))
  }

  private func answer(_ found: Store.Deletable, of name: ConversationName? = nil, _ title: String? = nil) -> Answer {
    .json { json in
      let row = Shape.Deletion()
      json.field(row.conversation, name?.description)
      json.field(row.name, title)
      json.field(row.received, found.received)
      json.field(row.sent, found.sent)
      json.field(row.waiting, found.waiting)
    }
  }

  /// All or nothing: a message that is not there, or has not ended, refuses the others.
  private func numbers(_ body: RequestBody) throws -> (received: [Int64], sent: [Int64]) {
    var (received, sent) = (Set<Int64>(), Set<Int64>())
    for given in try body.array("messages") { received.insert(try self.received(given.integer)) }
    for given in try body.array("outgoing") { sent.insert(try self.sent(given.string ?? "")) }
    for given in try body.array("ids") {
      guard let text = given.string else { throw Refusal.invalid("\"ids\" is not a list of texts") }
      switch try named(text) {
      case .received(let id): received.insert(id)
      case .sent(let id): sent.insert(id)
      }
    }
    guard received.count + sent.count <= Store.maxDeletedByNumber else {
      throw Refusal.invalid("at most \(Store.maxDeletedByNumber) messages at once")
    }
    return (received.sorted(), sent.sorted())
  }

  /// A message as people name it: the number of a received one or the id of a sent one, if only one of them is there; otherwise with its direction.
  private func named(_ text: String) throws -> MessageNumber {
    let (receivedMark, sentMark) = ("received:", "sent:")
    if text.begins(with: sentMark) { return .sent(try sent(String(text.utf8.dropFirst(sentMark.utf8.count)) ?? "")) }
    if text.begins(with: receivedMark) {
      return .received(try received(String(text.utf8.dropFirst(receivedMark.utf8.count)).flatMap { Int64($0) }))
    }
    guard let number = Int64(text) else { return .sent(try sent(text)) }
    guard try store.outgoing(key: text) != nil else { return .received(try received(number)) }
    guard try store.message(id: number) == nil else {
      throw Refusal.invalid(
        "there is a received message \(text), and a sent one with this id: say \(receivedMark)\(text) or \(sentMark)\(text)"
      )
    }
    return .sent(try sent(text))
  }

  private func received(_ number: Int64?) throws -> Int64 {
    guard let number, try store.message(id: number) != nil else { throw Refusal.notFound(.deletable(number ?? 0)) }
    return number
  }

  private func sent(_ key: String) throws -> Int64 {
    guard let message = try store.outgoing(key: key) else { throw Refusal.notFound(.outgoing(key)) }
    guard message.endedAt != nil else {
      throw Refusal.invalid("\(key) has not ended: cancel it first (meshpost cancel)")
    }
    return message.id
  }
}

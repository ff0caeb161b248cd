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
    let name = try ConversationName(wanted) ?? conversations.conversation(with: wanted)
    try await conversations.prepareWithIndexes()
    let found = try store.deletable(name, before: before)
    if !onlyCounts {
      try await store.save { store throws(SQLiteError) in try store.delete(name, before: before) }
      dependencies.operations.deletionBegan()
      conversations.tell(name, ofRadio: store.radio, news)
    }
    return answer(received: found.received, sent: found.sent, waiting: found.waiting)
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
    return answer(received: Int64(received.count), sent: Int64(sent.count), waiting: 0)
  }

  private func answer(received: Int64, sent: Int64, waiting: Int64) -> Answer {
    .json { json in
      let row = Shape.Deletion()
      json.field(row.received, received)
      json.field(row.sent, sent)
      json.field(row.waiting, waiting)
    }
  }

  /// All or nothing: a message that is not there, or has not ended, refuses the others.
  private func numbers(_ body: RequestBody) throws -> (received: [Int64], sent: [Int64]) {
    var (received, sent) = (Set<Int64>(), Set<Int64>())
    for given in try body.array("messages") {
      guard let number = given.integer, try store.message(id: number) != nil else {
        throw Refusal.notFound(.deletable(given.integer ?? 0))
      }
      received.insert(number)
    }
    for given in try body.array("outgoing") {
      let key = given.string ?? ""
      guard let message = try store.outgoing(key: key) else { throw Refusal.notFound(.outgoing(key)) }
      guard message.endedAt != nil else {
        throw Refusal.invalid("\(key) has not ended: cancel it first (meshpost cancel)")
      }
      sent.insert(message.id)
    }
    guard received.count + sent.count <= Store.maxDeletedByNumber else {
      throw Refusal.invalid("at most \(Store.maxDeletedByNumber) messages at once")
    }
    return (received.sorted(), sent.sorted())
  }
}

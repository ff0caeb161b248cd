// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import HTTP
import JSON
import Messaging
import Store

/// `/v1/contacts`, `/v1/channels`, `/v1/readings`, `/v1/journal`: the content of the store, row by row.
struct ListsAPI {
  /// Each page looks through all that are wanted.
  private static let readingsAtOnce = 1000

  private let store: Store

  init(_ dependencies: ControlAPI.Dependencies) { store = dependencies.store }

  /// Readings of nodes, the newest `limit`; with `newest` those that none of the same node and kind has followed.
  func readings(_ request: HTTPRequest, _ reply: Reply) async throws -> Answer {
    let node = try request.query["node"].map { try key(of: $0) }
    let isNewest = request.query["newest"] == "1"
    let wanted = ControlAPI.number(request, "limit") ?? (isNewest ? Store.maxReadings : 100)
    let limit = Int(min(max(wanted, 1), Store.maxReadings))
    let radio = try RadiosAPI.wanted(request, store)
    var (after, left): (Int64, Int) = (0, limit)
    return try await reply.rows {
      var (lines, count): ([UInt8], Int) = ([], 0)
      let page = min(left, Self.readingsAtOnce)
      try store.eachReading(
        of: node, kind: request.query["kind"], byRadio: radio, isNewest: isNewest, limit: limit, after: after,
        page: page
      ) { id, at, kind, body in
        lines += ControlAPI.line { json in
          json.field(Shape.Reading().at, at)
          json.field(Shape.Reading().kind, kind)
          json.field(Shape.Reading().body, json: body)
        }
        (after, count) = (id, count + 1)
      }
      left -= count
      return (lines, count < page || left <= 0)
    }
  }

  /// `self`: the attached radio, or the last one.
  private func key(of node: String) throws(Refusal) -> PublicKey {
    guard node == "self" else { return try Addressing(store).contact(node).contact.key }
    guard let radio = store.radio(store.radio) else { throw .notFound(.radio(node)) }
    return radio.key
  }

  /// Lists contacts by key; with `heard=N` the N that were heard last, newest first.
  func contacts(_ request: HTTPRequest, _ reply: Reply) async throws -> Answer {
    let onRadio = request.query["on_radio"] == "1"
    let radio = try RadiosAPI.wanted(request, store)
    if let most = ControlAPI.number(request, "heard") {
      return try await reply.rows {
        let heard = try store.contactsHeard(limit: Int(clamping: min(max(most, 0), 200)), ofRadio: radio)
        return (heard.flatMap { Self.line(of: $0, store) }, true)
      }
    }
    var after: [UInt8] = []
    return try await reply.rows {
      var lines: [UInt8] = []
      var count = 0
      try store.eachContact(after: after, onRadioOnly: onRadio, ofRadio: radio) { stored in
        lines += Self.line(of: stored, store)
        after = stored.contact.key.bytes
        count += 1
        return count < ControlAPI.pageRows
      }
      return (lines, count < ControlAPI.pageRows)
    }
  }

  private static func line(of stored: StoredContact, _ store: Store) -> [UInt8] {
    ControlAPI.line { json in
      EventBody.write(stored, to: &json)
      json.field(Shape.Contact().radio, store.mark(ofRadio: stored.radio))
      json.field(Shape.Contact().clockOffsetS, stored.clockOffset)
      DocumentAPI.writeNotes(of: stored.contact.key, store, to: &json)
    }
  }

  func channels(_ reply: Reply) async throws -> Answer {
    var lines: [UInt8] = []
    for channel in try store.channels() {
      lines += EventBody.channel(channel, region: try store.region(ofChannel: channel.secret.digest)) + [10]
    }
    return try await reply.rows(lines)
  }

  /// Events after a seq (or the newest `limit`); `follow=1` continues with new ones.
  func journal(_ request: HTTPRequest, _ reply: Reply) async throws -> Answer {
    let follow = request.query["follow"] == "1"
    var left = Int(clamping: ControlAPI.number(request, "limit") ?? 100)
    var after = ControlAPI.number(request, "after") ?? max(0, store.lastSeq - Int64(left))
    // A client that asks for the newest events has missed none of the earlier ones.
    var isKnown = request.query["after"] != nil || after == store.lastSeq
    return try await reply.rows(follow: follow) {
      var lines: [UInt8] = []
      var count = 0
      let most = follow ? ControlAPI.pageRows : min(ControlAPI.pageRows, left)
      try store.readJournal(after: after, limit: most) { event, isSound in
        if isKnown { lines += ControlAPI.missed(before: event.seq, after: after) }
        isKnown = true
        lines += ControlAPI.line { json in
          json.field(Shape.Event().seq, event.seq)
          json.field(Shape.Event().at, event.at)
          json.field(Shape.Event().trusted, event.trusted)
          json.field(Shape.Event().kind, event.kind)
          json.field(Shape.Event().sound, isSound ? nil : false)
          json.field(Shape.Event().body, json: isSound ? event.body : Array("{}".utf8))
        }
        after = event.seq
        count += 1
        return true
      }
      left -= count
      return (lines, count < most || (!follow && left <= 0))
    }
  }
}

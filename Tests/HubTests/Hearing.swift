// SPDX-License-Identifier: MIT

import JSON
import TestSupport

@testable import Hub

/// Reports of messages on one channel, as gateways send them to a hub.
enum Hearing {
  static let channel = "0011223344556677"
  static let now: Int64 = 1_795_000_000_000
  static let minute: Int64 = 60_000

  /// A message as one gateway reports it: the first event of its journal.
  static func report(
    _ gateway: String, at: Int64 = now, trusted: Bool = true, waited: [(String, JSONValue)] = [], came: Int64 = now,
    text: String = "hello", seq: Int64 = 1, channel: String = channel
  ) -> PreparedBatch {
    let body: [(String, JSONValue)] = [
      ("kind", .string("channel")), ("channel", .string(channel)), ("sender_name", .string("Birch")),
      ("sender_time", .integer(100)), ("text", .string(text)),
    ]
    let event = HubEvent(seq: seq, at: at, trusted: trusted, kind: "message", body: .object(body + waited))
    return PreparedBatch([event], of: "e", in: .messages, from: gateway, after: nil, at: came)
  }

  static func store(_ scratch: Scratch) async throws -> HubStore {
    let store = try HubStore(location: scratch.location("hub.db"))
    let body = JSONValue.object([("channel", .string(channel)), ("name", .string("#trees"))])
    let event = HubEvent(seq: 1, at: now, trusted: true, kind: "channel", body: body)
    _ = try await store.take([PreparedBatch([event], of: "e", in: .messages, from: "c", after: nil, at: now)])
    return store
  }

  /// The gateways and ids of the reports that the gateway `c` gets.
  static func listed(
    _ store: HubStore, in bucket: String = "channel/\(channel)", of gateway: String = "c"
  ) async throws -> [(gateway: String, id: String)] {
    let page = try await store.updates(
      bucket, of: gateway, from: HubStore.Position(after: 0), until: nil, limit: 2000)
    return (try JSONValue(parsing: page)["updates"]?.array ?? []).map {
      ($0["body"]?["gateway"]?.string ?? "", $0["id"]?.string ?? "")
    }
  }
}

// SPDX-License-Identifier: MIT

import JSON

/// Answers requests for updates, over a link or HTTP.
enum HubUpdates {
  struct Query: Sendable {
    let bucket: String
    let position: HubStore.Position
    let until: Int64?
    let limit: Int
    let most: Int64?

    init?(_ number: (String) -> Int64?, bucket: String?) {
      guard let bucket, HubStore.isBucket(bucket), let after = number("after"), after >= 0 else { return nil }
      self.bucket = bucket
      position = HubStore.Position(after: after, at: number("at"), since: number("since"))
      until = number("until")
      limit = Int(min(max(number("limit") ?? 100, 1), 1000))
      most = number("most").map { min(max($0, 1), HubStore.maxShared) }
    }

    func run(_ store: HubStore, _ gateway: String) async throws -> [UInt8] {
      try await store.updates(bucket, of: gateway, from: position, until: until, limit: limit, most: most)
    }
  }

  /// `more`: adds further fields to the answer.
  static func states(_ states: [HubStore.BucketState], _ more: (inout JSONWriter) -> Void = { _ in }) -> [UInt8] {
    JSONWriter.object { json in
      more(&json)
      json.objects("buckets", states) { state, json in
        json.field("bucket", state.bucket)
        json.field("seq", state.seq)
        json.field("at", state.at)
      }
    }
  }
}

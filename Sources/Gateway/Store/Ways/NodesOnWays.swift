// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// The known nodes that the hashes of ways may mean. It keeps what it has found: many messages come by the same
/// repeaters.
struct NodesOnWays {
  /// Different hashes whose nodes are listed for a message, and nodes for each: paths on the air can be invented.
  private static let (mostHashes, mostCandidates, mostCounted) = (32, 4, 64)
  /// All hashes of one byte, in about 0.1 MiB; of longer ones, further ones are looked up each time.
  private static let mostFound = 256

  private var found: [[UInt8]: Store.HashedNodes] = [:]

  mutating func on(_ copies: [HeardCopy], in store: Store) throws(SQLiteError) -> [Store.HashedNodes] {
    var all: [Store.HashedNodes] = []
    for hash in copies.lazy.flatMap(\.hashes) where !all.contains(where: { $0.hash == hash }) {
      guard all.count < Self.mostHashes else { break }
      all.append(try nodes(hash, in: store))
    }
    return all
  }

  private mutating func nodes(_ hash: [UInt8], in store: Store) throws(SQLiteError) -> Store.HashedNodes {
    if let known = found[hash] { return known }
    var nodes = Store.HashedNodes(hash: hash)
    try store.database.every(
      """
      SELECT substr(key, 1, 6), name FROM contacts WHERE key >= ?1 AND (?2 IS NULL OR key < ?2)
      ORDER BY type NOT IN (2, 3), on_radio DESC, last_heard DESC LIMIT \(Self.mostCounted)
      """, [.blob(hash), .optional(Self.next(hash))]
    ) { row in
      guard nodes.candidates.count < Self.mostCandidates, let key = KeyPrefix(bytes: row.blob(0)) else {
        nodes.more += 1
        return
      }
      nodes.candidates.append((key, Text(bytes: row.blob(1))))
    }
    if found.count < Self.mostFound { found[hash] = nodes }
    return nodes
  }

  /// The first key behind those that begin with these bytes; `nil`: there is none.
  private static func next(_ hash: [UInt8]) -> [UInt8]? {
    var next = hash
    while next.last == 0xFF { next.removeLast() }
    guard let last = next.popLast() else { return nil }
    return next + [last + 1]
  }
}

extension Store {
  /// The known nodes that a hash on a way may mean. Even a single one is no fact: a node that nobody knows here may
  /// have the hash, too.
  public struct HashedNodes: Sendable {
    public var hash: [UInt8]
    /// Repeaters and rooms first.
    public var candidates: [(key: KeyPrefix, name: Text)] = []
    /// Further ones.
    public var more = 0
  }

  public func nodesOnWays(_ copies: [HeardCopy]) throws(StoreError) -> [HashedNodes] {
    try translating { () throws(SQLiteError) in
      var nodes = NodesOnWays()
      return try nodes.on(copies, in: self)
    }
  }
}

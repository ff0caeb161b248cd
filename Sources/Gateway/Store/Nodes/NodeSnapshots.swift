// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// The settings that nodes have told: a few snapshots of each node.
extension Store {
  /// The most snapshots of one node, and of all nodes; the oldest go first.
  public static let snapshotsOfNode: Int64 = 16
  public static let maxSnapshots: Int64 = 1024

  /// Within a `write`: stores and journals it.
  public func keepSnapshot(of key: PublicKey, body: [UInt8], at moment: Moment) throws(SQLiteError) {
    try database.run("INSERT INTO node_snapshots(node, body) VALUES (?, ?)", .blob(key.bytes), .blob(body))
    try database.run(
      """
      DELETE FROM node_snapshots WHERE node = ?1 AND id <=
        (SELECT id FROM node_snapshots WHERE node = ?1 ORDER BY id DESC LIMIT 1 OFFSET \(Self.snapshotsOfNode))
      """, .blob(key.bytes))
    try database.run(
      "DELETE FROM node_snapshots WHERE id <= (SELECT id FROM node_snapshots ORDER BY id DESC LIMIT 1 OFFSET \(Self.maxSnapshots))"
    )
    try append(.snapshot, at: moment, body: body)
  }

  /// The JSON of a node's snapshots, oldest first.
  public func snapshots(of key: PublicKey) throws(StoreError) -> [[UInt8]] {
    try rows("SELECT body FROM node_snapshots WHERE node = ? ORDER BY id", [.blob(key.bytes)]) { $0.blob(0) }
  }
}

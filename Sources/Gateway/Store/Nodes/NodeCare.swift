// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// What the gateway remembers of the nodes in its care, as JSON that only it reads.
extension Store {
  /// The records, `limit` at most.
  public func nodeCare(limit: Int) throws(StoreError) -> [(key: [UInt8], body: [UInt8])] {
    try rows("SELECT key, body FROM node_care LIMIT ?", [.integer(Int64(limit))]) { ($0.blob(0), $0.blob(1)) }
  }

  /// The time in which the gateway listened, in milliseconds; small enough for sums.
  public func listenedTime() throws(StoreError) -> Int64 { min(max(0, try meta("listened")?.integer ?? 0), 1 << 52) }

  /// Stores the record along with the next write; `nil` deletes it.
  public func keepNodeCare(of key: PublicKey, _ body: [UInt8]?) {
    transactions.writeAlong("node_care \(key.hex)") { store throws(SQLiteError) in
      if let body {
        try store.database.run(
          "INSERT OR REPLACE INTO node_care(key, body) VALUES (?, ?)", .blob(key.bytes), .blob(body))
      } else {
        try store.database.run("DELETE FROM node_care WHERE key = ?", .blob(key.bytes))
      }
    }
  }

  public func keepListenedTime(_ milliseconds: Int64) {
    transactions.writeAlong("listened") { store throws(SQLiteError) in
      try store.setMeta("listened", .integer(milliseconds))
    }
  }

  /// Repeaters, rooms and sensors: all that were heard, or only favourites; those heard last come first.
  public func servers(all: Bool, limit: Int) throws(StoreError) -> [PublicKey] {
    try rows(
      """
      SELECT key FROM contacts WHERE type BETWEEN 2 AND 4 AND (flags & 1 OR (? = 1 AND last_heard IS NOT NULL))
        ORDER BY last_heard DESC LIMIT ?
      """, [.integer(all ? 1 : 0), .integer(Int64(limit))]
    ) { PublicKey(bytes: $0.blob(0)) }
  }
}

// SPDX-License-Identifier: MIT

import SQLite

/// The region for messages to a channel that has its own, by the digest of its secret: slots change, and the radio does not
/// store it.
extension Store {
  /// Within a `write`. `nil`: the radio's default.
  public func setRegion(_ region: String?, ofChannel digest: String) throws(SQLiteError) {
    guard let region else {
      try database.run("DELETE FROM channel_regions WHERE channel = ?", .text(digest))
      return
    }
    try database.run(
      "INSERT OR REPLACE INTO channel_regions(channel, region) VALUES (?, ?)", .text(digest), .text(region))
  }

  public func region(ofChannel digest: String) throws(StoreError) -> String? {
    try translating { () throws(SQLiteError) in
      guard
        case .text(let region)? = try database.value(
          "SELECT region FROM channel_regions WHERE channel = ?", .text(digest))
      else { return nil }
      return region
    }
  }
}

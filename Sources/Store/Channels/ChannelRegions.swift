// SPDX-License-Identifier: MIT

import SQLite

/// The region that messages to a channel go to, where it has one of its own. By the digest of its secret: slots change, and a
/// radio does not keep it.
extension Store {
  /// Within a `write`. `nil`: as the radio's default says.
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

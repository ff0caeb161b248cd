// SPDX-License-Identifier: MIT

import SQLite

/// The region of a channel, by the digest of the channel's secret: slots change, and the radio does not store regions.
extension Store {
  /// Within a `write`: sets the region. `nil`: the radio's default.
  public func setRegion(_ region: String?, ofChannel digest: String) throws(SQLiteError) {
    guard let region else {
      try database.run("DELETE FROM channel_regions WHERE channel = ?", .text(digest))
      return
    }
    try database.run(
      "INSERT OR REPLACE INTO channel_regions(channel, region) VALUES (?, ?)", .text(digest), .text(region))
  }

  /// The greatest number of regions that a packet's code is compared with.
  private static let mostRegions = 64

  /// The names of all regions that channels have.
  public func knownRegions() throws(StoreError) -> [String] {
    try rows("SELECT DISTINCT region FROM channel_regions LIMIT \(Self.mostRegions)") { $0.text(0) }
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

// SPDX-License-Identifier: MIT

import Companion
import SQLite
import UntrustedText

/// The regions of channels and nodes. A channel's is stored by the digest of its secret: slots change, and the radio does
/// not store regions.
extension Store {
  /// Within a `write`: sets the region. `nil`: the radio's default.
  public func setRegion(_ region: String?, ofChannel digest: String) throws(SQLiteError) {
    regionChanges &+= 1
    guard let region else {
      try database.run("DELETE FROM channel_regions WHERE channel = ?", .text(digest))
      return
    }
    try database.run(
      "INSERT OR REPLACE INTO channel_regions(channel, region) VALUES (?, ?)", .text(digest), .text(region))
  }

  /// A channel that the radio may not have taken: its digest, and the region that it has then.
  public typealias UntakenChannel = (digest: String, region: String?)

  private static let untakenName = "untaken_channels"

  /// The channels that the radio may not have taken, by slot.
  public func untakenChannels() throws(StoreError) -> [UInt8: UntakenChannel] {
    var found: [UInt8: UntakenChannel] = [:]
    for entry in (try meta(Self.untakenName)?.text ?? "").pieces(at: " ") {
      // A region has neither blanks nor commas.
      let parts = entry.pieces(at: ",")
      guard parts.count >= 2, let slot = UInt8(parts[0]) else { continue }
      found[slot] = (parts[1], parts.count > 2 ? parts[2] : nil)
    }
    return found
  }

  /// Within a `write`: keeps them, for a start in between.
  public func setUntakenChannels(_ channels: [UInt8: UntakenChannel]) throws(SQLiteError) {
    let entries = channels.sorted { $0.key < $1.key }.map { slot, channel in
      (["\(slot)", channel.digest] + (channel.region.map { [$0] } ?? [])).joined(separator: ",")
    }
    try setMeta(Self.untakenName, .text(entries.joined(separator: " ")))
  }

  /// Within a `write`: sets the region of messages to a node, as `RegionChoice.text`. `nil`: the radio's default.
  public func setRegion(_ region: String?, ofNode key: PublicKey) throws(SQLiteError) {
    regionChanges &+= 1
    try database.run("UPDATE contacts SET region = ? WHERE key = ?", .optional(region), .blob(key.bytes))
  }

  /// Within a `write`: what a repeater says that it carries, with commas.
  public func setCarried(_ regions: String, by key: PublicKey, at: Int64) throws(SQLiteError) {
    regionChanges &+= 1
    try database.run(
      "UPDATE contacts SET carried = ?, carried_at = ? WHERE key = ?", .text(regions), .integer(at), .blob(key.bytes))
  }

  /// The greatest number of regions that a packet's code is compared with: each costs a hash for each packet.
  private static let mostRegions = 64

  /// The names of regions that channels and nodes have, and then those that repeaters carry.
  public func knownRegions() throws(StoreError) -> [String] {
    let ours = try rows(
      "SELECT region FROM channel_regions UNION SELECT region FROM contacts WHERE region IS NOT NULL"
    ) { $0.text(0) }
    let carried = try rows("SELECT carried FROM contacts WHERE carried IS NOT NULL ORDER BY carried_at DESC LIMIT 64") {
      $0.text(0)
    }
    var known: [String] = []
    for name in ours + carried.flatMap({ $0.pieces(at: ",") }) where !known.contains(name) {
      known.append(name)
      if known.count == Self.mostRegions { break }
    }
    return known
  }

  public func region(ofChannel digest: String) throws(StoreError) -> String? {
    try value("SELECT region FROM channel_regions WHERE channel = ?", .text(digest))?.text
  }
}

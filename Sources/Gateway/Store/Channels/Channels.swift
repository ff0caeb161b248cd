// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import SQLite

extension Store {
  /// Within a `write`: stores the radio's channel of a slot. Returns true if it changed.
  public func setChannel(_ channel: Channel) throws(SQLiteError) -> Bool {
    if try readChannel(channel.slot) == channel { return false }
    try database.run(
      "INSERT OR REPLACE INTO channels(slot, name, secret, digest) VALUES (?, ?, ?, ?)",
      .integer(Int64(channel.slot)), .blob(channel.name.bytes), .blob(channel.secret.bytes),
      .text(channel.isEmpty ? "" : channel.secret.digest))
    return true
  }

  /// Within a `write`: deletes channels from this slot on, which the radio does not have.
  public func forgetChannels(from slot: Int) throws(SQLiteError) {
    try database.run("DELETE FROM channels WHERE slot >= ?", .integer(Int64(slot)))
  }

  /// The channel of a slot; an empty channel if the slot is empty, `nil` if it was never read.
  public func channel(slot: UInt8) throws(StoreError) -> Channel? {
    try translating { () throws(SQLiteError) in try readChannel(slot) }
  }

  private func readChannel(_ slot: UInt8) throws(SQLiteError) -> Channel? {
    try database.first("SELECT slot, name, secret FROM channels WHERE slot = ?", [.integer(Int64(slot))]) {
      Self.channel($0)
    }
  }

  /// Used slots in order.
  public func channels() throws(StoreError) -> [Channel] {
    try rows("SELECT slot, name, secret FROM channels ORDER BY slot") { Self.channel($0) }.filter { !$0.isEmpty }
  }

  private static func channel(_ row: Statement) -> Channel {
    Channel(
      slot: UInt8(truncatingIfNeeded: row.integer(0)), name: Text(bytes: row.blob(1)),
      secret: ChannelSecret(bytes: row.blob(2)) ?? .zero)
  }
}

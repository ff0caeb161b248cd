// SPDX-License-Identifier: MIT

import SQLite

/// The uses of air time within the last hour, which count after a restart, too.
extension Store {
  /// Within a `write`: records use of air time at this moment, in elapsed time. Deletes entries that are older than an
  /// hour.
  public func recordAirtime(_ milliseconds: Int64, channel: String?, at: Int64) throws(SQLiteError) {
    try database.run("DELETE FROM airtime WHERE at < ?", .integer(at - 3_600_000))
    try database.run(
      "INSERT INTO airtime(at, milliseconds, channel) VALUES (?, ?, ?)", .integer(at), .integer(milliseconds),
      .optional(channel))
  }

  /// Within a `write`: deletes the last entry of that kind, whose air time was not used.
  public func forgetAirtime(_ milliseconds: Int64, channel: String?) throws(SQLiteError) {
    try database.run(
      """
      DELETE FROM airtime WHERE rowid =
        (SELECT rowid FROM airtime WHERE milliseconds = ? AND channel IS ? ORDER BY at DESC, rowid DESC LIMIT 1)
      """, .integer(milliseconds), .optional(channel))
  }

  public func eachAirtime(_ row: (_ at: Int64, _ milliseconds: Int64, _ channel: String?) -> Void) throws(StoreError) {
    try every("SELECT at, milliseconds, channel FROM airtime ORDER BY at") { statement in
      row(statement.integer(0), statement.integer(1), statement.textIfAny(2))
    }
  }

  /// Within a `write`: how much of the channel was in use at this moment, in per cent and in elapsed time.
  public func keepChannelUse(_ percent: Int64, elapsed: Int64) throws(SQLiteError) {
    try setMeta("channel_use", .integer(percent))
    try setMeta("channel_use_at", .integer(elapsed))
  }

  /// `nil`: it was never kept.
  public func channelUse() throws(StoreError) -> (percent: Int64, elapsed: Int64)? {
    guard let percent = try meta("channel_use")?.integer, let elapsed = try meta("channel_use_at")?.integer else {
      return nil
    }
    return (percent, elapsed)
  }
}

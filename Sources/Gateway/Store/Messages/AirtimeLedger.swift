// SPDX-License-Identifier: MIT

import SQLite

/// What air time was used for: one row for each hour and purpose.
extension Store {
  public struct AirtimeEntry: Equatable, Sendable {
    /// Milliseconds on the air, and packets.
    public var milliseconds: Int64
    public var packets: Int64

    public init(milliseconds: Int64, packets: Int64) { (self.milliseconds, self.packets) = (milliseconds, packets) }
  }

  /// Hours since 1970.
  public static func hour(of moment: Moment) -> Int64 { moment.milliseconds / 3_600_000 }

  /// How long rows are kept, by time that has certainly passed, and the most that are.
  public static let airtimeDays: Int64 = 62
  private static let mostEntries: Int64 = 20_000

  /// Within a `write`: more of this hour was used.
  public func addAirtime(_ entry: AirtimeEntry, for purpose: String, at moment: Moment) throws(SQLiteError) {
    let hour = Self.hour(of: moment)
    let known = try airtime(for: purpose, in: hour) ?? AirtimeEntry(milliseconds: 0, packets: 0)
    let sum = AirtimeEntry(
      milliseconds: known.milliseconds + entry.milliseconds, packets: known.packets + entry.packets)
    try setAirtime(sum, for: purpose, in: hour, elapsed: elapsed(at: moment))
  }

  /// Within a `write`: so much of that hour was used.
  public func setAirtime(_ entry: AirtimeEntry, for purpose: String, in hour: Int64, elapsed: Int64) throws(SQLiteError)
  {
    if try airtime(for: purpose, in: hour) == nil { try trimAirtime(elapsed: elapsed) }
    try database.run(
      "INSERT OR REPLACE INTO airtime_hours(hour, purpose, milliseconds, packets, elapsed) VALUES (?, ?, ?, ?, ?)",
      .integer(hour), .text(purpose), .integer(max(0, entry.milliseconds)), .integer(max(0, entry.packets)),
      .integer(elapsed))
  }

  /// Within a `write`: this packet was not sent after all.
  public func takeBackAirtime(_ milliseconds: Int64, for purpose: String) throws(SQLiteError) {
    try database.run(
      """
      UPDATE airtime_hours SET milliseconds = max(0, milliseconds - ?), packets = max(0, packets - 1)
        WHERE purpose = ? AND hour = (SELECT hour FROM airtime_hours WHERE purpose = ? ORDER BY elapsed DESC LIMIT 1)
      """, .integer(milliseconds), .text(purpose), .text(purpose))
  }

  func airtime(for purpose: String, in hour: Int64) throws(SQLiteError) -> AirtimeEntry? {
    try database.first(
      "SELECT milliseconds, packets FROM airtime_hours WHERE hour = ? AND purpose = ?",
      [.integer(hour), .text(purpose)]
    ) { AirtimeEntry(milliseconds: $0.integer(0), packets: $0.integer(1)) }
  }

  /// What the disk has of an hour.
  public func storedAirtime(for purpose: String, in hour: Int64) throws(StoreError) -> AirtimeEntry? {
    try translating { () throws(SQLiteError) in try airtime(for: purpose, in: hour) }
  }

  /// Once for each row, so it may look at all of them.
  private func trimAirtime(elapsed: Int64) throws(SQLiteError) {
    try database.run(
      """
      DELETE FROM airtime_hours WHERE elapsed < ?
        OR elapsed < (SELECT elapsed FROM airtime_hours ORDER BY elapsed DESC LIMIT 1 OFFSET ?)
      """, .integer(elapsed - Self.airtimeDays * 86_400_000), .integer(Self.mostEntries))
  }

  /// Rows from an hour on, in the order of hours.
  public func eachAirtimeHour(
    from first: Int64, _ row: (_ hour: Int64, _ purpose: String, _ entry: AirtimeEntry) -> Void
  ) throws(StoreError) {
    try every(
      "SELECT hour, purpose, milliseconds, packets FROM airtime_hours WHERE hour >= ? ORDER BY hour, purpose",
      [.integer(first)]
    ) { statement in
      row(
        statement.integer(0), statement.text(1),
        AirtimeEntry(milliseconds: statement.integer(2), packets: statement.integer(3)))
    }
  }
}

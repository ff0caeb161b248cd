// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// Figures of a hub's database.
public struct HubStatistics: Sendable {
  public struct Table: Sendable {
    public var name: String
    /// `nil`: not counted. On PostgreSQL an estimate of its last analysis.
    public var rows: Int64?
    /// Bytes with indexes; `nil`: not measured.
    public var bytes: Int64?
  }

  public struct Moment: Sendable {
    /// Milliseconds since 1970, by the gateway's clock.
    public var at: Int64
    public var isTrusted: Bool
    var json: JSONObject { ["at": at, "trusted": isTrusted] }
  }

  public struct Day: Sendable {
    /// Days since 1970, UTC.
    public var number: Int64
    public var events: Int64

    public var name: String { HeldRetention.day(number * 86_400_000) }
  }

  public var bytes: Int64
  /// Bytes in the file that new rows can use; `nil` on PostgreSQL.
  public var freeBytes: Int64?
  public var gateways: Int64
  /// All events since the beginning, including deleted ones.
  public var eventsTaken: Int64
  public var waitingCommands: Int64
  public var tables: [Table]
  /// The events that arrived first and last.
  public var oldest: Moment?
  public var newest: Moment?
  /// `nil`: not counted.
  public var days: [Day]?
  /// The gateways with the most events.
  public var top: [HubStore.Gateway]

  public var json: [UInt8] {
    JSONWriter.object([
      "bytes": bytes, "free_bytes": freeBytes, "gateways": gateways, "events_taken": eventsTaken,
      "commands_waiting": waitingCommands, "oldest_event": oldest?.json, "newest_event": newest?.json,
      "tables": tables.map { ["table": $0.name, "rows": $0.rows, "bytes": $0.bytes] as JSONObject },
      "days": days?.map { ["day": $0.name, "events": $0.events] as JSONObject }, "top": top.map(\.json),
    ])
  }
}

extension HubStore {
  /// Larger files are read through only on request, to count rows and measure tables.
  private static let readThrough: Int64 = 2 << 30
  private static let shownDays: Int64 = 7

  /// `isFull`: counts rows and measures tables also in a large SQLite file, which reads all of it. `now`: milliseconds since 1970.
  public func statistics(isServer: Bool, isFull: Bool, top: Int, now: Int64) throws(HubDatabaseError) -> HubStatistics {
    let bytes = try number(
      isServer
        ? "SELECT pg_database_size(current_database())"
        : "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
    let isCounted = isFull || bytes <= Self.readThrough
    return HubStatistics(
      bytes: bytes,
      freeBytes: isServer
        ? nil : try number("SELECT freelist_count * page_size FROM pragma_freelist_count, pragma_page_size"),
      gateways: try number("SELECT count(*) FROM gateways"),
      eventsTaken: try number("SELECT coalesce(sum(events), 0) FROM gateways"),
      waitingCommands: try number("SELECT count(*) FROM commands WHERE state = 'queued'"),
      tables: isServer ? try serverTables() : try fileTables(isCounted),
      oldest: try moment("ORDER BY id"), newest: try moment("ORDER BY id DESC"), days: isCounted ? try days(now) : nil,
      top: try gateways(limit: top, busiest: true))
  }

  private func moment(_ order: String) throws(HubDatabaseError) -> HubStatistics.Moment? {
    try database.first("SELECT at, trusted FROM events \(order) LIMIT 1") {
      HubStatistics.Moment(at: $0.integer(0), isTrusted: $0.integer(1) != 0)
    }
  }

  /// The tables of the server's database. Partitions count with their table.
  private func serverTables() throws(HubDatabaseError) -> [HubStatistics.Table] {
    try database.rows(
      """
      SELECT coalesce(pg_partition_root(c.oid), c.oid)::regclass::text, sum(greatest(c.reltuples, 0))::bigint,
      bool_or(c.reltuples >= 0)::int, sum(pg_total_relation_size(c.oid))::bigint
      FROM pg_class c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace
      GROUP BY 1 ORDER BY 4 DESC
      """
    ) { HubStatistics.Table(name: $0.text(0), rows: $0.integer(2) == 1 ? $0.integer(1) : nil, bytes: $0.integer(3)) }
  }

  private func fileTables(_ isCounted: Bool) throws(HubDatabaseError) -> [HubStatistics.Table] {
    var tables = try database.rows(
      "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    ) { HubStatistics.Table(name: $0.text(0)) }
    guard isCounted else { return tables }
    for index in tables.indices { tables[index].rows = try number("SELECT count(*) FROM \(tables[index].name)") }
    // `try?`: an SQLite library without `dbstat` measures nothing.
    let sizes =
      (try? database.dictionary(
        """
        SELECT s.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_schema s ON s.name = d.name WHERE d.aggregate = TRUE
        GROUP BY 1
        """
      ) { ($0.text(0), $0.integer(1)) }) ?? [:]
    for index in tables.indices { tables[index].bytes = sizes[tables[index].name] }
    return tables.sorted { ($0.bytes ?? 0, $1.name) > ($1.bytes ?? 0, $0.name) }
  }

  /// Events by day, by the gateways' trusted clocks. It reads all events: a gateway that was offline for a month sends all of them today.
  private func days(_ now: Int64) throws(HubDatabaseError) -> [HubStatistics.Day] {
    let day: Int64 = 86_400_000
    let start = (now / day - Self.shownDays + 1) * day
    return try database.rows(
      """
      SELECT at / \(day), count(*) FROM events WHERE trusted = 1 AND at >= ?1 AND at < ?2 GROUP BY 1 ORDER BY 1
      """, [start, now + day]
    ) { HubStatistics.Day(number: $0.integer(0), events: $0.integer(1)) }
  }
}

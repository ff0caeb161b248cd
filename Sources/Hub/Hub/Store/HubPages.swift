// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// The size of one page of a list.
extension HubStore {
  /// Most bytes of a page, so that a whole answer has at most 1 MiB, the limit of clients. The first row is always included, so that every list has
  /// an end.
  static let pageBytes: Int64 = (1 << 20) - 1024

  /// The number of rows that fit a page, and whether more rows exist that do not fit. `sizes` selects the bytes of each row, in the order of the
  /// page, so that neither database reads or sends unused rows.
  func page<Row>(
    _ columns: String, sizes: [String], _ filter: String, _ values: [any SQLBindable], limit: Int,
    read: (any HubRow) -> Row
  ) throws(HubDatabaseError) -> (rows: [Row], hasMore: Bool) {
    var fit = PageFit(most: Self.pageBytes)
    let (size, end) = (sizes.map(bytes).joined(separator: " + "), "\(filter) LIMIT ?\(values.count + 1)")
    try database.each("SELECT \(size) \(end)", values + [limit]) { (row) throws(HubDatabaseError) in
      fit.add(row.integer(0))
    }
    let rows = try database.rows("SELECT \(columns) \(end)", values + [fit.rows], read: read)
    return (rows, fit.isCut || fit.rows == limit)
  }

  /// SQL for the bytes of a column; 0 for NULL.
  func bytes(_ column: String) -> String { "coalesce(\(database.bytes(column)), 0)" }
}

/// How much of the database one answer reads. A list that has used it up ends with the rows that it found, and `next` to continue.
struct ReadBudget {
  static let mostRows = 10_000
  static let mostTime: Duration = .milliseconds(400)

  private var rows = 0
  private let begun = ContinuousClock.now

  mutating func count(_ rows: Int) { self.rows += rows }

  /// Every answer reads something, however slow the disk is: otherwise a walk would not end.
  var isSpent: Bool { rows >= Self.mostRows || rows > 0 && isLate }
  var isLate: Bool { ContinuousClock.now - begun > Self.mostTime }
}

/// Counts the rows that fit a page, by their bytes in the page's order. The first row always fits.
struct PageFit {
  /// Bytes around the content of a row: names, numbers, punctuation.
  private static let rowBytes: Int64 = 256

  let most: Int64
  private(set) var rows = 0
  /// Whether a row did not fit.
  private(set) var isCut = false
  private var bytes: Int64 = 0

  init(most: Int64) { self.most = most }

  /// `false`: neither this row nor any later one fits.
  @discardableResult
  mutating func add(_ size: Int64) -> Bool {
    guard !isCut else { return false }
    bytes += min(max(size, 0), most) + Self.rowBytes
    guard rows == 0 || bytes <= most else {
      isCut = true
      return false
    }
    rows += 1
    return true
  }
}

/// Limits of the data that a hub stores for one gateway. Its journal is limited by `max_bytes_per_day`.
enum HubBounds {
  /// Named states, and bytes of each.
  static let states: Int64 = 32
  static let stateBytes = 32 * 1024
  /// Documents, with tombstones, and bytes of a value.
  static let documents: Int64 = 10_000
  static let documentBytes = 8 * 1024
  /// Bytes of a command, and of the answer that is stored.
  static let commandBytes = 16 * 1024
  static let answerBytes = 64 * 1024
  /// Ended commands that are stored.
  static let endedCommands: Int64 = 1000
  /// Bytes of a name, of a key, and of a text that goes to other gateways.
  static let nameBytes = 256
  static let keyBytes = 128
  static let textBytes = 1024

  static func cut(_ text: String?, _ most: Int) -> String? {
    guard let text, text.utf8.count > most else { return text }
    return String(decoding: text.utf8.prefix(most), as: UTF8.self)
  }
}

/// Pages of rows as JSON objects: `{"NAME": […], "next": …}`; `next` is the `after` of the next page, absent at the end. A page ends early when it
/// has `pageBytes`.
extension HubStore {
  /// Gateways that are named as hearers of one message: the first ones.
  private static let maxHeard = 100

  public func contacts(gateway: String, after: String, limit: Int) throws(HubDatabaseError) -> [UInt8] {
    let filter = "FROM contacts WHERE gateway = ?1 AND key > ?2 ORDER BY key"
    let page = try page("key, body", sizes: ["body"], filter, [gateway, after], limit: limit) {
      (key: $0.text(0), body: RawJSON($0.text(1)))
    }
    return JSONWriter.object([
      "contacts": page.rows.map(\.body), "next": page.hasMore ? page.rows.last?.key ?? after : nil,
    ])
  }

  /// The reports of each message, the earliest first.
  func hearers(of positions: [Int64]) throws(HubDatabaseError) -> [Int64: [String]] {
    var found: [Int64: [String]] = [:]
    try database.read([
      HubCall(
        """
        SELECT message, body FROM (SELECT h.message, h.body,
        row_number() OVER (PARTITION BY h.message ORDER BY h.at, h.gateway) AS number
        FROM @rows JOIN heard h ON h.message = v.position) r
        WHERE number <= \(Self.maxHeard) ORDER BY message, number
        """, ["position": positions]
      ) { found[$0.integer(0), default: []].append($0.text(1)) }
    ])
    return found
  }

  /// The bytes of each message's reports.
  func heardBytes(of positions: [Int64]) throws(HubDatabaseError) -> [Int64: Int64] {
    guard !positions.isEmpty else { return [:] }
    var found: [Int64: Int64] = [:]
    try database.read([
      HubCall(
        """
        SELECT h.message, sum(\(bytes("h.body"))) FROM @rows JOIN heard h ON h.message = v.position GROUP BY h.message
        """, ["position": positions]
      ) { found[$0.integer(0)] = $0.integer(1) }
    ])
    return found
  }

  /// All gateways, or the one asked for; or first those with the most events (`busiest`).
  public func gateways(
    _ only: String? = nil, after: String = "", limit: Int = 1000, busiest: Bool = false
  ) throws(HubDatabaseError) -> [Gateway] {
    let lanes = Progress.columns.map { "e.\($0)" }.joined(separator: ", ")
    return try database.rows(
      """
      SELECT g.id, g.epoch, g.events, g.last_seen, g.radio, \(lanes) FROM gateways g
      LEFT JOIN epochs e ON e.gateway = g.id AND e.epoch = g.epoch
      WHERE g.id \(only == nil ? ">" : "=") ?1 ORDER BY \(busiest ? "g.events DESC, " : "")g.id LIMIT ?2
      """, [only ?? after, limit]
    ) { row in
      Gateway(
        id: row.text(0), epoch: row.text(1), progress: Progress(row, from: 5), events: row.integer(2),
        lastSeen: row.integer(3), radio: row.textIfAny(4))
    }
  }
}

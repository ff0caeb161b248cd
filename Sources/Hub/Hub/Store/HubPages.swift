// SPDX-License-Identifier: MIT

import SQLite

/// The size of one page of a list.
extension HubStore {
  /// Most bytes of a page, so that a whole answer has at most 1 MiB, the limit of clients. The first row is always included, so that every list has
  /// an end.
  static let pageBytes: Int64 = (1 << 20) - 1024

  /// The number of rows that fit a page, and whether more rows exist that do not fit. `sizes` selects the bytes of each row, in the order of the
  /// page, so that neither database reads or sends unused rows.
  func fitting(
    _ sizes: String, _ values: [SQLiteValue], most: Int64 = pageBytes
  ) throws(HubDatabaseError) -> (rows: Int, isCut: Bool) {
    var fit = PageFit(most: most)
    try database.each(sizes, values) { (row) throws(HubDatabaseError) in fit.add(row.integer(0)) }
    return (fit.rows, fit.isCut)
  }

  /// SQL for the bytes of a column; 0 for NULL.
  func bytes(_ column: String) -> String { "coalesce(\(database.bytes(column)), 0)" }
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

// SPDX-License-Identifier: MIT

import SQLite

/// The size of one page of a list.
extension HubStore {
  /// Maximum bytes of a page, so that a whole answer has at most 1 MiB, the limit of clients. The first row is included
  /// regardless of its size, so that every list can be read to its end.
  static let pageBytes: Int64 = (1 << 20) - 1024
  /// Bytes around a row's own: names, numbers, punctuation.
  private static let rowBytes: Int64 = 256

  /// The number of rows that fit a page, and whether the limit allows more. `sizes` selects the bytes of each row, in the order
  /// of the page, so that neither database reads or sends unused rows.
  func fitting(
    _ sizes: String, _ values: [SQLiteValue], most: Int64 = pageBytes
  ) throws(HubDatabaseError) -> (rows: Int, isCut: Bool) {
    var (rows, bytes, isCut) = (0, Int64(0), false)
    try database.each(sizes, values) { (row) throws(HubDatabaseError) in
      bytes += min(max(row.integer(0), 0), most) + Self.rowBytes
      guard rows == 0 || bytes <= most else {
        isCut = true
        return false
      }
      rows += 1
      return true
    }
    return (rows, isCut)
  }

  /// SQL for the bytes of a column; 0 for NULL.
  func bytes(_ column: String) -> String { "coalesce(\(database.bytes(column)), 0)" }
}

/// Limits of the data that a hub stores for one gateway. Its journal is limited by `max_bytes_per_day`.
enum HubBounds {
  /// Named states, and bytes of each.
  static let states: Int64 = 32
  static let stateBytes = 32 * 1024
  /// Documents, tombstones among them, and bytes of a value.
  static let documents: Int64 = 10_000
  static let documentBytes = 8 * 1024
  /// Bytes of a command, and of the answer that is kept.
  static let commandBytes = 16 * 1024
  static let answerBytes = 64 * 1024
  /// Commands that have ended and are remembered.
  static let endedCommands: Int64 = 1000
  /// Messages that one request looks at for those that it wants, and how many of these at a time.
  static let scanned = 10_000
  static let scannedAtOnce = 500
  /// Bytes of a name, of a key, of a text that is passed on to other gateways.
  static let nameBytes = 256
  static let keyBytes = 128
  static let textBytes = 1024

  static func cut(_ text: String?, _ most: Int) -> String? {
    guard let text, text.utf8.count > most else { return text }
    return String(decoding: text.utf8.prefix(most), as: UTF8.self)
  }
}

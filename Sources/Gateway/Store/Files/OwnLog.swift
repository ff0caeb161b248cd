// SPDX-License-Identifier: MIT

import OwnFiles
import SQLite

/// The database's log, which somebody may remove or empty. Without it the database is only older, and nothing in it shows that.
///
/// SQLite removes the log when it closes the database. Until then the mark beside the database says that there is one: a
/// marked log that is missing was removed, or another program has moved all of it into the database, which nobody can tell
/// apart. A start writes a transaction into its log before it marks it, and nothing empties it until the end, so a marked log
/// without a transaction was emptied. A mark of an earlier version says nothing about the log, so nothing is claimed.
extension Store {
  /// Words of the mark: there is a log, and there is one with a transaction.
  private static let logIsOpen = "open"
  private static let logIsWritten = "written"
  /// The log was missing or empty at a start, and that is not told yet.
  private static let logIsMissing = "missing"

  var logLocation: String { OwnSuffix.log.of(location) }

  /// The word of the next mark, if any.
  var logWords: [String] { marksLog ? [isLogWritten ? Self.logIsWritten : Self.logIsOpen] : [] }

  private var markedWords: [String] {
    (SmallFile.read(markLocation) ?? "").split(separator: ",").map { String($0) }
  }

  private static func expectsLog(_ word: String) -> Bool { word == logIsOpen || word == logIsWritten }

  /// Whether a start would miss the log.
  var isLogExpected: Bool { mark?.epoch == epoch && markedWords.contains(where: Self.expectsLog) }

  /// At a start, before its first write: there is a log again from now on, so the mark keeps that it was missing.
  func noteMissingLog() throws(StoreError) {
    let words = markedWords
    let isMissed = provenance.lacksLog || provenance.lacksTransactions && words.contains(Self.logIsWritten)
    guard isMissed, isLogExpected else { return }
    let noted = words.map { Self.expectsLog($0) ? Self.logIsMissing : $0 }
    try SmallFile.write(markLocation, noted.joined(separator: ","))
  }

  /// Whether what the log had is lost. The mark is of this epoch until the loss is told.
  var isLogMissing: Bool { mark?.epoch == epoch && markedWords.contains(Self.logIsMissing) }

  /// At the end of a start.
  func markLog() throws(StoreError) {
    guard openLog != nil else { return }
    do throws(StoreError) {
      try proveWritable()
      isLogWritten = true
    } catch {
      if case .corrupt = error { throw error }
      // A full disk is no reason not to start: then the log may be empty.
      isLogWritten = false
    }
    // After a power cut the mark must not be there without the log's name.
    Self.syncFolder(of: location)
    marksLog = true
    database.keepsLog = true
    markLoss()
  }

  /// At the end, when all of the log is in the database, or is moved there as the database is closed: the log may be gone.
  public func markEnd() throws(StoreError) {
    guard marksLog else { return }
    let words = markedWords
    let others = words.filter { !Self.expectsLog($0) }
    if !others.isEmpty, others.count < words.count {
      try SmallFile.write(markLocation, others.joined(separator: ","))
    }
    marksLog = false
    database.keepsLog = false
    // Emptied, so that it joins no older copy of the database that somebody puts into its place.
    try checkpoint()
  }

  /// Whether the log was removed, moved or replaced: then what it has is lost if the gateway is killed.
  public var isLogElsewhere: Bool { StoreFiles.number(of: logLocation) != openLog }

  private static let logElsewhere = (
    words: "the database's log (-wal) was removed or replaced while the gateway runs",
    remedy: "Restart the gateway: at its end it writes all of the log into the database."
  )

  /// The open file that is no longer in its place, and the remedy; `nil`: all are.
  public var missingFile: (words: String, remedy: String)? {
    if isElsewhere { return Self.elsewhere }
    return isLogElsewhere ? Self.logElsewhere : nil
  }
}

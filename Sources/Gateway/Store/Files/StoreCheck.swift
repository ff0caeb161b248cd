// SPDX-License-Identifier: MIT

import Glibc
import SQLite
import Timing

/// A look at a database that no gateway has open, for what its next start would find. It only reads: it makes no file, and keeps nobody from
/// opening the database.
extension Store {
  /// `nil`: nothing is wrong, there is no database yet, it is in use, or this user may not see it.
  public static func trouble(_ location: String, clocks: any Clocks) -> StoreError? {
    guard !StoreLock.isTaken(location) else { return nil }
    if StoreFiles.logTrouble(location) == .databaseIsGone {
      return .corrupt("\(location) is missing or empty, and its log (-wal) is no database by itself")
    }
    let found = accessTrouble(location) ?? diskTrouble(location) ?? contentTrouble(location, clocks)
    // A gateway that has started meanwhile has changed what was being read.
    return StoreLock.isTaken(location) ? nil : found
  }

  private static func folder(of location: String) -> String {
    location.unicodeScalars.lastIndex(of: "/").map { String(location.unicodeScalars[...$0]) } ?? "."
  }

  /// The gateway runs as the owner of the folder.
  private static func accessTrouble(_ location: String) -> StoreError? {
    var (file, folder) = (stat(), stat())
    guard stat(location, &file) == 0, stat(Self.folder(of: location), &folder) == 0 else { return nil }
    guard file.st_mode & S_IFMT == S_IFREG else { return .misplaced("\(location) is not a file") }
    if geteuid() == 0, folder.st_uid != 0, file.st_uid != folder.st_uid {
      return .misplaced("\(location) belongs to user \(file.st_uid), and its folder to user \(folder.st_uid)")
    }
    guard geteuid() == folder.st_uid, access(location, R_OK | W_OK) != 0 else { return nil }
    return .file(location)
  }

  /// A start writes at least so many bytes.
  private static let fewBytes: UInt64 = 1 << 20

  private static func diskTrouble(_ location: String) -> StoreError? {
    var space = statvfs()
    guard access(location, F_OK) == 0, statvfs(folder(of: location), &space) == 0 else { return nil }
    if space.f_flag & UInt(ST_RDONLY) != 0 { return .unavailable("\(folder(of: location)) is read-only") }
    let free = UInt64(space.f_bavail) &* UInt64(space.f_frsize)
    return free < fewBytes ? .full("\(free >> 10) KiB free where \(location) is") : nil
  }

  /// A larger database on a slow card is read in part.
  private static let patience: Duration = .seconds(10)

  private static func contentTrouble(_ location: String, _ clocks: any Clocks) -> StoreError? {
    guard access(location, R_OK) == 0 else { return nil }
    if case .breaksOff(let lost)? = StoreFiles.logTrouble(location) {
      return .corrupt("its log, \(location)-wal, is damaged: \(lost) transactions or more come after that")
    }
    // A gateway was killed: the newest pages may be in the log alone, and the file without it only half of a change.
    let isWhole = StoreFiles.lacksTransactions(location)
    do throws(SQLiteError) {
      let database = try Database(unwritten: location)
      try database.knownVersion(Schema.migrations)
      guard isWhole else { return nil }
      let end = clocks.now + patience
      var isLate = false
      database.endWithTask {
        isLate = isLate || clocks.now > end
        return isLate
      }
      do throws(SQLiteError) {
        let verdict = try database.value("PRAGMA quick_check(1)")?.text ?? "it cannot be read"
        return verdict == "ok" ? nil : .corrupt("\(location): \(verdict)")
      } catch {
        if isLate { return nil }
        throw error
      }
    } catch {
      return isWhole || error.kind == .newer ? StoreError(error) : nil
    }
  }
}

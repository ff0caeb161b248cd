// SPDX-License-Identifier: MIT

import Glibc
import SQLite

/// The database's file as this program left it. Nobody else may write to it: another program would write an older copy
/// or something else over it, and SQLite would continue with a mixture of both.
struct OwnFile: Equatable {
  /// The file's time and size, which change with each write.
  struct Stamp: Equatable {
    let number: StoreFiles.Number
    let size: off_t
    let seconds: time_t
    let nanoseconds: Int

    init?(_ location: String) {
      var facts = stat()
      guard stat(location, &facts) == 0 else { return nil }
      number = StoreFiles.Number(device: facts.st_dev, inode: facts.st_ino)
      (size, seconds, nanoseconds) = (facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec)
    }
  }

  let stamp: Stamp
  let head: [UInt8]

  /// SQLite increments this counter whenever it changes the first page. Source: sqlite.org/fileformat2.html § 1.3.7.
  private static func count(_ head: [UInt8]) -> UInt32 { head[24..<28].reduce(0) { $0 << 8 | UInt32($1) } }

  /// Whether this first page does not come after ours.
  func isUndone(by head: [UInt8]) -> Bool {
    let (was, isNow) = (Self.count(self.head), Self.count(head))
    return isNow == was ? head != self.head : Int32(bitPattern: isNow &- was) < 0
  }
}

extension Store {
  /// Notes the file's state. Call it after each own write that may have reached the file.
  func noteOwnFile() {
    guard let stamp = OwnFile.Stamp(location), stamp != ownFile?.stamp else { return }
    ownFile = database.fileBytes(Int32(Self.pageSize)).map { OwnFile(stamp: stamp, head: $0) }
  }

  /// Whether another program has written different content into the file. Touching it, or writing the same bytes, does
  /// no harm.
  var isOverwritten: Bool { isOverwritten(OwnFile.Stamp(location)) }

  private func isOverwritten(_ stamp: OwnFile.Stamp?) -> Bool {
    guard let ownFile, let stamp, stamp != ownFile.stamp,
      stamp.number == ownFile.stamp.number, let head = database.fileBytes(Int32(Self.pageSize))
    else { return false }
    return ownFile.isUndone(by: head)
  }

  func checkOwnFile() throws(SQLiteError) { try check(OwnFile.Stamp(location)) }

  private func check(_ stamp: OwnFile.Stamp?) throws(SQLiteError) {
    guard isOverwritten(stamp) else { return }
    throw SQLiteError(code: 11, message: "another program has written over the database file")
  }

  /// The meaning of `isElsewhere`, and the remedy.
  public static let elsewhere = (
    words: "the database file was removed or replaced while the gateway runs",
    remedy: "Save it now with `meshpost backup FILE`, then restart the gateway."
  )

  /// Checks that the file is unchanged by others. Call it now and then, for a gateway that writes nothing. Returns as `isElsewhere`.
  public func lookAtOwnFile() -> Bool {
    let stamp = OwnFile.Stamp(location)
    ifReadable { try check(stamp) }
    return stamp?.number != openFile
  }
}

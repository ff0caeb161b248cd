// SPDX-License-Identifier: MIT

import CSQLite
import Glibc

/// SQLite's default VFS, with notes of each write in watched folders. Files elsewhere are the system's own.
enum DiskVFS {
  /// The VFS that does the work. Set once, before ours is registered.
  private nonisolated(unsafe) static let system = sqlite3_vfs_find(nil)!

  /// Registers it as the default, once.
  static func install() { _ = isInstalled }

  private static let isInstalled: Bool = {
    let ours = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
    ours.initialize(to: system.pointee)
    ours.pointee.pNext = nil
    ours.pointee.zName = UnsafePointer(strdup("crash-disk"))
    ours.pointee.szOsFile = Int32(MemoryLayout<Head>.size) + system.pointee.szOsFile
    ours.pointee.xOpen = { open($1, $2!, $3, $4) }
    ours.pointee.xDelete = { _, name, syncsFolder in
      let code = system.pointee.xDelete(system, name, syncsFolder)
      if let name { CrashDisk.of(file: String(cString: name))?.look() }
      return code
    }
    return sqlite3_vfs_register(ours, 1) == SQLITE_OK
  }()

  /// The beginning of our files; the system's file follows.
  private struct Head {
    var file: sqlite3_file
    var note: Unmanaged<Note>
  }

  private final class Note {
    let (disk, file): (CrashDisk, FileState)

    init(_ disk: CrashDisk, _ file: FileState) { (self.disk, self.file) = (disk, file) }
  }

  private typealias File = UnsafeMutablePointer<sqlite3_file>

  private static func real(_ file: File?) -> File {
    (UnsafeMutableRawPointer(file!) + MemoryLayout<Head>.size).assumingMemoryBound(to: sqlite3_file.self)
  }

  private static func note(_ file: File?) -> Unmanaged<Note> {
    UnsafeMutableRawPointer(file!).assumingMemoryBound(to: Head.self).pointee.note
  }

  private static func open(
    _ name: UnsafePointer<CChar>?, _ file: File, _ flags: Int32, _ opened: UnsafeMutablePointer<Int32>?
  ) -> Int32 {
    guard let name, let disk = CrashDisk.of(file: String(cString: name)) else {
      return system.pointee.xOpen(system, name, file, flags, opened)
    }
    let real = real(file)
    file.pointee.pMethods = nil
    let code = system.pointee.xOpen(system, name, real, flags, opened)
    let short = String(cString: name).split(separator: "/").last.map(String.init) ?? ""
    guard code == SQLITE_OK, let state = disk.opened(short) else {
      if let close = real.pointee.pMethods?.pointee.xClose { _ = close(real) }
      return code == SQLITE_OK ? SQLITE_CANTOPEN : code
    }
    UnsafeMutableRawPointer(file).assumingMemoryBound(to: Head.self).pointee.note =
      Unmanaged.passRetained(Note(disk, state))
    file.pointee.pMethods = UnsafePointer(methods)
    return code
  }

  /// Never changed after it is made.
  private nonisolated(unsafe) static let methods: UnsafeMutablePointer<sqlite3_io_methods> = {
    let methods = UnsafeMutablePointer<sqlite3_io_methods>.allocate(capacity: 1)
    var forwarded = sqlite3_io_methods()
    // Without memory mapping, which would hide writes.
    forwarded.iVersion = 2
    forwarded.xClose = { file in
      let (real, note) = (real(file), note(file))
      let code = real.pointee.pMethods.pointee.xClose(real)
      note.takeUnretainedValue().disk.closed(note.takeUnretainedValue().file)
      note.release()
      return code
    }
    forwarded.xRead = { file, bytes, count, offset in
      let (real, note) = (real(file), note(file).takeUnretainedValue())
      // SQLITE_IOERR_CORRUPTFS, which the system's VFS makes of EIO.
      if note.disk.refusesRead?() == true { return SQLITE_IOERR | 33 << 8 }
      return real.pointee.pMethods.pointee.xRead(real, bytes, count, offset)
    }
    forwarded.xWrite = { file, bytes, count, offset in
      let (real, note) = (real(file), note(file).takeUnretainedValue())
      let code = real.pointee.pMethods.pointee.xWrite(real, bytes, count, offset)
      if code == SQLITE_OK {
        let written = [UInt8](UnsafeRawBufferPointer(start: bytes, count: Int(count)))
        note.disk.changed(note.file, .write(Int(offset), written))
      }
      return code
    }
    forwarded.xTruncate = { file, length in
      let (real, note) = (real(file), note(file).takeUnretainedValue())
      let code = real.pointee.pMethods.pointee.xTruncate(real, length)
      if code == SQLITE_OK { note.disk.changed(note.file, .length(Int(length))) }
      return code
    }
    forwarded.xSync = { real($0).pointee.pMethods.pointee.xSync(real($0), $1) }
    forwarded.xFileSize = { real($0).pointee.pMethods.pointee.xFileSize(real($0), $1) }
    forwarded.xLock = { real($0).pointee.pMethods.pointee.xLock(real($0), $1) }
    forwarded.xUnlock = { real($0).pointee.pMethods.pointee.xUnlock(real($0), $1) }
    forwarded.xCheckReservedLock = { real($0).pointee.pMethods.pointee.xCheckReservedLock(real($0), $1) }
    forwarded.xFileControl = { file, what, argument in
      // A database's new length would be set past us.
      guard what != SQLITE_FCNTL_CHUNK_SIZE, what != SQLITE_FCNTL_SIZE_HINT else { return SQLITE_OK }
      let real = real(file)
      return real.pointee.pMethods.pointee.xFileControl(real, what, argument)
    }
    forwarded.xSectorSize = { real($0).pointee.pMethods.pointee.xSectorSize(real($0)) }
    forwarded.xDeviceCharacteristics = { real($0).pointee.pMethods.pointee.xDeviceCharacteristics(real($0)) }
    forwarded.xShmMap = { real($0).pointee.pMethods.pointee.xShmMap(real($0), $1, $2, $3, $4) }
    forwarded.xShmLock = { real($0).pointee.pMethods.pointee.xShmLock(real($0), $1, $2, $3) }
    forwarded.xShmBarrier = { real($0).pointee.pMethods.pointee.xShmBarrier(real($0)) }
    forwarded.xShmUnmap = { real($0).pointee.pMethods.pointee.xShmUnmap(real($0), $1) }
    methods.initialize(to: forwarded)
    return methods
  }()
}

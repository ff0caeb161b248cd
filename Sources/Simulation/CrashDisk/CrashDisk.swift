// SPDX-License-Identifier: MIT

import CCrashDisk
import Glibc
import Synchronization

/// Records what has been synced in a folder, and writes images of it: the folder as a power cut at this moment could
/// leave it.
///
/// Writes of SQLite are seen one by one, by a VFS over that of the system. Other files beside the databases are compared
/// with what is known of them at each sync, and each change of theirs counts as one write. fsync and fdatasync of the whole
/// program pass through here, for files and for the folder itself. Nothing is really synced, so the folder should be in
/// memory; there, no inode's number is used again at once, by which renamed files are recognised.
///
/// The index of the write-ahead log (`-shm`) is not part of an image: SQLite makes it anew. Folders in the folder are not
/// seen.
public final class CrashDisk: @unchecked Sendable {
  /// The part of the unsynced changes that an image has.
  public enum Cut: Sendable {
    /// All: a kill, not a power cut.
    case keepingAll
    /// None.
    case losingAll
    /// Any: each sector of 512 bytes, and each length, as any of the writes since the last sync has left it; each name in
    /// the folder as before or after its last changes. The seed decides whether the changes are lost in order, by
    /// sectors or by pages, and how many.
    case seed(UInt64)
  }

  let folder: String
  /// Called at each sync, before it counts.
  ///
  /// `onSync` and `ignoresSyncs` are set while nobody else uses the disk.
  public var onSync: (() -> Void)?
  /// The disk lies: a sync is confirmed, and does nothing.
  public var ignoresSyncs = false
  /// Whether the disk refuses this read of SQLite's with EIO; set as `onSync` is.
  public var refusesRead: (() -> Bool)?
  /// Guards `state` and its files.
  private let lock = Mutex(())
  private var state: FolderState

  /// Watches a folder from now on, until the object is released. What it has now counts as synced.
  public init(watching folder: String) {
    self.folder = folder.last == "/" ? String(folder.dropLast()) : folder
    state = FolderState(self.folder)
    state.look()
    for file in state.names.values { file.sync() }
    state.syncNames()
    DiskVFS.install()
    crash_disk_hook_syncs { CrashDisk.synced($0) }
    CrashDisk.all.withLock { $0.append(Watch(disk: self, folder: self.folder)) }
  }

  deinit { CrashDisk.all.withLock { $0.removeAll { $0.disk == nil } } }

  /// Writes an image of the folder into another one, in place of the files there.
  public func image(into target: String, _ cut: Cut) {
    let files = lock.withLock { _ in
      state.look()
      return state.image(cut)
    }
    for name in FolderState.entries(target) { unlink("\(target)/\(name)") }
    for (name, content) in files {
      let descriptor = open("\(target)/\(name)", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
      precondition(descriptor >= 0 && write(descriptor, content, content.count) == content.count, "\(target)/\(name)")
      close(descriptor)
    }
  }

  // MARK: For the VFS and for syncs

  private struct Watch {
    weak var disk: CrashDisk?
    let folder: String
  }

  private static let all = Mutex<[Watch]>([])

  /// The disk of this folder.
  static func of(folder: Substring) -> CrashDisk? {
    all.withLock { $0.first { $0.folder.utf8.elementsEqual(folder.utf8) }?.disk }
  }

  /// The disk whose folder has this file.
  static func of(file location: String) -> CrashDisk? {
    location.lastIndex(of: "/").flatMap { of(folder: location[..<$0]) }
  }

  func opened(_ name: String) -> FileState? {
    lock.withLock { _ in
      state.look()
      let file = state.names[name]
      file?.openings += 1
      return file
    }
  }

  func closed(_ file: FileState) { lock.withLock { _ in file.openings -= 1 } }

  func changed(_ file: FileState, _ change: FileState.Change) { lock.withLock { _ in state.note(change, of: file) } }

  /// Notes what has changed in the folder.
  func look() { lock.withLock { _ in state.look() } }

  /// 0: the descriptor is of a watched folder.
  private static func synced(_ descriptor: Int32) -> Int32 {
    var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
    let count = buffer.withUnsafeMutableBytes {
      $0.withMemoryRebound(to: CChar.self) { readlink("/proc/self/fd/\(descriptor)", $0.baseAddress!, $0.count) }
    }
    let location = String(decoding: buffer.prefix(max(0, count)), as: UTF8.self)
    if let disk = of(folder: location[...]) {
      disk.sync(nil)
      return 0
    }
    guard let disk = of(file: location) else { return -1 }
    var facts = stat()
    guard fstat(descriptor, &facts) == 0 else { return -1 }
    disk.sync(facts.st_ino)
    return 0
  }

  /// `nil`: the folder.
  private func sync(_ inode: ino_t?) {
    look()
    onSync?()
    guard !ignoresSyncs else { return }
    lock.withLock { _ in
      if let inode { state.file(inode)?.sync() } else { state.syncNames() }
    }
  }
}

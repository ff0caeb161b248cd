// SPDX-License-Identifier: MIT

import Glibc

/// A folder's names and files, as they are and as they were synced.
struct FolderState {
  private let location: String
  /// The files as they are now, and the names that are synced.
  private(set) var names: [String: FileState] = [:]
  private var syncedNames: [String: FileState] = [:]
  /// Changes of names since the folder's last sync, each of them whole or not at all.
  private var changes: [(order: Int, names: [(name: String, file: FileState?)])] = []
  /// The number of the last change, of names and contents.
  private var order = 0

  init(_ location: String) { self.location = location }

  func file(_ inode: ino_t) -> FileState? { names.values.first { $0.inode == inode } }

  mutating func syncNames() { (syncedNames, changes) = (names, []) }

  mutating func note(_ change: FileState.Change, of file: FileState) {
    order += 1
    file.note(change, order: order)
  }

  static func entries(_ folder: String) -> [String] {
    guard let stream = opendir(folder) else { return [] }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if entry.pointee.d_type == DT_REG { names.append(name) }
    }
    return names.sorted()
  }

  // MARK: What has changed

  /// Compares the folder with what is known of it.
  mutating func look() {
    var found: [String: (inode: ino_t, stamp: FileState.Stamp)] = [:]
    for name in Self.entries(location) where !name.hasSuffix("-shm") {
      var facts = stat()
      guard stat("\(location)/\(name)", &facts) == 0 else { continue }
      found[name] = (facts.st_ino, FileState.Stamp(facts))
    }
    lookAtNames(found.mapValues(\.inode))
    for (name, facts) in found.sorted(by: { $0.key < $1.key }) {
      guard let file = names[name] else { continue }
      defer { file.stamp = facts.stamp }
      // SQLite's changes are noted by the VFS.
      guard file.openings == 0, file.stamp != facts.stamp else { continue }
      let content = Self.content("\(location)/\(name)")
      guard content != file.content else { continue }
      note(.length(content.count), of: file)
      note(.write(0, content), of: file)
    }
  }

  private mutating func lookAtNames(_ found: [String: ino_t]) {
    guard found.count != names.count || found.contains(where: { names[$0.key]?.inode != $0.value }) else { return }
    // A renamed file is new under one name and gone under another. Its new name may be free only after another renaming.
    var moves = found.keys.sorted().compactMap { new -> (old: String, new: String)? in
      guard names[new]?.inode != found[new] else { return nil }
      return names.first { $0.value.inode == found[new] && found[$0.key] != found[new] }.map { ($0.key, new) }
    }
    while let next = moves.firstIndex(where: { move in !moves.contains { $0.old == move.new } }) ?? moves.indices.first
    {
      let (old, new) = moves.remove(at: next)
      change([(old, nil), (new, names[old])])
    }
    for name in Set(names.keys).union(found.keys).sorted() where names[name]?.inode != found[name] {
      change([(name, found[name].map { FileState($0) })])
    }
  }

  private mutating func change(_ changed: [(name: String, file: FileState?)]) {
    order += 1
    changes.append((order, changed))
    for (name, file) in changed { names[name] = file }
  }

  private static func content(_ location: String) -> [UInt8] {
    let descriptor = open(location, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return [] }
    defer { close(descriptor) }
    var content = [UInt8](repeating: 0, count: max(0, Int(lseek(descriptor, 0, SEEK_END))))
    let count = pread(descriptor, &content, content.count, 0)
    return Array(content.prefix(max(0, count)))
  }

  // MARK: Images

  /// The folder's files after a cut.
  func image(_ cut: CrashDisk.Cut) -> [String: [UInt8]] {
    switch cut {
    case .keepingAll: return names.mapValues(\.content)
    case .losingAll: return syncedNames.mapValues(\.synced)
    case .seed(let seed):
      let files = Set(names.values).union(syncedNames.values).union(changes.flatMap { $0.names.compactMap(\.file) })
      let times = changes.map(\.order) + files.flatMap { $0.changes.map(\.order) }
      var loss = Loss(seed, unsynced: times.sorted())
      var image = syncedNames
      for change in changes where loss.keepsName(change.order) {
        for (name, file) in change.names { image[name] = file }
      }
      // In the order of names: a dictionary's own order differs from run to run.
      var contents: [String: [UInt8]] = [:]
      for (name, file) in image.sorted(by: { $0.key < $1.key }) { contents[name] = file.content(&loss) }
      return contents
    }
  }
}

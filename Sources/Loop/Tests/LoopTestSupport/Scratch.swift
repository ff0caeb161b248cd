// SPDX-License-Identifier: MIT

import Foundation

/// A test's own folder, removed with the object.
public final class Scratch {
  public let folder: URL

  /// `inMemory`: on a file system in memory, for tests that do not depend on the disk. The process ignores SIGPIPE from then on, as the programs do: a
  /// hook or a peer may end before a write to it.
  public init(inMemory: Bool = false) {
    signal(SIGPIPE, SIG_IGN)
    let memory = URL(filePath: "/dev/shm")
    let hasMemory = inMemory && FileManager.default.isWritableFile(atPath: memory.path())
    folder = (hasMemory ? memory : FileManager.default.temporaryDirectory).appending(
      path: "mp-\(UUID().uuidString.prefix(8))")
    try! FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  }

  deinit { try? FileManager.default.removeItem(at: folder) }

  public func location(_ name: String) -> String { folder.appending(path: name).path() }

  public func makeFolder(_ name: String) {
    try! FileManager.default.createDirectory(at: folder.appending(path: name), withIntermediateDirectories: true)
  }

  /// A copy of a database as another process finds it after a kill or a power cut.
  public func afterCut(_ name: String) throws -> String {
    let copy = location("cut-\(name)")
    for suffix in ["", "-wal", ".id", ".lock", ".held"] {
      try? FileManager.default.removeItem(atPath: copy + suffix)  // there is none the first time
    }
    for suffix in ["", "-wal", ".held"] where FileManager.default.fileExists(atPath: location(name) + suffix) {
      try FileManager.default.copyItem(atPath: location(name) + suffix, toPath: copy + suffix)
    }
    return copy
  }

  public func write(_ name: String, _ text: String) -> String {
    let file = folder.appending(path: name)
    try! text.write(to: file, atomically: true, encoding: .utf8)
    return file.path()
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import HTTP
import Messaging
import OwnFiles
import SQLite
import Store
import UntrustedText

/// `/v1/backup`: a snapshot of the store, while it is in use.
final class BackupAPI {
  /// Pages copied in one step; other work has its turn between two steps.
  private static let pages: Int32 = 256
  private static let piece = 32 * 1024

  private let dependencies: ControlAPI.Dependencies
  private var isMaking = false

  init(_ dependencies: ControlAPI.Dependencies) {
    self.dependencies = dependencies
    // Of a gateway that was killed while it made one.
    removeCopy()
  }

  private var store: Store { dependencies.store }
  /// No name that somebody would give to a backup: what is there is deleted.
  private var location: String { OwnSuffix.copying.of(store.location) }

  func make(_ request: HTTPRequest, _ reply: Reply) async throws -> Answer {
    try checkReplaced(request)
    guard !isMaking else { throw Refusal.full("a backup is already in progress") }
    isMaking = true
    defer { isMaking = false }
    let file = try await copy()
    return try await reply.rows(headers: ["Content-Type": "application/vnd.sqlite3"]) {
      switch Descriptor.read(file.number, most: Self.piece) {
      case .bytes(let bytes): (bytes, false)
      case .end: ([], true)
      case .wouldBlock: ([], false)
      case .failed(let error): throw error
      }
    }
  }

  /// Throws if the file that the client will make is one of this gateway's own: the file itself, by whatever name, or one of that name, which may be
  /// missing at this moment, or one in a folder of its own. An open database whose log is another file loses all that is new when the gateway is killed.
  private func checkReplaced(_ request: HTTPRequest) throws(Refusal) {
    let (replaced, folder, name) = (request.query["replaces"], request.query["folder"], request.query["name"])
    for file in ownFiles {
      let slash = file.lastIndex(of: "/")
      let own = slash.map { String(file[file.index(after: $0)...]) } ?? file
      let isThat = replaced != nil && replaced == Self.identity(of: file)
      let isSo =
        name?.isExactly(own) == true && folder != nil
        && folder == Self.identity(of: slash.map { String(file[...$0]) } ?? ".")
      let isWithin = folder != nil && folder == Self.identity(of: file)
      guard isThat || isSo || isWithin else { continue }
      throw .invalid("\(file) is a file that the running gateway uses: name another one for the backup")
    }
  }

  /// Those of the upstreams that were added while it ran have any names.
  private var ownFiles: [String] {
    let upstreams = OwnSuffix.upstreams.of(store.location)
    let added = Files.names(in: upstreams).map { "\(upstreams)/\($0)" }
    let secrets = added.flatMap { folder in Files.names(in: folder).map { "\(folder)/\($0)" } }
    return OwnSuffix.allCases.map { $0.of(store.location) } + [dependencies.configurationFile] + added + secrets
  }

  private static func identity(of file: String) -> String? {
    var facts = stat()
    return stat(file, &facts) == 0 ? "\(facts.st_dev):\(facts.st_ino)" : nil
  }

  private func removeCopy() { for suffix in ["", "-wal", "-shm", "-journal"] { unlink(location + suffix) } }

  /// The file has no name: it is deleted with its last byte sent, or with this process.
  private func copy() async throws -> OwnedDescriptor {
    defer { removeCopy() }
    do {
      store.settle()
      let backup = try store.beginBackup(to: location)
      while true {
        // Deferred writes belong to the copy, and must be on disk.
        store.commit(everything: true)
        if try backup.step(pages: Self.pages) { break }
        try await dependencies.loop.sleep(for: .milliseconds(1))
      }
    } catch let error as StoreError {
      throw Refusal.store(error)
    } catch let error as SQLiteError {
      throw Refusal.store(StoreError(error))
    }
    let file = open(location, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { throw Refusal.store(.unavailable("the backup cannot be read")) }
    return OwnedDescriptor(file)
  }
}

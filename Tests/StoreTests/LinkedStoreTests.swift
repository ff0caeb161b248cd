// SPDX-License-Identifier: MIT

import Foundation
import SQLite
import TestSupport
import Testing

@testable import Store

/// A database that is named through a symbolic link: its log is beside the file, not beside the link.
@Suite struct LinkedStoreTests {
  private let scratch = Scratch(inMemory: true)
  private var link: String { scratch.location("gw.db") }
  private var file: String { scratch.location("disk/real.db") }

  /// What a killed gateway leaves behind a link to a link: five events are in the database, and two in the log alone. Returns the epoch.
  private func killed() throws -> String {
    let shop = try Shop(in: Scratch(inMemory: true))
    try shop.append(5)
    try shop.store.checkpoint()
    try shop.append(2)
    scratch.makeFolder("disk")
    for suffix in ["", "-wal", ".id", ".mark"] {
      try FileManager.default.copyItem(atPath: shop.scratch.location("gw.db" + suffix), toPath: file + suffix)
    }
    #expect(symlink("disk/next.db", link) == 0 && symlink("real.db", scratch.location("disk/next.db")) == 0)
    return shop.store.epoch
  }

  /// What is beside the link and named after it.
  private func besideLink() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: scratch.folder.path()).filter { $0.hasPrefix("gw.db") }
  }

  @Test func `a log that is emptied behind a link is told, and no number is used again`() throws {
    let epoch = try killed()
    try Data().write(to: URL(filePath: file + "-wal"))
    let store = try Store(Store.Settings(location: link))
    let loss = try #require(store.provenance.loss, "nothing is said")
    #expect(loss.cause == .log && loss.epoch == epoch && store.epoch != epoch && store.identity.epochFirst == 6)
    #expect(try besideLink() == ["gw.db"], "all files are beside the database")
  }

  @Test func `a restoration behind a link saves the database with its log`() throws {
    let epoch = try killed()
    let backup = scratch.location("backup")
    do {
      let other = try Store(Store.Settings(location: scratch.location("disk/other.db")))
      let copy = try other.beginBackup(to: backup)
      while try !copy.step(pages: 100) {}
    }
    let replaced = try #require(try Store.restore(backup, settings: Store.Settings(location: link)))
    let saved = try Store(Store.Settings(location: replaced.location))
    #expect(saved.epoch == epoch && saved.lastSeq == 7 && saved.provenance.loss == nil)
    #expect(try besideLink() == ["gw.db"])
  }

  @Test func `a file behind a link has a name before it exists, and a link to itself has none`() throws {
    scratch.makeFolder("disk")
    #expect(symlink("disk/real.db", link) == 0 && symlink("turn", scratch.location("turn")) == 0)
    #expect(DatabaseFile.behindLinks(link) == file)
    #expect(DatabaseFile.behindLinks(file) == file && DatabaseFile.behindLinks("no/such.db") == "no/such.db")
    #expect(DatabaseFile.behindLinks(scratch.location("turn")) == scratch.location("turn"))
    _ = try Store(Store.Settings(location: link))
    #expect(access(file, F_OK) == 0)
  }

  @Test func `a name that begins with an accent keeps it out of its folder's name`() {
    let folder = scratch.folder.path()
    let accented = "\(folder)/\u{301}gw.db"
    #expect(symlink("real.db", accented) == 0)
    #expect(DatabaseFile.behindLinks(accented).unicodeScalars.elementsEqual("\(folder)/real.db".unicodeScalars))
  }

  @Test func `a file without a name that can be written down keeps that of its link`() {
    var pipes: [Int32] = [0, 0]
    #expect(pipe(&pipes) == 0)
    defer { for descriptor in pipes { close(descriptor) } }
    let end = "/proc/self/fd/\(pipes[0])"
    #expect(DatabaseFile.behindLinks(end) == end)
    let notUTF8: [CChar] = [-1, 0]
    #expect(symlink(notUTF8, link) == 0)
    #expect(DatabaseFile.behindLinks(link) == link)
  }
}

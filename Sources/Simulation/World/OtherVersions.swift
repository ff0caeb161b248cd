// SPDX-License-Identifier: MIT

import CrashDisk
import EarlierSchemas
import FoundationEssentials
import Gateway
import Glibc
import SQLite
import Store

/// A start that upgrades a database is cut at one of its flushes: the program is killed there, or the power fails.
struct FlushCut: Codable {
  var flush: Int
  /// What the card has of what was not synced; `nil`: all, as after a kill.
  var loss: UInt64?

  /// Does work that writes in a folder, and puts into another one what the cut would have left. `false`: the work has fewer flushes.
  func leaves(of folder: String, in target: String, _ work: () throws -> Void) throws -> Bool {
    try FileManager.default.createDirectory(atPath: target, withIntermediateDirectories: true)
    let disk = CrashDisk(watching: folder)
    var flushes = 0
    disk.onSync = { [unowned disk] in
      if flushes == flush { disk.image(into: target, loss.map { .seed($0) } ?? .keepingAll) }
      flushes += 1
    }
    defer { disk.onSync = nil }
    try work()
    return flushes > flush
  }
}

/// What a refused program may have touched: nothing.
struct FolderContent: Equatable {
  private let files: [String: Data]

  init(_ folder: String) throws {
    let names = try FileManager.default.contentsOfDirectory(atPath: folder)
    files = Dictionary(
      uniqueKeysWithValues: try names.filter { !$0.hasSuffix("-shm") && !$0.hasSuffix(".lock") && $0 != "ctl" }.map {
        ($0, try Data(contentsOf: URL(filePath: "\(folder)/\($0)")))
      })
  }

  /// The files that differ.
  func changes(to other: FolderContent) -> [String] {
    Set(files.keys).union(other.files.keys).filter { files[$0] != other.files[$0] }.sorted()
  }
}

/// Runs work on a database that says that it is of a newer schema than `newest`. `keepsLog`: its log stays beside it, as the mark of a
/// gateway that was killed expects one.
func whileNewer(_ location: String, than newest: Int, keepsLog: Bool = false, _ work: () throws -> Void) throws {
  func say(_ version: Int) throws -> Int {
    let database = try Database(location: location)
    database.keepsLog = keepsLog
    let before = try database.schemaVersion()
    try database.execute("PRAGMA journal_size_limit = 0; PRAGMA user_version = \(version)")
    return before
  }
  let version = try say(newest + 1)
  try work()
  _ = try say(version)
}

/// Its card with programs of other versions, which do not run here: a world has one version of them.
extension WorldGateway {
  private var database: String { "\(folder)/gw.db" }

  /// What is on the card goes on in another folder: the ended program may still close its files in this one.
  private func beginLife() {
    note(texts())
    disk = nil
    copy(from: life, to: life + 1)
    life += 1
    replug(radio)
  }

  private func age(_ folder: String, to version: Int) throws {
    guard FileManager.default.fileExists(atPath: "\(folder)/gw.db") else { return }
    try EarlierSchema.gateway.undo(to: version, in: "\(folder)/gw.db")
    // An older program marked only how far the journal was, and not the losses that were told.
    let mark = "\(folder)/gw.db.mark"
    // `try?`: there is none yet.
    guard let known = try? String(contentsOfFile: mark, encoding: .utf8), let place = known.firstIndex(of: ",") else {
      return
    }
    try "\(known[..<place])\n".write(toFile: mark, atomically: true, encoding: .utf8)
  }

  func ageCopy(_ number: Int, to version: Int) throws {
    if let place = copies[number] { try age("\(root)/\(place)", to: version) }
  }

  /// The ended program was one with an earlier schema. The next start upgrades its database, perhaps not at once.
  func becomeOlder(_ version: Int, _ cut: FlushCut?) throws {
    let before = texts()
    beginLife()
    try age(folder, to: version)
    if texts() != before { breaches.append("the world has lost messages as it undid an upgrade") }
    guard let cut else { return }
    try writeConfiguration()
    let last = folder
    let isCut = try cut.leaves(of: folder, in: "\(root)/\(life + 1)") {
      _ = try Store(GatewayConfiguration(startingWith: "\(folder)/gw.toml").store, clocks: machine)
    }
    tell("\(name): its upgrade from \(version) \(isCut ? "is cut at flush" : "has ended before flush") \(cut.flush)")
    guard isCut else { return }
    life += 1
    try? FileManager.default.removeItem(atPath: "\(database).lock")  // `try?`: the image may lack it
    moveConfiguration(from: last)
    if cut.loss != nil { machine.restart() }
    replug(radio)
  }

  /// A newer program has ended, and an older one is tried.
  func tryOlderProgram() throws {
    beginLife()
    try writeConfiguration()
    guard FileManager.default.fileExists(atPath: database) else { return }
    try whileNewer(database, than: EarlierSchema.gateway.newest, keepsLog: true) {
      let before = try FolderContent(folder)
      do {
        _ = try makeDaemon()
        breaches.append("an older program has started with a newer database")
      } catch let error as Daemon.StartError {
        if error.code != EX_CANTCREAT || !error.message.contains("of a newer version of Meshpost") {
          breaches.append("an older program has ended with \(error.code): \(error.message)")
        }
      }
      let changes = before.changes(to: try FolderContent(folder))
      if !changes.isEmpty { breaches.append("an older program has changed \(changes)") }
    }
  }
}

// SPDX-License-Identifier: MIT

import Glibc
import SQLite
import TestSupport
import Testing

@testable import Hub

@Suite struct SQLiteHubDatabaseTests {
  private let scratch = Scratch(inMemory: true)

  @Test func `all reads of one question see the same moment, and the next question sees the present`() throws {
    let location = scratch.location("hub.db")
    let writer = try SQLiteHubDatabase(location: location)
    let reader = try SQLiteHubDatabase(reading: location)
    var counts: [Int64] = []
    var failure: HubDatabaseError?
    let count = "SELECT count(*) FROM gateways"
    let first = HubCall(count) { row in
      counts.append(row.integer(0))
      do throws(HubDatabaseError) {
        _ = try writer.run("INSERT INTO gateways(id, epoch, last_seen) VALUES ('g', 'e', 1)", [])
      } catch {
        failure = error
      }
    }
    let second = HubCall(count) { counts.append($0.integer(0)) }
    try reader.read([first, second])
    #expect(failure == nil && counts == [0, 0])
    try reader.read([second])
    try reader.read([second, second])
    #expect(counts == [0, 0, 1, 1, 1])
    // An error leaves no transaction behind.
    #expect(throws: HubDatabaseError.self) { try reader.read([second, HubCall("SELECT x FROM gateways")]) }
    _ = try writer.run("DELETE FROM gateways", [])
    counts = []
    try reader.read([second])
    #expect(counts == [0])
  }

  @Test func `a folder with a space in its name can hold the database and its backup`() async throws {
    scratch.makeFolder("my copies")
    let folder = "\(scratch.folder.path())/my copies"
    _ = try SQLiteHubDatabase(location: "\(folder)/hub.db")
    let configuration = try HubConfiguration(
      parsing: Array("database = \"\(folder)/hub.db\"".utf8), file: "hub.toml", for: .commands)
    #expect(try HubBackup.make(of: configuration, to: "\(folder)/copy.db", patience: .seconds(1)) > 0)
    let disk = await HubDoctor(configuration).examine().first { $0.name == "disk" }
    #expect(disk?.message.contains("free where the database is") == true)
  }

  @Test func `a file that cannot be used for want of room says that its disk is full, and a bad disk does not`() {
    // SQLITE_IOERR_SHMSIZE, SQLITE_FULL, SQLITE_IOERR_READ
    let found = ([4874, 13, 266] as [Int32]).map { code in
      HubDatabaseError(SQLiteError(code: code, message: "disk I/O error"))
    }
    #expect(found.map(\.cause) == [.fullDisk, .fullDisk, nil])
    #expect(found.allSatisfy { $0.kind == .unavailable })
    #expect(found[0].message == "the disk is full: make room (SQLite 4874: disk I/O error)")
  }

  @Test func `a file that another program has for a moment is opened after that`() async throws {
    let location = scratch.location("held.db")
    _ = try SQLiteHubDatabase(location: location)
    var holder: Database? = try Database(location: location)
    try holder?.execute("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT")
    let opening = Task.detached { () -> String? in
      do {
        // A busy machine may let the holder sleep for longer than a hub waits.
        _ = try SQLiteHubDatabase(location: location, patience: .seconds(60))
        return nil
      } catch {
        return "\(error)"
      }
    }
    try await Task.sleep(for: .milliseconds(200))
    holder = nil
    #expect(await opening.value == nil)
  }

  @Test func `one hub at a time serves from a file, and its lock ends with it`() async throws {
    let location = scratch.location("served.db")
    _ = try SQLiteHubDatabase(location: location)
    var first = try await ServingLock.take(location)
    #expect(first != nil)
    await #expect(throws: ServingLock.Taken.self) { try await ServingLock.take(location, attempts: 1) }
    withExtendedLifetime(first) {}
    first = nil
    let second = try await ServingLock.take(location, attempts: 1)
    #expect(second != nil)
    let onServer = try await ServingLock.take("postgresql:///hub")
    #expect(onServer == nil)
  }

  @Test func `a link and the file behind it are one file, also before it exists`() async throws {
    let (location, link) = (scratch.location("one.db"), scratch.location("link.db"))
    #expect(symlink("one.db", link) == 0)
    let lock = try await ServingLock.take(link, attempts: 1)
    await #expect(throws: ServingLock.Taken.self) { try await ServingLock.take(location, attempts: 1) }
    withExtendedLifetime(lock) {}
    let configuration = try HubConfiguration(
      parsing: Array("database = \"\(link)\"".utf8), file: "hub.toml", for: .commands)
    #expect(configuration.location == location)
  }

  @Test func `a lock at the opening passes by itself, also one of a recovery, and a bad disk does not`() {
    // SQLITE_BUSY, SQLITE_BUSY_RECOVERY, SQLITE_IOERR_READ
    let found = ([5, 261, 266] as [Int32]).map { code in
      HubDatabaseError(SQLiteError(code: code, message: "database is locked"))
    }
    #expect(found.map(\.passesByItself) == [true, true, false])
  }

  @Test func `a file that stays locked is unavailable, and other conflicts stay conflicts`() throws {
    let database = try SQLiteHubDatabase(location: scratch.location("locked.db"))
    func outcome(of error: HubDatabaseError) -> (kind: HubDatabaseError.Kind?, attempts: Int) {
      var attempts = 0
      do throws(HubDatabaseError) {
        try database.retrying { () throws(HubDatabaseError) -> Void in
          attempts += 1
          throw error
        }
        return (nil, attempts)
      } catch {
        return (error.kind, attempts)
      }
    }
    // SQLITE_BUSY
    let locked = outcome(of: HubDatabaseError(SQLiteError(code: 5, message: "database is locked")))
    #expect(locked.kind == .unavailable && locked.attempts == 9)
    #expect(outcome(of: HubDatabaseError(kind: .conflict, message: "deadlock")).kind == .conflict)
  }
}

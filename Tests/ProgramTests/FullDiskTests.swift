// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// A gateway that starts on a disk without room.
  @Suite struct FullDisks {
    private static func run(_ arguments: String...) throws -> Bool {
      try Program("/usr/bin/env", arguments).ended() == 0
    }

    /// Runs a test of a synced gateway whose database is on a disk of its own, of 3 MiB: where such a disk cannot be made, nothing.
    private func onSmallDisk(hub: Bool = false, _ test: (_ rig: Rig, _ place: String) throws -> Void) throws {
      let rig = try Rig()
      let place = rig.scratch.location("small")
      try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
      guard try Self.run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place) else { return }
      defer { _ = try? Self.run("umount", "-l", place) }  // `try?`: the folder of the test goes anyway
      if hub { try rig.startHub() }
      try rig.startRadio()
      rig.writeGatewayConfiguration()
      let text = try String(contentsOfFile: rig.scratch.location("gw.toml"), encoding: .utf8)
      _ = rig.scratch.write(
        "gw.toml", text.replacingOccurrences(of: rig.scratch.location("gw.db"), with: "\(place)/gw.db"))
      try rig.startGateway()
      try rig.waitForSync()
      try test(rig, place)
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
    }

    /// The pages by which a database grows when its log is moved into it. Which of the messages are in the log depends on how many one transaction has.
    private static func pagesToCome(_ database: String) throws -> Int {
      let log = try Data(contentsOf: URL(filePath: "\(database)-wal"))
      func word(_ place: Int) -> Int { log[place..<(place + 4)].reduce(0) { $0 << 8 | Int($1) } }
      let page = word(8)
      var (place, pages) = (32, 0)
      // Those of this generation of the log, by their salts; the last commit's has the size of the database.
      while place + 24 + page <= log.count, log[(place + 8)..<(place + 16)] == log[16..<24] {
        if word(place + 4) > 0 { pages = word(place + 4) }
        place += 24 + page
      }
      return pages - (try Data(contentsOf: URL(filePath: database)).count) / page
    }

    /// Starts the gateway on a disk that takes no writes.
    private func startInVain(_ rig: Rig) throws {
      rig.gateway = try Program.own("meshpostd", ["--config", rig.scratch.location("gw.toml")])
      try rig.gateway?.line(with: "the gateway cannot start: ")
    }

    private func untilAlert(_ rig: Rig) throws {
      try untilTrue("the alert") {
        try rig.meshpost("alerts", "--open", "--json").lines.joined().contains("store_lost")
      }
    }

    @Test(arguments: ["full", "read-only"])
    func `a gateway that starts on a full disk waits, reports it, and continues when there is room`(_ how: String)
      throws
    {
      try onSmallDisk(hub: true) { rig, place in
        // The start has to move some from the log into the database, which grows.
        var count: Int64 = 0
        repeat {
          count += 20
          // For more than a second: its texts are the same each time, and their times are not.
          rig.radio?.write("inject r0 10 20")
          try untilTrue("messages in the log") { try rig.status()?["store"]?["messages"]?.integer == count }
        } while try Self.pagesToCome("\(place)/gw.db") < 8 && count < 1000
        rig.gateway?.kill9()
        let filler = "\(place)/filler"
        if how == "full" {
          _ = try Self.run("dd", "if=/dev/zero", "of=\(filler)", "bs=1k")
        } else {
          #expect(try Self.run("mount", "-o", "remount,ro", place))
        }
        rig.radio?.write("dm r1 r0 while the disk takes nothing")
        try startInVain(rig)
        // A reload does not end a gateway that waits.
        rig.gateway?.send(SIGHUP)
        let status = try rig.meshpost("status")
        #expect(status.code == 69, "\(status)")
        #expect(status.lines.joined().contains("the gateway waits for its disk: "), "\(status)")
        if how == "full" { unlink(filler) } else { #expect(try Self.run("mount", "-o", "remount,rw", place)) }
        try rig.gateway?.line(with: "the disk takes writes: starting")
        try rig.waitForSync()
        try untilTrue("the message, which the radio has kept: \(rig.gateway?.lines ?? [])") {
          try rig.status()?["store"]?["messages"]?.integer == count + 1
        }
      }
    }

    @Test func `a gateway that waits for its disk ends on SIGTERM as it does otherwise`() throws {
      try onSmallDisk { rig, place in
        rig.gateway?.send(SIGTERM)
        #expect(try rig.gateway?.ended() == 0)
        #expect(try Self.run("mount", "-o", "remount,ro", place))
        try startInVain(rig)
        rig.gateway?.send(SIGTERM)
        #expect(try rig.gateway?.ended() == 0, "no signal has ended it")
        #expect(try Self.run("mount", "-o", "remount,rw", place))
        try rig.startGateway()
        try rig.waitForSync()
      }
    }

    @Test func `a damaged database that is replaced while the gateway waits for its disk is reported`() throws {
      try onSmallDisk { rig, place in
        rig.gateway?.send(SIGTERM)
        #expect(try rig.gateway?.ended() == 0)
        _ = try Self.run("dd", "if=/dev/zero", "of=\(place)/filler", "bs=1k")
        // In place: that needs no room.
        let database = try FileHandle(forUpdating: URL(filePath: "\(place)/gw.db"))
        database.write(Data(repeating: 0x55, count: 4096))
        try database.close()
        try startInVain(rig)
        unlink("\(place)/filler")
        try rig.gateway?.line(with: "the disk takes writes: starting")
        try rig.gateway?.line(with: ", and a new one begun")
        try untilAlert(rig)
      }
    }

    @Test func `a restoration for which the disk has too little room says so, and leaves the database as it was`()
      throws
    {
      try onSmallDisk { rig, place in
        let backup = rig.scratch.location("backup")
        #expect(try rig.meshpost("backup", backup).code == 0)
        rig.gateway?.send(SIGTERM)
        #expect(try rig.gateway?.ended() == 0)
        // A part of the first write has room.
        _ = try Self.run("dd", "if=/dev/zero", "of=\(place)/filler", "bs=1k")
        #expect(try Self.run("truncate", "-s", "-8K", "\(place)/filler"))
        let restore = try Program.own("meshpostd", ["--config", rig.scratch.location("gw.toml"), "--restore", backup])
        #expect(try restore.ended() == 73)
        #expect(restore.lines.joined().contains("No space left on device"), "\(restore.lines)")
        unlink("\(place)/filler")
        let names = try FileManager.default.contentsOfDirectory(atPath: place)
        #expect(!names.contains { $0.contains("restoring") || $0.contains("replaced") }, "\(names)")
        try rig.startGateway()
        try rig.waitForSync()
      }
    }

    private func gatewayWithMessage() throws -> Rig {
      let rig = try Rig()
      try rig.startRadio()
      rig.writeGatewayConfiguration()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 before it went")
      try untilTrue("a message") { try rig.status()?["store"]?["messages"]?.integer == 1 }
      return rig
    }

    /// The gateway has its message again.
    private func restore(_ rig: Rig, from saved: String) throws {
      let restore = try Program.own("meshpostd", ["--config", rig.scratch.location("gw.toml"), "--restore", saved])
      #expect(try restore.ended() == 0, "\(restore.lines)")
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try rig.meshpost("messages").lines.contains { $0.contains("before it went") })
    }

    @Test func `a backup that is named through a link is restored with its log`() throws {
      let rig = try gatewayWithMessage()
      rig.gateway?.send(SIGKILL)
      _ = try rig.gateway?.ended()
      rig.scratch.makeFolder("kept")
      for suffix in ["", "-wal"] {
        try FileManager.default.copyItem(
          atPath: rig.scratch.location("gw.db") + suffix, toPath: rig.scratch.location("kept/gw.db") + suffix)
      }
      #expect(symlink("kept/gw.db", rig.scratch.location("link")) == 0)
      try restore(rig, from: rig.scratch.location("link"))
    }

    @Test func `a database that is removed while the gateway runs is reported, and can still be saved`() throws {
      let rig = try gatewayWithMessage()
      #expect(try !rig.meshpost("alerts", "--open", "--json").lines.joined().contains("store_lost"))
      for suffix in ["", "-wal"] { unlink(rig.scratch.location("gw.db") + suffix) }
      // It checks at intervals, and at a reload.
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "alert: the database file was removed or replaced")
      try untilAlert(rig)
      let backup = rig.scratch.location("saved")
      #expect(try rig.meshpost("backup", backup).code == 0)
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      try restore(rig, from: backup)
    }

    @Test func `a removed database is saved when the gateway stops, and reported as missing at the next start`() throws
    {
      let rig = try gatewayWithMessage()
      for suffix in ["", "-wal"] { unlink(rig.scratch.location("gw.db") + suffix) }
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      try rig.gateway?.line(with: "was saved as ")
      let names = try FileManager.default.contentsOfDirectory(atPath: rig.scratch.location(""))
      let saved = rig.scratch.location(try #require(names.first { $0.hasPrefix("gw.db.lost-") }))
      try rig.startGateway()
      try rig.gateway?.line(with: "error: the database was gone, and a new one begun: there had been ")
      try untilAlert(rig)
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      try restore(rig, from: saved)
    }

    @Test func `a database that is damaged in use is reported, also if only a read meets the damage`() throws {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "300"])
      rig.writeGatewayConfiguration()
      try rig.startGateway()
      try rig.waitForSync()
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      try rig.startGateway()
      try rig.waitForSync()
      let file = try FileHandle(forUpdating: URL(filePath: rig.scratch.location("gw.db")))
      let pages = Int(try file.seekToEnd()) / 1024
      for page in 12..<pages {
        try file.seek(toOffset: UInt64(page * 1024))
        file.write(Data(repeating: 0x5A, count: 1024))
      }
      _ = try rig.meshpost("contacts")
      _ = try rig.meshpost("journal", "--limit", "1000")
      try rig.gateway?.line(with: "the database is damaged: saved as ")
      try rig.gateway?.line(with: "alert: the database was damaged")
      try untilAlert(rig)
    }
  }
}

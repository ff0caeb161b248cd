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

    @Test(arguments: ["full", "read-only"])
    func `a gateway that starts on a full disk waits, reports it, and continues when there is room`(_ how: String)
      throws
    {
      let rig = try Rig()
      let place = rig.scratch.location("small")
      try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
      guard try Self.run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place) else { return }
      defer { _ = try? Self.run("umount", "-l", place) }
      try rig.startHub()
      try rig.startRadio()
      rig.writeGatewayConfiguration()
      let file = rig.scratch.location("gw.toml")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      _ = rig.scratch.write(
        "gw.toml", text.replacingOccurrences(of: rig.scratch.location("gw.db"), with: "\(place)/gw.db"))
      try rig.startGateway()
      try rig.waitForSync()
      // The start has to move these from the log into the database, which grows by more than the rest of its last page.
      rig.radio?.write("inject r0 50 80")
      try untilTrue("messages in the log") { try rig.status()?["store"]?["messages"]?.integer == 80 }
      rig.gateway?.kill9()
      let filler = "\(place)/filler"
      if how == "full" {
        _ = try Self.run("dd", "if=/dev/zero", "of=\(filler)", "bs=1k")
      } else {
        #expect(try Self.run("mount", "-o", "remount,ro", place))
      }
      rig.radio?.write("dm r1 r0 while the disk takes nothing")
      rig.gateway = try Program.own("meshpostd", ["--config", file])
      try rig.gateway?.line(with: "the gateway cannot start: ")
      let status = try rig.meshpost("status")
      #expect(status.code == 69, "\(status)")
      #expect(status.lines.joined().contains("the gateway waits for its disk: "), "\(status)")
      if how == "full" { unlink(filler) } else { #expect(try Self.run("mount", "-o", "remount,rw", place)) }
      try rig.gateway?.line(with: "the disk takes writes: starting")
      try rig.waitForSync()
      try untilTrue("the message, which the radio has kept: \(rig.gateway?.lines ?? [])") {
        try rig.status()?["store"]?["messages"]?.integer == 81
      }
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
    }

    @Test func `a damaged database that is replaced while the gateway waits for its disk is reported`() throws {
      let rig = try Rig()
      let place = rig.scratch.location("small")
      try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
      guard try Self.run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", place) else { return }
      defer { _ = try? Self.run("umount", "-l", place) }  // `try?`: the folder of the test goes anyway
      try rig.startRadio()
      rig.writeGatewayConfiguration()
      let file = rig.scratch.location("gw.toml")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      _ = rig.scratch.write(
        "gw.toml", text.replacingOccurrences(of: rig.scratch.location("gw.db"), with: "\(place)/gw.db"))
      try rig.startGateway()
      try rig.waitForSync()
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      _ = try Self.run("dd", "if=/dev/zero", "of=\(place)/filler", "bs=1k")
      // In place: that needs no room.
      let database = try FileHandle(forUpdating: URL(filePath: "\(place)/gw.db"))
      database.write(Data(repeating: 0x55, count: 4096))
      try database.close()
      rig.gateway = try Program.own("meshpostd", ["--config", file])
      try rig.gateway?.line(with: "the gateway cannot start: ")
      unlink("\(place)/filler")
      try rig.gateway?.line(with: "the disk takes writes: starting")
      try rig.gateway?.line(with: ", and a new one begun")
      try untilTrue("the alert") {
        try rig.meshpost("alerts", "--open", "--json").lines.joined().contains("store_lost")
      }
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
    }

    @Test func `a database that is removed while the gateway runs is reported, and can still be saved`() throws {
      let rig = try Rig()
      try rig.startRadio()
      rig.writeGatewayConfiguration()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 before it went")
      try untilTrue("a message") { try rig.status()?["store"]?["messages"]?.integer == 1 }
      #expect(try !rig.meshpost("alerts", "--open", "--json").lines.joined().contains("store_lost"))
      for suffix in ["", "-wal"] { unlink(rig.scratch.location("gw.db") + suffix) }
      // It checks at intervals, and at a reload.
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "alert: the database file was removed or replaced")
      try untilTrue("the alert") {
        try rig.meshpost("alerts", "--open", "--json").lines.joined().contains("store_lost")
      }
      let backup = rig.scratch.location("saved")
      #expect(try rig.meshpost("backup", backup).code == 0)
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      let restore = try Program.own("meshpostd", ["--config", rig.scratch.location("gw.toml"), "--restore", backup])
      #expect(try restore.ended() == 0, "\(restore.lines)")
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try rig.meshpost("messages").lines.contains { $0.contains("before it went") })
    }

    @Test func `a removed database is saved when the gateway stops, and reported as missing at the next start`() throws
    {
      let rig = try Rig()
      try rig.startRadio()
      rig.writeGatewayConfiguration()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 before it went")
      try untilTrue("a message") { try rig.status()?["store"]?["messages"]?.integer == 1 }
      for suffix in ["", "-wal"] { unlink(rig.scratch.location("gw.db") + suffix) }
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      try rig.gateway?.line(with: "was saved as ")
      let names = try FileManager.default.contentsOfDirectory(atPath: rig.scratch.location(""))
      let saved = rig.scratch.location(try #require(names.first { $0.hasPrefix("gw.db.lost-") }))
      try rig.startGateway()
      try rig.gateway?.line(with: "error: the database was gone, and a new one begun: there had been ")
      try untilTrue("the alert") {
        try rig.meshpost("alerts", "--open", "--json").lines.joined().contains("store_lost")
      }
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      let restore = try Program.own("meshpostd", ["--config", rig.scratch.location("gw.toml"), "--restore", saved])
      #expect(try restore.ended() == 0, "\(restore.lines)")
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try rig.meshpost("messages").lines.contains { $0.contains("before it went") })
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
      try untilTrue("the alert") {
        try rig.meshpost("alerts", "--open", "--json").lines.joined().contains("store_lost")
      }
    }
  }
}

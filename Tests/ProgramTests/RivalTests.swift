// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Other programs that use the gateway's resources: the radio, the database.
  @Suite struct Rivals {
    @Test func `a program that has the database open is named, and the start can be repeated`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      let script = """
        import sqlite3, sys
        d = sqlite3.connect(sys.argv[1], isolation_level=None)
        d.execute('begin'); d.execute('select count(*) from contacts').fetchone()
        print('reading', flush=True); sys.stdin.readline()
        """
      let reader = try Program(
        "/usr/bin/env", ["python3", "-c", script, rig.scratch.location("gw.db")])
      try reader.line(with: "reading")
      let gateway = try Program.own("meshpostd", ["--config", rig.scratch.location("gw.toml")])
      #expect(try gateway.ended() == EX_TEMPFAIL)
      let said = gateway.lines.joined(separator: "\n")
      #expect(said.contains("open in another program: python3 (process "), "\(said)")
      #expect(!said.contains("bug"))
      reader.write("")
      #expect(try reader.ended() == 0)
      try rig.startGateway()
      try rig.waitForSync()
    }

    @Test func `each outcome of a message is explained with what to do`() throws {
      let rig = try Rig()
      try rig.startRadio()
      rig.writeGatewayConfiguration(extra: "[messaging]\nattempts = 1")
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("loss 1")
      let lost = try rig.meshpost("send", "r1", "lost", "--wait")
      #expect(lost.code == 75 && lost.lines.last?.contains("meshpost radio advert --flood") == true, "\(lost.lines)")
      let list = try rig.meshpost("sent")
      #expect(list.lines.last?.hasPrefix("no_acknowledgement: ") == true, "\(list.lines)")
      let found = try rig.meshpost("contact", "path", "r1", "--discover")
      #expect(found.code == 69 && found.lines.joined().contains("allows telemetry requests"), "\(found.lines)")
      let rows = try rig.meshpost("sent", "--json").lines
      #expect(try rows.allSatisfy { try JSONValue(parsing: $0)["id"] != nil }, "JSON and nothing else: \(rows)")
    }
  }
}

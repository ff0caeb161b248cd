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
  }
}

// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Mistakes in the configuration show at a start that no operator attends.
  @Suite struct RefusedConfigurations {
    @Test func `a configuration that never worked, or another file's, is not used as a fallback`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      rig.gateway?.kill9()
      let text = try String(contentsOfFile: rig.scratch.location("gw.toml"), encoding: .utf8)
      let other = rig.scratch.write("other.toml", "[gateway]\nid = \"Hill top\"\n" + text)
      let program = try Program.own("meshpostd", ["--config", other])
      #expect(try program.ended() == 78)
      // Commands that read the file itself report on the file itself.
      _ = rig.scratch.write("gw.toml", "[gateway]\nid = \"Hill top\"\n" + text)
      let check = try Program.own("meshpostd", ["--check", "--config", rig.scratch.location("gw.toml")])
      #expect(try check.ended() == 78)
      let blank = try Program.own("meshpostd", ["--check", "--config", rig.scratch.write("blank.toml", "# later\n")])
      #expect(try blank.ended() == 0 && blank.lines.contains { $0.contains("it has no setting") }, "\(blank.lines)")
    }

    @Test func `the check of a configuration also says what is wrong with its database, and changes nothing`() throws {
      let rig = try Rig()
      rig.writeGatewayConfiguration()
      let database = rig.scratch.write("gw.db", String(repeating: "no database ", count: 500))
      func check() throws -> [String] {
        let check = try Program.own("meshpostd", ["--check", "--config", rig.scratch.location("gw.toml")])
        #expect(try check.ended() == 0, "the configuration is valid: \(check.lines)")
        return check.lines
      }
      let before = try FileManager.default.contentsOfDirectory(atPath: rig.scratch.folder.path()).sorted()
      let lines = try check()
      #expect(lines.contains { $0.contains("store.location: the store is damaged") }, "\(lines)")
      #expect(try FileManager.default.contentsOfDirectory(atPath: rig.scratch.folder.path()).sorted() == before)
      try FileManager.default.removeItem(atPath: database)
      #expect(try !check().contains { $0.contains("store.location") }, "there is none yet")
    }
  }
}

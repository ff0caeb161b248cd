// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Regions of channels and of the radio, as commands set them.
  @Suite struct Regions {
    @Test func `a link's region is kept with the channel, and a backup restores regions`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      let link = "meshcore://channel/add?name=Hill&secret=000102030405060708090a0b0c0d0e0f&region_scope=ottawa"
      let joined = try rig.meshpost("channel", "add", link)
      #expect(joined.code == 0 && joined.lines.joined().contains("the region ottawa"), "\(joined.lines)")
      func region(_ channel: String) throws -> String? {
        try rig.meshpost("channels", "--json").lines.map { try JSONValue(parsing: $0) }
          .first { $0["name"]?.string == channel }?["region"]?.string
      }
      #expect(try region("Hill") == "ottawa")
      #expect(try rig.meshpost("channel", "add", link + "%20x").code == 64, "that is no region's name")
      let club = try rig.meshpost("channel", "add", "Club", "--new", "--region", "*", "--json")
      let answer = try JSONValue(parsing: try #require(club.lines.last))
      #expect(club.lines.count == 1 && answer["link"]?.string?.hasSuffix("&region_scope=%2A") == true, "\(club.lines)")
      #expect(try region("Club") == "*")

      let key = "0f0e0d0c0b0a09080706050403020100"
      #expect(try rig.meshpost("radio", "set", "flood-scope=$ours").code == 64, "its key does not follow from its name")
      #expect(try rig.meshpost("radio", "set", "flood-scope-key=\(key)").code == 64, "of which region?")
      #expect(try rig.meshpost("radio", "set", "flood-scope=$ours", "flood-scope-key=\(key)").code == 0)
      #expect(try rig.meshpost("radio", "info").lines.joined().contains(key) == false)
      let file = rig.scratch.location("radio.backup")
      #expect(try rig.meshpost("radio", "backup", file).code == 0)
      #expect(try String(contentsOfFile: file, encoding: .utf8).contains(key))
      #expect(try rig.meshpost("radio", "set", "flood-scope=none").code == 0)
      for channel in ["Hill", "Club"] { #expect(try rig.meshpost("channel", "remove", channel).code == 0) }
      #expect(try rig.meshpost("channel", "add", "Hill", "--secret", "000102030405060708090a0b0c0d0e0f").code == 0)
      #expect(try region("Hill") == nil, "leaving a channel removes its region, too")
      #expect(try rig.meshpost("radio", "restore", file, "--yes").code == 0)
      #expect(try region("Hill") == "ottawa" && region("Club") == "*")
      let info = try rig.meshpost("radio", "info").lines
      #expect(info.contains { $0.hasPrefix("flood-scope ") && $0.hasSuffix("$ours") }, "\(info)")
    }
  }
}

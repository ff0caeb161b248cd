// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Meshes whose repeaters pass on what is sent to a region, and nothing else.
  @Suite struct Regions {
    private func rig() throws -> Rig {
      let rig = try Rig()
      try rig.startRadio(
        ["--repeaters", "1", "--regions", "ottawa,gatineau", "--far", "--tcp", "r1=0"], isKnown: false)
      try rig.startGateway()
      try rig.waitForSync()
      return rig
    }

    /// How many messages have reached r1, which hears us by the repeater alone.
    private func reached(_ rig: Rig) throws -> Int64 {
      let before = rig.radio?.lines.count ?? 0
      rig.radio?.write("stats r1")
      let line = try rig.radio?.line(with: "\"stats\":\"r1\"", from: before) ?? "{}"
      return try JSONValue(parsing: line)["queued"]?.integer ?? -1
    }

    @Test func `what goes to a region gets past repeaters that refuse what goes to none`() throws {
      let rig = try rig()
      func say(_ text: String, to channel: String = "Public") throws {
        #expect(try rig.meshpost("send", channel, text, "--wait").code == 0)
      }
      try say("nobody hears this")
      let set = try rig.meshpost("radio", "set", "flood-scope=#ottawa")
      #expect(set.code == 0 && set.lines.contains { $0.hasPrefix("flood-scope ") && $0.hasSuffix(" ottawa") }, "\(set)")
      try say("by the radio's default")
      try untilTrue("it to pass") { try reached(rig) == 1 }
      #expect(try rig.meshpost("radio", "set", "flood-scope=none").code == 0)

      #expect(
        try rig.meshpost("channel", "region", "Public", "gatineau").lines
          == ["messages to Public go to the region gatineau"])
      try say("by the channel's")
      try untilTrue("it to pass") { try reached(rig) == 2 }
      #expect(try rig.meshpost("channel", "region", "Public", "default").code == 0)
      try say("the one before is not in force any more")
      #expect(try rig.meshpost("channel", "region", "Public", "ottawa").code == 0)
      try say("the last")
      try untilTrue("it to pass") { try reached(rig) == 3 }
      try untilTrue("three repeats") {
        try rig.meshpost("sent").lines.count { $0.contains("heard 1 repeats") } == 3
      }
      #expect(try reached(rig) == 3, "of five")
    }

    @Test func `firmware that cannot send to a region sends nothing, and the message says why it failed`() throws {
      let rig = try Rig()
      try rig.startRadio(["--no-regions", "--tcp", "r1=0"], isKnown: false)
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try rig.meshpost("channel", "region", "Public", "ottawa").code == 0)
      let sent = try rig.meshpost("send", "Public", "for ottawa alone", "--wait")
      #expect(sent.code == 76 && sent.lines.joined().contains("region_unknown"), "\(sent)")
      #expect(try rig.meshpost("channel", "region", "Public", "default").code == 0)
      #expect(try rig.meshpost("send", "Public", "for all", "--wait").code == 0)
      try untilTrue("it to come") { try reached(rig) == 1 }
      #expect(try reached(rig) == 1, "of two")
    }

    @Test func `a link's region is kept with the channel, and a backup brings regions back`() throws {
      let rig = try rig()
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
      #expect(try region("Hill") == nil, "who leaves a channel leaves its region, too")
      #expect(try rig.meshpost("radio", "restore", file, "--yes").code == 0)
      #expect(try region("Hill") == "ottawa" && region("Club") == "*")
      let info = try rig.meshpost("radio", "info").lines
      #expect(info.contains { $0.hasPrefix("flood-scope ") && $0.hasSuffix("$ours") }, "\(info)")
    }
  }
}

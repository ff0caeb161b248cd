// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// A gateway that is started where nothing can be written.
  @Suite struct FullDisks {
    private static func run(_ arguments: String...) throws -> Bool {
      try Program("/usr/bin/env", arguments).ended() == 0
    }

    @Test(arguments: ["full", "read-only"])
    func `a start on a disk that takes nothing waits, says so, and goes on when it does`(_ how: String) throws {
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
        try rig.status()?["store"]?["messages"]?.integer == 1
      }
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
    }
  }
}

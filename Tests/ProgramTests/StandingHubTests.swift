// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  @Suite struct StandingHub {
    @Test func `a hub that takes some events and then only answers pings is given up and tried again`() throws {
      let rig = try Rig()
      let hub = try Program(
        "/usr/bin/python3",
        [Checkout.folder.appending(path: "Tests/Doubles/pinghub.py").path(), rig.scratch.location("port"), "2"])
      try hub.line(with: "listening")
      let port = try String(contentsOfFile: rig.scratch.location("port"), encoding: .utf8)
      rig.writeGatewayConfiguration(url: "http://127.0.0.1:\(port)", extra: "timeout_s = 5")
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      for number in 0..<6 {
        rig.radio?.write("chan r1 0 number \(number)")
        try untilTrue("message \(number)") { try rig.status()?["store"]?["messages"]?.integer == Int64(number + 1) }
      }
      try rig.gateway?.line(with: "no answer in time")
      try untilTrue("its state to say so: \(try rig.status() ?? .null)") {
        let upstream = try rig.status()?["upstreams"]?.array?.first
        return upstream?["state"]?.string == "waiting"
          && upstream?["reason"]?.string?.contains("no answer in time") == true
          && upstream?["pending"]?.integer ?? 0 > 0
      }
    }
  }
}

// SPDX-License-Identifier: MIT

import Foundation
import JSON
import Testing

extension WholeProgramTests {
  @Suite struct Outages {
    @Test func `a hub that was away for 10,000 events gets all of them, and memory stays constant`() throws {
      let rig = try Rig()
      try rig.startRadio(["--queue", "20000"])
      try rig.startGateway()
      try rig.waitForSync()
      let before = try rig.resident()
      rig.radio?.write("inject r0 0 10000")
      try untilTrue("10,000 messages in the store") {
        try rig.status()?["store"]?["messages"]?.integer == 10_000
      }
      let during = try rig.resident()
      try rig.startHub()
      _ = rig.control("POST", "/v1/outbox/resume")
      try untilTrue("everything at the hub") {
        try rig.status()?["upstreams"]?.array?.first?["pending"]?.integer == 0
      }
      let after = try rig.resident()
      #expect(Set(try rig.hubTexts()).count == 10_000)
      print("hub away for 10,000 events: resident \(before) KiB before, \(during) while away, \(after) after")
      #expect(max(during, after) - before < 6 * 1024, "KiB")
    }
  }
}

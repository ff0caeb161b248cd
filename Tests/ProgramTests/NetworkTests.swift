// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

extension WholeProgramTests {
  /// The test's own network, which it can take down. Needs the right to make one (root, also in containers).
  @Suite struct Networks {
    @Test(.enabled("a network namespace cannot be made here") { OwnNetwork.isPossible() })
    func `the loss of the network and its return are noticed at once`() throws {
      let rig = try Rig()
      rig.writeGatewayConfiguration()
      let script = """
        ip link set lo up
        sleep 600 | "$1/meshpost-radio" --clock now --tty r0=\(rig.scratch.location("radio.tty")) >/dev/null 2>&1 &
        "$1/meshpost-hub" serve --config \(rig.scratch.location("hub.toml")) >/dev/null 2>&1 &
        "$1/meshpostd" --config \(rig.scratch.location("gw.toml")) &
        while read -r way; do ip link set lo "$way"; done
        """
      let all = try OwnNetwork.program(script, [Program.programs.path()])
      try untilTrue("the link: \(all.lines)") {
        try rig.status()?["upstreams"]?.array?.first?["link"]?.string == "live"
      }
      // The next ping would be due in five minutes.
      all.write("down")
      try all.line(with: "no answer to a ping")
      all.write("up")
      try all.line(with: "connected again")
      try untilTrue("the link to be back") {
        try rig.status()?["upstreams"]?.array?.first?["link"]?.string == "live"
      }
    }
  }
}

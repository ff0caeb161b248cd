// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
import Testing

/// The packages in an emulated Debian machine, with systemd as init: hardware/machine. It takes long and mostly waits, so it runs at the same time as
/// the others.
@Suite struct MachineTests {
  private static let isReady = FileManager.default.fileExists(
    atPath: Checkout.folder.appending(path: ".build/machine/disk.img").path())

  /// Some power cuts and kills; twenty and more are for `hardware/machine/exercise.py` by hand.
  @Test(
    .enabled(if: isReady, "hardware/machine/setup could not prepare the emulated machine here"),
    .timeLimit(.minutes(30)))
  func `a gateway that was installed unattended survives reboots, kills, hangs, other ports and power cuts`()
    async throws
  {
    let run = try Program(
      Checkout.folder.appending(path: "hardware/machine/exercise.py").path(),
      [
        "--programs", Program.programs.path(), "--cuts", "2", "--kills", "5", "--moments", "60", "--seed",
        "20261121",
        "setup", "security", "kills", "watchdog", "usb", "cuts", "moments",
      ])
    let code = await run.ends()
    print(run.lines.joined(separator: "\n"))
    #expect(code == 0)
  }
}

// SPDX-License-Identifier: MIT

import Testing
import Timing

@Suite struct PowerLevelTests {
  /// Readings and the report of each: `-` none, `L` it became low, `O` it is well again.
  @Test(
    arguments: [
      ([3500, 3300, 3300, 3200, 3450, 3500, 3600], "--L--O-"), ([3300, 3500, 3300, 3500], "----"),
      ([0, 0, 3300, 0, 3300], "----L"),
      ([3300, 3300, 3499, 3300, 3500], "-L--O"),
    ] as [([UInt16], String)])
  func `a battery is low after two low readings, and well again a tenth of a volt above the limit`(
    _ readings: [UInt16], _ said: String
  ) {
    var level = BatteryLevel(limit: 3400)
    let heard = readings.map { level.read($0) ? (level.isLow ? "L" : "O") : "-" }
    #expect(heard.joined() == said)
  }

  @Test func `limits at the ends of the range do not trap`() {
    var off = BatteryLevel(limit: 0)
    #expect(!off.read(1) && !off.read(1))
    var high = BatteryLevel(limit: .max)
    #expect(!high.read(4000) && high.read(4000) && high.isLow)
  }
}

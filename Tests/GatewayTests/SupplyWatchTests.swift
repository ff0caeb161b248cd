// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import TestSupport
import Testing

@testable import Gateway

@Suite struct SupplyWatchTests {
  @Test func `a supply that becomes weak is noticed, and that it is right again`() {
    let (loop, scratch) = (EventLoop(), Scratch())
    scratch.makeFolder("sys/class/hwmon/hwmon2")
    _ = scratch.write("sys/class/hwmon/hwmon2/name", "rpi_volt\n")
    _ = scratch.write("sys/class/hwmon/hwmon2/in0_lcrit_alarm", "0\n")
    let watch = SupplyWatch(on: loop, root: scratch.folder.path())
    var heard: [Bool] = []
    watch.onChange = { heard.append($0) }
    #expect(watch.isLow == false)
    for state in ["0", "1", "1", "0"] {
      // In place: the kernel does not exchange its files.
      let file = scratch.location("sys/class/hwmon/hwmon2/in0_lcrit_alarm")
      try? state.write(toFile: file, atomically: false, encoding: .utf8)
      watch.look()
    }
    #expect(heard == [true, false])
  }

  @Test func `a machine that cannot tell says nothing`() {
    let watch = SupplyWatch(on: EventLoop(), root: Scratch().folder.path())
    watch.look()
    #expect(watch.isLow == nil)
  }
}

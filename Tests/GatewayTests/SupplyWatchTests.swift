// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import TestSupport
import Testing

@testable import Gateway

@Suite struct SupplyWatchTests {
  @Test func `a weak power supply and its recovery are noticed`() {
    let (loop, scratch) = (EventLoop(), Scratch())
    scratch.makeFolder("sys/class/hwmon/hwmon2")
    _ = scratch.write("sys/class/hwmon/hwmon2/name", "rpi_volt\n")
    _ = scratch.write("sys/class/hwmon/hwmon2/in0_lcrit_alarm", "0\n")
    let watch = SupplyWatch(on: loop, root: scratch.folder.path())
    var heard: [Bool] = []
    let task = loop.begin {
      // Runs until it is cancelled.
      do throws(CancellationError) {
        while let isLow = try await watch.change(from: heard.last ?? false) { heard.append(isLow) }
      } catch {}
    }
    loop.turn(wait: false)
    #expect(watch.isLow == false)
    for state in ["0", "1", "1", "0"] {
      // Changes the file in place, because the kernel does not replace its files.
      let file = scratch.location("sys/class/hwmon/hwmon2/in0_lcrit_alarm")
      try? state.write(toFile: file, atomically: false, encoding: .utf8)
      watch.look()
      loop.turn(wait: false)
    }
    task.cancel()
    loop.turn(wait: false)
    #expect(heard == [true, false])
  }

  @Test func `a machine without a voltage sensor reports nothing`() {
    let loop = EventLoop()
    let watch = SupplyWatch(on: loop, root: Scratch().folder.path())
    watch.look()
    var hasEnded = false
    _ = loop.begin {
      // `try?`: nobody cancels it.
      hasEnded = (try? await watch.change(from: false)) == .some(nil)
    }
    loop.turn(wait: false)
    #expect(watch.isLow == nil && hasEnded, "nothing waits for a change that cannot come")
  }
}

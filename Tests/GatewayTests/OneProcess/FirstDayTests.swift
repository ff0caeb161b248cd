// SPDX-License-Identifier: MIT

import Foundation
import Testing
import Timing

/// Tests the rig itself: each heard message reaches the hub once, whatever happens.
@Suite struct FirstDayTests {
  @Test func `each message that the radio hears is at the hub once, over a cut, a kill and a restart`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.air("chan r1 0 one")
    try rig.until("it at the hub") { rig.hub.texts == ["one"] }
    rig.link.cut()
    rig.air("chan r1 0 two")
    try rig.until("the second") { rig.hub.texts == ["one", "two"] }
    rig.hub.mood = .losesAnswers
    rig.air("chan r1 0 three")
    try rig.until("the third") { rig.hub.texts.count == 3 }
    rig.kill()
    rig.hub.mood = .well
    rig.air("chan r1 0 four")
    try rig.startSynced()
    try rig.until("the fourth") { rig.hub.texts.count == 4 }
    try rig.restart()
    rig.air("chan r1 0 five")
    try rig.until("the fifth") { rig.hub.texts.count == 5 }
    #expect(rig.hub.texts == ["one", "two", "three", "four", "five"])
    #expect(Set(rig.hub.events.map(\.epoch)).count == 1)
  }

  @Test func `a hub that stalls, hangs up, is late or loses its data gets everything in the end`() throws {
    let rig = try Rig(seed: 2)
    try rig.startSynced()
    var sent = 0
    for mood: ScriptedServer.Mood in [.standsStill, .hangsUp, .unreachable, .locked, .late(.seconds(20)), .well] {
      rig.hub.mood = mood
      sent += 1
      rig.air("chan r1 0 \(sent)")
      rig.pass(.seconds(90))
      rig.hub.mood = .well
      _ = try rig.ask("POST", "/v1/outbox/resume")
      try rig.until("all of it after \(mood)") { rig.hub.texts.count == sent }
    }
    rig.hub.forget()
    try rig.until("all of it again") { rig.hub.texts.count == sent }
    #expect(rig.hub.texts == (1...sent).map { "\($0)" })
  }

  @Test func `a message is stored after a full disk has room again, also if the clock steps`() throws {
    let rig = try Rig(seed: 3)
    try rig.startSynced()
    rig.isDiskFull = true
    rig.air("chan r1 0 kept")
    rig.pass(.seconds(30))
    #expect(rig.hub.texts.isEmpty)
    rig.stepClock(by: .seconds(-86_400))
    rig.isDiskFull = false
    try rig.until("it at the hub") { rig.hub.texts == ["kept"] }
  }

  @Test func `a regular end stores everything, and the next start reads only changes`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.air("dm r1 r0 before the end")
    try rig.until("it to be stored") { try rig.texts() == ["before the end"] }
    rig.end()
    #expect(!FileManager.default.fileExists(atPath: rig.location("\(rig.generation - 1)/ctl")))
    try rig.startSynced()
    #expect(try rig.texts() == ["before the end"])
    #expect(try rig.status()["sync"]?["counters"]?["incremental_contact_lists"]?.integer == 1)
  }
}

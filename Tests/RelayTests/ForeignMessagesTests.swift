// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import Relay

@Suite struct ForeignMessagesTests {
  private func at(_ seconds: Double) -> MonotonicTime { MonotonicTime(seconds: seconds) }

  @Test func `in a session of months each foreign subscription is ended by itself, without a new session`() {
    let nothing = ForeignMessages.Remedy.none
    var foreign = ForeignMessages()
    #expect(foreign.received("old/command", now: at(0)) == .unsubscribe)
    #expect(foreign.received("old/command", now: at(30)) == nothing, "it may have waited at the broker")
    let month = 30.0 * 86_400
    #expect(foreign.received("older/command", now: at(month)) == .unsubscribe)
    #expect(foreign.received("older/command", now: at(month + 59)) == nothing)
    #expect(!foreign.needsNewSession)
    #expect(foreign.received("older/command", now: at(month + 61)) == .newSession)
  }

  @Test func `a topic that comes again after its end, and ever new topics, need a new session`() {
    var again = ForeignMessages()
    #expect(again.received("a", now: at(0)) == .unsubscribe)
    #expect(again.received("a", now: at(86_400)) == .newSession)
    var ever = ForeignMessages()
    for day in 0..<8 { #expect(ever.received("\(day)", now: at(Double(day) * 86_400)) == .unsubscribe) }
    #expect(ever.received("8", now: at(8 * 86_400)) == .newSession)
    let long = String(repeating: "x", count: 300)
    var unnamed = ForeignMessages()
    #expect(unnamed.received(long, now: at(0)) == ForeignMessages.Remedy.none, "it is too long to be unsubscribed from")
    #expect(unnamed.received(long, now: at(86_400)) == .newSession)
  }
}

// SPDX-License-Identifier: MIT

import Companion
import JSON
import MeshCrypto
import Testing
import Timing

/// Kills the gateway at each step of a send, which the radio knows.
@Suite struct SendCrashTests {
  enum Step: String, CaseIterable, CustomTestStringConvertible {
    case handed = "the radio has the command, nothing is on the air"
    case beforeSent = "on the air, before SENT; its ack is lost"
    case beforeSentAckLater = "on the air, before SENT; its ack comes after the restart"
    case afterSent = "after SENT; its ack is lost"
    case afterSentAckLater = "after SENT; its ack comes after the restart"
    case withAck = "as the ack comes"
    case secondAttempt = "at the second attempt, before SENT"
    case delivered = "after it was delivered"
    case held = "while it waits for its recipient"
    case heldAckLater = "while it waits for its recipient; an ack comes after the restart"
    case failed = "after it had failed"
    case failedAckLater = "after it had failed; an ack comes after the restart"
    case accepted = "as it was taken in; the sender repeats it"

    var testDescription: String { rawValue }
    var isAckLater: Bool { [.beforeSentAckLater, .afterSentAckLater, .heldAckLater, .failedAckLater].contains(self) }
    var end: String { self == .failed ? "failed" : "delivered" }

    /// How often the message may be transmitted in all.
    var transmissions: ClosedRange<Int> {
      switch self {
      case .beforeSentAckLater, .afterSentAckLater, .delivered, .handed: 1...1
      case .beforeSent, .afterSent, .heldAckLater: 2...2
      // Two floods, and two after 15 s.
      case .failed, .failedAckLater: 4...4
      case .withAck, .accepted: 1...2
      case .secondAttempt, .held: 3...3
      }
    }
  }

  @Test(arguments: Step.allCases) func `a send that is killed at any step ends in the right state`(_ step: Step) throws
  {
    let rig = try Rig()
    var sent: [OutgoingText] = []
    func listen() { rig.link.onCommand = { if case .sendText(let text) = $0 { sent.append(text) } } }
    try rig.startSynced()
    listen()
    // The message floods, as to a new recipient.
    #expect(try rig.post("/v1/contacts/path", #"{"contact":"r1","reset":true}"#).status == 200)
    func send(_ more: String = "") throws { #expect(try rig.send("r1", "hello", id: "one", more) == 202) }

    switch step {
    case .handed:
      rig.link.swallows = { if case .sendText = $0 { true } else { false } }
      try send()
      try rig.until("the command") { !sent.isEmpty }
      sent = []
    case .beforeSent, .beforeSentAckLater, .secondAttempt:
      rig.air("loss 1")
      try send()
      if step == .secondAttempt { try rig.until("SENT") { try rig.outgoing("one")?["state"]?.string == "sent" } }
      let count = sent.count
      rig.link.losesReply = { if case .sent = $0 { true } else { false } }
      try rig.until("the command") { sent.count > count || step != .secondAttempt && count == 1 }
    case .afterSent, .afterSentAckLater:
      rig.air("loss 1")
      try send()
      try rig.until("one", is: "sent")
    case .withAck:
      try send()
      try rig.until("SENT") { try rig.outgoing("one")?["state"]?.string == "sent" }
      rig.link.isHeldUp = true
      rig.pass(.seconds(2))
      rig.link.isHeldUp = false
      rig.loop.turn(wait: false)
    case .delivered:
      try send()
      try rig.until("one", is: "delivered")
    case .held, .heldAckLater:
      rig.air("loss 1")
      try send()
      try rig.until("one", is: "held_for_recipient")
    case .failed, .failedAckLater:
      rig.air("loss 1")
      try send(#","expires_s":60"#)
      try rig.until("one", is: "failed")
    case .accepted: try send()
    }
    rig.kill()
    if step != .failed, step != .failedAckLater { rig.air("loss 0") }
    listen()
    try rig.startSynced()
    if step == .accepted { try send() }
    if step.isAckLater {
      let text = try #require(sent.last)
      let code = AckCode.expected(time: text.time, attempt: text.attempt, text: text.text, sender: rig.radio.key)
      rig.link.say(SerialFraming.wrap(Push.sendConfirmed(ack: code, tripTime: 321).encode(), .fromRadio))
    }
    try rig.until("one", is: step.end)
    rig.pass(.seconds(600))
    #expect(try rig.outgoing("one")?["state"]?.string == step.end)

    #expect(step.transmissions.contains(sent.count), "\(sent)")
    #expect(Set(sent.map(\.attempt)).count == sent.count, "an attempt's number is used once")
    // The recipient's client recognises the message by time and text.
    #expect(Set(sent.map { "\($0.time) \($0.text.string)" }).count == 1, "\(sent)")
    // The journal has each state, and ends with the final one.
    let states = try rig.rows("/v1/journal?limit=1000").filter { $0["kind"]?.string == "outgoing" }
      .compactMap { $0["body"]?["state"]?.string }
    #expect(states.first == "pending" && states.last == step.end, "\(states)")
    #expect(states.count { $0 == "delivered" } <= 1, "\(states)")
  }
}

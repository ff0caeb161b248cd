// SPDX-License-Identifier: MIT

import Companion
import Foundation
import Glibc
import HTTP
import JSON
import Synchronization
import Testing

extension WholeProgramTests {
  /// The gateway is killed at each step of a send, which the radio knows.
  @Suite struct SendCrashes {
    private enum Step: String, CaseIterable {
      case handed = "the radio has the command, nothing is on the air"
      case beforeSent = "on the air, before SENT; its ack is lost"
      case beforeSentAckLater = "on the air, before SENT; its ack comes after the restart"
      case afterSent = "after SENT; its ack is lost"
      case afterSentAckLater = "after SENT; its ack comes after the restart"
      case withAck = "as the ack comes"
      case secondAttempt = "at the second attempt, before SENT"
      case delivered = "after it was delivered"
      case failed = "after it had failed"
      case failedAckLater = "after it had failed; an ack comes after the restart"
      case accepted = "as it was taken in; the sender repeats it"

      var isAckLater: Bool { self == .beforeSentAckLater || self == .afterSentAckLater || self == .failedAckLater }
      var neverAcknowledges: Bool { self == .failed || self == .failedAckLater }
      var end: String { self == .failed ? "failed" : "delivered" }

      /// How often it may be on the air, all told.
      var transmissions: ClosedRange<Int> {
        switch self {
        case .beforeSentAckLater, .afterSentAckLater, .delivered, .handed: 1...1
        case .beforeSent, .afterSent: 2...2
        case .withAck, .accepted: 1...2
        case .secondAttempt: 3...3
        case .failed, .failedAckLater: 2...2
        }
      }
    }

    private final class Script: Sendable {
      struct State {
        var gateway: Int32 = 0
        var isArmed = true
        var withheld: OutgoingText?
      }

      let step: Step
      let state = Mutex(State())

      init(_ step: Step) { self.step = step }

      private func kill() { state.withLock { _ = Glibc.kill($0.gateway, SIGKILL) } }

      func play(_ radio: ScriptedRadio, _ text: OutgoingText) {
        let isFirst = state.withLock { state in
          defer { if step != .secondAttempt || text.attempt > 0 { state.isArmed = false } }
          return state.isArmed
        }
        guard isFirst, step != .delivered, step != .accepted else { return playOn(radio, text) }
        state.withLock { $0.withheld = text }
        switch step {
        case .handed: kill()
        case .beforeSent, .beforeSentAckLater:
          radio.transmit(text)
          kill()
        case .afterSent, .afterSentAckLater:
          radio.transmit(text)
          radio.sayTaken(text)
          kill()
        case .withAck:
          radio.transmit(text)
          radio.sayTaken(text)
          radio.acknowledge(text)
          kill()
        case .secondAttempt:
          radio.transmit(text)
          // Of the second SENT is not said whether it came before the kill: by it a flood more is used up, the last one.
          if text.attempt > 0 { kill() } else { radio.sayTaken(text) }
        case .failed, .failedAckLater, .delivered, .accepted: playOn(radio, text)
        }
      }

      private func playOn(_ radio: ScriptedRadio, _ text: OutgoingText) {
        radio.transmit(text)
        radio.sayTaken(text)
        if !step.neverAcknowledges { radio.acknowledge(text) }
      }
    }

    @Test func `killed at each step of a send, the state ends right`() throws {
      let results = Mutex<[Step: Result<String, any Error>]>([:])
      for step in Step.allCases {
        // A thread each: they mostly wait.
        Thread.detachNewThread {
          let result = Result { try Self.run(step) }
          results.withLock { $0[step] = result }
        }
      }
      // Longer than any wait within a step: what did not come is said by the step.
      _ = try until("all steps to end") {
        results.withLock { $0.count == Step.allCases.count } ? true : nil
      }
      print("killed                                                      ends       attempts on the air")
      for step in Step.allCases {
        if let line = try results.withLock({ try $0[step]?.get() }) { print(line) }
      }
    }

    private static func run(_ step: Step) throws -> String {
      let script = Script(step)
      let radio = try ScriptedRadio { radio, text in script.play(radio, text) }
      let rig = try Rig()
      rig.link = "tcp:127.0.0.1:\(radio.port)"
      rig.writeGatewayConfiguration()
      try rig.startGateway()
      try rig.waitForSync()
      script.state.withLock { $0.gateway = rig.gateway?.processID ?? 0 }
      send(rig)
      switch step {
      case .accepted: rig.gateway?.kill9()
      case .delivered, .failed, .failedAckLater:
        try wait(rig, for: step == .delivered ? "delivered" : "failed")
        rig.gateway?.kill9()
      default: _ = try rig.gateway?.ended()
      }
      try rig.startGateway()
      try rig.waitForSync()
      if step == .accepted { send(rig) }
      if step.isAckLater, let text = script.state.withLock({ $0.withheld }) ?? last(radio) { radio.acknowledge(text) }
      try wait(rig, for: step.end)
      return try check(step, radio, rig)
    }

    /// The last attempt, as the radio had it.
    private static func last(_ radio: ScriptedRadio) -> OutgoingText? {
      radio.transmissions.last.map {
        OutgoingText(
          attempt: $0.attempt, time: $0.time, recipient: ScriptedRadio.friend.prefix, text: Text($0.text))
      }
    }

    private static func send(_ rig: Rig) {
      let body = Array(#"{"to":"friend","text":"hello","id":"one"}"#.utf8)
      _ = Rig.ask(.unix(location: rig.socket), HTTPRequest("POST", "/v1/send", body: body))
    }

    private static func wait(_ rig: Rig, for state: String) throws {
      try untilTrue("the message to be \(state): \(rig.control("GET", "/v1/outgoing?id=one")?.body.count ?? 0)") {
        guard let answer = rig.control("GET", "/v1/outgoing?id=one"), answer.status == 200 else { return false }
        return try JSONValue(parsing: answer.body)["state"]?.string == state
      }
    }

    private static func check(_ step: Step, _ radio: ScriptedRadio, _ rig: Rig) throws -> String {
      let sent = radio.transmissions
      #expect(step.transmissions.contains(sent.count), "\(step.rawValue): \(sent)")
      #expect(Set(sent.map(\.attempt)).count == sent.count, "\(step.rawValue): an attempt's number is used once")
      // By time and text the recipient's client knows it for one message.
      #expect(Set(sent.map { "\($0.time) \($0.text)" }).count == 1, "\(step.rawValue): \(sent)")
      // Each state is journaled, and the last one is the end.
      let (_, lines) = try rig.meshpost("journal", "--json", "--limit", "1000")
      let states = try lines.map { try JSONValue(parsing: $0) }.filter { $0["kind"]?.string == "outgoing" }
        .compactMap { $0["body"]?["state"]?.string }
      #expect(states.first == "pending" && states.last == step.end, "\(step.rawValue): \(states)")
      #expect(states.count { $0 == "delivered" } <= 1, "\(step.rawValue): \(states)")
      let name = step.rawValue + String(repeating: " ", count: max(1, 60 - step.rawValue.count))
      return "\(name)\(step.end)  \(sent.map { "\($0.attempt)" }.joined(separator: " "))"
    }
  }
}

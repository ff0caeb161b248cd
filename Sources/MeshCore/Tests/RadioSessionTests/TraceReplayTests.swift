// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import MeshCoreFixtures
import Testing
import Timing

/// Replays a recorded trace to a session: submits the client's commands, and feeds it the radio's frames.
private struct Replay {
  var contacts: [PublicKey: Contact] = [:]
  var listTotals: [UInt32] = []
  var listCounts: [UInt32] = []
  var messages: [QueuedMessage] = []
  var channels: [UInt8: Channel] = [:]
  var drained = 0
  var pushes: [Push] = []
  var glitches = 0
  var timeouts = 0

  init(_ name: String) {
    var radio = ReadySession()
    for line in Fixtures.trace(name) where !line.isRaw {
      radio.now = radio.now + .milliseconds(1)
      if line.toRadio {
        guard let command = try? Command(decoding: line.bytes) else { continue }
        // An earlier unanswered command (a hazard, a reboot) has timed out by the next command.
        while let deadline = radio.session.deadline, radio.session.waiting > 0 {
          radio.now = deadline
          take(radio.session.timedOut(now: deadline))
        }
        take(radio.submit(command, .interactive).1)
      } else {
        take(radio.session.received(line.bytes, now: radio.now))
      }
    }
  }

  private mutating func take(_ actions: [RadioSession.Action]) {
    for action in actions {
      switch action {
      case .contact(_, let contact), .unasked(.contact(let contact)): contacts[contact.key] = contact
      case .completed(_, .contacts(let total, let received, _)):
        listTotals.append(total)
        listCounts.append(received)
      case .completed(_, .replied(let reply)), .unasked(let reply): take(reply)
      case .completed(_, .failed(.timedOut)): timeouts += 1
      case .push(let push): pushes.append(push)
      case .glitch: glitches += 1
      default: break
      }
    }
  }

  private mutating func take(_ reply: Reply) {
    switch reply {
    case .message(let message): messages.append(message)
    case .channelInfo(let channel): channels[channel.slot] = channel
    case .contact(let contact): contacts[contact.key] = contact
    case .noMoreMessages: drained += 1
    default: break
    }
  }

  var texts: [String] {
    messages.map { message in
      switch message {
      case .contact(let direct): direct.text.string
      case .channel(let channel): channel.text.string
      case .datagram(let datagram): Hex.string(datagram.data)
      }
    }
  }
}

@Suite struct TraceReplayTests {
  @Test(arguments: Fixtures.traceNames) func `a session can read every recorded frame`(_ name: String) {
    #expect(Replay(name).glitches == 0)
  }

  @Test func `full lists contain all contacts`() {
    let full = Replay("v1.17.1/contacts_full")
    #expect(full.listTotals == [120])
    #expect(full.contacts.count == 120)
    let hundred = Replay("v1.15.0/contacts_full_100")
    #expect(hundred.listTotals.last == 100)
    #expect(hundred.contacts.count == 100)
  }

  @Test func `an incremental list without changes still has the total count`() {
    let replay = Replay("v1.15.0/contacts_incremental_nothing_new")
    #expect(replay.listCounts.last == 0)
    #expect((replay.listTotals.last ?? 0) > 0)
  }

  @Test func `a full queue of the radio returns 16 of 20 messages`() {
    #expect(Replay("v1.15.0/queue_overflow_20_sent").messages.count == 16)
    #expect(Replay("v1.17.1/queue_overflow_channel_only").messages.count == 16)
    #expect(Replay("v1.17.1/queue_overflow_dm_only").messages.count == 16)
    #expect(Replay("v1.17.1/queue_overflow_mixed").messages.count == 16)
  }

  @Test func `direct and channel messages are read with their text, in both forms`() {
    #expect(Replay("v1.15.0/dm_receive").texts.contains("hello Birch"))
    #expect(Replay("v1.15.0/dm_receive_direct_utf8").texts.contains { $0.contains("☕") })
    let short = Replay("v1.17.1/receive_client_below_v3")
    #expect(!short.messages.isEmpty)
    let hasSNR = short.messages.contains { message in
      if case .contact(let direct) = message { direct.snr != nil } else { false }
    }
    #expect(!hasSNR, "a client below version 3 gets the form without SNR")
  }

  @Test func `the radio delivers each retry as a separate message with the same time and text`() {
    let replay = Replay("v1.17.1/dm_receive_retries")
    let keys = replay.messages.compactMap { message -> String? in
      guard case .contact(let direct) = message else { return nil }
      return "\(direct.sender) \(direct.senderTime) \(direct.text)"
    }
    #expect(keys.count > Set(keys).count)
  }

  @Test func `a channel's name ends at its first NUL`() {
    let replay = Replay("v1.17.1/channel_receive")
    #expect(replay.channels[1]?.name == "#trees")
  }

  @Test func `a node that was added automatically causes an advert push, another one a new-advert push`() {
    let automatic = Replay("v1.17.1/advert_discovery_auto_add").pushes
    let manual = Replay("v1.17.1/advert_discovery_manual_add").pushes
    #expect(automatic.contains { if case .advert = $0 { true } else { false } })
    #expect(manual.contains { if case .newAdvert = $0 { true } else { false } })
  }
}

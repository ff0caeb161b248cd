// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Foundation
import Glibc
import Messaging
import SQLite
import Store
import TestSupport
import Testing
import Timing
import VirtualRadio

@testable import Gateway

/// The whole daemon, a radio and a hub in one process, on one loop whose time is invented. Between them are real sockets.
@Suite(.serialized) struct InventedWeekTests {
  /// A gateway of a test's own, all of it on one machine.
  private final class House {
    let machine = InventedMachine()
    let loop: EventLoop
    let scratch = Scratch(inMemory: true)
    let radio: VirtualRadio
    let port: TCPPort
    let hub: HubDouble
    let daemon: Daemon
    private let signals = SignalQueue()

    init() throws {
      signal(SIGPIPE, SIG_IGN)
      loop = EventLoop(on: machine)
      radio = VirtualRadio(
        VirtualRadioSettings(name: "r0", seed: 1, channelSlots: 4, queueCapacity: 256, clock: 1_795_237_000), on: loop)
      port = try TCPPort(radio, on: loop, port: 0)
      hub = try HubDouble(on: loop)
      let configuration = """
        [gateway]
        id = "hill"
        [radio]
        link = "\(port.address)"
        [store]
        location = "\(scratch.location("gw.db"))"
        [control]
        socket = "\(scratch.location("c.sock"))"
        [log]
        level = "error"
        [[upstream]]
        name = "hub"
        url = "http://127.0.0.1:\(hub.port)"
        token_file = "\(scratch.write("token", "secret-token-of-16\n"))"
        link = "http"
        """
      daemon = try Daemon(
        GatewayConfiguration(parsing: Array(configuration.utf8), file: "gw.toml"), file: "gw.toml", on: loop)
    }

    /// Runs the daemon beside what happens around it, and ends it thereafter as systemd would.
    func run(_ story: @escaping () async throws -> Void) {
      loop.begin {
        do { try await story() } catch { Issue.record(error) }
        self.signals.put(SIGTERM)
      }
      daemon.run(signals)
      hub.stop()
    }

    func hours(_ count: Double) async throws { try await loop.sleep(for: .seconds(count * 3600)) }
  }

  /// What happens at the full hour: the clock is set by somebody, the radio is unplugged, the hub is away.
  private func happens(at hour: Int, in house: House) {
    let day: Int64 = 86_400_000
    switch hour {
    // A Pi without a clock chip, which has a network after some hours.
    case 5: (house.machine.wallOffset, house.machine.isWallSynchronised) = (0, true)
    case 30: house.machine.wallOffset = 2 * day
    case 40: house.machine.wallOffset = 0
    case 60: house.machine.wallOffset = -day
    case 70: house.machine.wallOffset = 0
    case 100: (house.machine.wallOffset, house.machine.isWallSynchronised) = (400 * day, false)
    case 110: (house.machine.wallOffset, house.machine.isWallSynchronised) = (0, true)
    case 50: house.port.unplug(for: .seconds(9000))
    case 75: house.hub.mood = .down
    case 85: house.hub.mood = .well
    case 90, 91, 130: house.hub.mood = .hangsUp
    default: break
    }
  }

  @Test func `a week of hourly messages is stored and relayed once and in order, whatever the clock does`() throws {
    let house = try House()
    house.machine.wallOffset = -900 * 86_400_000
    house.machine.isWallSynchronised = false
    let began = ContinuousClock.now
    house.run {
      for hour in 1...168 {
        try await house.hours(1)
        happens(at: hour, in: house)
        house.radio.injectChannelText("Walker: message \(hour)", slot: 0, time: 1_795_237_200 + UInt32(hour) * 3600)
        if hour % 24 == 12 {
          try house.daemon.messaging.messenger.post(
            SendRequest(to: "Public", text: Text("day \(hour / 24)"), key: "day \(hour / 24)"))
        }
      }
      try await house.hours(1)
    }
    print("a week took \(ContinuousClock.now - began), \(house.loop.wakeups) wake-ups")
    let expected = (1...168).map { "message \($0)" }
    let texts = house.hub.events.filter { $0.kind == "message" }.compactMap(\.text)
    #expect(texts == expected)
    #expect(Set(house.hub.events.map(\.epoch)).count == 1)
    let seqs = house.hub.events.map(\.seq)
    #expect(zip(seqs, seqs.dropFirst()).allSatisfy { $0 < $1 }, "each once, in order")
    #expect(house.hub.events.contains { $0.kind == "gap" } == false)
    let store = try Store(Store.Settings(location: house.scratch.location("gw.db"), gatewayID: "hill"))
    #expect(try store.messageCount() == 168)
    #expect(house.daemon.messaging.messenger.status.sentOnChannels == 7)
    #expect(house.loop.now >= MonotonicTime(seconds: 1000) + .seconds(169 * 3600))
  }

  @Test func `a database that is damaged in use is replaced, and all that uses it begins anew with the next one`()
    throws
  {
    let house = try House()
    var (epochs, airtime): ([String], [Int64]) = ([], [])
    house.run {
      let daemon = house.daemon
      try await house.hours(0.1)
      epochs.append(daemon.store.epoch)
      try daemon.messaging.messenger.post(SendRequest(to: "Public", text: "on the air", key: "k1"))
      house.radio.injectChannelText("Walker: before", slot: 0, time: 1)
      try await house.hours(0.1)
      airtime.append(daemon.messaging.messenger.status.airtime.used)
      for isPaused in [false, true] {
        let upstream = try #require(daemon.relay.upstreams.first)
        upstream.setPaused(isPaused)
        daemon.store.post("what finds the damage") { _ throws(SQLiteError) in
          throw SQLiteError(code: 11, words: "malformed")
        }
        house.radio.injectChannelText("Walker: after, paused: \(isPaused)", slot: 0, time: 2)
        try await house.hours(0.1)
        epochs.append(daemon.store.epoch)
        airtime.append(daemon.messaging.messenger.status.airtime.used)
        #expect(daemon.relay.upstreams.count == 1 && daemon.relay.upstreams.first !== upstream)
        #expect((daemon.relay.upstreams.first?.status.state == .paused) == isPaused, "as an operator has said")
      }
      daemon.relay.upstreams.first?.setPaused(false)
      try await house.hours(0.1)
    }
    #expect(Set(epochs).count == 3)
    #expect(Set(airtime).count == 1 && airtime[0] > 0, "what was on the air was on the air: \(airtime)")
    let messages = house.hub.events.filter { $0.kind == "message" }
    #expect(messages.map(\.text) == ["before", "after, paused: false", "after, paused: true"])
    #expect(messages.map(\.epoch) == epochs, "each in the journal of its database")
    let kept = try FileManager.default.contentsOfDirectory(atPath: house.scratch.folder.path())
    #expect(kept.count { $0.contains(".corrupt-17952") } >= 2, "named by the invented clock: \(kept)")
  }
}

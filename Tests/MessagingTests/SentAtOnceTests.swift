// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import TestSupport
import Testing
import Transport

@testable import Messaging
@testable import VirtualRadio

@Suite struct SentAtOnceTests {
  /// The lengths of the datagrams that r0 sends.
  private final class Air {
    var lengths: [Int] = []

    init(_ bench: Bench) {
      bench.ether.onAir = { [weak self, own = bench.own.station] station, packet in
        if station == own, packet.type == .groupData { self?.lengths.append(packet.encode().count) }
      }
    }
  }

  /// Sends to Public; returns the refusal.
  private func send(_ data: [UInt8], _ bench: Bench, in region: RegionChoice? = nil) throws -> Refusal? {
    try bench.run("the channels") { bench.synchronizer.isReported(0) }
    let channel = try #require(try bench.store.channel(slot: 0))
    return try bench.refusal { () throws(Refusal) in
      try await bench.messenger.send(data, type: 7, to: channel, in: region)
    }
  }

  @Test func `the air time is that of the packet`() throws {
    let bench = try Bench()
    let air = Air(bench)
    let counts = [1, 13, 14, OutgoingDatagram.mostBytes]
    for count in counts { #expect(try send(Array(repeating: 1, count: count), bench) == nil) }
    #expect(air.lengths == counts.map(PacketLength.channelData))
  }

  @Test func `the air time in a region includes the transport codes`() throws {
    let bench = try Bench()
    let air = Air(bench)
    #expect(try send([1], bench, in: RegionChoice("ottawa")) == nil)
    #expect(air.lengths == [PacketLength.channelData(1) + PacketLength.transportCodes])
    let radio = try #require(bench.synchronizer.connection.identity?.info.radio)
    let milliseconds = Airtime.milliseconds(bytes: try #require(air.lengths.first), radio)
    #expect(bench.messenger.status.airtime.used == Int64(milliseconds.rounded(.up)))
  }

  @Test func `without its region a datagram is not sent, and uses no air time`() throws {
    let bench = try Bench(refuses: { if case .setFloodScopeKey(.key) = $0 { .badState } else { nil } })
    let air = Air(bench)
    let refusal = try send([1], bench, in: RegionChoice("ottawa"))
    #expect(refusal == .radio("the radio refuses the region; nothing was sent"))
    #expect(air.lengths.isEmpty && bench.messenger.status.airtime.used == 0)
    #expect(try send([1], bench) == nil, "the radio is in its own region")
    #expect(air.lengths.count == 1)
    let old = try Bench(firmware: .v1_15)
    guard case .radio(let words)? = try send([1], old, in: RegionChoice("none")) else {
      Issue.record("1.15 knows no flood without a region")
      return
    }
    #expect(words.contains("cannot send to the region *") && old.messenger.status.airtime.used == 0)
  }

  @Test func `without the radio's answer the air time counts, and the refusal says that it may be sent`() throws {
    let bench = try Bench(on: InventedMachine())
    bench.swallow { if case .sendChannelData = $0 { true } else { false } }
    guard case .silence(let words)? = try send([1], bench) else {
      Issue.record("the radio has not answered")
      return
    }
    #expect(words.contains("may have sent it") && bench.messenger.status.airtime.used > 0)
  }

  @Test func `a link that is lost before the command is sent gives the air time back`() throws {
    let bench = try Bench(on: InventedMachine())
    try bench.run("the channels") { bench.synchronizer.isReported(0) }
    // The radio does not answer the question before it.
    bench.swallow { $0 == .getBattery }
    _ = bench.synchronizer.connection.submit(.getBattery, .interactive)
    bench.loop.schedule(after: .seconds(1)) {
      bench.synchronizer.connection.link.onEvent(.down(.unplugged("memory")))
    }
    #expect(try send([1], bench) == .linkDown)
    #expect(bench.messenger.status.airtime.used == 0)
  }
}

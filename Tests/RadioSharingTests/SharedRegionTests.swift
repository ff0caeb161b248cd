// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import MeshCrypto
import Messaging
import Store
import TestSupport
import Testing
import Timing

@testable import RadioSharing
@testable import VirtualRadio

extension ClientSessionTests {
  // One after the other with the suite around it, which counts the descriptors of this process.
  /// The radio has one scope for everybody who floods with it.
  @Suite(.serialized) struct SharedRegions {
    private static let names = ["a", "b", "c"]

    private static func text(_ words: String, _ time: UInt32) -> [UInt8] {
      Command.sendChannelText(type: .plain, slot: 0, time: time, text: Text(words)).encode()
    }

    private static func scope(_ region: String) -> [UInt8] {
      Command.setFloodScopeKey(RegionChoice(region)?.scopeOverride ?? .useDefault).encode()
    }

    /// Each text begins with the region in which its sender wants it.
    private final class Air {
      var heard = 0
      var wrong: [String] = []
      private let ether: Ether

      init(_ bench: Bench) {
        ether = Ether(on: bench.loop, airtimeFactor: 0)
        ether.add(bench.radio.radio)
        ether.onAir = { [unowned self] _, packet in
          // `try?`: what cannot be read is no text of ours.
          guard packet.type == .groupText, case .groupText(let envelope)? = try? packet.content(),
            let words = envelope.openText(with: .publicChannel)?.text.string
          else { return }
          // The radio puts its name before it.
          let wanted = String(words.dropFirst("r0: ".count).prefix { $0 != " " })
          let found =
            SharedRegions.names.first { Region($0)?.key.map(packet.isInScope) ?? false }
            ?? (packet.route == .flood ? "none" : "?")
          heard += 1
          if found != wanted { wrong.append("\(words) in \(found)") }
        }
      }
    }

    private static var boundless: Messenger.Settings {
      var settings = Messenger.Settings()
      settings.delivery.budget.airtime = Int64.max / 1000
      settings.delivery.budget.messages = Int.max / 1000
      settings.delivery.budget.channelAirtime = Int64.max / 1000
      settings.delivery.budget.channelMessages = Int.max / 1000
      return settings
    }

    @Test func `of 10,000 texts of a gateway and two clients in three regions none goes to a wrong one`() throws {
      let bench = try Bench(messaging: Self.boundless)
      let air = Air(bench)
      var random = SeededRandom(seed: 29)
      let clients = [try bench.client(from: 1), try bench.client(from: 2)]
      var scopes = ["b", "c"]
      for (client, scope) in zip(clients, scopes) { client.send(Self.scope(scope)) }
      for client in clients { _ = try client.frames(1) }
      // The radio refuses one scope of 30, and even the way back.
      bench.radio.radio.refuses = { command in
        guard case .setFloodScopeKey = command, Int.random(in: 0..<30, using: &random) == 0 else { return nil }
        return .badState
      }
      // `try?`: nobody waits for its end.
      let sending = bench.loop.begin { try? await bench.messenger.run() }
      defer { sending.cancel() }
      let rounds = 1000
      var answers = [1, 1]
      var (time, refused): (UInt32, Int) = (1_795_000_000, 0)
      for round in 0..<rounds {
        for number in 0..<4 {
          var request = SendRequest(to: "Public", saying: Text("a gateway \(round) \(number)"))
          request.key = "\(round).\(number)"
          request.region = RegionChoice("a")
          try bench.messenger.post(request)
        }
        for place in 0..<2 {
          // The second client changes its region all the time; a refused one leaves it without any until the next.
          if place == 1 {
            scopes[1] = ["b", "c", "none"][Int.random(in: 0..<3, using: &random)]
            clients[1].send(Self.scope(scopes[1]))
            answers[1] += 1
          }
          for number in 0..<3 {
            time += 1
            clients[place].send(Self.text("\(scopes[place]) client \(round) \(number)", time))
            answers[place] += 1
          }
        }
        for place in 0..<2 {
          let frames = try clients[place].frames(answers[place])
          refused += frames.suffix(3).count { $0.first == 1 }
        }
        try bench.run("the gateway's to end") { bench.messenger.status.waiting == 0 }
      }
      #expect(air.wrong.isEmpty, "\(air.wrong.count): \(air.wrong.prefix(3))")
      #expect(air.heard > 9000 && refused > 100, "\(air.heard) heard, \(refused) refused")
      let failed = bench.messenger.status.failed
      #expect(air.heard + refused + failed == 10_000, "\(air.heard) heard, \(refused) refused, \(failed) failed")
    }

    @Test func `after a refused scope nothing of the client is flooded, until it sets another`() throws {
      let bench = try Bench()
      let air = Air(bench)
      let client = try bench.client()
      client.send(Self.scope("b"), Self.text("b first", 1_795_000_001))
      #expect(try client.frames(2) == [[0], [0]], "\(client.frames) \(bench.log)")
      bench.radio.radio.refuses = { if case .setFloodScopeKey(.unscoped) = $0 { .unsupported } else { nil } }
      client.send(Self.scope("none"), Self.text("none second", 1_795_000_002))
      #expect(try client.frames(4).suffix(2).map { $0[0] } == [1, 1], "a radio of its own would send it to b")
      client.send(Self.scope("c"), Self.text("c third", 1_795_000_003))
      #expect(try client.frames(6).suffix(2).map { $0[0] } == [0, 0])
      #expect(air.heard == 2 && air.wrong.isEmpty, "\(air.wrong)")
    }
  }
}

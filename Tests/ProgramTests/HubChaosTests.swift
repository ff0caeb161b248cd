// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing
import Timing

extension WholeProgramTests {
  /// Failures of a hub and of the network to it, under steady traffic.
  @Suite struct HubChaos {
    static let rounds = 25

    /// The network between gateway and hub: it can be cut, and it can drop all packets.
    private static let network = """
      import asyncio, sys
      async def pipe(reader, writer):
          try:
              while data := await reader.read(65536): writer.write(data); await writer.drain()
          except Exception: pass
          writer.close()
      async def serve(reader, writer):
          try: up = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
          except OSError: return writer.close()
          await asyncio.gather(pipe(reader, up[1]), pipe(up[0], writer))
      async def main():
          server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
          print("ready", flush=True)
          await server.serve_forever()
      asyncio.run(main())
      """

    private enum Fault: String, CaseIterable { case killed, restarted, paused, cut, swallowed, restored }

    private func startNetwork(_ rig: Rig, _ port: Int) throws -> Program {
      let network = try Program(Program.python, ["-c", Self.network, "\(port)", "\(rig.hubPort)"])
      try network.line(with: "ready")
      return network
    }

    @Test(arguments: [UInt64(20_261_121)])
    func `after 25 rounds of faults no event is missing, duplicated or out of order`(
      _ seed: UInt64
    ) throws {
      var random = SeededRandom(seed: seed)
      let rig = try Rig()
      let (descriptor, taken) = try LoopbackPort.take()
      close(descriptor)
      let port = Int(taken)
      var network = try startNetwork(rig, port)
      rig.writeGatewayConfiguration(
        url: "http://127.0.0.1:\(port)", extra: "keep_alive_s = 5\ntimeout_s = 2\nbatch_events = 20")
      try rig.startRadio(["--queue", "100000", "--contacts", "20"])
      try rig.startHub()
      try backUp(rig)
      try rig.startGateway()
      try rig.waitForSync()
      let total = 2000
      rig.radio?.write("inject r0 80 \(total)")
      var counts: [Fault: Int] = [:]
      for _ in 0..<Self.rounds {
        usleep(UInt32.random(in: 50_000...500_000, using: &random))
        let fault = Fault.allCases.randomElement(using: &random) ?? .killed
        counts[fault, default: 0] += 1
        try inflict(fault, rig, &network, port, &random)
        // The test does not wait for the back-off.
        _ = rig.control("POST", "/v1/outbox/resume")
      }
      try rig.radio?.line(with: "\"injected\"")
      try rig.waitForAllAtHub(messages: total, "(seed \(seed))")
      let events = try rig.hubRows("events")
      let seqs = events.compactMap { $0["seq"]?.integer }
      let last = try rig.status()?["store"]?["last_seq"]?.integer ?? 0
      #expect(seqs.sorted() == Array(1...max(1, last)), "each event once (seed \(seed))")
      #expect(Rig.isInOrder(events), "in order by lane (seed \(seed)): \(seqs)")
      #expect(Set(try rig.hubTexts()).count == total)
      let told = Fault.allCases.map { "\($0.rawValue) \(counts[$0] ?? 0)" }.joined(separator: ", ")
      print("hub chaos, \(Self.rounds) rounds (\(told)): \(seqs.count) events, none missing, repeated or out of order")
    }

    private func inflict(
      _ fault: Fault, _ rig: Rig, _ network: inout Program, _ port: Int, _ random: inout SeededRandom
    ) throws {
      let pause = UInt32.random(in: 20_000...300_000, using: &random)
      switch fault {
      case .killed:
        rig.hub?.kill9()
        usleep(pause)
        try rig.startHub()
      case .restarted:
        rig.hub?.send(SIGTERM)
        _ = try rig.hub?.ended()
        if Bool.random(using: &random) { try backUp(rig) }
        try rig.startHub()
      case .paused:
        rig.hub?.send(SIGSTOP)
        usleep(pause * 10)
        rig.hub?.send(SIGCONT)
      case .cut:
        network.kill9()
        usleep(pause)
        network = try startNetwork(rig, port)
      case .swallowed:
        network.send(SIGSTOP)
        usleep(pause * 10)
        network.kill9()
        network = try startNetwork(rig, port)
      case .restored:
        rig.hub?.kill9()
        try restore(rig)
        try rig.startHub()
      }
    }

    private func backUp(_ rig: Rig) throws {
      // A regular end: the database is a single file then.
      if rig.hub?.exitCode == nil {
        rig.hub?.send(SIGTERM)
        _ = try rig.hub?.ended()
        try copy(rig, from: "hub.db", to: "hub.backup")
        return try rig.startHub()
      }
      try copy(rig, from: "hub.db", to: "hub.backup")
    }

    private func restore(_ rig: Rig) throws { try copy(rig, from: "hub.backup", to: "hub.db") }

    private func copy(_ rig: Rig, from: String, to: String) throws {
      for suffix in ["", "-wal", "-shm"] {
        try? FileManager.default.removeItem(atPath: rig.scratch.location(to + suffix))
        let source = rig.scratch.location(from + suffix)
        if FileManager.default.fileExists(atPath: source) {
          try FileManager.default.copyItem(atPath: source, toPath: rig.scratch.location(to + suffix))
        }
      }
    }
  }

  /// Two meshes out of each other's reach, one channel, one hub.
  @Suite struct Exchange {
    private func gateway(_ rig: Rig, _ other: Rig?) throws {
      let hub = other ?? rig
      _ = rig.scratch.write(
        "gw.toml",
        """
        [gateway]
        id = "\(other == nil ? "hilltop" : "valley")"
        [radio]
        link = "\(rig.link)"
        [store]
        location = "\(rig.scratch.location("gw.db"))"
        [control]
        socket = "\(rig.socket)"
        [relay]
        messages_from_hub = true
        channels = ["Public"]
        [[upstream]]
        name = "hub"
        url = "http://127.0.0.1:\(hub.hubPort)"
        token_file = "\(hub.scratch.location("token"))"
        """)
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
    }

    private func outgoing(_ rig: Rig) throws -> [String] {
      try rig.meshpost("sent", "--json").lines.compactMap { try JSONValue(parsing: $0)["text"]?.string }
    }

    @Test func `a message that one gateway hears is sent by the other once, marked, and never back`() throws {
      let (hill, valley) = (try Rig(), try Rig())
      try hill.startHub()
      try gateway(hill, nil)
      try gateway(valley, hill)
      try untilTrue("both to have the channel's bucket") {
        try [hill, valley].allSatisfy { try $0.meshpost("sync", "--json").lines.joined().contains("channel/") }
      }
      for number in 1...3 { hill.radio?.write("chan r1 0 from the hill \(number)") }
      try untilTrue("all three in the valley: \(try outgoing(valley))") { try outgoing(valley).count == 3 }
      #expect(try outgoing(valley).sorted() == (1...3).map { "⇄r1@hilltop: from the hill \($0)" })
      valley.radio?.write("chan r1 0 from the valley")
      try untilTrue("the valley's on the hill") { try outgoing(hill) == ["⇄r1@valley: from the valley"] }
      // A node there repeats a forwarded message; the hub gets it, and ignores it. A message that arrives while the valley's radio holds one waits
      // for that, and no longer.
      for number in 1...5 {
        valley.radio?.write("chan r1 0 ⇄r1@hilltop: again \(number)")
        hill.radio?.write("chan r1 0 word \(number)")
        try untilTrue("word \(number) in the valley: \(try outgoing(valley))") {
          try outgoing(valley).contains { $0.hasSuffix("word \(number)") }
        }
      }
      try untilTrue("the echoes at the hub") {
        let answer = hill.askHub("GET", "/v1/messages")
        return try JSONValue(parsing: answer?.body ?? [])["messages"]?.array?.count == 14
      }
      #expect(try outgoing(hill).count == 1 && outgoing(valley).count == 8)
      // After a kill no message is sent again.
      valley.gateway?.kill9()
      try valley.startGateway()
      try valley.waitForSync()
      hill.radio?.write("chan r1 0 after the kill")
      try untilTrue("the message after the kill") { try outgoing(valley).contains { $0.hasSuffix("after the kill") } }
      #expect(try outgoing(valley).count == 9)
    }
  }
}

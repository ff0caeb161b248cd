// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing
import Timing

/// gateway → broker → `meshpost-hub consume` → a hub's database, which `meshpost-hub serve` reads.
private final class ConsumeSite {
  let rig: Rig
  let port: Int
  private let command: [String]
  private(set) var broker: Program?
  private(set) var consumer: Program?

  /// `broker`: the program, its configuration, and what it says when it is ready.
  private let isReady: String

  init(_ executable: String, _ isReady: String, configuration: (_ port: Int, _ folder: String) -> String) throws {
    rig = try Rig()
    let (descriptor, port) = try LoopbackPort.take()
    close(descriptor)
    self.port = Int(port)
    self.isReady = isReady
    let file = rig.scratch.write("broker.conf", configuration(Int(port), rig.scratch.folder.path()))
    command = [executable, "-c", file]
    rig.writeHubConfiguration(
      extra: """
        [consume]
        url = "mqtt://127.0.0.1:\(port)"
        refused_file = "\(rig.scratch.location("refused.jsonl"))"
        """)
    try startBroker()
  }

  func startBroker() throws {
    broker = try Program(command[0], Array(command.dropFirst()))
    try broker?.line(with: isReady)
  }

  /// In order: what it has acknowledged is on its disk.
  func stopBroker() throws {
    broker?.send(SIGTERM)
    _ = try broker?.ended()
  }

  func killBroker() { broker?.kill9() }

  func startConsumer() throws {
    consumer = try Program.own("meshpost-hub", ["consume", "--config", rig.scratch.location("hub.toml")])
  }

  func startGateway(_ extra: String = "") throws {
    _ = rig.scratch.write(
      "gw.toml",
      """
      [gateway]
      id = "hill"
      [radio]
      link = "\(rig.link)"
      [store]
      location = "\(rig.scratch.location("gw.db"))"
      [control]
      socket = "\(rig.socket)"
      [[upstream]]
      name = "broker"
      kind = "mqtt"
      url = "mqtt://127.0.0.1:\(port)"
      from = "start"
      \(extra)
      """)
    try rig.startGateway()
    try rig.waitForSync()
  }

  var pending: Int64? { try? rig.status()?["upstreams"]?.array?.first?["pending"]?.integer }  // `try?`: asked again
  var stored: Int64 { (try? rig.status()?["store"]?["messages"]?.integer) ?? 0 }  // as above

  /// Of messages, as the hub has them.
  func seqs() throws -> [Int64] {
    try rig.hubRows("events").filter { $0["kind"]?.string == "message" }.compactMap { $0["seq"]?.integer }
  }

  /// Every message of the gateway's journal is in the hub's database, once.
  func untilAllArrived(_ most: Int) throws {
    try rig.radio?.line(with: "\"injected\"")
    // What the radio had handed over when the gateway was killed, and was not on disk, is nowhere.
    try untilTrue("all published: \(try rig.meshpost("upstream", "list").lines)") {
      try rig.radioStats()["queued"]?.integer == 0 && pending == 0 && stored >= Int64(most) - 20
    }
    let count = Int(stored)
    try untilTrue("all in the database: \(try seqs().count) of \(count), \(consumer?.lines.suffix(8) ?? [])") {
      try seqs().count >= count
    }
    let came = try seqs()
    #expect(came.count == count && Set(came).count == count, "each once")
    #expect(try rig.hubTexts().count == count)
  }
}

extension WholeProgramTests {
  @Suite struct Consuming {
    private static func mosquitto(_ port: Int, _ folder: String) -> String {
      """
      listener \(port) 127.0.0.1
      persistence true
      persistence_location \(folder)/
      max_queued_messages 0
      user root
      allow_anonymous true
      """
    }

    @Test(arguments: ["", "format = \"compact\"", "version = \"3.1.1\""])
    func `a hub's database fills from a broker, through kills, each event once`(_ gateway: String) throws {
      var random = SeededRandom(seed: 18)
      let site = try ConsumeSite("/usr/sbin/mosquitto", " running", configuration: Self.mosquitto)
      let rig = site.rig
      try rig.startHub()
      try site.startConsumer()
      try site.consumer?.line(with: "connected")
      try rig.startRadio(["--queue", "3000"])
      try site.startGateway(gateway)
      let total = 600
      rig.radio?.write("inject r0 150 \(total)")
      for round in 0..<9 {
        usleep(UInt32.random(in: 100_000...500_000, using: &random))
        switch round % 3 {
        case 0:
          site.consumer?.kill9()
          usleep(UInt32.random(in: 0...200_000, using: &random))
          try site.startConsumer()
        case 1:
          try site.stopBroker()
          usleep(UInt32.random(in: 0...300_000, using: &random))
          try site.startBroker()
        default:
          rig.gateway?.kill9()
          try rig.startGateway()
        }
      }
      // What nobody can store does not hold up what comes behind it.
      let poison = try Program(
        "/usr/bin/mosquitto_pub",
        ["-p", "\(site.port)", "-q", "1", "-t", "meshpost/hill/message", "-m", "not an event"])
      #expect(try poison.ended() == 0)
      try site.untilAllArrived(total)
      let refused = rig.scratch.location("refused.jsonl")
      try untilTrue("what was refused") {
        (try? String(contentsOfFile: refused, encoding: .utf8))?.contains("not an event".utf8.hex) ?? false
      }
      site.consumer?.send(SIGTERM)
      #expect(try site.consumer?.ended() == 0)
      #expect(site.consumer?.lines.contains { $0.contains("stopped") } == true, "\(site.consumer?.lines ?? [])")
      // Of a broker nobody knows that nothing is missing: a link would begin at the beginning.
      let position = try JSONValue(
        parsing: rig.askHub("GET", "/v1/gateways/hill")?.body ?? [])
      #expect(position["lanes"]?.fields?.isEmpty == true, "\(position)")
    }

    @Test(.enabled(if: access("/usr/sbin/nats-server", X_OK) == 0, "nats-server is not installed"))
    func `a hub's database fills from NATS, whose server is killed`() throws {
      let site = try ConsumeSite("/usr/sbin/nats-server", "Server is ready") { port, folder in
        """
        server_name: n0
        listen: "127.0.0.1:-1"
        jetstream { store_dir: "\(folder)/jetstream" }
        mqtt { listen: "127.0.0.1:\(port)", ack_wait: "3s" }
        """
      }
      try site.rig.startHub()
      try site.startConsumer()
      try site.consumer?.line(with: "connected")
      try site.rig.startRadio(["--queue", "3000"])
      try site.startGateway()
      let total = 300
      site.rig.radio?.write("inject r0 150 \(total)")
      for _ in 0..<2 {
        usleep(400_000)
        site.killBroker()
        try site.startBroker()
        usleep(400_000)
        site.consumer?.kill9()
        try site.startConsumer()
      }
      try site.untilAllArrived(total)
    }
  }
}

extension String.UTF8View {
  fileprivate var hex: String {
    map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
  }
}

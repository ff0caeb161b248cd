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
  let broker: TestBroker
  /// How the consumer names the broker.
  private let url: String
  private let database: String?
  private(set) var consumer: Program?

  /// `url`: with PORT in it. `database`: the address of a server, in place of a file. `options`: of `[consume]`.
  init(
    database: String? = nil, url: String = "mqtt://127.0.0.1:PORT", options: String = "",
    broker: (Rig) throws -> TestBroker = { try TestBroker($0) }
  ) throws {
    rig = try Rig()
    self.broker = try broker(rig)
    self.database = database
    self.url = url.replacingOccurrences(of: "PORT", with: "\(self.broker.port)")
    configure(options)
  }

  func configure(_ options: String) {
    rig.writeHubConfiguration(
      database: database,
      extra: """
        [consume]
        url = "\(url)"
        refused_file = "\(rig.scratch.location("refused.jsonl"))"
        \(options)
        """)
  }

  func startConsumer() throws { consumer = try newConsumer() }

  func newConsumer(_ file: String = "hub.toml") throws -> Program {
    try Program.own("meshpost-hub", ["consume", "--config", rig.scratch.location(file)])
  }

  /// Events of one gateway, as it publishes them, without one; returns when the broker has acknowledged them.
  func publish(_ seqs: ClosedRange<Int>, of gateway: String = "hill", _ arguments: [String] = []) throws {
    let publisher = try Program(
      "/usr/bin/mosquitto_pub",
      ["-h", "localhost", "-p", "\(broker.port)", "-q", "1", "-t", "meshpost/\(gateway)/message", "-l"] + arguments)
    for seq in seqs {
      publisher.write(
        """
        {"gateway":"\(gateway)","epoch":"e","seq":\(seq),"at":\(seq),"trusted":true,"kind":"message","body":\
        {"kind":"direct","sender_time":\(seq),"text":"message \(seq)"}}
        """)
    }
    publisher.endInput()
    #expect(try publisher.ended() == 0, "\(publisher.lines)")
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
      url = "mqtt://127.0.0.1:\(broker.port)"
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
    @Test(arguments: ["", "format = \"compact\"", "version = \"3.1.1\""])
    func `a hub's database fills from a broker, through kills, each event once`(_ gateway: String) throws {
      var random = SeededRandom(seed: 18)
      let site = try ConsumeSite()
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
          try site.broker.stop()
          usleep(UInt32.random(in: 0...300_000, using: &random))
          try site.broker.start()
        default:
          rig.gateway?.kill9()
          try rig.startGateway()
        }
      }
      // What nobody can store does not hold up what comes behind it.
      let poison = try Program(
        "/usr/bin/mosquitto_pub",
        ["-p", "\(site.broker.port)", "-q", "1", "-t", "meshpost/hill/message", "-m", "not an event"])
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

    private static let natsIsHere = access("/usr/sbin/nats-server", X_OK) == 0

    private static func nats(_ rig: Rig) throws -> TestBroker {
      try TestBroker("/usr/sbin/nats-server", isReady: "Server is ready", in: rig) { port, folder in
        """
        server_name: n0
        listen: "127.0.0.1:-1"
        jetstream { store_dir: "\(folder)/jetstream" }
        mqtt { listen: "127.0.0.1:\(port)", ack_wait: "3s" }
        """
      }
    }

    @Test(.enabled(if: natsIsHere, "nats-server is not installed"))
    func `a hub's database fills from NATS, whose server is killed`() throws {
      let site = try ConsumeSite(broker: Self.nats)
      try site.rig.startHub()
      try site.startConsumer()
      try site.consumer?.line(with: "connected")
      try site.rig.startRadio(["--queue", "3000"])
      try site.startGateway()
      let total = 300
      site.rig.radio?.write("inject r0 150 \(total)")
      for _ in 0..<2 {
        usleep(400_000)
        site.broker.kill()
        try site.broker.start()
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

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
  /// The broker's URL for the consumer.
  private let url: String
  private let database: String?
  private(set) var consumer: Program?

  /// `url`: contains PORT. `database`: the address of a server, in place of a file. `options`: of `[consume]`.
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

  /// Starts it for the first time with mosquitto; returns after its subscription, which follows the line about the connection.
  func startSubscribed() throws {
    try startConsumer()
    try consumer?.line(with: "connected")
    try broker.program?.line(with: "Sending SUBACK to meshpost-hub")
  }

  func newConsumer(_ file: String = "hub.toml") throws -> Program {
    try Program.own("meshpost-hub", ["consume", "--config", rig.scratch.location(file)])
  }

  /// Publishes events as one gateway does, without a gateway; returns when the broker has acknowledged them.
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

  /// The seqs of the hub's messages.
  func seqs() throws -> [Int64] {
    try rig.hubRows("events").filter { $0["kind"]?.string == "message" }.compactMap { $0["seq"]?.integer }
  }

  /// Waits until the hub's database has every message of the gateway's journal, once.
  func untilAllArrived(_ most: Int) throws {
    try rig.radio?.line(with: "\"injected\"")
    // A message that the radio had handed over, and the killed gateway had not stored, is lost.
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
    func `a hub stores each event from a broker once, over kills`(_ gateway: String) throws {
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
      // A publication that cannot be stored does not hold up later ones.
      let poison = try Program(
        "/usr/bin/mosquitto_pub",
        ["-p", "\(site.broker.port)", "-q", "1", "-t", "meshpost/hill/message", "-m", "not an event"])
      #expect(try poison.ended() == 0)
      try site.untilAllArrived(total)
      let refused = rig.scratch.location("refused.jsonl")
      try untilTrue("the refused publication") {
        (try? String(contentsOfFile: refused, encoding: .utf8))?.contains("not an event".utf8.hex) ?? false
      }
      site.consumer?.send(SIGTERM)
      #expect(try site.consumer?.ended() == 0)
      #expect(site.consumer?.lines.contains { $0.contains("stopped") } == true, "\(site.consumer?.lines ?? [])")
      // Publications from a broker may be incomplete: a link would begin at the beginning.
      let position = try JSONValue(
        parsing: rig.askHub("GET", "/v1/gateways/hill")?.body ?? [])
      #expect(position["lanes"]?.fields?.isEmpty == true, "\(position)")
    }

    @Test func `a subscription with QoS 2 in the session of a consumer costs a session, and not each connection`()
      throws
    {
      let site = try ConsumeSite()
      // Somebody has tried the client id with another client.
      let other = try Program(
        "/usr/bin/mosquitto_sub",
        ["-p", "\(site.broker.port)", "-i", "meshpost-hub", "-c", "-q", "2", "-t", "other/#", "-E"])
      #expect(try other.ended() == 0, "\(other.lines)")
      let stranger = try Program(
        "/usr/bin/mosquitto_pub", ["-p", "\(site.broker.port)", "-q", "2", "-t", "other/topic", "-m", "words"])
      #expect(try stranger.ended() == 0)
      try site.rig.startHub()
      try site.startConsumer()
      try site.consumer?.line(with: "something else has left a subscription in our session")
      try site.consumer?.line(with: "connected with a new session")
      // The subscription follows that line, and no session keeps what comes before it.
      try untilTrue("the events: \(site.consumer?.lines ?? [])") {
        try site.publish(1...3)
        let answer = try #require(site.rig.askHub("GET", "/v1/gateways/hill/events?after=0&limit=10"))
        guard answer.status == 200 else { return false }
        return try JSONValue(parsing: answer.body)["events"]?.array?.count == 3
      }
      site.consumer?.send(SIGTERM)
      #expect(try site.consumer?.ended() == 0)
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
    func `a hub stores events from NATS, over kills of the server`() throws {
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

    // MARK: PostgreSQL

    /// Waits until each of these events is stored once, with its message.
    private func untilStored(_ server: PostgresServer, _ count: Int, _ site: ConsumeSite) throws {
      try untilTrue("\(count) events: \(try server.value(Self.counts)), \(site.consumer?.lines.suffix(8) ?? [])") {
        try server.value(Self.counts) == "\(count) \(count) \(count)"
      }
    }

    /// The numbers of events, of distinct events, and of joined messages.
    private static let counts = """
      SELECT count(*) || ' ' || count(DISTINCT (gateway, epoch, seq)) || ' ' || (SELECT count(*) FROM messages) FROM events
      """

    private func count(_ program: Program?, _ words: String) -> Int {
      program?.lines.count { $0.contains(words) } ?? 0
    }

    @Test func `PostgreSQL stores each event from a broker once, over crashes and kills of the consumer`() throws {
      let server = try PostgresServer()
      let site = try ConsumeSite(database: server.address)
      try site.startSubscribed()
      try site.publish(1...200)
      try untilStored(server, 200, site)

      try server.crash()
      try site.publish(201...1200)
      try site.consumer?.line(with: "received batches cannot be stored")
      try server.start()
      try site.consumer?.line(with: "new events are stored again")
      try untilStored(server, 1200, site)
      #expect(count(site.consumer, "received batches cannot be stored") == 1, "\(site.consumer?.lines ?? [])")
      #expect(count(site.consumer, "new events are stored again") == 1)

      // Kills both in the middle.
      for round in 0..<3 {
        try site.publish((1201 + round * 500)...(1700 + round * 500))
        if round % 2 == 0 { site.consumer?.kill9() }
        try server.crash()
        try server.start()
        if round % 2 == 0 { try site.startConsumer() }
      }
      // Before that line the consumer may not handle a signal yet.
      try site.consumer?.line(with: "connected")
      try untilStored(server, 2700, site)
      #expect(FileManager.default.contents(atPath: site.rig.scratch.location("refused.jsonl"))?.isEmpty == true)
      site.consumer?.send(SIGTERM)
      #expect(try site.consumer?.ended() == 0)
    }

    @Test func `PostgreSQL that hangs for a while gets everything later, and the outage is logged once`() throws {
      let server = try PostgresServer()
      let site = try ConsumeSite(database: server.address)
      try site.startSubscribed()
      try site.publish(1...50)
      try untilStored(server, 50, site)
      try server.freeze()
      try site.publish(51...500)
      try site.consumer?.line(with: "received batches cannot be stored")
      #expect(site.consumer?.lines.contains { $0.contains("broker") && $0.contains("ended") } == false)
      try server.thaw()
      try site.consumer?.line(with: "new events are stored again")
      try untilStored(server, 500, site)
      #expect(count(site.consumer, "received batches cannot be stored") == 1, "\(site.consumer?.lines ?? [])")
      #expect(count(site.consumer, "connected") == 1, "that to the broker has lasted: \(site.consumer?.lines ?? [])")
    }

    @Test func `a consumer ends when a newer program upgrades its tables, and the broker keeps new events`() throws {
      let server = try PostgresServer()
      let site = try ConsumeSite(database: server.address)
      try site.startSubscribed()
      try site.publish(1...100)
      try untilStored(server, 100, site)
      try server.execute("INSERT INTO schema_version(version) VALUES (99)")
      try site.publish(101...300)
      #expect(try site.consumer?.ended() == 74)
      #expect(count(site.consumer, "a newer version has upgraded the tables") == 1, "\(site.consumer?.lines ?? [])")
      #expect(try server.value(Self.counts) == "100 100 100")
      try server.execute("DELETE FROM schema_version WHERE version = 99")
      try site.startConsumer()
      try untilStored(server, 300, site)
    }

    // MARK: TLS

    @Test func `over TLS a consumer accepts only a broker whose certificate its authority signed`() throws {
      let server = try PostgresServer()
      var folder = ""
      let site = try ConsumeSite(database: server.address, url: "mqtts://localhost:PORT") { rig in
        let authority = try TestAuthority(rig, names: ["localhost", "elsewhere"])
        folder = authority.folder
        return try TestBroker(rig, extra: "\(TestBroker.anonymous)\n\(authority.broker("localhost"))")
      }
      let trust = ["--cafile", "\(folder)/ca.pem"]
      // This machine does not trust the test's authority.
      try site.startConsumer()
      let refused = try #require(try site.consumer?.line(with: "certificate"))
      #expect(refused.contains("localhost port \(site.broker.port)"), "\(refused)")
      #expect(count(site.consumer, "connected") == 0)
      site.consumer?.send(SIGTERM)
      #expect(try site.consumer?.ended() == 0)

      site.configure("ca_file = \"\(folder)/ca.pem\"")
      try site.startSubscribed()
      try site.publish(1...50, trust)
      try untilStored(server, 50, site)

      // The same broker with a certificate for another name: publications meanwhile wait.
      try site.broker.stop()
      let file = site.rig.scratch.location("broker-\(site.broker.port).conf")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      try text.replacingOccurrences(of: "/localhost.", with: "/elsewhere.").write(
        toFile: file, atomically: true, encoding: .utf8)
      try site.broker.start()
      try site.publish(51...60, trust + ["--insecure"])
      let other = try #require(try site.consumer?.line(with: "certificate"))
      #expect(other.contains("localhost"), "\(other)")
      #expect(try server.value(Self.counts) == "50 50 50")
      try site.broker.stop()
      try text.write(toFile: file, atomically: true, encoding: .utf8)
      try site.broker.start()
      try untilStored(server, 60, site)
    }

    // MARK: Groups

    @Test(arguments: ["auto", "3.1.1"])
    func `two consumers of a group share the events, and a restarted one gets its unacknowledged ones`(
      _ version: String
    )
      throws
    {
      let server = try PostgresServer()
      let site = try ConsumeSite(database: server.address)
      var consumers: [Program] = []
      func start(_ name: String) throws -> Program {
        site.configure("group = \"hubs\"\nclient_id = \"\(name)\"\nversion = \"\(version)\"")
        let file = "hub-\(name).toml"
        _ = site.rig.scratch.write(
          file, try String(contentsOfFile: site.rig.scratch.location("hub.toml"), encoding: .utf8))
        let consumer = try site.newConsumer(file)
        try consumer.line(with: "connected")
        return consumer
      }
      for name in ["one", "two"] {
        consumers.append(try start(name))
        try site.broker.program?.line(with: "Sending SUBACK to \(name)")
      }
      try site.publish(1...300)
      try untilStored(server, 300, site)
      // The broker distributes the publications, also to the consumer that is away.
      consumers[1].kill9()
      try site.publish(301...600)
      consumers[1] = try start("two")
      try untilStored(server, 600, site)
      for consumer in consumers {
        consumer.send(SIGTERM)
        #expect(try consumer.ended() == 0)
        let words = consumer.lines.last { $0.contains("stopped; ") } ?? ""
        let stored = words.split(separator: " ").compactMap { Int($0) }.first ?? 0
        #expect(stored > 0 && stored < 600, "each had a share: \(consumer.lines)")
      }
    }

    @Test(.enabled(if: natsIsHere, "nats-server is not installed"))
    func `a group at a broker that does not report shared subscriptions is refused with the reason`() throws {
      let site = try ConsumeSite(options: "group = \"hubs\"", broker: Self.nats)
      try site.startConsumer()
      try site.consumer?.line(with: "does not say whether it has shared subscriptions")
      #expect(count(site.consumer, "connected") == 0, "\(site.consumer?.lines ?? [])")
      site.consumer?.send(SIGTERM)
      #expect(try site.consumer?.ended() == 0)
    }
  }
}

extension String.UTF8View {
  fileprivate var hex: String {
    map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined()
  }
}

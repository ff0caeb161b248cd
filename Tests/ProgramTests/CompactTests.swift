// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing
import Timing

/// Receives events of either form: the compact ones with the program that docs/mqtt.md prints.
private final class Subscriber {
  private let compact: Program
  private let plain: Program
  private let decoder: Program
  private var decoded = 0

  init(compact: Program, plain: Program, decoder: Program) {
    (self.compact, self.plain, self.decoder) = (compact, plain, decoder)
  }

  /// The received events in order; decoding the newest may take a moment.
  var events: [JSONValue] {
    let lines = compact.lines
    for line in lines.dropFirst(decoded) { decoder.write(line) }
    decoded = lines.count
    // `try?`: a line that is no JSON is missing for tests that expect events.
    return (decoder.lines + plain.lines).compactMap { try? JSONValue(parsing: $0) }
  }

  var batches: Int { compact.lines.count }

  /// Each text once, in the order of its first arrival.
  var texts: [String] {
    var known: Set<Int64> = []
    return events.filter { known.insert($0["seq"]?.integer ?? 0).inserted }.compactMap { $0["body"]?["text"]?.string }
  }
}

/// A gateway, a broker, and a subscriber that uses only docs/mqtt.md; a thin line may connect the first two.
private final class BrokerSite {
  let rig: Rig
  let broker: TestBroker

  init(_ extra: String, line: [String]? = nil) throws {
    rig = try Rig()
    if let line { rig.line = try ShapedLine(line, door: rig.scratch.location("door")) }
    broker = try TestBroker(rig, extra: "\(TestBroker.anonymous)\n\(extra)")
  }

  func configure(_ extra: String) {
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
      url = "mqtt://\(rig.line?.farAddress ?? "127.0.0.1"):\(broker.port)"
      kinds = ["message"]
      \(extra)
      """)
  }

  /// Starts a subscriber with the command and the program of docs/mqtt.md.
  func subscriber() throws -> Subscriber {
    let page = try String(contentsOf: Checkout.folder.appending(path: "docs/mqtt.md"), encoding: .utf8)
    let listing = page.components(separatedBy: "\n\n    #!/usr/bin/env python3\n")[1].components(separatedBy: "\n\n`")[
      0]
    #expect(listing.contains("decompress"))
    let lines = listing.components(separatedBy: "\n").map { $0.hasPrefix("    ") ? String($0.dropFirst(4)) : $0 }
    _ = rig.scratch.write("decode.py", lines.joined(separator: "\n") + "\n")
    let dictionary = try Data(contentsOf: Checkout.folder.appending(path: "docs/link-dictionary.md"))
    try dictionary.write(to: rig.scratch.folder.appending(path: "link-dictionary.md"))
    let printed = "mosquitto_sub -h broker.example.org -q 1 -t meshpost/+/compact -F %x | python3 decode.py"
    #expect(page.contains("`\(printed)`"))
    let halves = printed.components(separatedBy: " | ")
    let words = halves[0].replacingOccurrences(of: "broker.example.org", with: "127.0.0.1").split(separator: " ")
    #expect(words.first == "mosquitto_sub")
    let compact = try broker.subscriber("counter", words.dropFirst().map(String.init))
    let plain = try broker.subscriber("plain", ["-t", "meshpost/+/message"])
    #expect(halves[1] == "python3 decode.py")
    return Subscriber(
      compact: compact, plain: plain, decoder: try Program(Program.python, ["decode.py"], folder: rig.scratch.folder))
  }

  var pending: Int64? { try? rig.status()?["upstreams"]?.array?.first?["pending"]?.integer }  // `try?`: asked again
}

extension WholeProgramTests {
  @Suite struct Compact {
    @Test func `the documented decoder decodes every event, over kills and absent brokers`() throws {
      var random = SeededRandom(seed: 4)
      let site = try BrokerSite("")
      let subscriber = try site.subscriber()
      try site.rig.startRadio(["--queue", "3000"])
      site.configure("format = \"compact\"")
      try site.rig.startGateway()
      try site.rig.waitForSync()
      site.rig.radio?.write("inject r0 150 1000")
      for round in 0..<12 {
        usleep(UInt32.random(in: 50_000...400_000, using: &random))
        switch round % 3 {
        case 0:
          site.rig.gateway?.kill9()
          try site.rig.startGateway()
        case 1:
          try site.broker.stop()
          try site.broker.start()
        default:
          site.broker.program?.send(SIGSTOP)
          usleep(300_000)
          site.broker.program?.send(SIGCONT)
        }
      }
      try site.rig.radio?.line(with: "\"injected\"")
      // A message that the radio had handed over, and the killed gateway had not stored, is lost.
      try untilTrue("all stored") {
        try site.rig.radioStats()["queued"]?.integer == 0
          && site.rig.status()?["store"]?["messages"]?.integer ?? 0 >= 980 && site.pending == 0
      }
      let stored = Int(try site.rig.status()?["store"]?["messages"]?.integer ?? 0)
      try untilTrue("all of them: \(subscriber.texts.count) of \(stored), \(site.rig.gateway?.lines.suffix(5) ?? [])") {
        subscriber.texts.count >= stored
      }
      let numbers = subscriber.texts.compactMap { Int($0.dropFirst("message ".count)) }
      #expect(numbers.count == stored && numbers == Set(numbers).sorted(), "once and in order, but for repetitions")
      let event = try #require(subscriber.events.first)
      #expect(event["gateway"]?.string == "hill" && event["lane"]?.string == "messages" && event["at"]?.integer != nil)
      #expect(event["epoch"]?.string?.count == 16 && event["trusted"]?.bool != nil, "\(event)")
      let sent = try site.rig.status()?["upstreams"]?.array?.first?["bytes_sent"]?.integer
      print(
        "compact: \(subscriber.events.count) events came of \(stored); \(sent ?? 0) bytes since the last start"
      )
      #expect(subscriber.batches < stored, "several in one")
    }

    @Test func `a batch that is too large for the broker is sent in parts`() throws {
      let site = try BrokerSite("max_packet_size 400\nmax_topic_alias 0")
      let subscriber = try site.subscriber()
      try site.rig.startRadio(["--queue", "300"])
      site.configure("format = \"compact\"")
      try site.broker.stop()
      try site.rig.startGateway()
      try site.rig.waitForSync()
      site.rig.radio?.write("inject r0 0 120")
      try untilTrue("all stored") { try site.rig.status()?["store"]?["messages"]?.integer == 120 }
      try site.broker.start()
      _ = site.rig.control("POST", "/v1/outbox/resume")
      let wanted = (1...120).map { "message \($0)" }
      try untilTrue("all of them: \(subscriber.texts.count), \(site.rig.gateway?.lines.suffix(5) ?? [])") {
        subscriber.texts.count >= wanted.count && site.pending == 0
      }
      #expect(subscriber.texts == wanted)
    }
  }

  /// A broker at the end of a thin line, which is cut, whose NAT forgets connections, and which takes little at once.
  @Suite(
    .enabled("a line between two network namespaces cannot be made here (needs root, /dev/net/tun, ip and nsenter)") {
      ShapedLine.isPossible
    }) struct ThinBrokers
  {
    @Test(arguments: [
      ("", ""), ("", "format = \"compact\""), ("", "version = \"3.1.1\""), ("max_inflight_messages 1", ""),
      ("max_topic_alias 0", "format = \"compact\"\nversion = \"3.1.1\""),
      ("max_inflight_messages 1", "format = \"compact\""),
    ])
    func `over a thin line with cuts a broker gets everything in order`(_ broker: String, _ gateway: String) throws {
      let site = try BrokerSite(broker, line: ["--up", "1500", "--delay", "0.3"])
      let (rig, line) = (site.rig, try #require(site.rig.line))
      let subscriber = try site.subscriber()
      try line.tell("cut")
      try rig.startRadio(["--queue", "100"])
      site.configure(gateway)
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("inject r0 0 30")
      try untilTrue("30 stored") { try rig.status()?["store"]?["messages"]?.integer == 30 }
      func untilArrived(_ count: Int) throws {
        try untilTrue("\(count): \(subscriber.texts.count), \(rig.gateway?.lines.suffix(5) ?? [])") {
          usleep(200_000)
          return subscriber.texts.count >= count
        }
      }
      let begin = Date()
      try line.tell("mend")
      _ = rig.control("POST", "/v1/outbox/resume")
      try untilArrived(5)
      try line.tell("cut 4")
      for number in 1...10 { rig.radio?.write("chan r1 0 live \(number)") }
      try untilArrived(15)
      // The modem connects again, with another address.
      try line.tell("cut 1")
      try line.tell("forget")
      try untilArrived(40)
      let (up, down) = try line.tell("report")
      let twice = subscriber.events.count - 40
      print("\(broker), \(gateway): \(Int(Date().timeIntervalSince(begin))) s, \(twice) came twice, \(up), \(down)")
      #expect(subscriber.texts == (1...30).map { "message \($0)" } + (1...10).map { "live \($0)" })
      #expect(up.cut + down.cut > 0, "the cuts met something")
    }
  }
}

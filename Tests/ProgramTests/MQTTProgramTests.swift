// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing
import Timing

extension TestBroker {
  /// Counts all publications of gateways.
  fileprivate func counter(_ arguments: [String] = []) throws -> Program {
    try subscriber("counter", ["-v", "-t", "meshpost/#"] + arguments)
  }
}

extension WholeProgramTests {
  @Suite struct Brokers {
    private func configure(_ rig: Rig, _ broker: TestBroker, _ extra: String = "") {
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
        allow = ["send"]
        kinds = ["message"]
        \(extra)
        """)
    }

    /// The seqs of messages in order of arrival, and the last reported state of the gateway.
    private func seqs(_ subscriber: Program) -> [Int64] {
      subscriber.lines.filter { $0.hasPrefix("meshpost/hill/message ") }.compactMap { line in
        let body = line.split(separator: " ", maxSplits: 1).last.map(String.init) ?? ""
        return (try? JSONValue(parsing: body))?["seq"]?.integer
      }
    }

    private func states(_ subscriber: Program) -> [String] {
      subscriber.lines.filter { $0.hasPrefix("meshpost/hill/status ") }.compactMap { line in
        let body = line.split(separator: " ", maxSplits: 1).last.map(String.init) ?? ""
        return (try? JSONValue(parsing: body))?["status"]?.string
      }
    }

    @Test(arguments: [UInt64(20_261_121)]) func `over kills of the gateway and an absent broker every message arrives`(
      _ seed: UInt64
    ) throws {
      var random = SeededRandom(seed: seed)
      let rig = try Rig()
      let broker = try TestBroker(rig)
      let subscriber = try broker.counter()
      try rig.startRadio(["--queue", "100000"])
      configure(rig, broker)
      try rig.startGateway()
      try rig.waitForSync()
      let total = 2000
      rig.radio?.write("inject r0 150 \(total)")
      for round in 0..<25 {
        usleep(UInt32.random(in: 50_000...400_000, using: &random))
        switch round % 3 {
        case 0:
          rig.gateway?.kill9()
          try rig.startGateway()
        case 1:
          try broker.stop()
          usleep(UInt32.random(in: 0...500_000, using: &random))
          try broker.start()
        default:
          // Half-open: the broker does not answer for a while.
          broker.program?.send(SIGSTOP)
          usleep(300_000)
          broker.program?.send(SIGCONT)
        }
      }
      try rig.radio?.line(with: "\"injected\"")
      try untilTrue("all published: \(try rig.meshpost("upstream", "list").lines)") {
        let status = try rig.status()
        return try rig.radioStats()["queued"]?.integer == 0
          && status?["upstreams"]?.array?.first?["pending"]?.integer == 0
          && status?["store"]?["messages"]?.integer ?? 0 >= Int64(total) - 20
      }
      let stored = Int(try rig.status()?["store"]?["messages"]?.integer ?? 0)
      try untilTrue("all at the subscriber (seed \(seed)): \(Set(seqs(subscriber)).count) of \(stored)") {
        Set(seqs(subscriber)).count == stored
      }
      let came = seqs(subscriber)
      var firsts: Set<Int64> = []
      let order = came.filter { firsts.insert($0).inserted }
      #expect(order == order.sorted(), "in order, but for repetitions (seed \(seed))")
      print("mqtt: \(stored) messages, \(came.count - stored) came twice, under the same seq")
      #expect(states(subscriber).last == "online")
      rig.gateway?.kill9()
      try untilTrue("the last will: \(states(subscriber))") { states(subscriber).last == "offline" }
      try rig.startGateway()
      try untilTrue("to be back: \(states(subscriber))") { states(subscriber).last == "online" }
      rig.gateway?.send(SIGTERM)
      try untilTrue("a goodbye: \(states(subscriber))") { states(subscriber).last == "offline" }
      subscriber.kill9()
    }

    @Test func `clients of a broker may send messages, do nothing else, and have a rate limit`() throws {
      let rig = try Rig()
      let broker = try TestBroker(rig)
      try rig.startRadio()
      configure(rig, broker, "commands_per_minute = 6")
      let file = rig.scratch.location("gw.toml")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      _ = rig.scratch.write("gw.toml", text.replacingOccurrences(of: "kinds = [\"message\"]", with: ""))
      let subscriber = try broker.counter()
      try rig.startGateway()
      try rig.waitForSync()
      try untilTrue("the gateway to be online") { states(subscriber).last == "online" }
      func ask(_ payload: String) throws -> JSONValue {
        let program = try Program(
          "/usr/bin/mosquitto_rr",
          [
            "-p", "\(broker.port)", "-V", "5", "-q", "1", "-W", "30", "-t", "meshpost/hill/command", "-e",
            "answers/\(UUID().uuidString)", "-m", payload,
          ])
        _ = try program.ended()
        return try JSONValue(parsing: program.lines.first ?? "null")
      }
      let taken = try ask(#"{"id":"a1","command":"send","to":"r1","text":"from afar"}"#)
      #expect(taken["ok"]?.bool == true && taken["id"]?.string == "a1", "\(taken)")
      try untilTrue("its delivery to be published: \(subscriber.lines.suffix(5))") {
        subscriber.lines.contains {
          $0.hasPrefix("meshpost/hill/outgoing ") && $0.contains("command/a1/") && $0.contains("delivered")
        }
      }
      #expect(try ask(#"{"id":"a1","command":"send","to":"r1","text":"again"}"#)["ok"]?.bool == true)
      #expect(try rig.meshpost("sent").lines.count == 1, "the same id is the same message")
      #expect(try ask(#"{"id":"a2","command":"send","to":"nobody","text":"x"}"#)["code"]?.string == "not_found")
      #expect(try ask(#"{"id":"a3","command":"sync"}"#)["code"]?.string == "not_allowed")
      #expect(try ask("nonsense")["code"]?.string == "invalid")
      let codes = try (0..<6).map {
        try ask(#"{"id":"b\#($0)","command":"send","to":"r1","text":"x"}"#)["code"]?.string
      }
      #expect(codes == [nil, nil, "full", "full", "full", "full"], "nonsense counts, too: \(codes)")
      // The journal has each command with its sender.
      let (_, lines) = try rig.meshpost("journal", "--json", "--limit", "1000")
      let commands = try lines.map { try JSONValue(parsing: $0) }.filter { $0["kind"]?.string == "command" }
      let ids = commands.compactMap { $0["body"]?["id"]?.string }
      #expect(
        ids == ["a1", "a2", "a3", "b0", "b1"] && commands.allSatisfy { $0["body"]?["upstream"]?.string == "broker" })
      // Its events about commands are no commands: otherwise each would cause the next.
      try untilTrue("all to be published: \(subscriber.lines.suffix(5))") {
        subscriber.lines.filter { $0.hasPrefix("meshpost/hill/commanded ") }.count == ids.count
      }
      #expect(subscriber.lines.filter { $0.hasPrefix("meshpost/hill/command ") }.count == 11, "those that were asked")
      #expect(try rig.status()?["upstreams"]?.array?.first?["refused_commands"]?.integer == 5)
      try commandWhileAway(rig, broker)
    }

    /// Publishes a command that the broker keeps while the gateway is away.
    private func commandWhileAway(_ rig: Rig, _ broker: TestBroker) throws {
      rig.gateway?.kill9()
      let publish = try Program(
        "/usr/bin/mosquitto_pub",
        [
          "-p", "\(broker.port)", "-q", "1", "-t", "meshpost/hill/command", "-m",
          #"{"id":"later","command":"send","to":"r1","text":"while you were away"}"#,
        ])
      #expect(try publish.ended() == 0)
      try rig.startGateway()
      try untilTrue("the messages of the meantime: \(rig.gateway?.lines ?? [])") {
        try rig.meshpost("sent").lines.contains { $0.contains("while you were away") }
      }
    }

    @Test func `Home Assistant gets the gateway, nodes with telemetry, and the topic for messages`() throws {
      let rig = try Rig()
      let broker = try TestBroker(rig)
      let folder = rig.scratch.folder.appending(path: "mesh")
      let base = try LoopbackPort.pair()
      rig.radio = try Program(
        Program.python,
        [
          "hardware/mesh.py", "--nodes", "2", "--dir", folder.path(), "--port", "\(base)", "--tty", "",
          "--firmware-times", "--server", "Ridge=repeater",
        ])
      try rig.radio?.line(with: "\"ready\"")
      rig.link = "tcp:127.0.0.1:\(base)"
      configure(rig, broker, "home_assistant = true\nhome_assistant_notify = [\"Public\"]")
      let file = rig.scratch.location("gw.toml")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      _ = rig.scratch.write("gw.toml", text.replacingOccurrences(of: "kinds = [\"message\"]", with: ""))
      let subscriber = try broker.counter(["-t", "homeassistant/#"])
      try rig.startGateway()
      try rig.waitForSync()
      func payload(_ topic: String) -> JSONValue? {
        let line = subscriber.lines.last { $0.hasPrefix("homeassistant/\(topic) ") }
        return line.flatMap { try? JSONValue(parsing: String($0.split(separator: " ", maxSplits: 1)[1])) }
      }
      try untilTrue("the gateway to be described: \(subscriber.lines)") {
        payload("notify/meshpost_hill/send_Public/config") != nil
      }
      let online = try #require(payload("binary_sensor/meshpost_hill/online/config"))
      #expect(online["state_topic"]?.string == "meshpost/hill/status")
      #expect(online["device"]?["identifiers"]?.array?.first?.string == "meshpost_hill")
      let notify = payload("notify/meshpost_hill/send_Public/config")?["command_template"]?.string ?? ""
      #expect(notify.contains("\"to\":\"Public\",\"text\":{{ value | tojson }}"))
      let login = try Program.own("meshpost", ["node", "login", "Ridge", "--socket", rig.socket])
      login.write("password")
      #expect(try login.ended() == 0)
      #expect(try rig.meshpost("node", "telemetry", "Ridge").code == 0)
      let device = "meshcore_" + (try rig.meshpost("contacts").lines.first { $0.contains("Ridge") }?.prefix(12) ?? "")
      try untilTrue("its telemetry: \(subscriber.lines.suffix(6))") { payload("meshpost/\(device)/telemetry") != nil }
      #expect(payload("meshpost/\(device)/telemetry")?["temperature_1"]?.number == -4.5)
      let temperature = try #require(payload("sensor/\(device)/temperature_1/config"))
      #expect(
        temperature["device_class"]?.string == "temperature" && temperature["unit_of_measurement"]?.string == "°C")
      #expect(temperature["value_template"]?.string == "{{ value_json.temperature_1 }}")
      #expect(temperature["device"]?["name"]?.string == "Ridge")
      #expect(try rig.meshpost("node", "status", "Ridge").code == 0)
      try untilTrue("its status: \(subscriber.lines.suffix(6))") { payload("meshpost/\(device)/node_status") != nil }
      let judged = Observers.isReady ? try Observers.judge(subscriber.lines, in: rig) : "valid, as far as is known"
      #expect(!judged.contains("'sensor': 8}") && judged.hasPrefix("valid"), "nodes' sensors are among them: \(judged)")
      let ids = subscriber.lines.filter { $0.contains("/config ") }.compactMap { line in
        (try? JSONValue(parsing: String(line.split(separator: " ", maxSplits: 1)[1])))?["unique_id"]?.string
      }
      #expect(Set(ids).count == ids.count && ids.count >= 4, "each described once: \(ids)")
    }

    @Test(arguments: ["auto", "5"])
    func `a broker without retention and with small packets gets all it can accept`(_ version: String) throws {
      let rig = try Rig()
      let broker = try TestBroker(rig, extra: "allow_anonymous true\nretain_available false\nmax_packet_size 200")
      let subscriber = try broker.counter()
      try rig.startRadio()
      configure(
        rig, broker, "version = \"\(version)\"\ntemplate = '{\"text\": \"{{text}}\", \"again\": \"{{text}}\"}'")
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 short")
      rig.radio?.write("chan r1 0 \(String(repeating: "long ", count: 24))end")
      rig.radio?.write("chan r1 0 the third")
      func published() -> [String] { subscriber.lines.filter { $0.hasPrefix("meshpost/hill/message ") } }
      try untilTrue("both that fit: \(subscriber.lines), \(rig.gateway?.lines.suffix(5) ?? [])") {
        published().contains { $0.contains("the third") }
      }
      #expect(published().contains { $0.contains("short") } && !published().contains { $0.contains("long long") })
      try untilTrue("the dead letter: \(rig.gateway?.lines.suffix(5) ?? [])") {
        try rig.meshpost("upstream", "dead").lines.joined().contains("the packet is too large")
      }
      #expect(broker.program?.lines.contains { $0.contains("as meshpost-hill-broker (p5") } == true)
    }

    @Test func `the gateway connects with TLS client certificates, and after a wrong password is corrected`() throws {
      let rig = try Rig()
      let folder = rig.scratch.folder.path()
      let authority = try TestAuthority(rig, names: ["localhost", "gateway"])
      let passwords = ["-c", "-b", rig.scratch.location("passwords"), "hill", "right"]
      #expect(try Program("/usr/bin/mosquitto_passwd", passwords).ended() == 0)
      let broker = try TestBroker(
        rig,
        extra: """
          \(authority.broker("localhost"))
          require_certificate true
          password_file \(folder)/passwords
          """)
      try rig.startRadio()
      _ = rig.scratch.write("password", "wrong\n")
      func write(_ extra: String) throws {
        configure(rig, broker, extra)
        let file = rig.scratch.location("gw.toml")
        let text = try String(contentsOfFile: file, encoding: .utf8)
        _ = rig.scratch.write("gw.toml", text.replacingOccurrences(of: "mqtt://127.0.0.1", with: "mqtts://localhost"))
      }
      let trust = "ca_file = \"\(folder)/ca.pem\""
      let login = "user = \"hill\"\npassword_file = \"\(folder)/password\""
      try write("\(trust)\n\(login)")
      try rig.startGateway()
      try untilTrue("the problem to be logged: \(rig.gateway?.lines ?? [])") {
        rig.gateway?.lines.contains { $0.contains("certificate") } == true
      }
      let certificate = "cert_file = \"\(folder)/gateway.pem\"\nkey_file = \"\(folder)/gateway.key\""
      try write("\(trust)\n\(login)\n\(certificate)")
      rig.gateway?.send(SIGHUP)
      try rig.gateway?.line(with: "stopped: the broker refuses")
      _ = rig.scratch.write("password", "right\n")
      #expect(try rig.meshpost("upstream", "resume", "broker").code == 0)
      rig.radio?.write("chan r1 0 over TLS")
      try untilTrue("published") { try rig.status()?["upstreams"]?.array?.first?["pending"]?.integer == 0 }
      #expect(rig.gateway?.lines.joined().contains("right") == false)
    }
  }
}

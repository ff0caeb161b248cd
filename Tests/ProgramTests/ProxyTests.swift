// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// One shared radio: foreign clients, at the same time.
  @Suite struct SharedRadio {
    /// A gateway with a virtual radio of 60 contacts and 8 channels, and a proxy; returns its port.
    private func share(_ extra: String = "") throws -> (Rig, UInt16) {
      let rig = try Rig()
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      try rig.startRadio(["--contacts", "60", "--queue", "1000"])
      rig.writeGatewayConfiguration(
        extra: """
          [messaging]
          airtime_per_hour_s = 3600
          messages_per_hour = 3600
          [[proxy]]
          name = "apps"
          listen = "127.0.0.1:\(port)"
          \(extra)
          """)
      try rig.startGateway()
      try rig.gateway?.line(with: "share the radio")
      try rig.waitForSync()
      for slot in 1..<8 {
        let added = try rig.meshpost("channel", "add", "#ch\(slot)")
        #expect(added.code == 0, "\(added.lines)")
      }
      return (rig, port)
    }

    private func cli(_ port: UInt16, _ arguments: [String]) throws -> Program {
      try Program(
        Program.python,
        ["-u", "-m", "meshcore_cli.meshcore_cli", "-t", "127.0.0.1", "-p", "\(port)", "-j"] + arguments)
    }

    /// The lines for one `meshcore-cli`, and the expected counts of texts in its output.
    private func script(_ rig: Rig, _ number: Int, commands: Int) -> (
      location: String, slots: [Int], counts: [String: Int]
    ) {
      var random = SplitMix(seed: UInt64(number))
      var (slots, counts): ([Int], [String: Int]) = ([], [:])
      let kinds = [
        ("clock", "\"time\":"), ("ver", "\"fw ver\":"), ("self_telemetry", "\"lpp\":"), ("get bat", "\"level\":"),
        ("msg r1 \"from cli \(number)\"", "\"expected_ack\":"),
      ]
      let lines = (0..<commands).map { place -> String in
        if place % 3 == 0 {
          slots.append(Int(random.next() % 8))
          return "get_channel \(slots[slots.count - 1])"
        }
        // Only a few messages, because air time is limited.
        let kind = kinds[place % 40 == 1 ? 4 : Int(random.next() % 4)]
        counts[kind.1, default: 0] += 1
        return kind.0
      }
      let location = rig.scratch.write("script\(number)", lines.joined(separator: "\n") + "\n")
      return (location, slots, counts)
    }

    @Test
    func `five clients share a radio: each of 10,000 commands gets its own answer`()
      throws
    {
      let (rig, port) = try share()
      let messages = 300
      let end = rig.scratch.write("end", "sync_msgs\n")
      let library = try Program(
        Program.python, ["hardware/clients.py", "--port", "\(port)", "--commands", "4000", "--messages", "\(messages)"])
      try library.line(with: "started")
      let scripts = (1...3).map { script(rig, $0, commands: 2000) }
      let clients = try scripts.map { try cli(port, ["script", $0.location, "wait_key", "script", end]) }
      try untilTrue("four clients") {
        try rig.status()?["proxies"]?.array?.first?["clients"]?.array?.count == 4
      }
      let deaf = try DeafClient(port: port)
      rig.radio?.write("inject r0 30 \(messages)")
      try untilTrue(
        """
        the proxy to let go of a client that does not read: \(rig.status()?["proxies"] ?? .null), \
        radio \(rig.status()?["radio"] ?? .null), \(rig.gateway?.lines.suffix(20) ?? [])
        """
      ) { deaf.isLetGo() }
      try rig.radio?.line(with: "\"injected\":\(messages)")
      try untilTrue("all messages in the store") {
        try rig.status()?["store"]?["messages"]?.integer ?? 0 >= Int64(messages)
      }
      let report = try JSONValue(parsing: try library.line(with: "\"commands\""))
      #expect(report["wrong"]?.array?.isEmpty == true, "\(report["wrong"]?.array?.prefix(5) ?? [])")
      let texts = report["texts"]?.array?.compactMap(\.string) ?? []
      #expect(Set(texts).count == texts.count, "a message came twice")
      for (client, script) in zip(clients, scripts) {
        client.write("")
        #expect(try client.ended() == 0)
        check(client.lines.joined(separator: "\n"), script.slots, script.counts, texts)
      }
      #expect(try rig.status()?["sync"]?["counters"]?["timeouts"]?.integer == 0)
    }

    /// The gateway's time passes ten times as fast (Tests/Doubles/faster.c): two minutes are twelve seconds.
    @Test func `clients that neither read nor ask lose their places, and one that reads keeps its place`() throws {
      let rig = try Rig()
      let fast = rig.scratch.location("faster.so")
      let double = Checkout.folder.appending(path: "Tests/Doubles/faster.c").path()
      #expect(try Program("cc", ["-shared", "-fPIC", "-o", fast, double]).ended() == 0)
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      try rig.startRadio(["--contacts", "60"])
      rig.writeGatewayConfiguration(extra: "[[proxy]]\nname = \"apps\"\nlisten = \"127.0.0.1:\(port)\"")
      let gateway = try Program(
        Program.programs.appending(path: "meshpostd").path(), ["--config", rig.scratch.location("gw.toml")],
        environment: ["LD_PRELOAD": fast, "MESHPOST_TEST_SPEED": "10"])
      rig.gateway = gateway
      try gateway.line(with: "share the radio")
      try rig.waitForSync()
      func clients() throws -> [JSONValue] { try rig.status()?["proxies"]?.array?.first?["clients"]?.array ?? [] }
      let reader = try WireClient(port: port)
      let hello: [UInt8] = [1, 3, 32, 32, 32, 32, 32, 32, 65]
      #expect(try reader.ask(hello).first == 5)
      let deaf = try (0..<7).map { _ in try DeafClient(port: port) }
      // The answer fits into its kernel.
      for client in deaf { client.send(hello) }
      try untilTrue("all places are taken") {
        try clients().count { $0["program"]?.string?.isEmpty == false } == 8
      }
      let shown = try rig.meshpost("status").lines.first { $0.hasPrefix("shared") } ?? ""
      #expect(shown.contains("with 8 (apps/127.0.0.1/1, "), "\(shown)")
      #expect(try WireClient(port: port).isLetGo(), "there is no place")
      try gateway.line(with: "127.0.0.1 refused: 8 clients are already connected")
      // The list does not.
      for client in deaf { client.send([4]) }
      try untilTrue("their places are free: \(gateway.lines.suffix(9))") { try clients().count == 1 }
      let lines = gateway.lines.filter { $0.contains("disconnected: it took nothing for 120 s of what waits for it") }
      #expect(lines.count == 7, "\(lines)")
      #expect(try reader.ask([5]).first == 9, "silent for two minutes, too, but nothing waited for it")
      #expect(try WireClient(port: port).ask(hello).first == 5)
      withExtendedLifetime(deaf) {}
    }

    @Test func `a client that connects again before its lost connection has ended misses no message`() throws {
      let rig = try Rig()
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      try rig.startRadio(["--contacts", "60"])
      rig.writeGatewayConfiguration(extra: "[[proxy]]\nname = \"apps\"\nlisten = \"127.0.0.1:\(port)\"")
      try rig.startGateway()
      try rig.gateway?.line(with: "share the radio")
      try rig.waitForSync()
      // Its machine takes no more: the list of contacts fills its kernel.
      let lost = try DeafClient(port: port)
      lost.send([1, 3, 32, 32, 32, 32, 32, 32, 65], [10], [4])
      try untilTrue("something waits for it") {
        try rig.status()?["proxies"]?.array?.first?["clients"]?.array?.first?["unread_bytes"]?.integer ?? 0 > 0
      }
      rig.radio?.write("chan r1 0 while it was away")
      try untilTrue("stored") { try rig.status()?["store"]?["messages"]?.integer == 1 }
      let again = try WireClient(port: port)
      #expect(try again.ask([1, 3, 32, 32, 32, 32, 32, 32, 65]).first == 5)
      let message = try again.ask([10])
      #expect(String(decoding: message, as: UTF8.self).contains("while it was away"), "\(message)")
      #expect(try again.ask([10]) == [10])
      withExtendedLifetime(lost) {}
    }

    /// Checks the output of one `meshcore-cli`: each answer belongs to its own command, and all messages are there.
    private func check(_ output: String, _ slots: [Int], _ counts: [String: Int], _ texts: [String]) {
      #expect(output.matches(of: /'channel_idx': (\d+)/).map { Int($0.output.1) } == slots)
      for (words, count) in counts {
        // Acknowledged messages have their own line with another word.
        #expect(output.ranges(of: words).count == count, "\(words)")
      }
      #expect(!output.contains("Problem executing") && !output.contains("\"error"), "\(output.suffix(500))")
      let missing = texts.filter { !output.contains("\($0)\"") }
      #expect(missing.isEmpty, "\(missing.count) messages missing: \(missing.prefix(3))")
    }

    @Test func `a harmful command is refused, unless the client is allowed to send it`() throws {
      let (rig, port) = try share("allow = [\"pin\"]")
      let client = try WireClient(port: port)
      let key = Array(repeating: UInt8(0), count: 32)
      for (frame, words) in [
        ([19] + Array("reboot".utf8), "reboot"), ([51] + Array("reset".utf8), "factory_reset"), ([23], "private_key"),
        ([33], "sign"),
      ] {
        #expect(try client.ask(frame) == [1, 1], "\(words)")
        try rig.gateway?.line(with: "requested \(words)")
      }
      #expect(try client.ask([37, 0x40, 0xE2, 1, 0]) == [0], "the PIN is allowed here")
      #expect(try client.ask([15] + key) == [1, 2], "a key of zeros is an empty entry of the radio's table")
      #expect(try client.ask([3, 0, 30, 0, 0, 0, 0, 65]) == [1, 3], "an empty slot is a channel that anybody reads")
      #expect(try client.ask([9, 1, 2]) == [1, 1], "too short: the radio would fill it with leftovers")
      #expect(try client.ask([5]).first == 9, "and the connection still works")
      #expect(try rig.status()?["radio"]?["state"]?.string == "up")
    }

    @Test func `a web page's request is not carried out, nor are bytes after a frame that are no frame`() throws {
      let (rig, port) = try share("allow = [\"name\", \"channels\", \"radio\"]")
      let rename = SerialFraming.wrap([8] + Array("owned".utf8), .toRadio)
      let say = SerialFraming.wrap([3, 0, 0, 0, 0, 0, 0] + Array("owned".utf8), .toRadio)
      let head = "POST / HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nContent-Type: text/plain\r\nContent-Length: 99\r\n\r\n"
      let battery = SerialFraming.wrap([20], .toRadio)
      for bytes in [Array(head.utf8) + rename + say, battery + [10] + rename + say, [0x3C, 0xFF, 0xFF] + rename] {
        let client = try WireClient(port: port)
        client.send(raw: bytes)
        #expect(client.isLetGo(), "\(bytes.prefix(4))")
      }
      let client = try WireClient(port: port)
      let head2 = try WireClient(port: port)
      head2.send(raw: Array(head.utf8))
      #expect(head2.isLetGo(), "at once, before the body comes")
      #expect(try client.ask([66, 1, 2]) == [1, 1], "a command that nobody knows yet")
      #expect(try client.ask([200]) == [1, 1])
      let me = try client.ask([1, 3, 32, 32, 32, 32, 32, 32, 65])
      #expect(String(decoding: me.suffix(2), as: UTF8.self) == "r0")
      #expect(try client.ask([8] + Array("mine".utf8)) == [0], "a client that may")
      #expect(try rig.status()?["radio"]?["state"]?.string == "up")
    }

    @Test func `foreign clients read and send unchanged, and a change of the radio needs permission`() throws {
      let (rig, port) = try share("allow = [\"name\"]")
      func run(_ arguments: String...) throws -> String {
        let program = try cli(port, arguments)
        _ = try program.ended()
        return program.lines.joined(separator: "\n")
      }
      #expect(try run("infos").contains("\"name\": \"r0\""))
      #expect(try run("msg", "r1", "hi", "wait_ack").contains("ack"))
      _ = try run("set", "tx", "3")
      try rig.gateway?.line(with: "requested radio")
      _ = try run("set", "name", "hill")
      #expect(try run("infos").contains("\"name\": \"hill\""))
    }

    @Test func `each client has its own position in the messages, also after a kill of the gateway`() throws {
      let (rig, port) = try share()
      let (first, second) = (try WireClient(port: port), try WireClient(port: port))
      // A position begins with the first request.
      for client in [first, second] { #expect(try client.ask([10]) == [10]) }
      rig.radio?.write("chan r1 0 one")
      try rig.radio?.line(with: "chan r1 0 one")
      try first.push(0x83)
      #expect(String(decoding: try first.ask([10]).suffix(7), as: UTF8.self) == "r1: one")
      #expect(try first.ask([10]) == [10])
      first.close()
      try untilTrue("the first has gone") { try rig.status()?["proxies"]?.array?.first?["clients"]?.array?.count == 1 }
      rig.gateway?.kill9()
      rig.radio?.write("chan r1 0 two")
      try rig.startGateway()
      try rig.gateway?.line(with: "share the radio")
      try untilTrue("the second message to be stored") { try rig.status()?["store"]?["messages"]?.integer == 2 }
      let again = try WireClient(port: port)
      #expect(
        String(decoding: try again.ask([10]).suffix(7), as: UTF8.self) == "r1: two", "its own place: not `one` again")
      let other = try WireClient(port: port)
      #expect(
        String(decoding: try other.ask([10]).suffix(7), as: UTF8.self) == "r1: one", "which the first had not taken")
      _ = second
    }

    @Test func `while the radio is away, clients read stored data, and other commands fail`() throws {
      let (rig, port) = try share()
      rig.radio?.write("chan r1 0 before")
      let client = try WireClient(port: port)
      try client.push(0x83)
      rig.killRadio()
      try untilTrue("the link to be down") { try rig.status()?["radio"]?["state"]?.string == "down" }
      #expect(try client.ask([5]) == [1, 4])
      #expect(try client.ask([22, 3]).first == 13, "the radio's last known answer")
      let me = try client.ask([1, 3, 32, 32, 32, 32, 32, 32, 65])
      #expect(me.first == 5 && String(decoding: me.suffix(2), as: UTF8.self) == "r0")
      #expect(String(decoding: try client.ask([10]).suffix(10), as: UTF8.self) == "r1: before")
      try rig.startRadio(["--contacts", "60", "--queue", "1000"])
      try rig.waitForSync()
      #expect(try client.ask([5]).first == 9)
    }
  }
}

/// Deterministic numbers.
private struct SplitMix {
  var state: UInt64
  init(seed: UInt64) { state = seed }
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var value = state
    value = (value ^ value >> 30) &* 0xBF58_476D_1CE4_E5B9
    value = (value ^ value >> 27) &* 0x94D0_49BB_1331_11EB
    return value ^ value >> 31
  }
}

/// A client that sends the test's bytes.
private final class WireClient {
  private let socket: Int32
  private var decoder = SerialDecoder(.fromRadio)
  private var pushes: [[UInt8]] = []
  private let loop = EventLoop()

  init(port: UInt16) throws {
    socket = try LoopbackPort.connect(port)
    var limit = timeval(tv_sec: 30, tv_usec: 0)
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
  }

  deinit { close() }

  func close() { Glibc.shutdown(socket, Int32(SHUT_RDWR)) }

  func send(_ frame: [UInt8]) {
    let bytes = SerialFraming.wrap(frame, .toRadio)
    _ = Glibc.write(socket, bytes, bytes.count)
  }

  func send(raw bytes: [UInt8]) { _ = Glibc.send(socket, bytes, bytes.count, Int32(MSG_NOSIGNAL)) }

  /// Whether the other end has closed the connection.
  func isLetGo() -> Bool {
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {
      let count = read(socket, &buffer, buffer.count)
      if count <= 0 { return count == 0 || errno == ECONNRESET }
    }
  }

  func ask(_ frame: [UInt8]) throws -> [UInt8] {
    send(frame)
    while true {
      let frame = try next()
      if frame[0] < 0x80 { return frame }
      pushes.append(frame)
    }
  }

  /// Waits for a push with this code.
  func push(_ code: UInt8) throws {
    while !pushes.contains(where: { $0.first == code }) { pushes.append(try next()) }
  }

  private func next() throws -> [UInt8] {
    while true {
      if let frame = decoder.next(now: loop.now) { return frame }
      var buffer = [UInt8](repeating: 0, count: 4096)
      let count = read(socket, &buffer, buffer.count)
      guard count > 0 else { throw Program.Waited(description: "the proxy says nothing (\(count))") }
      decoder.append(buffer.prefix(count), now: loop.now)
    }
  }
}

/// A client that reads nothing.
private final class DeafClient {
  private let socket: Int32

  /// The buffer is small from the start: a window that was offered is not taken back, and a kernel that drops what it has offered to take
  /// acknowledges nothing, so that this client's commands would stay in its own kernel.
  init(port: UInt16) throws { socket = try LoopbackPort.connect(port, receiveBuffer: 4096) }

  deinit { close(socket) }

  func send(_ frames: [UInt8]...) {
    let bytes = frames.flatMap { SerialFraming.wrap($0, .toRadio) }
    _ = Glibc.send(socket, bytes, bytes.count, Int32(MSG_NOSIGNAL))
  }

  /// Asks ten times for all contacts, and reads no answer.
  func isLetGo() -> Bool {
    let frame = SerialFraming.wrap([4], .toRadio)
    return (0..<10).contains { _ in Glibc.send(socket, frame, frame.count, Int32(MSG_NOSIGNAL)) < 0 }
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import Glibc
import HTTP
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Programs that hooks run.
  @Suite struct Hooks {
    private static let user = geteuid() == 0 ? "user = \"nobody\"" : ""

    /// A gateway with this hook; the hook's user may write to the folder.
    private func rig(_ run: [String], _ more: String = "", nodes: Int = 2) throws -> Rig {
      let rig = try Rig()
      chmod(rig.scratch.folder.path(), 0o777)
      try rig.startRadio(["--nodes", "\(nodes)"])
      let arguments = run.map { "\"\($0)\"" }.joined(separator: ", ")
      rig.writeGatewayConfiguration(
        extra: "[[hook]]\nname = \"h\"\nkinds = [\"message\"]\nrun = [\(arguments)]\n\(Self.user)\n\(more)")
      try rig.startGateway()
      try rig.waitForSync()
      return rig
    }

    private func script(_ rig: Scratch, _ text: String) -> String {
      let location = rig.write("hook.sh", "#!/bin/sh\n\(text)\n")
      chmod(location, 0o755)
      return location
    }

    private func deadLetters(_ rig: Rig) throws -> [String] {
      let outbox = try JSONValue(parsing: rig.control("GET", "/v1/outbox")?.body ?? [])
      return outbox["dead_letters"]?.array?.compactMap { $0["reason"]?.string } ?? []
    }

    private static let folder = Checkout.folder.appending(path: "deploy/hooks").path()

    @Test func `the ping bot answers a ping, directly and on a channel, and nothing else`() throws {
      let rig = try rig(["\(Self.folder)/ping"], "reply = true")
      rig.radio?.write("dm r1 r0 ping")
      rig.radio?.write("chan r1 0 hello")
      rig.radio?.write("chan r1 0 !ping")
      func sent() throws -> [String] { try rig.meshpost("sent").lines.filter { $0.contains("pong") } }
      try untilTrue("two answers: \(try sent()) \(rig.gateway?.lines ?? [])") { try sent().count == 2 }
      try untilTrue("the direct one to be delivered") { try sent().contains { $0.contains("delivered") } }
      #expect(try sent().allSatisfy { $0.contains("heard you") && $0.contains("dB") })
    }

    @Test func `the weather bot asks and answers, and without a network it says so`() throws {
      let loop = EventLoop()
      let server = try HTTPServer(loopbackPort: 0, on: loop) { request, responder in
        let body = #"{"current":{"temperature_2m":-3.5,"wind_speed_10m":12,"weather_code":71}}"#
        responder.respond(HTTPResponse(status: request.query["latitude"] == "47.1" ? 200 : 400, body: Array(body.utf8)))
      }
      defer { server.stop() }
      func ask(_ url: String) throws -> [String] {
        let message = #"{"kind":"message","body":{"text":"weather"}}"#
        let bot = try Program("\(Self.folder)/weather", ["47.1", "8.2", url])
        bot.write(message)
        bot.endInput()
        while bot.exitCode == nil { loop.schedule(after: .milliseconds(10)) {}; loop.turn(wait: true) }
        #expect(try bot.ended() == 0)
        return bot.lines
      }
      #expect(try ask("http://127.0.0.1:\(server.port)/v1").last == "-3.5 °C, wind 12 km/h, light snow")
      #expect(try ask("http://127.0.0.1:1/v1").last == "I cannot get at the weather now")
    }

    @Test func `a hook that takes too long or too much memory, or fails, is ended, and the next event runs`() throws {
      let scratch = Scratch()
      chmod(scratch.folder.path(), 0o777)
      let program = script(
        scratch,
        """
        event=$(cat)
        case "$event" in
        *slow*) sleep 300 & echo $! > \(scratch.location("child")); sleep 300;;
        *greedy*) exec python3 -c 'x = bytearray(1 << 30)';;
        *wrong*) echo "it does not like that" >&2; exit 3;;
        *) echo "$(id -un) $(ulimit -v) $MESHPOST_KIND" > \(scratch.location("good"));;
        esac
        """)
      let rig = try rig([program], "timeout_s = 1\nmemory = \"64 MiB\"")
      for word in ["slow", "greedy", "wrong", "good"] { rig.radio?.write("chan r1 0 \(word)") }
      var more = 0
      let good = try until("the last one to run: \(rig.gateway?.lines ?? [])") {
        try? String(contentsOfFile: scratch.location("good"), encoding: .utf8)
      }
      let user = geteuid() == 0 ? "nobody" : NSUserName()
      #expect(good.trimmingCharacters(in: .whitespacesAndNewlines) == "\(user) 65536 message")
      // A failing event is at fault once another is accepted meanwhile: the later events show this.
      let reasons = try until("three that failed: \(rig.gateway?.lines ?? [])") {
        more += 1
        if more % 10 == 0 { rig.radio?.write("chan r1 0 good too \(more)") }
        _ = rig.control("POST", "/v1/outbox/resume")
        return try deadLetters(rig).count == 3 ? try deadLetters(rig) : nil
      }
      #expect(reasons[0].contains("longer than 1 s"), "\(reasons)")
      #expect(reasons[1].contains("MemoryError"), "\(reasons)")
      #expect(reasons[2] == "exit code 3: it does not like that", "\(reasons)")
      let child = try #require(Int32(try String(contentsOfFile: scratch.location("child"), encoding: .utf8).dropLast()))
      try untilTrue("the slow hook's child process to end") { kill(child, 0) != 0 }
    }

    @Test func `a hook that fails for all events for a while is in trouble, and no event becomes a dead letter`() throws
    {
      let scratch = Scratch()
      chmod(scratch.folder.path(), 0o777)
      let (seen, broken) = (scratch.location("seen"), scratch.write("broken", ""))
      let program = script(
        scratch,
        """
        if [ -e \(broken) ]; then echo "no interpreter" >&2; [ $(($$ % 2)) = 0 ] && kill -9 $$; exit 1; fi
        python3 -c 'import json, sys; print(json.load(sys.stdin)["body"]["text"])' >> \(seen)
        """)
      let rig = try rig([program])
      for number in 1...4 { rig.radio?.write("chan r1 0 number \(number)") }
      try untilTrue("all four in the store") { try rig.status()?["store"]?["messages"]?.integer == 4 }
      func hook() throws -> JSONValue? {
        try rig.status()?["upstreams"]?.array?.first { $0["name"]?.string == "hook/h" }
      }
      for _ in 0..<6 {
        try untilTrue("a pause: \(rig.gateway?.lines ?? [])") { try hook()?["state"]?.string == "waiting" }
        let reason = try hook()?["reason"]?.string ?? ""
        #expect(reason.contains("exit code 1: no interpreter") || reason.contains("signal 9"), "\(reason)")
        _ = rig.control("POST", "/v1/outbox/resume")
      }
      try FileManager.default.removeItem(atPath: broken)
      try untilTrue("all four: \(rig.gateway?.lines ?? [])") {
        _ = rig.control("POST", "/v1/outbox/resume")
        return try hook()?["pending"]?.integer == 0
      }
      let texts = try String(contentsOfFile: seen, encoding: .utf8).split(separator: "\n")
      #expect(Set(texts) == Set((1...4).map { "number \($0)" }) && texts.count == 4, "each once: \(texts)")
      #expect(try deadLetters(rig).isEmpty)
    }

    @Test func `over kills and restarts a hook gets each message once and in order, and a postponed one later`() throws
    {
      let scratch = Scratch()
      chmod(scratch.folder.path(), 0o777)
      let (seen, tried, go) = (scratch.location("seen"), scratch.location("tried"), scratch.location("go"))
      let program = script(
        scratch,
        """
        python3 -c 'import json, sys; print(json.load(sys.stdin)["body"]["text"])' > \(scratch.location("now"))
        if grep -q 2 \(scratch.location("now")) && [ ! -e \(go) ]; then echo x >> \(tried); echo later >&2; exit 75; fi
        cat \(scratch.location("now")) >> \(seen)
        """)
      let rig = try rig([program])
      // `try?`: the file may not exist yet.
      func lines(_ file: String) -> [String] {
        ((try? String(contentsOfFile: file, encoding: .utf8)) ?? "").split(separator: "\n").map(String.init)
      }
      func texts() -> [String] { lines(seen) }
      for number in 1...3 {
        rig.radio?.write("chan r1 0 number \(number)")
        if number == 1 { try untilTrue("the first") { texts().count == 1 } }
      }
      try untilTrue("it to be asked to wait") {
        rig.gateway?.lines.contains { $0.contains("it asks for a retry") } == true
      }
      // A message that the radio hands over at the kill is lost and reported as lost; this test does not need it.
      try untilTrue("three stored: \(rig.gateway?.lines ?? [])") {
        try rig.meshpost("messages", "--json").lines.count == 3
      }
      // Just after an attempt, so none is under way.
      let before = lines(tried).count
      try untilTrue("another try") { lines(tried).count > before }
      rig.gateway?.kill9()
      _ = scratch.write("go", "")
      rig.radio?.write("chan r1 0 number 4")
      try rig.startGateway()
      try untilTrue("all four: \(texts()) \(rig.gateway?.lines ?? [])") { texts().count >= 4 }
      #expect(texts() == (1...4).map { "number \($0)" })
    }

    @Test func `pings that waited in the radio are not answered, and are marked as having waited`() throws {
      let rig = try Rig()
      rig.writeGatewayConfiguration(
        extra:
          "[[hook]]\nname = \"h\"\nkinds = [\"message\"]\nrun = [\"\(Self.folder)/ping\"]\nreply = true\n\(Self.user)")
      try rig.startRadio()
      for word in ["ping", "Ping", "!ping"] { rig.radio?.write("dm r1 r0 \(word)") }
      func queued() throws -> Int64 { try rig.radioStats()["queued"]?.integer ?? 0 }
      try untilTrue("messages in the radio: \(try rig.radioStats())") { try queued() == 3 }
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 PING")
      func sent() throws -> [String] { try rig.meshpost("sent").lines.filter { $0.contains("pong") } }
      try untilTrue("an answer to the one that is new: \(rig.gateway?.lines ?? [])") { try sent().count == 1 }
      let messages = try rig.meshpost("messages", "--json").lines.map { try JSONValue(parsing: Array($0.utf8)) }
      let waited = messages.filter { $0["waited"]?.bool == true }.compactMap { $0["text"]?.string }
      #expect(Set(waited) == ["ping", "Ping", "!ping"], "\(messages)")
      #expect(try sent().count == 1)
    }
  }
}

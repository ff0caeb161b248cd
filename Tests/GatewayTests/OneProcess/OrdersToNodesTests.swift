// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import HTTP
import JSON
import Testing

@testable import VirtualRadio

/// A repeater as its admin sees it: its clock, its status and its command line.
private final class Ridge {
  let key: PublicKey
  let rig: Rig
  /// Seconds that its clock is ahead.
  var offset: Int64 = 0
  var uptime: UInt32 = 500_000
  var settings = ["name": "Ridge", "tx": "22", "radio": "869.618,62.5,8,8"]
  var commands: [String] = []
  /// It does not answer.
  var isSilent = false
  /// What it takes us for: 3 is its admin.
  var role: UInt8 = 3
  /// Its admin has logged in since it was reset.
  var knowsUs = false
  var onCommand: (String) -> Void = { _ in }
  /// The same, with its mark.
  var onText: (String) -> Void = { _ in }

  init(_ rig: Rig) throws {
    self.rig = rig
    // The radio encrypts what it sends: not every number is a key.
    key = VirtualRadio(VirtualRadioSettings(name: "Ridge", seed: 4711), on: rig.loop).key
    #expect(
      try rig.post("/v1/contacts/put", #"{"key":"\#(key.hex)","name_hex":"5269646765","type":2}"#).status == 200)
    try rig.until("the contact") { try rig.rows("/v1/contacts").contains { $0["name"]?.string == "Ridge" } }
    listen()
    #expect(try rig.post("/v1/node/login", #"{"node":"Ridge","password":"password"}"#).status == 200)
    // It is in care from the next look on.
    rig.pass(.seconds(1300))
  }

  /// Call it after each start of the gateway that was killed: it has a link of its own.
  func listen() { rig.link.onCommand = { [weak self] in self?.hear($0) } }

  private var time: Int64 { rig.machine.wallMilliseconds / 1000 + offset }

  private func hear(_ command: Command) {
    switch command {
    case .sendLogin(key, _):
      knowsUs = true
      answer { [self] in
        rig.radio.push(
          .loginSuccess(
            LoginSuccess(
              permissions: role == 3 ? 1 : 0, prefix: key.prefix, serverTime: UInt32(time), acl: role, firmwareLevel: 1)
          ))
      }
    case .sendStatusRequest(key):
      answer { [self] in rig.radio.push(.statusResponse(key.prefix, data: status)) }
    case .sendText(let text) where text.recipient == key.prefix && text.type == .cliData:
      guard knowsUs else { return }
      let (mark, command) = (text.text.string.prefix(3), String(text.text.string.dropFirst(3)))
      commands.append(command)
      onText(text.text.string)
      onCommand(command)
      guard let reply = carryOut(command) else { return }
      answer { [self] in say(mark + reply) }
    default: break
    }
  }

  /// A text of its command line.
  func say(_ text: String) {
    rig.radio.queue(
      .contact(
        ContactMessage(
          snr: nil, sender: key.prefix, path: ReceivedPath(raw: 0xFF), textType: .cliData, senderTime: UInt32(time),
          text: Text(text))))
  }

  private func answer(_ body: @escaping () -> Void) {
    guard !isSilent else { return }
    _ = rig.loop.schedule(after: .seconds(1), body)
  }

  private var status: [UInt8] {
    // `try!`: 48 zeros are a status.
    var status = try! NodeStatus(decoding: [UInt8](repeating: 0, count: 48), of: .repeater)
    (status.uptime, status.batteryMillivolts, status.noiseFloor) = (uptime, 4000, -110)
    return status.encode()
  }

  private func carryOut(_ command: String) -> String? {
    let words = command.split(separator: " ").map(String.init)
    switch words.first {
    case "clkreboot", "reboot":
      if words[0] == "clkreboot" { offset = 1_715_770_351 - rig.machine.wallMilliseconds / 1000 }
      uptime = 5
      return nil
    case "time":
      guard let epoch = Int64(words[1]), epoch > time else { return "ERR: clock cannot go backwards" }
      offset = epoch - rig.machine.wallMilliseconds / 1000
      return "OK - clock set"
    case "ver": return "v1.9.0 (Build: 1 Jan 2025)"
    case "get": return settings[words[1]].map { "> \($0)" } ?? "??: \(words[1])"
    default: return "Unknown command"
    }
  }

  /// Sends a request, and returns its answer once it is there.
  func ask(_ target: String, _ body: String) throws -> [JSONValue] {
    var answer: Result<HTTPResponse, HTTPFailure>?
    let client = HTTPClient(.unix(location: rig.socket), on: rig.loop)
    defer { client.close() }
    _ = rig.loop.begin {
      do throws(HTTPFailure) {
        answer = .success(
          try await client.send(HTTPRequest("POST", target, body: Array(body.utf8)), timeout: .seconds(40_000)))
      } catch {
        answer = .failure(error)
      }
    }
    try rig.until("an answer", within: .seconds(40_000)) { answer != nil }
    return try answer!.get().body.split(separator: 10).map { try JSONValue(parsing: Array($0)) }
  }
}

/// What the gateway itself does to nodes, on somebody's order.
@Suite struct OrdersToNodesTests {
  private static let setting = #"{"node":"Ridge","set":true,"reboot":true}"#

  private func alerts(_ rig: Rig) throws -> [JSONValue] { try rig.json("/v1/alerts")["alerts"]?.array ?? [] }

  private func rules(_ rig: Rig, isOpen: Bool) throws -> [String] {
    try alerts(rig).filter { ($0["ended_at"] == nil) == isOpen }.compactMap { $0["rule"]?.string }
  }

  private func offset(_ rig: Rig) throws -> Int64? {
    try rig.rows("/v1/contacts").first { $0["name"]?.string == "Ridge" }?["clock_offset_s"]?.integer
  }

  @Test func `an answer to a command of this gateway is for the one who asked, and another is a message`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let ridge = try Ridge(rig)
    ridge.settings["guest.password"] = "hello"
    let answer = try ridge.ask("/v1/node/cli", #"{"node":"Ridge","command":"get guest.password"}"#)
    #expect(answer.first?["reply"]?.string == "> hello", "\(answer)")
    // Late, and one that another program asked for.
    ridge.isSilent = true
    var mark = ""
    ridge.onText = { mark = String($0.prefix(3)) }
    _ = try ridge.ask("/v1/node/cli", #"{"node":"Ridge","command":"get name"}"#)
    ridge.say(mark + "> late")
    ridge.say("> theirs")
    try rig.until("the message") { try rig.rows("/v1/messages").contains { $0["text"]?.string == "> theirs" } }
    #expect(try rig.rows("/v1/messages").count == 1)
    #expect(rig.radio.queuedMessages == 0)
  }

  @Test func `a clock that is set right is no longer told as wrong at once, and its start anew is nobody's fault`()
    throws
  {
    let rig = try Rig()
    try rig.startSynced()
    let ridge = try Ridge(rig)
    ridge.offset = 5000
    for _ in 0..<2 {
      #expect(
        try ridge.ask("/v1/node/clock", #"{"node":"Ridge"}"#)[0]["offset_s"]?.integer.map { (4998...5002).contains($0) }
          == true)
    }
    try rig.until("the alert", within: .seconds(5)) { try rules(rig, isOpen: true) == ["node_clock_wrong"] }
    #expect(try rig.post("/v1/node/status", #"{"node":"Ridge"}"#).status == 200)
    let answer = try ridge.ask("/v1/node/clock", Self.setting)
    #expect(answer.first?["result"]?.string == "right", "\(answer)")
    #expect(ridge.commands.first == "clkreboot" && (-15...0).contains(ridge.offset), "\(ridge.commands)")
    try rig.until("its end", within: .seconds(5)) { try rules(rig, isOpen: true).isEmpty }
    #expect(try rig.post("/v1/node/status", #"{"node":"Ridge"}"#).status == 200)
    rig.pass(.seconds(60))
    #expect(try rules(rig, isOpen: false) == ["node_clock_wrong"])
    let told = try alerts(rig)
    #expect(!told.contains { $0["text"]?.string?.contains("days") ?? false }, "\(told)")
    #expect(try (-16...0).contains(offset(rig) ?? 99), "contacts show the clock that was read")
    // A start that nobody has ordered is told.
    ridge.uptime = 3
    #expect(try rig.post("/v1/node/status", #"{"node":"Ridge"}"#).status == 200)
    try rig.until("the restart", within: .seconds(5)) { try rules(rig, isOpen: true) == ["node_restarted"] }
  }

  @Test func `a clock that was being set when the gateway was killed is told of, and finished`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let ridge = try Ridge(rig)
    ridge.offset = 5000
    ridge.onCommand = { if $0 == "clkreboot" { ridge.isSilent = true } }
    let client = HTTPClient(.unix(location: rig.socket), on: rig.loop)
    _ = rig.loop.begin {
      // `try?`: the gateway is killed meanwhile.
      _ = try? await client.send(
        HTTPRequest("POST", "/v1/node/clock", body: Array(Self.setting.utf8)), timeout: .seconds(900))
    }
    try rig.until("it to be started anew") { ridge.isSilent }
    rig.kill()
    client.close()
    ridge.isSilent = false
    try rig.startSynced()
    ridge.listen()
    #expect(rig.hasSaid("meshpost node clock Ridge --set --reboot finishes it"))
    #expect(try rig.doctor().contains { $0.contains("may have been started anew to set its clock") })
    rig.pass(.seconds(1300))
    for _ in 0..<2 { _ = try ridge.ask("/v1/node/clock", #"{"node":"Ridge"}"#) }
    try rig.until("the alert", within: .seconds(5)) { try rules(rig, isOpen: true) == ["node_clock_wrong"] }
    let told = try alerts(rig)
    #expect(told.first?["text"]?.string?.hasSuffix("--set --reboot finishes it") == true, "\(told)")
    let answer = try ridge.ask("/v1/node/clock", #"{"node":"Ridge","set":true}"#)
    #expect(answer.first?["result"]?.string == "right", "\(answer)")
    try rig.until("its end", within: .seconds(5)) { try rules(rig, isOpen: true).isEmpty }
    #expect(try !rig.doctor().contains { $0.contains("started anew") })
    try rig.restart()
    try rig.untilSynced()
    #expect(try !rig.doctor().contains { $0.contains("started anew") })
  }

  @Test func `a node that is removed has no clock to finish`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let ridge = try Ridge(rig)
    ridge.offset = 5000
    ridge.onCommand = { if $0 == "clkreboot" { ridge.isSilent = true } }
    #expect(try ridge.ask("/v1/node/clock", Self.setting).first?["error"] != nil)
    #expect(try rig.doctor().contains { $0.contains("started anew") })
    #expect(try rig.post("/v1/contacts/remove?contact=Ridge", "").status == 200)
    #expect(try !rig.doctor().contains { $0.contains("started anew") })
  }

  @Test func `a clock is not set by a machine whose own was set, until it is back or somebody has compared it`() throws
  {
    let rig = try Rig()
    try rig.startSynced()
    let ridge = try Ridge(rig)
    _ = try ridge.ask("/v1/node/clock", #"{"node":"Ridge"}"#)
    rig.stepClock(by: .seconds(3600))
    ridge.offset -= 3600  // it goes on as before
    for body in [#"{"node":"Ridge"}"#, #"{"node":"Ridge","set":true}"#] {
      let answer = try ridge.ask("/v1/node/clock", body)
      #expect(
        answer.first?["error"]?.string?.hasPrefix("this machine's clock was set 60 min forward") == true, "\(answer)")
    }
    rig.pass(.seconds(2 * 86_400))
    #expect(try ridge.ask("/v1/node/clock", #"{"node":"Ridge","set":true}"#).first?["error"] != nil)
    #expect(ridge.commands.isEmpty && ridge.offset == -3600)
    #expect(rig.hasSaid("was set 60 min forward"))
    #expect(try rules(rig, isOpen: true) == ["clock_wrong"])
    #expect(try rig.doctor().contains { $0.contains("was set 60 min forward") })
    rig.machine.isWallSynchronised = false
    #expect(try rig.post("/v1/node/clock", #"{"clock_is_right":true}"#).status == 400)
    rig.machine.isWallSynchronised = true
    #expect(try rig.post("/v1/node/clock", #"{"clock_is_right":true}"#).status == 200)
    #expect(try !rig.doctor().contains { $0.contains("was set 60 min forward") })
    let answer = try ridge.ask("/v1/node/clock", #"{"node":"Ridge","set":true,"clock_is_right":true}"#)
    #expect(answer.first?["result"]?.string == "right" && ridge.offset > -15, "\(answer)")
  }

  @Test func `a node that was reset is logged in to again before the next command`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let ridge = try Ridge(rig)
    #expect(try ridge.ask("/v1/node/cli", #"{"node":"Ridge","command":"get tx"}"#)[0]["reply"]?.string == "> 22")
    ridge.knowsUs = false
    let answers = try (0..<2).map { _ in try ridge.ask("/v1/node/cli", #"{"node":"Ridge","command":"get tx"}"#)[0] }
    #expect(answers[0]["error"] != nil && answers[1]["reply"]?.string == "> 22", "\(answers)")
    #expect(ridge.commands.count == 2, "a command that was perhaps carried out is not repeated")
  }

  @Test func `a guest is told at once that only an admin gets a snapshot`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let ridge = try Ridge(rig)
    ridge.role = 0
    let rows = try ridge.ask("/v1/node/snapshot", #"{"node":"Ridge"}"#)
    #expect(rows.count == 1 && rows[0]["error"]?.string?.contains("admin") == true, "\(rows)")
    #expect(ridge.commands.isEmpty, "a guest's commands have no answer")
  }

  @Test func `a snapshot that breaks off keeps what came, and one without air time waits for it`() throws {
    let rig = try Rig()
    rig.configure("[messaging]\nairtime_per_hour_s = 15")
    try rig.startSynced()
    let ridge = try Ridge(rig)
    // Replies to commands of somebody's app on the shared radio, and one that came too late.
    ridge.onCommand = { command in
      if command == "get repeat" { for text in ["password now: hunter2", "00|> secret", "> 17"] { ridge.say(text) } }
    }
    let rows = try ridge.ask("/v1/node/snapshot", #"{"node":"Ridge"}"#)
    let snapshot = try #require(rows.last?["snapshot"])
    #expect(snapshot["settings"]?["tx"]?.string == "22" && snapshot["missing"] == nil, "\(snapshot)")
    let values = snapshot["settings"]?.fields?.compactMap { $0.1.string } ?? []
    #expect(!values.contains { $0.contains("hunter2") || $0.contains("secret") || $0.contains("17") }, "\(values)")
    #expect(ridge.commands.count == 19 && ridge.commands.first == "ver")
    #expect(rows.contains { $0["waits"] != nil }, "15 s of air time are not enough for all of it at once")
    #expect(rows.filter { $0["setting"] != nil }.last?["done"]?.integer == 19)
    ridge.onCommand = { if $0 == "get tx" { ridge.isSilent = true } }
    rig.pass(.seconds(7200))
    let cut = try #require(try ridge.ask("/v1/node/snapshot", #"{"node":"Ridge"}"#).last?["snapshot"])
    #expect(cut["settings"]?["name"]?.string == "Ridge" && cut["settings"]?["tx"] == nil)
    #expect(cut["missing"]?.array?.contains(.string("tx")) == true && cut["trouble"] != nil, "\(cut)")
    rig.kill()
    try rig.startSynced()
    ridge.listen()
    (ridge.isSilent, ridge.onCommand, ridge.commands) = (false, { _ in }, [])
    let whole = try #require(try ridge.ask("/v1/node/snapshot", #"{"node":"Ridge"}"#).last?["snapshot"])
    #expect(whole["settings"] == snapshot["settings"] && whole["missing"] == nil, "\(whole)")
    #expect(ridge.commands.first == "ver" && !ridge.commands.contains("get name") && ridge.commands.count < 15)
    let kept = try rig.rows("/v1/node/snapshots?node=Ridge")
    #expect(kept == [snapshot, cut, whole])
    let events = try rig.rows("/v1/journal?limit=1000").filter { $0["kind"]?.string == "snapshot" }
    #expect(events.map { $0["body"] } == kept)
  }
}

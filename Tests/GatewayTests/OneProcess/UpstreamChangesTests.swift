// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import Testing
import Timing

/// Upstreams are added, removed and corrected while the others run.
@Suite struct UpstreamChangesTests {
  private func isStopped(_ rig: Rig, _ name: String, because message: String) throws -> Bool {
    let found = try rig.upstream(name)
    return found?["state"]?.string == "stopped" && found?["reason"]?.string?.contains(message) == true
  }

  @Test func `a reload with a bad file stops one upstream, and the others keep their connections`() throws {
    let rig = try Rig()
    try rig.startSynced()
    try rig.until("the hub to be there") { rig.hub.greetings == 1 }
    let (pem, lost) = (rig.write("ca.pem", "this is no PEM\n"), rig.location("lost"))
    let others = """
      [[upstream]]
      name = "vault"
      url = "https://127.0.0.1:1"
      ca_file = "\(pem)"
      [[upstream]]
      name = "mute"
      url = "http://127.0.0.1:1/"
      link = "http"
      token_file = "\(lost)"
      [[hook]]
      name = "bot"
      run = ["\(rig.location("bot"))"]
      user = "nobody"
      kinds = ["message"]
      """
    rig.reload(others)
    try rig.until("the bad ones to be stopped") {
      try isStopped(rig, "vault", because: "ca_file: \(pem) has no certificates in PEM")
        && isStopped(rig, "mute", because: "token_file: \(lost) cannot be read: No such file")
        && isStopped(rig, "hook/bot", because: "does not exist")
    }
    rig.air("chan r1 0 after the reload")
    try rig.until("the message to arrive") { rig.hub.texts == ["after the reload"] }
    #expect(try rig.upstream("hub")?["last_success"] != nil)

    // The file is corrected in place, and another reload notices it.
    _ = rig.write("lost", "a-token-for-the-tests\n")
    rig.reload(others)
    try rig.until("the mended one to go on") { rig.server("mute", "hub").greetings == 1 }
    #expect(rig.hub.carriers == 1, "the hub kept its connection")
  }

  @Test func `a removed upstream resumes at its old position when it is back`() throws {
    let rig = try Rig()
    let broker = "[[upstream]]\nname = \"broker\"\nkind = \"mqtt\"\nurl = \"mqtt://127.0.0.1:1\"\n"
    rig.configure(broker)
    try rig.startSynced()
    rig.server("broker", "mqtt").mood = .unreachable
    rig.air("chan r1 0 before")
    try rig.until("it to wait") { try rig.upstream("broker")?["pending"]?.integer ?? 0 > 0 }
    rig.reload("")
    try rig.until("it to be removed") { rig.hasSaid("broker: removed; events that it had not received: ") }
    #expect(try rig.upstream("broker") == nil)
    rig.air("chan r1 0 meanwhile")
    try rig.until("the hub to have both") { rig.hub.texts == ["before", "meanwhile"] }
    rig.kill()
    try rig.startSynced()
    rig.server("broker", "mqtt").mood = .well
    rig.reload(broker)
    try rig.until("both at the broker") { rig.server("broker", "mqtt").texts == ["before", "meanwhile"] }
    #expect(try rig.status()["removed_upstreams"]?.array?.isEmpty == true)
  }

  /// A webhook or a broker with this name. `more`: further keys.
  private func table(_ kind: String, _ more: String = "") -> String {
    let url = "\(kind == "mqtt" ? "mqtt" : "http")://127.0.0.1:1"
    return "[[upstream]]\nname = \"h\"\nkind = \"\(kind)\"\nurl = \"\(url)\"\nkinds = [\"message\"]\n\(more)\n"
  }

  /// `changes`: keys of the upstream in each reload; `nil`: it is removed.
  @Test(arguments: ["webhook", "mqtt"], [["timeout_s = 20"], [nil, "timeout_s = 30"]] as [[String?]])
  func `an upstream that is changed or removed during a request sends its event once`(
    _ kind: String, _ changes: [String?]
  ) throws {
    let rig = try Rig()
    rig.configure(table(kind, "timeout_s = 30"))
    try rig.startSynced()
    let server = rig.server("h", kind)
    server.mood = .late(.seconds(3))
    rig.air("chan r1 0 one")
    try rig.until("the request") { server.tried == ["one"] }
    for change in changes {
      let line = rig.story.count
      rig.reload(change.map { table(kind, $0) } ?? "")
      try rig.until("the change") { rig.hasSaid("configuration reloaded", from: line) }
    }
    rig.air("chan r1 0 two")
    try rig.until("both") { server.texts == ["one", "two"] }
    #expect(server.tried == ["one", "two"] && server.carriers == changes.compactMap(\.self).count + 1)
  }

  @Test(arguments: ["webhook", "mqtt"])
  func `a reload that changes only others leaves a connection, and what is under way on it, alone`(_ kind: String)
    throws
  {
    let rig = try Rig()
    rig.configure(table(kind))
    try rig.startSynced()
    let server = rig.server("h", kind)
    server.mood = .late(.seconds(3))
    rig.air("chan r1 0 one")
    try rig.until("the request") { server.tried == ["one"] }
    let greetings = server.greetings
    rig.reload(table(kind) + "[[upstream]]\nname = \"other\"\nkind = \"webhook\"\nurl = \"http://127.0.0.1:2\"\n")
    try rig.until("the change") { rig.hasSaid("configuration reloaded") }
    rig.air("chan r1 0 two")
    try rig.until("both") { server.texts == ["one", "two"] }
    #expect(server.tried == ["one", "two"] && server.carriers == 1 && server.greetings == greetings)
  }

  @Test(arguments: ["webhook", "mqtt"])
  func `an event whose answer is under way when the gateway ends is not sent again`(_ kind: String) throws {
    let rig = try Rig()
    rig.configure(table(kind))
    try rig.startSynced()
    let server = rig.server("h", kind)
    server.mood = .late(.seconds(4))
    rig.air("chan r1 0 one")
    try rig.until("the request") { server.tried == ["one"] }
    rig.end()
    server.mood = .well
    try rig.startSynced()
    rig.air("chan r1 0 two")
    try rig.until("both") { server.texts == ["one", "two"] }
    #expect(server.tried == ["one", "two"])
  }

  @Test(arguments: ["webhook", "mqtt"])
  func `a server that does not answer holds up the end of the gateway for seconds, and loses nothing`(_ kind: String)
    throws
  {
    let rig = try Rig()
    rig.configure(table(kind))
    try rig.startSynced()
    let server = rig.server("h", kind)
    server.mood = .standsStill
    rig.air("chan r1 0 one")
    try rig.until("the hub to have it") { rig.hub.texts == ["one"] }
    rig.pass(.seconds(1))
    let begun = rig.loop.now
    rig.end()
    #expect(rig.loop.now - begun < .seconds(10))
    server.mood = .well
    try rig.startSynced()
    try rig.until("the event") { server.texts == ["one"] }
  }

  /// The answer to a request that adds an upstream. `more`: further fields.
  private func add(_ name: String, _ rig: Rig, _ more: String = "", url: String = "http://127.0.0.2:1") throws -> (
    status: Int, json: JSONValue
  ) {
    try rig.post("/v1/upstreams/add", #"{"name":"\#(name)","url":"\#(url)"\#(more)}"#)
  }

  @Test func `an upstream that is added with the status topic of another is warned of`() throws {
    let rig = try Rig()
    try rig.startSynced()
    func warnings(_ name: String, _ more: String) throws -> [String] {
      let answer = try add(name, rig, #","kind":"mqtt"\#(more)"#, url: "mqtt://127.0.0.1:1").json
      return answer["warnings"]?.array?.compactMap(\.string) ?? []
    }
    #expect(try warnings("first", "").isEmpty)
    let second = try warnings("second", #","client_id":"c""#)
    #expect(second.count == 1 && second[0].contains("\"first\" and \"second\" have one status_topic"), "\(second)")
    #expect(
      try warnings("third", #","client_id":"c","status_topic":"t""#).map { $0.contains("one client_id") } == [true])
  }

  @Test func `an upstream that is added in the gateway's first second keeps its first connection`() throws {
    let rig = try Rig()
    rig.edit = { $0.components(separatedBy: "[[upstream]]")[0] }
    try rig.start()
    // The gateway has not reported its first state yet.
    let added = try add("hub", rig, #","from":"start","files":{"token_file":"a-token-for-the-tests"}"#)
    #expect(added.status == 200, "\(added)")
    rig.air("chan r1 0 here")
    try rig.until("the hub to have it") {
      try rig.hub.texts == ["here"] && rig.upstream("hub")?["pending"]?.integer == 0
    }
    rig.pass(.seconds(60))
    #expect(rig.hub.greetings == 1 && rig.hub.carriers == 1)
  }

  @Test(arguments: ["", "# nothing\n\n  # else\n"])
  func `an emptied file removes no upstream, and a removed upstream resumes when it is back`(
    _ blank: String
  ) throws {
    let rig = try Rig()
    try rig.startSynced()
    try rig.until("the hub to be there") { rig.hub.greetings == 1 }
    #expect(try rig.post("/v1/upstreams/pause?upstream=hub").status == 200)
    rig.air("chan r1 0 before")
    func pending() throws -> Int64 { try rig.upstream("hub")?["pending"]?.integer ?? 0 }
    try rig.until("it to wait") { try pending() > 0 }
    rig.edit = { _ in blank }
    rig.reload("")
    try rig.until("it to be refused") { rig.hasSaid("it is empty, which would remove hub") }
    #expect(try rig.upstream("hub") != nil)
    #expect(try rig.doctor().contains { $0.contains("it is empty") })

    let waiting = try pending()
    rig.edit = { $0.components(separatedBy: "[[upstream]]")[0] }
    rig.reload("")
    try rig.until("it to be removed") {
      rig.hasSaid("hub: removed; events that it had not received: \(waiting)")
    }
    // Events in between wait, too.
    let removed = try rig.status()["removed_upstreams"]?.array?.first
    #expect(removed?["name"]?.string == "hub" && removed?["pending"]?.integer ?? 0 >= waiting, "\(removed ?? .null)")
    #expect(try rig.doctor().contains { $0.contains("events wait for it") })
    rig.air("chan r1 0 meanwhile")
    rig.kill()
    try rig.startSynced()
    rig.edit = { $0 }
    rig.reload("")
    try rig.until("it to be there") { try rig.upstream("hub") != nil }
    #expect(try rig.post("/v1/upstreams/resume?upstream=hub").status == 200)
    try rig.until("both at the hub") { rig.hub.texts == ["before", "meanwhile"] }
    #expect(try rig.status()["removed_upstreams"]?.array?.isEmpty == true)
  }

  @Test func `a gateway with bad files starts, names them, and recovers`() throws {
    let rig = try Rig()
    let pem = rig.write("ca.pem", "this is no PEM\n")
    rig.configure(
      "[[upstream]]\nname = \"vault\"\nkind = \"mqtt\"\nurl = \"mqtts://127.0.0.1:1\"\nca_file = \"\(pem)\"")
    try rig.startSynced()
    rig.server("vault", "mqtt").mood = .unreachable
    rig.air("chan r1 0 although one is bad")
    try rig.until("the message to arrive") { rig.hub.texts == ["although one is bad"] }
    #expect(try isStopped(rig, "vault", because: "no certificates in PEM"))
    let test = try rig.post("/v1/upstreams/test?upstream=vault")
    #expect(test.status == 504 && test.json["error"]?.string?.contains("no certificates in PEM") == true, "\(test)")

    // Real authorities; the server does not exist, which is a different problem.
    _ = rig.write("ca.pem", try String(contentsOfFile: "/etc/ssl/certs/ca-certificates.crt", encoding: .utf8))
    #expect(try rig.post("/v1/outbox/resume").status == 200)
    try rig.until("it to try") { try rig.upstream("vault")?["state"]?.string == "waiting" }
  }

  @Test func `a mistake in an upstream that is added names its key, and no line of a file`() throws {
    let rig = try Rig()
    try rig.startSynced()
    func error(_ more: String) throws -> String? {
      try add("broker", rig, #","kind":"mqtt"\#(more)"#, url: "mqtt://127.0.0.1:1").json["error"]?.string
    }
    #expect(try error(#","version":6"#) == #"version: "6" is not allowed: auto, 5, 3.1.1"#)
    #expect(try error(#","format":true"#) == "format: expected one of json, compact, found true or false")
    #expect(try error(#","version":5"#) == nil)
  }

  @Test func `an upstream that cannot work is not added, and the others keep their connections`() throws {
    let rig = try Rig()
    try rig.startSynced()
    try rig.until("the hub to be there") { rig.hub.greetings == 1 }
    let bad = try add("second", rig, #","files":{"ca_file":"this is no PEM\n"}"#, url: "https://127.0.0.1:1")
    #expect(bad.status == 400 && bad.json["error"]?.string?.contains("no certificates in PEM") == true, "\(bad)")
    let folder = rig.location(rig.storeFile("gw.db.upstreams"))
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == ["files"])
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder + "/files").isEmpty)
    #expect(try rig.upstream("second") == nil)

    let good = try add("second", rig)
    #expect(good.status == 200, "\(good)")
    #expect(try rig.post("/v1/upstreams/remove?upstream=second").status == 200)
    rig.pass(.seconds(60))
    #expect(rig.hub.carriers == 1 && rig.hub.greetings == 1, "the hub kept its connection")
  }

  @Test func `an added upstream stays when the file names another store for the next start`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.server("second", "hub").mood = .unreachable
    #expect(try add("second", rig).status == 200)
    rig.edit = { $0.replacingOccurrences(of: "/gw.db\"", with: "/other.db\"") }
    rig.reload("")
    try rig.until("it to be said") { rig.hasSaid("configuration reloaded, except store.location") }
    #expect(try rig.upstream("second") != nil)
    #expect(try rig.post("/v1/upstreams/remove?upstream=second").status == 200)
    #expect(try rig.upstream("second") == nil)
  }

  @Test func `an added upstream with a damaged file keeps its position, and the others go on`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.server("second", "hub").mood = .unreachable
    #expect(try add("second", rig).status == 200)
    rig.air("chan r1 0 one")
    try rig.until("it to be pending") { (try rig.upstream("second")?["pending"]?.integer ?? 0) > 0 }
    try rig.until("the hub to have it") { rig.hub.texts == ["one"] }
    let pending = try rig.upstream("second")?["pending"]?.integer
    rig.kill()
    _ = rig.write(rig.storeFile("gw.db.upstreams/second.toml"), "\u{0}\u{0}\u{0}")
    try rig.startSynced()
    try rig.until("it to be stopped") { try isStopped(rig, "second", because: "second.toml") }
    #expect((try rig.upstream("second")?["pending"]?.integer ?? 0) >= pending ?? 1)
    rig.air("chan r1 0 two")
    try rig.until("the hub to go on") { rig.hub.texts == ["one", "two"] }
    #expect(try rig.post("/v1/upstreams/remove?upstream=second").status == 200)
  }

  @Test func `an added upstream can use only its own files`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let (token, folder) = (rig.location("token"), rig.location(rig.storeFile("gw.db.upstreams/files")))
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    try FileManager.default.createSymbolicLink(atPath: "\(folder)/link", withDestinationPath: token)
    for file in [token, "/etc/shadow", "hub.token", "\(folder)/../../token", "\(folder)/link", "/dev/watchdog", ""] {
      for key in ["token_file", "secret_file", "password_file", "ca_file", "cert_file", "key_file"] {
        let answer = try add("spy", rig, #","\#(key)":"\#(file)""#)
        #expect(answer.status == 400, "\(key) \(file)")
        #expect(answer.json["error"]?.string?.contains("is not in \(folder)") == true, "\(key) \(answer)")
      }
    }
    #expect(try rig.upstream("spy") == nil)

    // A file sent with the request is stored for the daemon only, and removed with the upstream.
    #expect(try add("own", rig, #","link":"http","files":{"token_file":"its-own-token"}"#).status == 200)
    let kept = "\(folder)/own.token_file"
    // The settings, too: the URL of a webhook is a secret.
    for file in [kept, rig.location(rig.storeFile("gw.db.upstreams/own.toml"))] {
      #expect(try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int == 0o600, "\(file)")
    }
    #expect(try String(contentsOfFile: kept, encoding: .utf8).hasPrefix("its-own-token"))
    try rig.until("it to be there") { rig.server("own", "hub").greetings == 1 }
    #expect(try rig.post("/v1/upstreams/remove?upstream=own").status == 200)
    #expect(!FileManager.default.fileExists(atPath: kept))
  }

  @Test func `an upstream is added at runtime, gets events from the start, and stays until it is removed`() throws {
    let rig = try Rig()
    try rig.startSynced()
    rig.air("chan r1 0 before it was added")
    try rig.until("the message") { rig.hub.texts.count == 1 }
    let token = #","files":{"token_file":"a-token-for-the-tests"}"#
    let bad = try add("late", rig, url: "gopher://x")
    #expect(bad.status == 400 && bad.json["error"]?.string?.contains("http://HOST") == true, "\(bad)")
    #expect(try add("hub", rig).status == 400, "there is one")
    let rival = try add("late", rig, token, url: "http://127.0.0.1:1")
    #expect(rival.status == 400 && rival.json["error"]?.string?.contains("has a link to this hub") == true, "\(rival)")
    let more = #","from":"start","kinds":["message"],"link":"http""#
    #expect(try add("late", rig, token + more).status == 200)
    try rig.until("it to have all") { rig.server("late", "hub").texts == ["before it was added"] }
    #expect(rig.server("late", "hub").events.allSatisfy { $0.kind == "message" })
    rig.kill()
    try rig.start()
    #expect(try rig.upstream("late") != nil, "it is kept")
    let refused = try rig.post("/v1/upstreams/remove?upstream=hub")
    #expect(refused.status == 400 && refused.json["error"]?.string?.contains("gw.toml") == true, "\(refused)")
    #expect(try rig.post("/v1/upstreams/remove?upstream=late").status == 200)
    #expect(try rig.upstream("late") == nil)
    #expect(try rig.post("/v1/upstreams/remove?upstream=late").status == 404)
  }

  @Test func `a hook for one node's messages runs for no other node and no channel`() throws {
    let rig = try Rig(nodes: 3)
    try rig.startSynced()
    let key = try #require(try rig.rows("/v1/contacts").first { $0["name"]?.string == "r1" }?["key"]?.string)
    rig.reload(
      """
      [[hook]]
      name = "h"
      kinds = ["message"]
      run = ["/bin/true"]
      contacts = ["\(key)"]
      channels = []
      \(geteuid() == 0 ? "user = \"nobody\"" : "")
      """)
    try rig.until("it to be there") { try rig.upstream("hook/h") != nil }
    rig.air("chan r1 0 open, by channel")
    rig.air("dm r2 r0 open, by another")
    rig.air("dm r1 r0 open")
    try rig.until("three messages") { rig.hub.texts.count == 3 }
    try rig.until("the hook to have had all") { try rig.upstream("hook/h")?["pending"]?.integer == 0 }
    #expect(rig.server("hook/h", "hook").texts == ["open"])
  }

  @Test func `a paused webhook gets nothing, also after a kill, and then everything in order`() throws {
    let rig = try Rig()
    rig.configure(
      """
      [[upstream]]
      name = "hook"
      kind = "webhook"
      url = "http://127.0.0.1:1/T0/B0"
      kinds = ["message"]
      """)
    let hook = rig.server("hook", "webhook")
    hook.mood = .hangsUp
    try rig.startSynced()
    func say(_ numbers: ClosedRange<Int>) { for number in numbers { rig.air("chan r1 0 say \(number)") } }
    say(1...5)
    try rig.until("a first failure") { hook.hangUps > 0 }
    hook.mood = .well
    try rig.until("five at the hook", within: .seconds(7200)) { hook.texts.count == 5 }
    #expect(try rig.post("/v1/upstreams/pause?upstream=hook").status == 200)
    say(6...8)
    try rig.until("eight at the hub") { rig.hub.texts.count == 8 }
    rig.kill()
    try rig.startSynced()
    rig.pass(.seconds(600))
    #expect(try rig.upstream("hook")?["state"]?.string == "paused")
    #expect(hook.texts.count == 5)
    #expect(try rig.post("/v1/upstreams/resume?upstream=hook").status == 200)
    try rig.until("eight at the hook") { hook.texts.count == 8 }
    #expect(hook.texts == (1...8).map { "say \($0)" } && hook.events.allSatisfy { $0.kind == "message" })
    #expect(try rig.post("/v1/upstreams/test?upstream=hook").status == 200)
    #expect(try rig.post("/v1/upstreams/test?upstream=nobody").status == 404)
    hook.mood = .unreachable
    #expect(try rig.post("/v1/upstreams/test?upstream=hook").status == 504)
    #expect(!rig.hasSaid("T0/B0"), "a hook's address is a secret")
  }
}

// SPDX-License-Identifier: MIT

import Companion
import Foundation
import MeshCrypto
import ProxyTunnel
import Relay
import TestSupport
import Testing
import Transport

@testable import Gateway

@Suite struct ConfigurationTests {
  private func parse(_ text: String) throws -> GatewayConfiguration {
    try GatewayConfiguration(parsing: Array(text.utf8), file: "test.toml")
  }

  @Test func `an empty file gives the default configuration`() throws {
    let configuration = try parse("")
    #expect(configuration.link == .auto(baud: 115_200))
    #expect(configuration.store.location == "/var/lib/meshpost/gateway.db")
    #expect(configuration.upstreams.isEmpty)
  }

  @Test func `the shipped file is valid, also with all its commented settings`() throws {
    let file = Checkout.folder.appending(path: "deploy/meshpostd.toml")
    let text = try String(contentsOf: file, encoding: .utf8)
    _ = try parse(text)
    let open = text.split(separator: "\n", omittingEmptySubsequences: false).map { line -> String in
      line.hasPrefix("#") && !line.hasPrefix("# ") && line != "#" ? String(line.dropFirst()) : String(line)
    }.joined(separator: "\n")
    let configuration = try parse(open)
    #expect(configuration.upstreams.count == 5)
    #expect(configuration.proxies.count == 1)
  }

  @Test func `a reload names each setting that waits for the next start, and no other`() throws {
    let text = """
      [gateway]
      id = "hill"
      [store]
      profile = "durable"
      max_size = "1 GiB"
      [control]
      metrics_port = 9000
      [log]
      level = "info"
      [messaging]
      attempts = 4
      [radio]
      set_time = true
      """
    let started = try parse(text)
    let other = text.replacing("durable", with: "wear").replacing("1 GiB", with: "2 GiB").replacing(
      "9000", with: "9001"
    )
    .replacing("info", with: "debug").replacing("attempts = 4", with: "attempts = 5\ncredentials_file = \"/c\"")
    .replacing("true", with: "false\nadvert_every_h = 5\npower_on = false").replacing("hill", with: "hilltop")
    #expect(
      started.waiting(in: try parse(other + "\n[[poll]]\nnode = \"Ridge\"\n[web]\nlisten = \"127.0.0.1:8090\"")) == [
        "control.metrics_port", "gateway.id", "messaging.credentials_file", "radio.power_on", "store.max_size",
        "store.profile",
      ])
    #expect(started.waiting(in: try parse("# a comment\n\n" + text)) == [])
    #expect(started.waiting(in: try parse("")).contains("store.profile"))
  }

  @Test(arguments: [
    ("[radio]\nlink = \"usb:0\"", "line 2", "serial:LOCATION"),
    ("[radio]\nlink = \"serial:ttyACM0\"", "line 2", "absolute"),
    ("[radio]\nlink = \"tcp:host:0\"", "line 2", "1 to 65535"),
    ("[radio]\nlink = \"serial:/dev/x?baud=7\"", "line 2", "115200"),
    ("[radio]\nlnik = \"auto:\"", "line 2", "expected one of: adapter, advert_every_h, advert_when_new, key"),
    ("[radio]\nlink = \"ble:a:b\"", "line 2", "C0:FF:EE:00:00:01"),
    ("[radio]\nkey = \"77f0\"", "line 2", "8 to 64 hex digits"),
    ("[store]\nprofile = \"fast\"", "line 2", "durable"),
    ("[radio]\npin = \"12345\"", "line 2", "6 digits"),
    ("[radio]\npin = \"123456\"\npin_file = \"/x\"", "line 3", "cannot be combined"),
    ("[alerts]\nnodes = [\"Ridge\", \"\"]", "line 2", "1 to 64 bytes"),
    ("[alerts]\ntag = \"\"", "line 2", "1 to 64 bytes"),
    ("[alerts]\nnode_silent_after_s = 0", "line 2", "1 to"),
    ("[[poll]]\nnode = \"Ridge\"\nkind = \"weather\"", "line 3", "status, telemetry, neighbours, clock, owner"),
    ("[alerts]\ncare = \"mine\"", "line 2", "own, all"),
    ("[alerts]\nnode_battery_mv = 3", "line 2", "1000 to 60000"),
    ("[alerts]\nnode_battery_fall_days = 1", "line 2", "2 to 14"),
    ("[alerts]\nnode_noise_dbm = 90", "line 2", "-140 to -20"),
    ("[alerts]\nnode_clock_off_s = 5", "line 2", "60 to 31536000"),
    ("[alerts]\nnode_unanswered_polls = 1", "line 2", "2 to 100"),
    ("[alerts]\nnode_unanswering_after_s = 0", "line 2", "node_unanswered_polls"),
    ("[alerts]\nnode_restarted_after_s = 60", "line 2", "begins with the report"),
    ("[alerts]\nnodes = [\"Ridge\", \"ab\"]", "line 2", "8 digits or more"),
    ("[log]\nlevel = \"loud\"", "line 2", "error, warning, notice, info, debug"),
    ("[store]\nmax_size = \"1 MB\"", "line 2", "256 MiB"),
    ("[[upstream]]\nname = \"a\"\nurl = \"ftp://x\"", "line 3", "http://"),
    ("[[upstream]]\nurl = \"http://x\"", "line 1", "name"),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nallow = [\"format\"]", "line 4", "documents, settings"),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nlink = \"pigeon\"", "line 4", "live"),
    (
      "[[upstream]]\nname = \"a\"\nkind = \"mqtt\"\nurl = \"wss://x/mqtt\"\nobserver = true\niata = \"zrh\"", "line 6",
      "airport"
    ),
    (
      "[[upstream]]\nname = \"a\"\nurl = \"http://x\"\n[[upstream]]\nname = \"a\"\nurl = \"http://y\"", "line 5",
      "twice"
    ),
    ("[[upstream]]\nname = \"a\"\nkind = \"mqtt\"\nurl = \"http://x\"", "line 4", "mqtts://HOST"),
    (
      "[[upstream]]\nname = \"a\"\nkind = \"mqtt\"\nurl = \"mqtt://x\"\ntopic = \"a/#\"", "line 5",
      "must not contain +, #"
    ),
    ("[[upstream]]\nname = \"a\"\nkind = \"webhook\"\nurl = \"http://x\"\ntemplate = \"{{\"", "line 5", "}}"),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nkinds = [\"mesage\"]", "line 4", "not a kind of event"),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nkinds = \"message\"", "line 4", "a list of strings, found a str"),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nrooms = [7]", "line 4", "expected a string, found a whole"),
    ("[[upstream]]\nname = \"a\"\nurl = [\"http://x\"]", "line 3", "expected a string, found a list"),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nchannels = [\"#a\", \" \"]", "line 4", "an empty list, []"),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nkinds = [\"alert\", \"alert\"]", "line 4", "each name once"),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nallow = [\"send\", \"send\"]", "line 4", "each name once"),
    (
      "[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nproxy = \"https://me:hush@p:1\"", "line 4",
      "(https://) cannot be used"
    ),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nproxy = \"straight\\n\"", "line 4", "or \"none\""),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nproxy = false", "line 4", "expected a string"),
    ("[web]\nlisten = \"hilltop:8080\"", "line 2", "numeric address and a port"),
    ("[web]\nlisten = \"0.0.0.0:0\"", "line 2", "numeric address and a port"),
    ("[web]\nlisten = \"0.0.0.0:70000\"", "line 2", "numeric address and a port"),
    ("[web]\nlisten = \"[::]:8080\"\nallow_from = [\"10.0.0.0/33\"]", "line 3", "an address or a range"),
    ("[web]\nlisten = \"[::]:8080\"\nnames = [\"a.example:8080\"]", "line 3", "without a port"),
    ("[web]\nlisten = \"[::]:8080\"\npages = \"here\"", "line 3", "not absolute"),
    (
      "[web]\nlisten = \"[::]:8080\"\ntiles = \"https://t.example/z/x/y.png\"", "line 3",
      "web.tiles: expected {z}, {x} and {y}"
    ),
    ("[web]\nlisten = \"[::]:8080\"\npassword = \"x\"", "line 3", "password"),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\ndaily_bytes = 5000", "line 4", "200000 to"),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nmonthly_bytes = \"much\"", "line 4", "256 MiB"),
    ("[[upstream]]\nname = \"a\"\nurl = \"http://x\"\nbulk_hours = \"22-6\"", "line 4", "22:00-06:00"),
    ("[[hook]]\nname = \"x\"\nuser = \"nobody\"\nkinds = [\"message\"]\nrun = [\"bot\"]", "line 5", "absolute path"),
    (
      "[[hook]]\nname = \"x\"\nuser = \"nobody\"\nkinds = [\"mesage\"]\nrun = [\"/bin/true\"]", "line 4",
      "is not a kind of event"
    ),
    ("[[proxy]]\nlisten = \"0.0.0.0:5000\"", "line 2", "allow_from"),
    ("[[proxy]]\nlisten = \"127.0.0.1:5000\"\nallow = [\"everything\"]", "line 3", "factory_reset"),
    ("[messaging]\nattempts = 99", "line 2", "1 to 16"), ("[messaging]\nqueue = \"many\"", "line 2", "whole number"),
    ("[[poll]]\nkind = \"weather\"\nnode = \"x\"", "line 2", "status, telemetry"),
    ("[[poll]]\nevery_min = 5", "line 1", "node"),
    ("[gateway]\nid = \"a b\"", "line 2", "letters"),
    ("[store]\nlocation = \"gateway.db\"", "line 2: store.location", "not absolute"),
    ("[control]\ngroup = \"no-such-group\"", "line 2", "does not exist"),
    ("[radio]\nadvert_every_h = 721", "line 2", "720"),
    ("nonsense", "line 1", "`=`"),
  ]) func `a mistake is refused with the file, the line and the allowed values`(
    _ text: String, _ line: String, _ words: String
  ) {
    do {
      _ = try parse(text)
      Issue.record("\(text) was taken")
    } catch {
      #expect("\(error)".hasPrefix("test.toml: \(line)"), "\(error)")
      #expect("\(error)".contains(words), "\(error)")
      #expect(!"\(error)".contains("hush"), "\(error)")
    }
  }

  @Test func `a folder and a file of a megabyte are refused, and are no empty configuration`() {
    let scratch = Scratch()
    scratch.makeFolder("folder")
    let large = scratch.write("large.toml", String(repeating: "#\n", count: 1 << 19))
    for (file, words) in [(scratch.location("folder"), "it is a folder"), (large, "larger than 1 MiB")] {
      let error = #expect(throws: GatewayConfiguration.Failure.self) { try GatewayConfiguration(file: file) }
      #expect(error?.description == "\(file): \(words)", "\(file)")
    }
  }

  @Test func `an upstream's proxy comes from its settings, then from the environment, or is none`() throws {
    let environment = ProxyEnvironment {
      ["https_proxy": "web:1", "all_proxy": "socks5h://all:1", "no_proxy": "near"][$0]
    }
    func way(_ text: String) throws -> String? {
      try parse("[[upstream]]\nname = \"a\"\n\(text)").upstreams.first?.serverProxy(in: environment)?.shown
    }
    let broker = "kind = \"mqtt\"\nurl = "
    #expect(try way("url = \"https://hub.example\"") == "http://web:1")
    #expect(try way("url = \"https://near/\"") == nil)
    #expect(try way("url = \"https://hub.example\"\nproxy = \"none\"") == nil)
    #expect(try way("url = \"https://near\"\nproxy = \"socks4a://me@own:2\"") == "socks4a://own:2")
    #expect(try way("kind = \"webhook\"\nurl = \"http://h/?a=b\"") == "socks5h://all:1")
    #expect(try way(broker + "\"wss://b/mqtt\"") == "http://web:1")
    #expect(try way(broker + "\"mqtts://b\"") == "socks5h://all:1")
    #expect(try way(broker + "\"mqtt://near\"") == nil)
    let wrong = ProxyEnvironment { ["ALL_PROXY": "https://me:hush@p:1"][$0] }
    let upstream = try #require(try parse("[[upstream]]\nname = \"a\"\nurl = \"http://h\"").upstreams.first)
    let error = #expect(throws: TunnelSettings.Invalid.self) { try upstream.serverProxy(in: wrong) }
    #expect(error?.description.hasPrefix("ALL_PROXY in the environment: ") == true)
  }

  @Test(arguments: [
    ("channels = [\"#emergency\"]\ncontacts = []", []),
    ("channels = [\"#emergency\"]", ["line 4", "no direct messages any more", "contacts = []"]),
    ("contacts = [\"\(Self.key)\"]", ["line 4", "no channels any more"]),
    ("contacts = [\"\(Self.key)\"]\nchannels = []", []),
    ("contacts = [\"Birch\"]\nchannels = []", ["line 4", "\"Birch\" is not a whole key", "64 hex digits"]),
    ("contacts = [\"6312\"]\nchannels = []", ["\"6312\" is not a whole key"]),
    ("rooms = [\"6312eee62ef9\"]", ["upstream.rooms", "not a whole key"]),
    ("kinds = [\"telemetry\"]\nchannels = [\"#emergency\"]", ["nothing can pass"]),
    (
      "kinds = [\"message\", \"packet\"]\nchannels = [\"#emergency\"]\ncontacts = []",
      ["\"packet\" cannot be attributed"]
    ),
    ("kinds = [\"telemetry\"]\ncontacts = [\"\(Self.key)\"]", []), ("kinds = [\"packet\"]", []),
  ]) func `a filter that is weak, or excludes everything, causes a warning`(_ text: String, _ words: [String]) throws {
    let upstream = "[[upstream]]\nname = \"a\"\nurl = \"http://x\"\n"
    let warnings = try parse(upstream + text).warnings
    #expect(warnings.isEmpty == words.isEmpty, "\(warnings)")
    for word in words { #expect(warnings.contains { $0.contains(word) }, "\(word): \(warnings)") }
  }

  @Test(arguments: [
    (
      "url = \"http://h/\"\nkind = \"webhook\"\ntemplate = '\"{{txt}} {{text}} {{event}}\"'",
      ["no message has a field \"txt\""]
    ),
    ("url = \"http://h/\"\nkind = \"webhook\"\ntemplate = '{{Text:chat}}'", ["no message has a field \"Text\""]),
    ("url = \"http://h/\"\nkind = \"webhook\"\ntemplate = '{{state}}'\nkinds = [\"outgoing\"]", []),
    ("topic = \"m/{gateway}/{kind}/{chanel_name}\"\nkinds = [\"message\"]", ["no message has a field \"chanel_name\""]),
    ("topic = \"m/{gateway}/{channel_name}\"\nkinds = [\"message\"]\ntemplate = \"{{age_s}}\"", []),
    ("status_topic = \"m/{gatway}\"", ["{gatway} has no value here"]),
    ("status_topic = \"m/{gateway}/{kind}\"", []),
    ("allow = [\"send\"]\ncommand_topic = \"m/{gateway}/{channel}\"", ["{channel} has no value here"]),
  ]) func `a mistyped field of a template or a topic causes a warning`(_ text: String, _ words: [String]) throws {
    let broker = text.hasPrefix("url") ? "" : "kind = \"mqtt\"\nurl = \"mqtt://b.example\"\n"
    let warnings = try parse("[[upstream]]\nname = \"a\"\ncontacts = []\nchannels = []\n\(broker)\(text)").warnings
    #expect(warnings.count == words.count, "\(warnings)")
    for word in words { #expect(warnings.contains { $0.contains(word) }, "\(word): \(warnings)") }
  }

  @Test func `an observer's feed has an age limit, and warns of filters, which it does not have`() throws {
    let feed = "[[upstream]]\nname = \"a\"\nkind = \"mqtt\"\nurl = \"wss://x/mqtt\"\nobserver = true\niata = \"ZRH\"\n"
    let plain = try parse(feed + "kinds = [\"packet\"]\nchannels = []\nmax_age_s = 60")
    #expect(plain.warnings.isEmpty, "\(plain.warnings)")
    let filter = try #require(plain.upstreams.first).journal.filter
    #expect(filter.kinds == ["packet"] && filter.age != nil)
    let warnings = try parse(feed + "kinds = [\"message\"]\nchannels = [\"#a\"]\noutgoing = \"all\"").warnings
    for key in ["kinds", "channels", "outgoing"] {
      #expect(warnings.contains { $0.contains("\(key): it does nothing with observer") }, "\(warnings)")
    }
  }

  @Test func `the former name of a key is read with a warning, and the present name takes precedence`() throws {
    let former = try parse("[alerts]\nradio_lost_over_s = 7")
    #expect(former.alerts.rules.times[.radioLost]?.ends == .seconds(7))
    #expect(former.warnings.count == 1 && former.warnings[0].contains("radio_lost_ends_after_s"), "\(former.warnings)")
    let both = try parse("[alerts]\nradio_lost_over_s = 7\nradio_lost_ends_after_s = 8")
    #expect(both.alerts.rules.times[.radioLost]?.ends == .seconds(8))
    #expect(try parse("[alerts]\nradio_lost_ends_after_s = 8").warnings.isEmpty)
  }

  @Test(arguments: [
    ("", "", ["one status_topic"]), ("status_topic = \"a\"", "status_topic = \"b\"", []),
    ("client_id = \"c\"", "client_id = \"c\"\nstatus_topic = \"b\"", ["one client_id"]),
    ("client_id = \"c\"", "client_id = \"d\"", ["one status_topic"]),
  ]) func `two upstreams at one broker that share an identifier cause a warning`(
    _ one: String, _ other: String, _ words: [String]
  ) throws {
    let text = [("a", one, "b.example"), ("b", other, "b.example:1883"), ("c", one, "elsewhere.example")].map {
      "[[upstream]]\nname = \"\($0.0)\"\nkind = \"mqtt\"\nurl = \"mqtt://\($0.2)\"\n\($0.1)\n"
    }.joined()
    let warnings = try parse(text).warnings.filter { $0.contains("at one broker") }
    #expect(warnings.count == words.count, "\(warnings)")
    for word in words { #expect(warnings.contains { $0.contains(word) }, "\(word): \(warnings)") }
  }

  @Test(arguments: [
    ("url = \"http://hub.example\"\ntoken_file = \"t\"", "the token is sent over the network unencrypted"),
    ("url = \"http://127.0.0.1:8787\"\ntoken_file = \"t\"", ""), ("url = \"http://hub.example\"", ""),
    ("url = \"http://[::1]:8787\"\ntoken_file = \"t\"", ""),
    ("url = \"https://hub.example\"\ntoken_file = \"t\"", ""),
    ("url = \"http://127.0.0.1.example\"\ntoken_file = \"t\"", "unencrypted"),
    ("kind = \"mqtt\"\nurl = \"mqtt://b.example\"\nuser = \"u\"\npassword_file = \"p\"", "the password is sent over"),
    ("kind = \"mqtt\"\nurl = \"ws://b.example/mqtt\"\nradio_token = true", "the radio's token is sent over"),
    ("kind = \"mqtt\"\nurl = \"mqtts://b.example\"\nuser = \"u\"\npassword_file = \"p\"", ""),
    ("kind = \"mqtt\"\nurl = \"mqtt://localhost\"\nuser = \"u\"\npassword_file = \"p\"", ""),
    ("kind = \"mqtt\"\nurl = \"mqtt://b.example\"", ""),
  ]) func `a token or a password over an unencrypted connection causes a warning`(_ text: String, _ words: String)
    throws
  {
    let warnings = try parse("[[upstream]]\nname = \"a\"\n" + text).warnings.filter { $0.contains("unencrypted") }
    #expect(warnings.isEmpty == (words.isEmpty), "\(warnings)")
    if !words.isEmpty { #expect(warnings.first?.contains(words) == true, "\(warnings)") }
  }

  private static let broker =
    "[gateway]\nid = \"hill\"\n[[upstream]]\nname = \"a\"\nkind = \"mqtt\"\nurl = \"mqtt://b\"\nallow = [\"send\"]\n"

  @Test(arguments: [
    ("topic = \"m/x\"\ncommand_topic = \"m/x\"", "line 8: upstream.topic: the gateway would publish to \"m/x\""),
    ("topic = \"m/{gateway}\"\ncommand_topic = \"m/hill\"", "upstream.topic"),
    ("command_topic = \"meshpost/{gateway}/outgoing\"", "upstream.topic"),
    ("command_topic = \"meshpost/{gateway}/commanded\"", "upstream.topic"),
    ("format = \"compact\"\ncommand_topic = \"meshpost/hill/compact\"", "upstream.topic"),
    ("format = \"compact\"\ntopic = \"m/{lane}\"\ncommand_topic = \"m/nodes\"", "upstream.topic"),
    ("command_topic = \"meshpost/{gateway}/status\"", "upstream.status_topic"),
    ("status_topic = \"meshpost/hill/command\"", "upstream.status_topic"),
    ("home_assistant = true\ncommand_topic = \"homeassistant/meshpost/hill/radio\"", "upstream.home_assistant_prefix"),
    ("observer = true\niata = \"ZRH\"\ncommand_topic = \"meshcore/ZRH/k/packets\"", "upstream.observer"),
    (
      "[[upstream]]\nname = \"c\"\nkind = \"mqtt\"\nurl = \"mqtt://b\"\nallow = [\"send\"]\ncommand_topic = \"meshpost/hill/message\"",
      "upstream.command_topic: upstream \"a\" publishes to \"meshpost/hill/message\" (topic)"
    ),
    (
      "[[upstream]]\nname = \"c\"\nkind = \"mqtt\"\nurl = \"mqtt://b\"\ntopic = \"meshpost/hill/command\"\nallow = []",
      "upstream.topic: \"meshpost/hill/command\" is where upstream \"a\" takes commands"
    ),
    ("", nil), ("home_assistant = true", nil),
    ("[[upstream]]\nname = \"c\"\nkind = \"mqtt\"\nurl = \"mqtt://b\"\ntopic = \"m\"\ncommand_topic = \"m\"", nil),
    ("home_assistant = true\nhome_assistant_prefix = \"meshpost\"", nil),
    ("topic = \"{kind}\"\ncommand_topic = \"command\"", nil),
    ("topic = \"meshpost/{gateway}/{channel_name}\"", nil),
    ("[[upstream]]\nname = \"c\"\nkind = \"mqtt\"\nurl = \"mqtt://b\"", nil),
  ]) func `the topics for events and for commands must differ`(_ text: String, _ words: String?) throws {
    do {
      _ = try parse(Self.broker + text)
      #expect(words == nil)
    } catch let failure as GatewayConfiguration.Failure {
      #expect(words.map { failure.description.contains($0) } ?? false, "\(failure)")
    }
  }

  @Test(arguments: [("webhook", "127.0.0.1:8080/v1/send"), ("webhook", "localhost:9100"), ("hub", "[::1]:8080")])
  func `an upstream that leads to this gateway itself is refused`(_ kind: String, _ place: String) throws {
    let doors = "[control]\nmetrics_port = 9100\n[web]\nlisten = \"0.0.0.0:8080\"\n"
    let upstream = "[[upstream]]\nname = \"a\"\nkind = \"\(kind)\"\nurl = \"http://\(place)\"\n"
    #expect(throws: GatewayConfiguration.Failure.self) { try parse(doors + upstream) }
    _ = try parse(doors + upstream.replacing("8080", with: "8787").replacing("9100", with: "8787"))
  }

  @Test func `the MQTT version is 5, 3.1.1 or auto`() throws {
    func text(_ version: String) -> String {
      "[[upstream]]\nname = \"a\"\nkind = \"mqtt\"\nurl = \"mqtt://b\"\nversion = \"\(version)\""
    }
    for (word, byte) in [("5", UInt8(5)), ("3.1.1", 4), ("auto", 0)] {
      guard case .mqtt(let mqtt)? = try parse(text(word)).upstreams.first?.kind else {
        Issue.record("\(word)")
        continue
      }
      #expect(mqtt.version?.rawValue ?? 0 == byte)
    }
    #expect(throws: (any Error).self) { try parse(text("4")) }
  }

  @Test func `the compact format is for batches, and excludes templates, observers and topics of one event`() throws {
    let broker = "[[upstream]]\nname = \"a\"\nkind = \"mqtt\"\nurl = \"mqtt://b\"\n"
    let compact = broker + "format = \"compact\"\n"
    for (text, isCompact, topic) in [
      (broker, false, "meshpost/{gateway}/{kind}"), (broker + "format = \"json\"", false, "meshpost/{gateway}/{kind}"),
      (compact, true, "meshpost/{gateway}/compact"), (compact + "topic = \"x/{lane}\"", true, "x/{lane}"),
    ] {
      guard case .mqtt(let mqtt)? = try parse(text).upstreams.first?.kind else {
        Issue.record("\(text)")
        continue
      }
      #expect(try mqtt.isCompact == isCompact && mqtt.topic == TopicTemplate(topic), "\(text)")
    }
    for more in [
      "template = \"{{text}}\"", "observer = true\niata = \"ZRH\"", "topic = \"x/{kind}\"",
      "topic = \"x/{channel_name}\"",
    ] {
      #expect(throws: (any Error).self, "\(more)") { try parse(compact + more) }
    }
    #expect(throws: (any Error).self) { try parse(broker + "format = \"gzip\"") }
  }

  private static let key = String(repeating: "6312eee6", count: 8)

  @Test func `a hook with incomplete contact keys never runs, and the warning says so`() throws {
    let user = geteuid() == 0 ? "user = \"nobody\"" : ""
    let hook = "[[hook]]\nname = \"x\"\nrun = [\"/bin/true\"]\nkinds = [\"message\"]\n\(user)\n"
    for name in ["Birch", "6312", "6312eee62ef9"] {
      let warnings = try parse(hook + "contacts = [\"\(name)\"]").warnings
      #expect(warnings.contains { $0.contains("nothing passes by it") }, "\(warnings)")
      #expect(warnings.contains { $0.contains("nothing can pass") }, "\(warnings)")
    }
  }

  @Test(arguments: [
    ("[[upstream]]\nname = \"a\"\nurl = \"https://x\"\nca_file = \"/nowhere/ca.pem\"", "line 4", "No such file"),
    ("[[upstream]]\nname = \"a\"\nurl = \"https://x\"\nca_file = \"/proc/version\"", "line 4", "no certificates"),
    ("[[upstream]]\nname = \"a\"\nurl = \"https://x\"\ntoken_file = \"/dev/null\"", "line 4", "is not a file"),
    (
      "[[upstream]]\nname = \"a\"\nkind = \"webhook\"\nurl = \"http://x\"\nsecret_file = \"/nowhere/s\"", "line 5",
      "No such file"
    ),
    (
      "[[upstream]]\nname = \"a\"\nkind = \"mqtt\"\nurl = \"mqtts://x\"\ncert_file = \"/proc/version\"", "line 5",
      "no certificate in PEM"
    ),
    (
      "[[hook]]\nname = \"a\"\nkinds = [\"message\"]\nuser = \"nobody\"\nrun = [\"/nowhere/bot\"]", "line 5",
      "not executable"
    ),
    (
      "[[hook]]\nname = \"a\"\nkinds = [\"message\"]\nuser = \"no-such\"\nrun = [\"/bin/true\"]", "line 4",
      "does not exist"
    ),
  ]) func `an unusable file is reported with its line, and does not make the configuration invalid`(
    _ text: String, _ line: String, _ words: String
  ) throws {
    let configuration = try parse(text)
    #expect(configuration.upstreams.count == 1)
    #expect(configuration.lacks.count == 1, "\(configuration.lacks)")
    #expect(configuration.lacks.first?.hasPrefix("test.toml: \(line): ") == true, "\(configuration.lacks)")
    #expect(configuration.lacks.first?.contains(words) == true, "\(configuration.lacks)")
  }

  @Test(arguments: [
    ("ble:c0:ff:ee:00:00:01", LinkAddress.bluetooth(.address("C0:FF:EE:00:00:01"))), ("ble:", .bluetooth(.only)),
    ("ble:Hilltop", .bluetooth(.name("Hilltop"))),
    ("serial:/dev/ttyACM0", .serial(location: "/dev/ttyACM0", baud: 115_200)),
    ("serial:/dev/ttyUSB0?baud=57600", .serial(location: "/dev/ttyUSB0", baud: 57600)),
    ("tcp:10.0.0.7", .tcp(host: "10.0.0.7", port: 5000)),
    ("tcp:radio.local:5001", .tcp(host: "radio.local", port: 5001)),
    ("tcp:[fe80::1]:5002", .tcp(host: "fe80::1", port: 5002)), ("tcp:fe80::1", .tcp(host: "fe80::1", port: 5000)),
    ("auto:", .auto(baud: 115_200)),
  ]) func `an address parses, and prints as it was written`(_ text: String, _ address: LinkAddress) throws {
    #expect(try LinkAddress(parsing: text) == address)
    #expect(try LinkAddress(parsing: address.description) == address)
  }

  @Test(arguments: [
    ("messages_from_hub = true", "", ["line 2: relay.messages_from_hub: no upstream is a hub"]),
    ("messages_from_hub = true", "url = \"http://x\"\nkind = \"webhook\"", ["relay.messages_from_hub: no upstream"]),
    ("messages_from_hub = true\nchannels = [\"#a\"]", "url = \"https://x\"", []),
    ("channels = [\"#a\"]", "url = \"https://x\"", ["line 2: relay.channels: without messages_from_hub = true"]),
    ("channels = [\"#a\"]", "url = \"https://x\"\nallow = [\"settings\"]", []),
    (
      "messages_from_hub = true\ngateways = [\"a b\", \"c\"]", "url = \"https://x\"",
      ["line 3: relay.gateways: \"a b\""]
    ),
  ])
  func `settings that an exchange of channels lacks cause a warning`(
    _ relay: String, _ upstream: String, _ words: [String]
  )
    throws
  {
    let upstreams = upstream.isEmpty ? "" : "\n[[upstream]]\nname = \"a\"\n" + upstream
    let warnings = try parse("[relay]\n" + relay + upstreams).warnings
    #expect(warnings.count == words.count, "\(warnings)")
    for word in words { #expect(warnings.contains { $0.contains(word) }, "\(word): \(warnings)") }
  }

  @Test(arguments: [
    ("home_assistant_notify = [\"#a\"]", "home_assistant = true"), ("iata = \"ZRH\"", "observer = true"),
    ("token_owner = \"x\"", "radio_token = true"),
  ])
  func `a broker's key that has no effect without another key causes a warning`(_ key: String, _ other: String) throws {
    let broker = "[[upstream]]\nname = \"a\"\nkind = \"mqtt\"\nurl = \"mqtts://x\"\n\(key)\nallow = [\"send\"]\n"
    let warnings = try parse(broker).warnings
    #expect(
      warnings.count == 1 && warnings[0].contains("line 5") && warnings[0].hasSuffix("without \(other)"), "\(warnings)")
    #expect(try parse(broker + other).warnings.isEmpty)
  }

  @Test func `a webhook has no rights, and rights that are given to it cause a warning`() throws {
    let webhook = "[[upstream]]\nname = \"a\"\nkind = \"webhook\"\nurl = \"https://x\"\n"
    for (more, warnings) in [("", 0), ("allow = [\"send\", \"settings\"]\n", 1)] {
      let configuration = try parse(webhook + more)
      #expect(configuration.warnings.count == warnings, "\(configuration.warnings)")
      #expect(configuration.upstreams.map(\.journal.allowed) == [[]])
    }
  }

  @Test func `two links of one gateway to one hub cause a warning`() throws {
    func hub(_ name: String, _ more: String = "") -> String {
      "[[upstream]]\nname = \"\(name)\"\nurl = \"https://hub.example\"\n\(more)\n"
    }
    #expect(try parse(hub("a") + hub("b")).warnings.filter { $0.contains("one live link") }.count == 1)
    #expect(try parse(hub("a") + hub("b", "link = \"http\"")).warnings.isEmpty)
    func other(_ url: String) throws -> Int {
      try parse(hub("a") + "[[upstream]]\nname = \"b\"\nurl = \"\(url)\"\n").warnings.filter {
        $0.contains("one live link")
      }.count
    }
    for url in ["https://hub.example/", "https://HUB.example:443", "https://hub.example.//"] {
      #expect(try other(url) == 1, "\(url)")
    }
    for url in ["https://hub.example/x", "http://hub.example", "https://hub.example:8443", "https://hub2.example"] {
      #expect(try other(url) == 0, "\(url)")
    }
  }
}

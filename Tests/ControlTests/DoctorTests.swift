// SPDX-License-Identifier: MIT

import Companion
import Foundation
import TestSupport
import Testing
import Timing
import Transport

@testable import Control
@testable import Relay
@testable import Sync

@Suite struct MachineDoctorTests {
  private let scratch = Scratch()

  private func examine(_ files: [String: String]) -> [Finding] {
    for (location, text) in files {
      scratch.makeFolder(String(location[..<(location.lastIndex(of: "/") ?? location.startIndex)]))
      _ = scratch.write(location, text + "\n")
    }
    return MachineDoctor(root: scratch.location(""), folder: scratch.location("")).examine()
  }

  @Test func `the doctor reports a Raspberry Pi with a weak power supply`() {
    let now = examine([
      "sys/class/hwmon/hwmon1/name": "rpi_volt", "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "1",
      "sys/devices/platform/soc/soc:firmware/get_throttled": "50005",
    ])
    #expect(now.count { $0.subject == "power" && $0.state == .failed } == 3, "\(now)")
    #expect(now.contains { $0.message.contains("throttled") && $0.state == .warning })
  }

  @Test func `the doctor finds no problem on a healthy Raspberry Pi`() {
    let findings = examine([
      "sys/class/hwmon/hwmon0/name": "cpu_thermal", "sys/class/hwmon/hwmon1/name": "rpi_volt",
      "sys/class/hwmon/hwmon1/in0_lcrit_alarm": "0", "sys/devices/platform/soc/soc:firmware/get_throttled": "0",
      "sys/class/thermal/thermal_zone0/temp": "48200", "sys/block/mmcblk0/device/life_time": "0x01 0x02",
      "sys/block/mmcblk0/device/pre_eol_info": "0x01", "proc/meminfo": "MemTotal: 1000000 kB\nMemAvailable: 400000 kB",
    ])
    #expect(findings.allSatisfy { $0.state == .ok }, "\(findings)")
    #expect(findings.contains { $0.subject == "wear" && $0.message.contains("20 %") })
  }

  @Test func `the doctor warns of wear, heat, little memory and ModemManager`() {
    let findings = examine([
      "sys/block/mmcblk0/device/life_time": "0x0b 0x01", "sys/class/thermal/thermal_zone0/temp": "84500",
      "proc/meminfo": "MemAvailable: 9000 kB", "proc/812/comm": "ModemManager", "proc/self/comm": "x",
    ])
    #expect(findings.filter { $0.state == .warning }.map(\.subject) == ["wear", "heat", "memory", "ModemManager"])
    #expect(findings.allSatisfy { $0.state == .ok || $0.remedy != nil })
  }

  @Test func `the doctor reports a missing folder`() {
    #expect(MachineDoctor(root: "/nowhere", folder: "/nowhere/at/all").examine().map(\.state) == [.failed])
  }
}

@Suite struct RegionFindingTests {
  private func repeated(_ scoped: Int, _ unscoped: Int) -> RepeatedFloods {
    var floods = RepeatedFloods()
    let route = { (isScoped: Bool, path: [UInt8]) in
      Packet(
        route: isScoped ? .transportFlood : .flood, type: .advert, pathLength: PathLength(raw: UInt8(path.count)),
        path: path, payload: [1])
    }
    for _ in 0..<scoped { floods.heard(route(true, [0xA0]), in: "ottawa") }
    for _ in 0..<unscoped { floods.heard(route(false, [0xA0]), in: nil) }
    // Neighbours are heard in any region.
    for _ in 0..<50 { floods.heard(route(false, []), in: nil) }
    return floods
  }

  @Test func `the doctor names the region if repeaters pass on floods of regions alone, and none of ours`() {
    let finding = GatewayDoctor.floods(repeated(40, 2), sent: 3, isAnyBack: false, ownRegion: nil)
    #expect(finding?.state == .warning && finding?.message.contains("(ottawa)") == true)
    #expect(finding?.remedy?.contains("flood-scope=ottawa") == true, "\(finding as Any)")
    let other = GatewayDoctor.floods(repeated(40, 2), sent: 3, isAnyBack: false, ownRegion: "hull")
    #expect(other?.message.contains("default region is hull") == true)
  }

  @Test func `the doctor is silent about regions as long as anything speaks against it`() {
    for (floods, sent, isAnyBack) in [
      (repeated(40, 3), 9, false), (repeated(19, 0), 9, false), (repeated(40, 0), 2, false), (repeated(40, 0), 9, true),
    ] {
      #expect(GatewayDoctor.floods(floods, sent: sent, isAnyBack: isAnyBack, ownRegion: nil) == nil)
    }
  }

  @Test func `the counts of floods stay small, and follow a mesh that changes`() {
    var floods = repeated(0, 5000)
    #expect(floods.count <= 1000 && !floods.areOnlyScoped)
    let scoped = Packet(
      route: .transportFlood, type: .advert, pathLength: PathLength(raw: 1), path: [0xA0], payload: [1])
    for _ in 0..<5000 { floods.heard(scoped, in: "ottawa") }
    #expect(floods.areOnlyScoped && floods.regions == ["ottawa"])
  }
}

@Suite struct SyncFindingTests {
  @Test func `the doctor warns of a radio that fails a part of the synchronisation, and fails if no messages come`() {
    #expect(GatewayDoctor.sync(.synced, withheld: nil) == nil)
    #expect(GatewayDoctor.sync(.failed("the disk is full"), withheld: nil) == nil, "the store's own finding")
    #expect(GatewayDoctor.sync(.failed("no contacts", .contacts), withheld: nil)?.state == .warning)
    let withheld = Withheld(why: "no messages", since: MonotonicTime(seconds: 1))
    #expect(GatewayDoctor.sync(.syncing(.time, current: 0, total: 0), withheld: withheld)?.state == .failed)
    let finding = GatewayDoctor.sync(.failed("no messages", .messages), withheld: withheld)
    #expect(finding?.state == .failed && finding?.message.contains("nothing more is received") == true)
  }
}

@Suite struct UpstreamFindingTests {
  private func status(_ state: UpstreamStatus.State, _ reason: String?, expiry: Int64? = nil) -> UpstreamStatus {
    UpstreamStatus(
      name: "hub", kind: "hub", url: "", link: nil, state: state, cursor: 0, pending: 3, inFlight: 0, deadLetters: 0,
      age: nil, reason: reason, lastSuccess: nil, batches: 0, bytesSent: 0, certificateExpiry: expiry)
  }

  @Test func `each problem of an upstream has a remedy`() {
    let dns = GatewayDoctor.upstream(status(.waiting, "no address for hub.example: x"), now: 0)
    #expect(dns.first?.state == .warning && dns.first?.remedy?.contains("DNS") == true)
    #expect(GatewayDoctor.upstream(status(.stopped, "HTTP 401"), now: 0).first?.state == .failed)
    for (reason, maySkip) in [("HTTP 500", true), ("exit code 75", true), ("HTTP 502", false), ("HTTP 504", false)] {
      var failing = status(.waiting, reason)
      failing.maySkip = maySkip
      let remedy = GatewayDoctor.upstream(failing, now: 0).first?.remedy
      #expect(remedy?.contains("upstream skip") == maySkip, "\(reason): \(remedy ?? "")")
      #expect(remedy?.contains("The gateway retries automatically") == true, "it does not know what is lost")
    }
    let ending = GatewayDoctor.upstream(status(.idle, nil, expiry: 10 * 86400), now: 0)
    #expect(ending.map(\.state) == [.ok, .warning] && ending[1].message.contains("10 days"))
    #expect(GatewayDoctor.upstream(status(.idle, nil, expiry: 100 * 86400), now: 0).map(\.state) == [.ok])
    #expect(GatewayDoctor.upstream(status(.idle, "foreign messages"), now: 0).map(\.state) == [.ok, .warning])
    var asking = status(.idle, nil)
    asking.unpermitted = .init(rights: ["send"], line: "allow = [\"send\"]")
    let unpermitted = GatewayDoctor.upstream(asking, now: 0).last
    #expect(unpermitted?.state == .warning && unpermitted?.message.contains("asked for send") == true)
    #expect(unpermitted?.remedy?.contains("allow = [\"send\"]") == true)
    #expect(unpermitted?.remedy?.contains("added again with --allow") == true, "it is in no file that anybody edits")
    for (url, isOpen) in [
      ("http://hub.example", true), ("mqtt://10.0.0.7:1883", true), ("ws://b.example/mqtt", true),
      ("https://hub.example", false), ("mqtts://b.example", false), ("http://127.0.0.1:8787", false), ("a hook", false),
    ] {
      var shown = status(.idle, nil)
      shown.url = url
      let findings = GatewayDoctor.upstream(shown, now: 0)
      #expect(findings.contains { $0.message.contains("is not encrypted") } == isOpen, "\(url)")
    }
  }
}

@Suite struct RedactionTests {
  @Test(arguments: [
    ("[radio]\npin = \"123456\" # PIN: 123456", "[radio]\npin = (hidden)"), ("#pin = \"123456\"", ""),
    ("[radio]\npin = 123456\npin_file = \"/etc/pin\"", "[radio]\npin = (hidden)\npin_file = \"/etc/pin\""),
    (
      "[[upstream]]\nurl = \"https://hooks.example.org/services/T0/B0/XX\"",
      "[[upstream]]\nurl = \"https://hooks.example.org/…\""
    ),
    ("[[upstream]]\nurl = \"mqtts://u:p@broker:8883\"", "[[upstream]]\nurl = \"mqtts://broker:8883\""),
    ("[[upstream]]\nurl = \"http://h?token=5\"", "[[upstream]]\nurl = \"http://h/…\""),
    ("[[upstream]]\nurl = \"s3cret\"", "[[upstream]]\nurl = (hidden)"),
    ("[[upstream]]\nproxy = \"socks5h://me:s3cret@p:1\"", "[[upstream]]\nproxy = \"socks5h://p:1\""),
    ("[[upstream]]\nproxy = \"http://me:s3c/ret@p:1\"", "[[upstream]]\nproxy = \"http:///…\""),
    ("[[upstream]]\nproxy = \"me:s3cret@p:1\"", "[[upstream]]\nproxy = (hidden)"),
    ("[[upstream]]\nproxy = \"none\"", "[[upstream]]\nproxy = \"none\""),
    ("[[upstream]]\ntoken_file = \"s3cret\"", "[[upstream]]\ntoken_file = (hidden)"),
    ("[[upstream]]\ntemplate = '{\"url\":\"https://x/s3cret\"}'", "[[upstream]]\ntemplate = (hidden)"),
    ("[[upstream]]\nchannels = [\"#s3cret\"]", "[[upstream]]\nchannels = […] (1, hidden)"),
    ("[[upstream]]\nkinds = [\"message\"]\nbatch = true", "[[upstream]]\nkinds = [\"message\"]\nbatch = true"),
    (
      "[[hook]]\nrun = [\"/usr/bin/curl\", \"-u\", \"me:s3cret\"]",
      "[[hook]]\nrun = [\"/usr/bin/curl\", …] (2 arguments, hidden)"
    ), ("[[hook]]\nrun = [\"s3cret\"]", "[[hook]]\nrun = (hidden)"),
    ("[radio]\ns3cret = 1\n[s3cret]\nid = \"x\"", "[radio]\n(unknown) = (hidden)\n[(unknown)]\nid = (hidden)"),
    ("[radio]\npin = \"s3cret", "line 2 is invalid; the configuration is not shown"),
  ])
  func `a report shows a configuration without its secrets`(text: String, shown: String) {
    #expect(ShownConfiguration.text(Array(text.utf8)) == shown)
  }

  @Test func `the report knows every key of the shipped configuration`() throws {
    let file = Checkout.folder.appending(path: "deploy/meshpostd.toml")
    let text = try String(contentsOf: file, encoding: .utf8).split(separator: "\n").map { line in
      line.hasPrefix("#") && !line.hasPrefix("# ") ? String(line.dropFirst()) : String(line)
    }.joined(separator: "\n")
    #expect(!ShownConfiguration.text(Array(text.utf8)).contains("(unknown)"))
  }

  @Test func `a server that echoes the request reveals no secret in the report`() {
    let path = "/services/T00000001/abcdef?key=0123456"
    let words = "HTTP 404: Cannot POST /services/T00000001/abcdef?key=0123456, or T00000001"
    let shown = ServerAddress.hiding(path, in: words)
    #expect(!shown.contains("T00000001") && !shown.contains("abcdef") && !shown.contains("0123456"), "\(shown)")
    #expect(shown.contains("HTTP 404: Cannot POST"))
    #expect(ServerAddress.shown("https://u:p@h:1/a/b?c") == "https://h:1/…")
    #expect(ServerAddress.shown("mqtt://broker") == "mqtt://broker" && ServerAddress.shown("http://h/") == "http://h")
    #expect(ServerAddress.shown("s3cret") == "…" && ServerAddress.shown("http://h?t=s") == "http://h/…")
  }

  @Test(arguments: [
    ("key 8b3387e9c5cdea6ac9e5edbaa115cd72 here", "key 8b3387e9… here"), ("6312eee62ef9", "6312eee62ef9"),
    ("meshcore://8b3387e9c5cdea6ac9e5edbaa115cd72", "meshcore://8b3387e9…"), ("", ""), ("://", "://"),
    ("a 12:34 b", "a 12:34 b"), ("at https://h/a,b'c)d<e/f then", "at https://h/… then"),
    ("https://u:p/w@h/x", "https:///…"), ("https://h/x@y", "https:///…"), ("x://h\u{301}/s3cret", "x://h/…"),
    ("a://\u{301}/s3cret", "a:///…"), ("token xoxb-2345-abcdefghijklmnopqrst", "token xoxb-234…"),
    ("key=8b3387e9c5cdea6ac9e5edbaa115cd72", "key=8b3387e9…"), ("serial:/dev/ttyUSB0", "serial:/dev/ttyUSB0"),
    ("the-radio-does-not-answer-any-more", "the-radio-does-not-answer-any-more"),
  ])
  func `a report shows a log line without its secrets`(line: String, shown: String) {
    #expect(Redaction.line(line) == shown)
  }

  @Test func `a radio's name cannot add lines to a report`() {
    let shown = Redaction.line("radio: T-Beam\u{1b}[2J\n## Log\r\n\u{202e}v1")
    #expect(shown.hasPrefix("radio: T-Beam") && shown.unicodeScalars.allSatisfy { $0.value >= 32 && $0 != "\u{202e}" })
  }
}

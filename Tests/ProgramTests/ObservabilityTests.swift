// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// An operator's or a monitoring system's view of a gateway.
  @Suite struct Observability {
    private func python(_ script: String, _ arguments: String...) throws {
      let program = try Program(Program.python, ["-c", script] + arguments)
      #expect(try program.ended() == 0, "\(program.lines)")
    }

    @Test func `Prometheus' own parser reads the metrics, on the socket and on loopback`() throws {
      let rig = try Rig()
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      try rig.startRadio(["--contacts", "5"])
      rig.writeGatewayConfiguration(extra: "[[proxy]]\nname = \"p\\\"q\"\nlisten = \"127.0.0.1:\(try free())\"")
      try rig.addToGatewayConfiguration("control", "metrics_port = \(port)")
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 hello")
      try untilTrue("a message") { try rig.status()?["store"]?["messages"]?.integer == 1 }
      let answer = Rig.ask(.tcp(host: "127.0.0.1", port: port, tls: false), .init("GET", "/metrics"))
      let text = String(decoding: answer?.body ?? [], as: UTF8.self)
      #expect(text.contains("meshpost_messages_received_total 1\n") && text.contains("meshpost_radio_up 1\n"))
      #expect(rig.control("GET", "/metrics")?.status == 200)
      let other = Rig.ask(.tcp(host: "127.0.0.1", port: port, tls: false), .init("GET", "/v1/messages"))
      #expect(other?.status == 404, "on loopback there are metrics, and nothing else")
      try python(
        """
        import sys
        from prometheus_client.parser import text_string_to_metric_families as parse
        families = {f.name: f for f in parse(open(sys.argv[1]).read())}
        assert len(families) > 30, families.keys()
        for family in families.values():
            assert family.documentation and family.type in ("gauge", "counter"), family
            assert family.name.startswith(("meshpost_", "process_")), family
            names = {s.name for s in family.samples}
            assert names == {family.name + ("_total" if family.type == "counter" else "")}, names
        up = families["meshpost_upstream_up"].samples[0]
        assert up.labels == {"upstream": "hub", "kind": "hub"}, up
        assert families["meshpost_proxy_up"].samples[0].labels["proxy"] == 'p"q'
        """, rig.scratch.write("metrics", text))
    }

    private func free() throws -> UInt16 {
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      return port
    }

    @Test func `Wireshark and another decoder read captured packets`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      let (pcap, hex) = (rig.scratch.location("air.pcap"), rig.scratch.location("air.hex"))
      let captures = try [[pcap], [hex, "--format", "hex"]].map { arguments in
        try Program.own("meshpost", ["capture"] + arguments + ["--count", "3", "--socket", rig.socket])
      }
      let frames = try Program.own("meshpost", ["capture", "-", "--frames", "--socket", rig.socket])
      try untilTrue("three listeners") { try self.listeners(rig) }
      for number in 1...3 { rig.radio?.write("chan r1 0 number \(number)") }
      for capture in captures {
        #expect(try capture.ended() == 0 && capture.lines == ["3 captured"], "\(capture.lines)")
      }
      let over = try rig.meshpost("capture", pcap, "--count", "1")
      #expect(over.code == EX_CANTCREAT && over.lines.joined().contains("--force"), "\(over)")
      try frames.line(with: "\"dir\":\"in\",\"hex\":\"88")
      frames.send(SIGINT)
      #expect(try frames.ended() == 0)
      let shark = try Program(
        "/usr/bin/tshark",
        [
          "-r", pcap, "-T", "fields", "-e", "loratap.channel.frequency", "-e", "loratap.channel.sf", "-e",
          "loratap.rssi.snr",
          "-e", "frame.len",
        ])
      #expect(try shark.ended() == 0)
      let rows = shark.lines.filter { $0.hasPrefix("869618000\t8\t") }
      #expect(rows.count == 3, "\(shark.lines)")
      try python(
        """
        import sys
        from pymc_core.protocol import Packet
        lines = open(sys.argv[1]).read().split()
        assert len(lines) == 3
        for line in lines:
            packet = Packet()
            packet.read_from(bytes.fromhex(line))
            assert packet.get_payload_type() == 5, packet.get_payload_type()  # a channel's text
        """, hex)
    }

    /// Waits until the listeners are connected.
    private func listeners(_ rig: Rig) throws -> Bool {
      let count = try rig.status()?["listeners"]?.integer
      return count == 3
    }

    @Test func `a user without rights to the control socket is told which group to join, but never root's`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startGateway()
      try untilTrue("the socket") { rig.control("GET", "/v1/status") != nil }
      func asNobody(_ arguments: String...) throws -> (code: Int32, words: String) {
        let program = try Program(
          "/usr/bin/setpriv",
          ["--reuid=65534", "--regid=65534", "--clear-groups", Program.programs.appending(path: "meshpost").path()]
            + arguments + ["--socket", rig.socket])
        return (try program.ended(), program.lines.joined(separator: "\n"))
      }
      // `games` stands for `meshpost`, which this machine may not have.
      let games = try #require(getgrnam("games")).pointee.gr_gid
      #expect(chown(rig.socket, 0, games) == 0 && chmod(rig.socket, 0o660) == 0)
      let status = try asNobody("status")
      #expect(status.code == EX_NOPERM && status.words.contains("`sudo adduser nobody games`"), "\(status)")
      let doctor = try asNobody("doctor")
      #expect(doctor.code == 1 && doctor.words.contains("`sudo adduser nobody games`"), "\(doctor)")
      #expect(chown(rig.socket, 0, 0) == 0)
      let root = try asNobody("status")
      #expect(root.code == EX_NOPERM && root.words.contains("sudo") && !root.words.contains("adduser"), "\(root)")
    }

    @Test func `a report has what a bug report needs, and no secret, key, text or position`() throws {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "3"])
      rig.writeGatewayConfiguration(
        extra: """
          [[upstream]]
          name = "alarm"
          kind = "webhook"
          url = "http://127.0.0.1:1/services/a-secret-path"
          template = '{"text":"{{text}}","to":"https://elsewhere.example/a-secret-template"}'
          [[hook]]
          name = "talker"
          kinds = ["message"]
          run = ["/bin/sh", "-c", "echo a-secret-word >&2; exit 3", "a-secret-argument"]
          \(geteuid() == 0 ? "user = \"nobody\"" : "")
          """)
      try rig.addToGatewayConfiguration("radio", "pin = \"987654\"")
      try rig.startGateway()
      try rig.waitForSync()
      let secret = "00112233445566778899aabbccddeeff"
      #expect(try rig.meshpost("channel", "add", "hidden", "--secret", secret).code == 0)
      rig.radio?.write("dm r1 r0 a private word")
      try untilTrue("a message") { try rig.status()?["store"]?["messages"]?.integer == 1 }
      try untilTrue("the hook to have spoken") {
        rig.gateway?.lines.contains { $0.contains("hook/talker: a-secret-word") } == true
      }
      let file = rig.scratch.location("report.md")
      let (code, lines) = try rig.meshpost("report", "--output", file)
      #expect(code == 0, "\(lines)")
      let report = try String(contentsOfFile: file, encoding: .utf8)
      for part in [
        "## Versions", "meshpostd 0.", "## Doctor", "ok: radio", "## Status", "[[upstream]]", "radio link up",
      ] {
        #expect(report.contains(part), "\(part)")
      }
      let key = try rig.status()?["radio"]?["identity"]?["key"]?.string ?? "?"
      let token = try String(contentsOfFile: rig.scratch.location("token"), encoding: .utf8).prefix(12)
      var facts = stat()
      #expect(stat(file, &facts) == 0 && facts.st_mode & 0o777 == 0o600)
      for hidden in [
        "a-secret-template", "a-secret-argument", "a-secret-word", "987654", "a-secret-path", "a private word",
        "\"lat\"", secret, key,
        String(token),
      ] {
        #expect(!report.contains(hidden), "\(hidden)")
      }
    }

    @Test func `journald gets lines with fields and a priority`() throws {
      let rig = try Rig()
      try rig.startRadio()
      rig.writeGatewayConfiguration(url: "http://127.0.0.1:1")
      let location = rig.scratch.location("journal")
      let journal = try Journal(location)
      let daemon = Program.programs.appending(path: "meshpostd").path()
      let script =
        "export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2); exec \(daemon) --config \(rig.scratch.location("gw.toml"))"
      rig.gateway = try Program("/bin/sh", ["-c", script], environment: ["MESHPOST_JOURNAL_SOCKET": location])
      let line = try journal.entry { $0.contains("MESHPOST_UPSTREAM=hub") }
      #expect(line.contains("PRIORITY=4\n") && line.contains("SYSLOG_IDENTIFIER=meshpostd\n"), "\(line)")
      #expect(line.contains("MESSAGE=hub: "))
      let up = try journal.entry { $0.contains("radio link up") }
      #expect(up.contains("PRIORITY=5\n") && up.contains("MESHPOST_LINK=\(rig.link)\n"), "\(up)")
      #expect(rig.gateway?.lines.isEmpty == true, "nothing twice: \(rig.gateway?.lines ?? [])")
    }
  }
}

/// A journald that records its input.
private final class Journal {
  private let listener: DatagramListener
  private var entries: [String] = []

  init(_ location: String) throws { listener = try #require(DatagramListener(location)) }

  func entry(_ fits: (String) -> Bool) throws -> String {
    try until("a line in the journal: \(entries)") {
      while let entry = listener.nextNow() { entries.append(entry) }
      return entries.first(where: fits)
    }
  }
}

// SPDX-License-Identifier: MIT

import Foundation
import HTTP
import TestSupport
import Testing

extension WholeProgramTests {
  /// Impossible numbers from all senders: none of them ends a program.
  @Suite struct Numbers {
    @Test func `a hub's absurd numbers do not stop the gateway, and no event is lost`() throws {
      let rig = try Rig()
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      let peer = try LyingPeer(rig.scratch, listen: "\(port)", target: "\(rig.hubPort)")
      let side = """
        allow = ["send", "documents", "settings"]
        [[upstream]]
        name = "side"
        url = "http://127.0.0.1:\(port)/"
        token_file = "\(rig.scratch.location("token"))"
        link = "http"
        allow = ["send", "documents", "settings"]
        """
      rig.writeGatewayConfiguration(url: "http://127.0.0.1:\(port)", extra: side)
      try rig.startRadio()
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      let fields = ["acknowledged", "seq,at,first,last,last_at,resume,resume_at", "window,n,status,retry_after_s", ""]
      for number in LyingPeer.numbers {
        for keys in fields {
          try peer.tell(number, under: keys.isEmpty ? [] : keys.split(separator: ",").map(String.init))
          _ = rig.control("POST", "/v1/outbox/resume")
          // Not every answer has the other fields.
          if keys == "acknowledged" || keys.isEmpty {
            // After so many failures the next attempt may be minutes away; and a completed link sends nothing more.
            var looks = 0
            try peer.haveLied {
              looks += 1
              _ = rig.control("POST", "/v1/outbox/resume")
              if looks.isMultiple(of: 40) { rig.radio?.write("chan r1 0 while it said \(number.prefix(20))") }
            }
          }
          #expect(try rig.status() != nil, "\(number) as \(keys): \(rig.gateway?.lines.suffix(5) ?? [])")
          guard rig.gateway?.exitCode == nil else { return }
        }
        rig.radio?.write("chan r1 0 while it said \(number.prefix(20))")
      }
      try peer.tell(nil)
      _ = rig.control("POST", "/v1/outbox/resume")
      try untilTrue("all to arrive: \(rig.gateway?.lines.suffix(8) ?? [])") {
        _ = rig.control("POST", "/v1/outbox/resume")
        return try Set(rig.hubTexts()).count == LyingPeer.numbers.count
      }
    }

    @Test func `a gateway's absurd numbers trap no command`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 one")
      rig.radio?.write("dm r1 r0 two")
      try untilTrue("the messages") { try rig.hubTexts().count == 2 }
      _ = try rig.meshpost("send", "Public", "three")
      _ = try rig.meshpost("node", "telemetry", "self")
      _ = try rig.meshpost("node", "telemetry", "r1")
      let lying = rig.scratch.location("lying")
      let peer = try LyingPeer(rig.scratch, listen: lying, target: rig.socket)
      let commands = [
        ["status"], ["overview"], ["messages"], ["search", "one"], ["contacts"], ["channels"], ["sent"],
        ["journal"],
        ["upstream", "pending"], ["upstream", "dead"], ["upstream", "list"], ["sync"], ["radio", "info"],
        ["radio", "presets"],
        ["radio", "backup", rig.scratch.location("radio.backup")], ["node", "readings"], ["node", "telemetry", "self"],
        ["chart", "signal"], ["chart", "battery"], ["chart", "traffic"], ["doctor"], ["report"], ["map"],
        ["export", "messages", "--format", "csv"], ["export", "contacts", "--format", "gpx"],
        ["export", "contacts", "--format", "geojson"], ["documents", "list"], ["send", "Public", "x"],
        ["capture", rig.scratch.location("air.pcap"), "--force", "--seconds", "1"], ["channel", "add", "#numbers"],
      ]
      for number in LyingPeer.numbers {
        try peer.tell(number)
        for command in commands {
          for more in number == LyingPeer.numbers[0] ? [[], ["--json"]] : [[]] {
            let program = try Program.own("meshpost", command + more + ["--socket", lying])
            let code = try program.ended()
            #expect(code < 128, "\(command + more) with \(number.prefix(24)): \(program.lines.suffix(3))")
          }
        }
      }
    }

    @Test func `absurd numbers in requests do not stop a hub, and valid events are stored`() throws {
      let rig = try Rig()
      try rig.startHub()
      for number in LyingPeer.numbers {
        let paths = [
          "gateways/g/events?after=N&limit=N", "gateways/g/messages?after=N&limit=N", "messages?after=N&limit=N",
          "gateways/g/updates?bucket=commands&after=N&at=N&since=N&until=N&limit=N", "gateways/g/commands/c?wait_s=0",
          "gateways?limit=N", "gateways/g?epoch=e", "gateways/g/documents?limit=N",
        ]
        let bodies = [
          (
            "gateways/g/events",
            #"{"epoch":"e","after":N,"events":[{"seq":N,"at":N,"trusted":true,"kind":"message","body":{}}]}"#
          ),
          (
            "gateways/g/events",
            #"{"epoch":"e","events":[{"seq":1,"at":N,"trusted":true,"kind":"message","body":{"id":N,"sender_time":N,"snr":N,"hops":N,"channel":"ab","text":"x"}}]}"#
          ),
          (
            "gateways/g/events",
            #"{"epoch":"e","events":[{"seq":2,"at":1,"trusted":true,"kind":"gap","body":{"first":N,"last":N,"count":N}},{"seq":3,"at":1,"trusted":true,"kind":"document","body":{"key":"settings/log_level","value":"info","updated_at":N}}]}"#
          ),
          ("gateways/g/commands?wait_s=0", #"{"id":"c","command":"send","to":"x","text":"y","expires_s":N}"#),
        ]
        for path in paths { _ = rig.askHub("GET", "/v1/" + path.replacingOccurrences(of: "N", with: number)) }
        for (path, body) in bodies {
          _ = rig.askHub("POST", "/v1/\(path)", body: body.replacingOccurrences(of: "N", with: number))
        }
        #expect(rig.askHub("GET", "/healthz")?.status == 200, "\(number): \(rig.hub?.lines.suffix(5) ?? [])")
        guard rig.hub?.exitCode == nil else { return }
      }
      let event = #"{"epoch":"f","events":[{"seq":1,"at":1,"trusted":true,"kind":"packet","body":{}}]}"#
      #expect(rig.askHub("POST", "/v1/gateways/g/events", body: event)?.status == 200)
    }
  }
}

// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Drawings: a page and pictures that load nothing.
  @Suite struct Pictures {
    /// Swift treats U+0600 and the following `<` as one character.
    private static let hostile = "H\u{600}</script>\u{600}<b id=x>\u{301}"

    private func rig() throws -> Rig {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "8", "--queue", "1000"])
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try rig.meshpost("radio", "set", "name=\(Self.hostile)", "position=47,8").code == 0)
      rig.radio?.write("inject r0 100 30")
      try untilTrue("30 messages") { try rig.status()?["store"]?["messages"]?.integer == 30 }
      return rig
    }

    @Test func `a map is one page that loads nothing, and a hostile name stays text in it`() throws {
      let rig = try rig()
      let file = rig.scratch.location("map.html")
      let coast = rig.scratch.write("coast.json", #"{"type":"LineString","coordinates":[[7.9,46.9],[8.1,47.1]]}"#)
      #expect(try rig.meshpost("map", "--output", file, "--background", coast).code == 0)
      for command in [["map"], ["chart", "signal"], ["export", "messages"], ["report"]] {
        let over = try Program.own("meshpost", command + ["--output", file, "--socket", rig.socket])
        #expect(try over.ended() == EX_CANTCREAT, "\(command): \(over.lines)")
      }
      let page = try String(contentsOfFile: file, encoding: .utf8)
      #expect(page.contains("default-src 'none'") && !page.contains("http://") && !page.contains("https://"))
      #expect(page.ranges(of: "</script>").count == 2, "the name does not end a script")
      let start = try #require(page.range(of: "type=\"application/json\">")),
        end = try #require(page.range(of: "</script>"))
      let data = try JSONValue(parsing: String(page[start.upperBound..<end.lowerBound]))
      #expect(data["own"]?["name"]?.string == Self.hostile)
      #expect(!page.contains("unsafe-inline"))
      #expect(data["nodes"]?.array?.count == 9 && data["background"]?["type"]?.string == "LineString")
      let chromium = "/usr/bin/chromium"
      guard access(chromium, X_OK) == 0 else { return }
      let browser = try Program(
        chromium,
        [
          "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=\(rig.scratch.location("chromium"))",
          "--dump-dom",
          "file://\(file)",
        ])
      #expect(try browser.ended() == 0)
      let dom = browser.lines.joined(separator: "\n")
      #expect(dom.ranges(of: "<li>").count == 10, "a line of the list for each")
      #expect(dom.ranges(of: "class=\"node\"").count >= 9, "and a mark for each that has a position")
      #expect(!dom.unicodeScalars.split(separator: "<").contains { String($0).hasPrefix("b id") }, "markup of a name")
      #expect(dom.utf8.split(separator: UInt8(ascii: "&")).contains { $0.starts(with: "lt;b id=x".utf8) })
    }

    @Test func `charts are valid XML with the requested data`() throws {
      let rig = try rig()
      #expect(try rig.meshpost("send", "r1", "hello", "--wait").code == 0)
      let script = """
        import sys, xml.etree.ElementTree as e
        root = e.parse(sys.argv[1]).getroot()
        svg = "{http://www.w3.org/2000/svg}"
        assert root.tag == svg + "svg", root.tag
        found = len(root.findall(".//" + svg + sys.argv[2]))
        assert found >= int(sys.argv[3]), found
        """
      for (arguments, tag, count) in [
        (["signal", "--since", "1h"], "circle", 30), (["signal", "r1"], "text", 3),
        (["traffic", "--since", "2d"], "rect", 4),
        (["traffic", "--since", "40d"], "rect", 4), (["battery"], "text", 2),
      ] {
        let file = rig.scratch.location("chart.svg")
        let command = ["chart"] + arguments + ["--force", "--output", file, "--socket", rig.socket]
        let chart = try Program.own("meshpost", command)
        #expect(try chart.ended() == 0, "\(chart.lines)")
        let check = try Program("/usr/bin/env", ["python3", "-c", script, file, tag, "\(count)"])
        #expect(try check.ended() == 0, "\(arguments): \(check.lines)")
      }
      let data = try JSONValue(parsing: try rig.meshpost("chart", "traffic", "--json").lines.joined())
      let sums = data["series"]?.array?.map { series in
        series["points"]?.array?.reduce(0) { $0 + ($1["value"]?.number ?? 0) } ?? 0
      }
      #expect(sums == [30, 1], "received, and sent")
    }

    @Test func `a chart whose period has more than it reads says so`() throws {
      let scratch = Scratch()
      let socket = scratch.location("full.sock")
      let server = try Program("/usr/bin/python3", ["-c", Self.full, socket])
      try server.line(with: "listening")
      let cases = [
        ("battery", "10000 readings"), ("clock", "10000 readings"), ("traffic", "10000 sent messages"), ("signal", nil),
      ]
      for (kind, words) in cases {
        let file = scratch.location("full.svg")
        let whole = ["chart", kind, "--force", "--output", file, "--socket", socket]
        let lines = try Program.own("meshpost", whole).finished()
        #expect(lines.contains { $0.contains("are left out") } == (words != nil), "\(kind): \(lines)")
        if let words { #expect(lines.contains { $0.contains("the newest \(words):") }, "\(kind): \(lines)") }
        let later = ["chart", kind, "--since", "10s", "--force", "--output", file, "--socket", socket]
        let few = try Program.own("meshpost", later).finished()
        #expect(!few.contains { $0.contains("are left out") }, "all of the period is there: \(kind): \(few)")
      }
    }

    /// A gateway with as many readings and sent messages as it keeps, all of the last minute, few of a kind.
    private static let full = """
      import socketserver, sys, time
      now = int(time.time() * 1000)
      row = b'{"at":%d,"created_at":%d,"kind":"node_status","body":{"node":"aa","name":"Birch","battery_mv":%d}}\\n'
      rows = [row % (now - 5 * left, now - 5 * left, 3700 + left % 10) for left in range(10000, 0, -1)]
      class Handler(socketserver.StreamRequestHandler):
          def handle(self):
              while line := self.rfile.readline():
                  while self.rfile.readline() not in (b"\\r\\n", b"\\n", b""): pass
                  body = b"".join(rows[-10:] if b"/v1/messages" in line or b"kind=" in line else rows)
                  head = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/x-ndjson\\r\\nContent-Length: %d\\r\\n\\r\\n"
                  self.wfile.write(head % len(body) + body)
      class Server(socketserver.ThreadingUnixStreamServer): daemon_threads = True
      server = Server(sys.argv[1], Handler)
      print("listening", flush=True)
      server.serve_forever()
      """
  }
}

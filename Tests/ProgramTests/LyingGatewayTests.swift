// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// A gateway whose texts all contain control sequences, and every command in a terminal.
  @Suite struct LyingGateway {
    /// Control sequences and characters that reverse text, for every text of every answer.
    private static let payload =
      "A\u{1B}]0;owned\u{7}\u{1B}[31mB\u{9B}2JC\u{202E}D\u{2066}\u{200F}\u{61C}\u{2028}\u{E0041}\u{7F}\nFORGED\r\nFORGED\u{8}"

    /// Every command that prints texts of a gateway, without exception.
    private static let commands: [[String]] = [
      [], ["overview"], ["status"], ["messages"], ["messages", "--follow"], ["conversations"], ["search", "x"],
      ["block", "list"], ["contacts"], ["channels"],
      ["send", "x", "y"], ["send", "x", "y", "--wait"], ["react", "1", "👍"], ["sent"], ["retry", "x"],
      ["cancel", "x"], ["delete", "message", "1", "--yes"], ["delete", "conversation", "x", "--yes"],
      ["contact", "add", "x"], ["contact", "remove", "x"], ["contact", "export"], ["contact", "import", "x"],
      ["contact", "share", "x"], ["contact", "path", "x"], ["channel", "add", "x"], ["channel", "remove", "x"],
      ["channel", "relay", "x", "on"], ["channel", "data", "x", "1", "00"], ["room", "read", "x"],
      ["room", "post", "x", "y"],
      ["room", "login", "x", "--stored"],
      ["node", "login", "x", "--stored"], ["node", "logout", "x"], ["node", "status", "x"], ["node", "telemetry", "x"],
      ["node", "neighbours", "x"], ["node", "access", "x"], ["radio", "survey"], ["radio", "variables"], ["airtime"],
      ["node", "trace", "x"], ["node", "cli", "x", "ver"], ["node", "clock", "x"], ["node", "snapshot", "x"],
      ["node", "snapshot", "x", "--stored"], ["node", "diff", "x"], ["node", "readings"],
      ["node", "alias", "x", "y"], ["journal"], ["upstream", "pending"], ["upstream", "dead"], ["upstream", "retry"],
      ["upstream", "drop", "x"],
      ["upstream", "resume"], ["upstream"], ["upstream", "add", "x", "http://x"], ["upstream", "pause", "x"],
      ["upstream", "test", "x"], ["documents"], ["documents", "set", "x", "y"], ["sync"], ["sync", "--follow"],
      ["radio", "info"], ["radio", "scan"], ["radio", "pair", "x", "--pin", "123456"], ["radio", "forget", "x"],
      ["radio", "set"], ["radio", "set", "name=x"], ["radio", "presets"], ["doctor"], ["doctor", "bluetooth"],
      ["report"],
      ["export", "messages"], ["export", "messages", "--format", "csv"], ["export", "contacts", "--format", "gpx"],
      ["export", "contacts", "--format", "geojson"], ["export", "readings", "--format", "csv"], ["map"],
      ["chart", "signal"],
      ["chart", "battery"], ["chart", "clock"], ["chart", "neighbours"], ["chart", "noise"], ["chart", "traffic"],
      ["capture", "-", "--format", "jsonl"],
      ["capture", "-", "--format", "hex"],
      ["capture", "-", "--frames"], ["top"], ["chat", "x"],
    ]

    /// Commands whose output is a document, whose lines may begin with anything.
    private static let documents: Set<String> = ["report", "export", "map", "chart"]

    @Test(arguments: [200, 503]) func `no output of a gateway can control the terminal, in any command`(
      _ status: Int
    ) throws {
      let scratch = Scratch()
      let shapes = try Program.own("meshpost", ["generate", "openapi"]).finished().joined()
      _ = scratch.write("shapes.json", shapes)
      _ = scratch.write("payload.json", JSONValue.string(Self.payload).text)
      let socket = scratch.location("lying.sock")
      let server = try Program(
        "/usr/bin/python3",
        [
          "-c", Self.server, socket, scratch.location("shapes.json"), scratch.location("payload.json"), "\(status)",
        ])
      try server.line(with: "listening")
      let commands = Self.commands.flatMap { command -> [[String]] in
        ["top", "chat", "capture"].contains(command.first) ? [command] : [command, command + ["--json"]]
      }
      let lines = commands.map { JSONValue.array(($0 + ["--socket", socket]).map(JSONValue.string)) }
      let terminal = try Program(
        "/usr/bin/python3",
        [
          "-c", Self.terminal, Program.programs.appending(path: "meshpost").path(),
          scratch.write("commands.json", JSONValue.array(lines).text), scratch.location("seen"),
        ])
      #expect(try terminal.ended() == 0, "\(terminal.lines)")
      for (number, command) in commands.enumerated() {
        check(Array(try Data(contentsOf: URL(filePath: scratch.location("seen\(number)")))), command)
      }
    }

    private func check(_ bytes: [UInt8], _ command: [String]) {
      #expect(!bytes.isEmpty, "\(command) says something")
      let text = String(decoding: bytes, as: UTF8.self)
      let steering = text.unicodeScalars.filter { scalar in
        switch scalar.value {
        case 0x07, 0x08, 0x7F...0x9F, 0x061C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069, 0xE0000...0xE00FF: true
        default: false
        }
      }
      #expect(steering.isEmpty, "\(command): \(steering)")
      for sequence in ["\u{1B}]", "\u{1B}[31mB"] {
        #expect(!bytes.indices.contains { bytes[$0...].starts(with: sequence.utf8) }, "\(command)")
      }
      guard !Self.documents.contains(command.first ?? "") else { return }
      let forged = text.unicodeScalars.split { $0 == "\n" || $0 == "\r" }.contains { String($0).hasPrefix("FORGED") }
      #expect(!forged, "\(command) shows a line that the gateway made up:\n\(text)")
    }

    /// Answers each request with an object that has all fields of all shapes, with hostile texts.
    private static let server = """
      import json, os, socketserver, sys
      shapes = json.load(open(sys.argv[2]))["components"]["schemas"]; payload = json.load(open(sys.argv[3])); status = sys.argv[4]
      def value(schema, depth):
          if "items" in schema: return [value(schema["items"], depth)]
          if "$ref" in schema: return {} if depth > 5 else whole(schema["$ref"].split("/")[-1], depth + 1)
          return {"string": payload, "integer": 7, "number": 1.5, "boolean": True}.get(schema.get("type"), payload)
      def whole(shape, depth): return {name: value(schema, depth) for name, schema in shapes[shape]["properties"].items()}
      answer = {}
      for shape in sorted(shapes):
          for name, found in whole(shape, 0).items():
              if not isinstance(answer.get(name), str): answer[name] = found
      for name in ["at", "received_at", "created_at", "seq", "id"]: answer[name] = 7
      answer.update(lat=1, lon=2, state=payload, snr=1.5, phase=payload, error=payload, remedy=payload)
      for name in ["messages", "dead_letters", "settings", "upstreams"]: answer[name] = [dict(answer)]
      body = (json.dumps(answer, ensure_ascii=False) + "\\n").encode()
      class Handler(socketserver.StreamRequestHandler):
          def handle(self):
              while True:
                  line = self.rfile.readline()
                  if not line: return
                  length = 0
                  while True:
                      head = self.rfile.readline()
                      if head in (b"\\r\\n", b"\\n", b""): break
                      if head.lower().startswith(b"content-length:"): length = int(head.split(b":")[1])
                  self.rfile.read(length)
                  self.wfile.write(b"HTTP/1.1 %s X\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n"
                                   % (status.encode(), len(body)) + body)
      class Server(socketserver.ThreadingUnixStreamServer): daemon_threads = True
      server = Server(sys.argv[1], Handler)
      print("listening", flush=True)
      server.serve_forever()
      """

    /// Runs each command in a terminal of its own, one after the other, and keeps its output.
    private static let terminal = """
      import json, os, pty, select, sys, time
      program, place = sys.argv[1], sys.argv[3]
      for number, words in enumerate(json.load(open(sys.argv[2], "rb"))):
          pid, fd = pty.fork()
          if pid == 0:
              os.environ["TERM"] = "xterm"
              os.execv(program, [program] + words)
          seen, start, quiet = b"", time.monotonic(), time.monotonic()
          while time.monotonic() - start < 30:
              if select.select([fd], [], [], 0.2)[0]:
                  try: piece = os.read(fd, 65536)
                  except OSError: break
                  if not piece: break
                  seen, quiet = seen + piece, time.monotonic()
              elif seen and time.monotonic() - quiet > 1.5:
                  os.write(fd, b"\\x03")
                  quiet = time.monotonic()
          try: os.kill(pid, 9)
          except ProcessLookupError: pass
          os.waitpid(pid, 0)
          os.close(fd)
          open(place + str(number), "wb").write(seen)
          print("ran", number, flush=True)
      """
  }
}

extension Program {
  /// The command's lines, after its end.
  func finished() throws -> [String] {
    _ = try ended()
    return lines
  }
}

// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// A server of Python's library, which checks signatures with its own `hmac` and counts.
  @Suite struct Webhooks {
    private static let server = """
      \(Program.say)
      import hashlib, hmac, http.server, json, sys
      secret, seen, first = b"a-secret-of-the-test", [], True
      class Handler(http.server.BaseHTTPRequestHandler):
          def do_POST(self):
              global first
              body = self.rfile.read(int(self.headers["Content-Length"]))
              wanted = "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()
              status = 200 if self.headers["X-Meshpost-Signature"] == wanted else 400
              if first: first, status = False, 503
              elif status == 200: say("got " + self.headers["Idempotency-Key"] + " " + body.decode())
              self.send_response(status); self.send_header("Content-Length", "0"); self.end_headers()
          def log_message(self, *_): pass
      server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
      print("port", server.server_address[1], flush=True)
      server.serve_forever()
      """

    @Test func `a webhook gets messages in order over a kill, and only those that its filter passes`() throws {
      let rig = try Rig()
      let hook = try Program(Program.python, ["-c", Self.server])
      let port = try hook.line(with: "port ").split(separator: " ").last.map(String.init) ?? ""
      let secret = rig.scratch.write("secret", "a-secret-of-the-test\n")
      try rig.startRadio(["--queue", "1000"])
      _ = rig.scratch.write(
        "gw.toml",
        """
        [radio]
        link = "\(rig.link)"
        [store]
        location = "\(rig.scratch.location("gw.db"))"
        [control]
        socket = "\(rig.socket)"
        [[upstream]]
        name = "hook"
        kind = "webhook"
        url = "http://127.0.0.1:\(port)/T0/B0"
        secret_file = "\(secret)"
        kinds = ["message"]
        template = '{"text":"{{text}}"}'
        """)
      try rig.startGateway()
      try rig.waitForSync()
      for number in 1...5 { rig.radio?.write("chan r1 0 say \"\(number)\"") }
      try untilTrue("five at the hook: \(hook.lines)") { hook.lines.count { $0.hasPrefix("got") } >= 5 }
      #expect(try rig.meshpost("upstream", "pause", "hook").code == 0)
      for number in 6...8 { rig.radio?.write("chan r1 0 say \"\(number)\"") }
      try untilTrue("eight stored") { try rig.status()?["store"]?["messages"]?.integer == 8 }
      rig.gateway?.kill9()
      try rig.startGateway()
      try untilTrue("the gateway to answer") { try rig.status() != nil }
      #expect(try rig.meshpost("upstream", "list").lines.first?.contains("paused") == true)
      #expect(hook.lines.count { $0.hasPrefix("got") } == 5)
      #expect(try rig.meshpost("upstream", "resume", "hook").code == 0)
      try untilTrue("eight at the hook") { Set(Self.texts(hook)).count == 8 }
      #expect(Self.texts(hook) == (1...8).map { "say \"\($0)\"" })
      #expect(try rig.meshpost("upstream", "test", "hook").code == 0)
      try untilTrue("the test event") { Self.texts(hook).last?.contains("says hello") == true }
      #expect(try rig.meshpost("upstream", "test", "nobody").code == 67)
      hook.kill9()
      #expect(try rig.meshpost("upstream", "test", "hook").code == 69)
      #expect(rig.gateway?.lines.joined().contains("T0/B0") == false, "a hook's address is a secret")
    }

    private static func texts(_ hook: Program) -> [String] {
      hook.lines.filter { $0.hasPrefix("got") }.compactMap { line in
        let body = line.split(separator: " ", maxSplits: 2).last.map(String.init) ?? ""
        return (try? JSONValue(parsing: body))?["text"]?.string
      }
    }
  }
}

// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Clients that connect to a hub without a token, and do not continue.
  @Suite struct HubCrowd {
    /// Keeps unfinished connections open, and prints how many the hub has ended; meanwhile a client with a token sends requests. If the hub ends a
    /// connection, another replaces it once.
    private static let crowd = """
      import http.client, select, socket, sys, time
      port, count, token = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
      link = ("GET /v1/gateways/g%d/link HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer %s\\r\\nUpgrade: websocket\\r\\n"
              "Connection: Upgrade\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n")
      post = "POST /v1/gateways/g%d/events HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer %s\\r\\nContent-Length: 90000\\r\\n\\r\\n{"
      def connect(text=""):
          s = socket.create_connection(("127.0.0.1", port), timeout=20)
          if text: s.sendall(text.encode())
          return s
      def ask():
          c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
          c.request("GET", "/v1/gateways", headers={"Authorization": "Bearer " + token})
          return c.getresponse().status
      idle = [connect() for _ in range(count)]
      idle += [connect("GET /v1/gate") for _ in range(count // 4)]
      print("honest", [ask() for _ in range(5)], flush=True)
      known = [connect(post % (n, token)) for n in range(3)] + [connect(link % (n, token)) for n in range(3)]
      wrong = [connect(post % (n, "wrong")) for n in range(3)]
      def answer(text):
          s = connect(text)
          return s.recv(4096).split(b"\\r\\n")[0].decode()
      print("wrong token:", answer(link % (1, "wrong")), flush=True)
      print("no key:", answer((link % (1, token)).replace("Sec-WebSocket-Key", "X-Key")), flush=True)
      left, poll, began = {}, select.poll(), time.time()
      for s in idle + known + wrong:
          left[s.fileno()] = s
          poll.register(s, select.POLLIN)
      while left and time.time() - began < 60:
          for number, _ in poll.poll(1000):
              try: data = left[number].recv(65536)
              except OSError: data = b""
              if not data:
                  poll.unregister(number)
                  left.pop(number).close()
          if int(time.time() - began) % 10 == 0: print("still", len(left), flush=True)
      print("left", len(left), flush=True)
      print("honest", [ask() for _ in range(3)], flush=True)
      """

    @Test(arguments: [(64, 300), (1024, 1500)])
    func `connections without a token neither block nor crash a hub, and stalled ones end`(
      _ files: Int, _ count: Int
    ) throws {
      let rig = try Rig()
      // The hub has a loop for each core, with three descriptors each.
      let limit = files + 3 * ProcessInfo.processInfo.activeProcessorCount
      let hub = Program.programs.appending(path: "meshpost-hub").path()
      rig.hub = try Program(
        "/usr/bin/prlimit", ["--nofile=\(limit)", hub, "serve", "--config", rig.scratch.location("hub.toml")])
      try rig.hub?.line(with: "listening")
      let crowd = try Program(
        "/usr/bin/prlimit",
        ["--nofile=4096", Program.python, "-c", Self.crowd, "\(rig.hubPort)", "\(count)", "a-token-for-the-tests"])
      #expect(try crowd.line(with: "honest") == "honest [200, 200, 200, 200, 200]")
      #expect(try crowd.line(with: "wrong token:").hasSuffix("401 Unauthorized"))
      #expect(try crowd.line(with: "no key:").hasSuffix("426 Upgrade Required"))
      #expect(try crowd.line(with: "left") == "left 0", "all were ended within a minute")
      #expect(try crowd.ended() == 0)
      #expect(crowd.lines.last == "honest [200, 200, 200]")
      let log = rig.hub?.lines ?? []
      #expect(
        (1...3).contains(log.filter { $0.contains("connections are in use") }.count), "said once a minute: \(log)")
      #expect(log.contains { $0.contains("login refused from 127.0.0.1: unknown token") })
      #expect(!log.joined().contains("wrong"), "tokens are not in the log")
      rig.hub?.send(SIGTERM)
      #expect(try rig.hub?.ended() == 0)
    }

    @Test func `a gateway stops at a wrong token, told at both ends, and goes on with the right one`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startHub()
      rig.writeGatewayConfiguration()
      let file = rig.scratch.location("gw.toml")
      let wrong = rig.scratch.write("wrong", "no-token-of-this-hub\n")
      let text = try String(contentsOfFile: file, encoding: .utf8)
      _ = rig.scratch.write("gw.toml", text.replacingOccurrences(of: rig.scratch.location("token"), with: wrong))
      try rig.startGateway()
      let stopped = try rig.gateway?.line(with: "stopped: HTTP 401")
      #expect(stopped?.contains("check the token") == true, "\(stopped ?? "")")
      #expect(rig.gateway?.lines.contains { $0.contains("using plain HTTP") } == false)
      try rig.hub?.line(with: "login refused from 127.0.0.1: unknown token (GET /v1/gateways/")
      #expect(rig.hub?.lines.joined().contains("no-token-of-this-hub") == false)
      _ = rig.scratch.write("wrong", Rig.token + "\n")
      rig.gateway?.send(SIGHUP)
      try untilTrue("everything at the hub: \(rig.gateway?.lines ?? [])") {
        try rig.status()?["upstreams"]?.array?.first?["pending"]?.integer == 0
      }
    }

    @Test func `a hub without free connections answers 503 until a connection ends`() throws {
      let rig = try Rig()
      rig.writeHubConfiguration(extra: "max_connections = 1")
      try rig.startHub()
      let holder = try Program(
        Program.python,
        [
          "-c",
          """
          import http.client, sys
          c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
          for _ in range(2):
              c.request("GET", "/v1/gateways", headers={"Authorization": "Bearer a-token-for-the-tests"})
              c.getresponse().read()
              print("held", flush=True)
              if sys.stdin.readline() == "": break
          """, "\(rig.hubPort)",
        ])
      try holder.line(with: "held")
      let refused = rig.askHub("GET", "/healthz")
      #expect(refused?.status == 503 && refused?.headers["Retry-After"] == "30")
      holder.endInput()
      #expect(try holder.ended() == 0)
      try untilTrue("room") { rig.askHub("GET", "/healthz")?.status == 200 }
    }
  }
}

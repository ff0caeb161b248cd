// SPDX-License-Identifier: MIT

import Foundation
import HTTP
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// A gateway and a hub on a live link: their traffic besides the journal.
  @Suite struct Links {
    /// Starts both programs, and waits for the link.
    private func start(_ extra: String = "", relay: String = "", arguments: [String] = []) throws -> Rig {
      let rig = try Rig()
      rig.writeGatewayConfiguration(extra: "keep_alive_s = 5\n" + extra + "\n" + relay)
      try rig.startRadio(arguments)
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      try waitForLink(rig, "live")
      return rig
    }

    private func waitForLink(_ rig: Rig, _ road: String) throws {
      try untilTrue("the link to be \(road): \(rig.gateway?.lines.suffix(5) ?? [])") {
        let upstream = try rig.status()?["upstreams"]?.array?.first
        return upstream?["link"]?.string == road && upstream?["pending"]?.integer == 0
      }
    }

    private func command(_ rig: Rig, _ body: String, wait: Int = 20) throws -> (status: Int, json: JSONValue) {
      let id = rig.gatewayID ?? ""
      let response = rig.askHub("POST", "/v1/gateways/\(id)/commands?wait_s=\(wait)", body: body)
      return (response?.status ?? 0, try JSONValue(parsing: response?.body ?? Array("null".utf8)))
    }

    private func untilEnded(_ rig: Rig, _ command: String) throws {
      try untilTrue("the end of the queued command \(command)") {
        let answer = rig.askHub("GET", "/v1/gateways/\(rig.gatewayID ?? "")/commands/\(command)?wait_s=5")
        return try JSONValue(parsing: answer?.body ?? [])["state"]?.string == "done"
      }
    }

    private func sent(_ rig: Rig) throws -> [String] {
      try rig.meshpost("sent", "--json").lines.compactMap { try JSONValue(parsing: $0)["text"]?.string }
    }

    @Test func `a command is carried out live, or waits on disk at both ends, and a repeated one runs once`() throws {
      let rig = try start()
      let buckets = try rig.meshpost("sync", "--json").lines.joined()
      #expect(buckets.contains("\"commands\"") && !buckets.contains("channel/"), "messages from hubs are off")
      let live = try command(rig, #"{"id":"c1","command":"send","to":"Public","text":"now"}"#)
      #expect(live.status == 200 && live.json["state"]?.string == "done", "\(live)")
      #expect(
        try command(rig, #"{"id":"c1","command":"send","to":"Public","text":"now"}"#).json["state"]?.string == "done")
      let refused = try command(rig, #"{"id":"c2","command":"send","to":"nobody at all","text":"x"}"#)
      #expect(refused.json["state"]?.string == "refused")
      #expect(refused.json["answer"]?["code"]?.string == "not_found")
      #expect(try command(rig, #"{"id":"c3","command":"sync"}"#).json["answer"]?["code"]?.string == "not_allowed")
      let hurried = try command(rig, #"{"id":"c5","command":"send","to":"Public","text":"at once"}"#, wait: 0)
      #expect(hurried.status == 202 && hurried.json["state"]?.string == "queued", "it does not wait for the link")
      try untilEnded(rig, "c5")
      rig.gateway?.kill9()
      try untilTrue("the hub to notice") { try command(rig, #"{"command":"status"}"#).status == 503 }
      let queued = try command(rig, #"{"id":"c4","command":"send","to":"Public","text":"later"}"#, wait: 0)
      #expect(queued.status == 202 && queued.json["state"]?.string == "queued", "\(queued)")
      rig.hub?.kill9()
      try rig.startHub()
      try rig.startGateway()
      try untilEnded(rig, "c4")
      #expect(try sent(rig).sorted() == ["at once", "later", "now"])
      let journaled = try rig.hubRows("events").filter { $0["kind"]?.string == "command" }
      #expect(Set(journaled.compactMap { $0["body"]?["id"]?.string }) == ["c1", "c2", "c3", "c4", "c5"])
      #expect(journaled.allSatisfy { $0["body"]?["upstream"]?.string == "hub" })
    }

    @Test func `of two upstreams that lead to one hub one has the link, and the other reports it and uses HTTP`() throws
    {
      let rig = try Rig()
      let second = """
        [[upstream]]
        name = "zweiter Weg"
        url = "http://127.0.0.1:\(rig.hubPort)"
        token_file = "\(rig.scratch.location("token"))"
        """
      rig.writeGatewayConfiguration(extra: second)
      try rig.startRadio(["--contacts", "3"])
      try rig.startHub()
      func isSettled() throws -> Bool {
        let upstreams = try rig.status()?["upstreams"]?.array ?? []
        guard let live = upstreams.first(where: { $0["link"]?.string == "live" })?["name"]?.string,
          let other = upstreams.first(where: { $0["link"]?.string == "http" })
        else { return false }
        let words = "this hub has a live link of this gateway already, by the upstream \(live)"
        return other["reason"]?.string == words && upstreams.allSatisfy { $0["pending"]?.integer == 0 }
      }
      // The second time, the hub still has the link of the killed gateway.
      for _ in 0..<2 {
        try rig.startGateway()
        try rig.waitForSync()
        try untilTrue("one link: \(try rig.status()?["upstreams"] ?? .null)") { try isSettled() }
        rig.gateway?.kill9()
      }
      #expect(rig.hub?.lines.contains { $0.contains("two gateways") } == false, "\(rig.hub?.lines ?? [])")
    }

    /// Holds a gateway's link, as an upstream that the gateway does not have.
    private static let thief = """
      import asyncio, sys
      from websockets.asyncio.client import connect
      async def main():
          headers = {"Authorization": "Bearer " + sys.argv[2], "Meshpost-Upstream": sys.argv[3] + "/evil"}
          async with connect(sys.argv[1], additional_headers=headers, subprotocols=["meshpost.v1"]) as link:
              await link.send('{"type":"hello","protocol":2,"gateway":"%s","epoch":"%s"}' % (sys.argv[4], sys.argv[3]))
              print("held", flush=True)
              try:
                  async for text in link: pass
              except Exception as error:
                  print("lost", error, flush=True)
              print("lost", flush=True)
      asyncio.run(main())
      """

    @Test func `a client that holds the link under an unknown upstream loses it, and the loss is reported`()
      throws
    {
      let rig = try start()
      let (id, epoch) = (rig.gatewayID ?? "", try #require(try rig.status()?["epoch"]?.string))
      rig.gateway?.kill9()
      let token = try String(contentsOfFile: rig.scratch.location("token"), encoding: .utf8)
        .trimmingCharacters(in: .newlines)
      let thief = try Program(
        Program.python,
        ["-c", Self.thief, "ws://127.0.0.1:\(rig.hubPort)/v1/gateways/\(id)/link", token, epoch, id])
      try thief.line(with: "held")
      try rig.startGateway()
      try rig.gateway?.line(with: "as the upstream evil, which this gateway does not have")
      try thief.line(with: "lost")
      try untilTrue("the link: \(try rig.status()?["upstreams"] ?? .null)") {
        try rig.status()?["upstreams"]?.array?.first?["link"]?.string == "live"
      }
    }

    @Test func `a stopped hub is noticed by a ping, and the link returns`() throws {
      let rig = try start()
      rig.hub?.send(SIGSTOP)
      try rig.gateway?.line(with: "no answer to a ping")
      rig.radio?.write("chan r1 0 while it was stopped")
      rig.hub?.send(SIGCONT)
      try waitForLink(rig, "live")
      try untilTrue("the message at the hub") { try rig.hubTexts().contains("while it was stopped") }
    }

    /// A proxy that does not know WebSockets.
    private static let proxy = """
      import http.server, sys, urllib.request, urllib.error
      hub = sys.argv[1]
      class Handler(http.server.BaseHTTPRequestHandler):
          protocol_version = "HTTP/1.1"
          def forward(self):
              body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
              kept = {k: v for k, v in self.headers.items() if k.lower() not in ("upgrade", "connection", "host")}
              request = urllib.request.Request(hub + self.path, body or None, kept, method=self.command)
              try: answer = urllib.request.urlopen(request)
              except urllib.error.HTTPError as error: answer = error
              data = answer.read()
              self.send_response(answer.status)
              self.send_header("Content-Length", str(len(data))); self.end_headers(); self.wfile.write(data)
          do_GET = do_POST = do_PUT = forward
          def log_message(self, *_): pass
      server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
      print("port", server.server_address[1], flush=True)
      server.serve_forever()
      """

    @Test func `behind a proxy without WebSocket everything goes over HTTP`() throws {
      let rig = try Rig()
      let proxy = try Program(Program.python, ["-c", Self.proxy, "http://127.0.0.1:\(rig.hubPort)"])
      let port = try proxy.line(with: "port ").split(separator: " ").last.map(String.init) ?? ""
      rig.writeGatewayConfiguration(url: "http://127.0.0.1:\(port)")
      try rig.startRadio()
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      try waitForLink(rig, "http")
      #expect(rig.gateway?.lines.contains { $0.contains("no live link") } == true)
      rig.radio?.write("chan r1 0 round about")
      try untilTrue("the message at the hub") { try rig.hubTexts().contains("round about") }
      #expect(try command(rig, #"{"id":"c1","command":"send","to":"Public","text":"by HTTP"}"#, wait: 0).status == 202)
      _ = rig.control("POST", "/v1/sync")
      try untilTrue("the command to be fetched") { try sent(rig) == ["by HTTP"] }
      let id = rig.gatewayID ?? ""
      try untilTrue("the gateway's state at the hub") {
        let answer = rig.askHub("GET", "/v1/gateways/\(id)/state")
        return try JSONValue(parsing: answer?.body ?? [])["gateway"]?["body"]?["sync"]?.string == "synced"
      }
    }

    /// Forwards connections; for each line on standard input it prints the bytes, up and down, of connections with batches.
    private static let counter = """
      import socket, sys, threading
      target, counts = ("127.0.0.1", int(sys.argv[1])), {}
      listener = socket.create_server(("127.0.0.1", 0))
      print("port", listener.getsockname()[1], flush=True)
      def carry(source, sink, number, way):
          try:
              while data := source.recv(65536):
                  counts[number][way] += len(data)
                  if way == 0 and data.startswith(b"POST "): counts[number][2] = 1
                  sink.sendall(data)
          except OSError: pass
          for end in (source, sink):
              try: end.shutdown(socket.SHUT_RDWR)
              except OSError: pass
      def serve():
          while True:
              near, far = listener.accept()[0], socket.socket()
              try: far.connect(target)
              except OSError:
                  near.close()
                  continue
              counts[near] = [0, 0, 0]
              threading.Thread(target=carry, args=(near, far, near, 0), daemon=True).start()
              threading.Thread(target=carry, args=(far, near, near, 1), daemon=True).start()
      threading.Thread(target=serve, daemon=True).start()
      for line in sys.stdin:
          used = [count for count in counts.values() if count[2]]
          print("carried", sum(count[0] for count in used), sum(count[1] for count in used), flush=True)
      """

    @Test func `over HTTP a message costs 160 bytes up and 60 down, and a restarted hub gets everything`()
      throws
    {
      let rig = try Rig()
      let counter = try Program(Program.python, ["-c", Self.counter, "\(rig.hubPort)"])
      let port = try counter.line(with: "port ").split(separator: " ").last.map(String.init) ?? ""
      rig.writeGatewayConfiguration(
        url: "http://127.0.0.1:\(port)", extra: "link = \"http\"\nkinds = [\"message\"]")
      try rig.startRadio()
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      func hear(_ text: String) throws {
        rig.radio?.write("chan r1 0 \(text)")
        try untilTrue("\(text) at the hub") { try rig.hubTexts().contains(text) }
        try untilTrue("its acknowledgement") { try rig.status()?["upstreams"]?.array?.first?["pending"]?.integer == 0 }
      }
      func carried() throws -> (up: Int, down: Int) {
        let asked = counter.lines.count
        counter.write("")
        try untilTrue("the figures") { counter.lines.count > asked }
        let words = counter.lines.last?.split(separator: " ").compactMap { Int($0) } ?? []
        return (words.first ?? 0, words.last ?? 0)
      }
      try hear("the first one")
      let before = try carried()
      let texts = (0..<10).map { "what people say on a channel is some fifty bytes \($0)" }
      for text in texts { try hear(text) }
      let after = try carried()
      let (up, down) = ((after.up - before.up) / texts.count, (after.down - before.down) / texts.count)
      print("by HTTP a message: \(up) bytes up, \(down) down")
      #expect(before.up > 0 && up <= 160 && down <= 60 && up > 60)
      // The restarted hub does not know the key.
      rig.hub?.send(SIGTERM)
      _ = try rig.hub?.ended()
      try rig.startHub()
      try hear("after that")
      try hear("and on")
      #expect(try rig.hubTexts() == ["the first one"] + texts + ["after that", "and on"])
    }

    /// Silent connections: a fresh one, one after an answer, and one in the middle of a request.
    private static let idlers = """
      import socket, sys, time
      port = int(sys.argv[1])
      fresh, asked, half = (socket.create_connection(("127.0.0.1", port)) for _ in range(3))
      asked.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
      assert b"200" in asked.recv(4096)
      half.sendall(b"GET /heal")
      print("ready", flush=True)
      time.sleep(600)
      """

    @Test func `a hub stops at once on SIGTERM, whatever clients are connected`() throws {
      let rig = try start()
      let idlers = try Program(Program.python, ["-c", Self.idlers, "\(rig.hubPort)"])
      try idlers.line(with: "ready")
      rig.hub?.send(SIGTERM)
      #expect(try rig.hub?.ended() == 0)
      try rig.startHub()
      try waitForLink(rig, "live")
    }

    @Test func `tokens are replaced without downtime`() throws {
      let rig = try start()
      _ = rig.scratch.write("token", "the-token-that-comes-next\na-token-for-the-tests\n")
      rig.hub?.send(SIGHUP)
      try rig.hub?.line(with: "tokens reloaded")
      #expect(rig.askHub("GET", "/v1/gateways", token: "the-token-that-comes-next")?.status == 200)
      #expect(rig.askHub("GET", "/v1/gateways")?.status == 200)
      _ = rig.scratch.write("token", "the-token-that-comes-next\n")
      rig.hub?.send(SIGHUP)
      try untilTrue("the old one to be refused") { rig.askHub("GET", "/v1/gateways")?.status == 401 }
      _ = rig.scratch.write("token", "no token at\n all\n")
      rig.hub?.send(SIGHUP)
      try rig.hub?.line(with: "tokens not reloaded")
      #expect(rig.askHub("GET", "/v1/gateways", token: "the-token-that-comes-next")?.status == 200)
    }
  }
}

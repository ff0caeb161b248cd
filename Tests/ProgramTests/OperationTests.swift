// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Starting, stopping, reloading, refusing.
  @Suite struct Operation {
    @Test func `a wrong configuration is refused with exit code 78, file and line`() throws {
      let scratch = Scratch()
      let file = scratch.write("gw.toml", "[radio]\nlink = \"usb\"\n")
      let daemon = try Program.own("meshpostd", ["--config", file])
      #expect(try daemon.ended() == 78)
      try daemon.line(with: "gw.toml: line 2: radio.link")
      #expect(try Program.own("meshpostd", ["--nonsense"]).ended() == 64)
      #expect(try Program.own("meshpostd", ["--config", "/nowhere"]).ended() == 78)
      #expect(try Program.own("meshpost-hub", ["serve", "--config", file]).ended() == 78)
    }

    @Test func `a second gateway on the same store, or on the same radio, is refused`() throws {
      let rig = try Rig()
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      let second = try Program.own("meshpostd", ["--config", rig.scratch.location("gw.toml")])
      #expect(try second.ended() == 73)
      try second.line(with: "is in use by process")
      let other = try Rig()
      other.link = rig.link
      try other.startGateway()
      try other.gateway?.line(with: "is in use by meshpost")
    }

    @Test func `a hub with an unknown authority's certificate gets nothing, with a known one everything`() throws {
      let rig = try Rig()
      let proxy = try TLSProxy(rig)
      try rig.startRadio()
      try rig.startHub()
      rig.writeGatewayConfiguration(url: "https://localhost:\(proxy.port)")
      try rig.startGateway()
      try rig.gateway?.line(with: "TLS failed: the certificate")
      #expect(try rig.hubRows("events").isEmpty)
      rig.writeGatewayConfiguration(
        url: "https://localhost:\(proxy.port)", extra: "ca_file = \"\(rig.scratch.location("ca.pem"))\"")
      rig.gateway?.send(SIGHUP)
      try untilTrue("everything at the hub: \(rig.gateway?.lines ?? [])") {
        let upstream = try rig.status()?["upstreams"]?.array?.first
        return try upstream?["pending"]?.integer == 0 && upstream?["link"]?.string == "live"
          && !rig.hubRows("events").isEmpty
      }
    }

    @Test func `the hub refuses invalid requests with the right status`() throws {
      let rig = try Rig()
      rig.writeHubConfiguration(extra: "max_body = 2048\nmax_events_per_second = 5")
      try rig.startHub()
      let path = "/v1/gateways/test/events"
      func post(_ body: String) -> Int? { rig.askHub("POST", path, body: body)?.status }
      func event(_ seq: Int) -> String { "{\"seq\":\(seq),\"at\":1,\"kind\":\"message\",\"body\":{}}" }
      #expect(rig.askHub("POST", path, body: "{}", token: nil)?.status == 401)
      #expect(rig.askHub("POST", path, body: "{}", token: "wrong-token-wrong-token")?.status == 401)
      #expect(post("{") == 400)
      #expect(post("{\"epoch\":\"e\",\"events\":[{\"seq\":1}]}") == 422)
      #expect(post("{\"epoch\":\"e\",\"events\":[\(event(2)),\(event(1))]}") == 422)
      #expect(post(String(repeating: " ", count: 4096)) == 413)
      let answer = rig.askHub("POST", path, body: "{\"epoch\":\"e\",\"events\":[\(event(1)),\(event(2))]}")
      #expect(answer?.status == 200)
      #expect(answer.flatMap { try? JSONValue(parsing: $0.body) }?["acknowledged"]?.integer == 2)
      let many = (3...10).map(event).joined(separator: ",")
      let limited = rig.askHub("POST", path, body: "{\"epoch\":\"e\",\"events\":[\(many)]}")
      #expect(limited?.status == 429)
      #expect(limited?.headers["Retry-After"].flatMap { Int($0) } ?? 0 >= 1)
      #expect(rig.askHub("GET", "/v1/gateways/nobody")?.status == 404)
      #expect(rig.askHub("GET", "/v1/gateways")?.status == 200)
    }

    @Test func `a hub accepts lanes and whole journals over HTTP, and returns the position of each lane`() throws {
      let rig = try Rig()
      rig.writeHubConfiguration()
      try rig.startHub()
      func post(_ lane: String?, _ seq: Int) -> String {
        let event = "{\"seq\":\(seq),\"at\":1,\"kind\":\"message\",\"body\":{}}"
        let named = lane.map { "\"lane\":\"\($0)\"," } ?? ""
        let answer = rig.askHub(
          "POST", "/v1/gateways/test/events", body: "{\"epoch\":\"e\",\(named)\"events\":[\(event)]}")
        return "\(answer?.status ?? 0) \(String(decoding: answer?.body ?? [], as: UTF8.self))"
      }
      func position(_ epoch: String) -> String {
        let answer = rig.askHub("GET", "/v1/gateways/test?epoch=\(epoch)")
        let text = String(decoding: answer?.body ?? [], as: UTF8.self)
        // Another test checks the events' content.
        return String(text[(text.range(of: "\"epoch\"")?.lowerBound ?? text.startIndex)...])
          .replacing(/"digests":\{[^}]*\},/, with: "")
      }
      #expect(post("messages", 24) == #"200 {"acknowledged":24}"#)
      #expect(post("nodes", 20) == #"200 {"acknowledged":20}"#)
      #expect(post("bulk", 21).hasPrefix("400"))
      #expect(
        position("e")
          == #""epoch":"e","acknowledged":20,"lanes":{"messages":24,"nodes":20},"linked":false,"gzip":true,"deflate":"meshpost-dictionary-1","deletes":true}"#
      )
      #expect(
        position("f")
          == #""epoch":"f","lanes":{},"others":{"e":24},"linked":false,"gzip":true,"deflate":"meshpost-dictionary-1","deletes":true}"#
      )
      #expect(post(nil, 22) == #"200 {"acknowledged":22}"#)
      #expect(
        position("e")
          == #""epoch":"e","acknowledged":22,"lanes":{"messages":24,"nodes":22,"packets":22},"linked":false,"gzip":true,"deflate":"meshpost-dictionary-1","deletes":true}"#
      )
      let gateways = try JSONValue(parsing: #require(rig.askHub("GET", "/v1/gateways")).body)["gateways"]?.array
      #expect(gateways?.first?["acknowledged"]?.integer == 22)
    }
  }
}

/// A TLS proxy in front of the hub, with its own authority (openssl, Python).
private final class TLSProxy {
  let port: UInt16
  private let program: Program

  init(_ rig: Rig) throws {
    let folder = rig.scratch.folder
    let script = """
      set -e
      openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=test-authority 2>/dev/null
      openssl req -newkey rsa:2048 -nodes -keyout hub.key -out hub.csr -subj /CN=localhost 2>/dev/null
      echo "subjectAltName=DNS:localhost" > ext
      openssl x509 -req -in hub.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out hub.pem -days 2 -extfile ext 2>/dev/null
      """
    #expect(try Program("/bin/bash", ["-c", script], folder: folder).ended() == 0)
    let python = """
      import socket, ssl, sys, threading
      context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
      context.load_cert_chain("hub.pem", "hub.key")
      listener = socket.create_server(("127.0.0.1", 0))
      print("port", listener.getsockname()[1], flush=True)
      def pump(a, b):
          try:
              while data := a.recv(65536): b.sendall(data)
          except OSError: pass
          finally:
              for s in (a, b):
                  try: s.shutdown(socket.SHUT_RDWR)
                  except OSError: pass
      def serve(raw):
          try: client = context.wrap_socket(raw, server_side=True)
          except (OSError, ssl.SSLError): return
          hub = socket.create_connection(("127.0.0.1", \(rig.hubPort)))
          threading.Thread(target=pump, args=(client, hub), daemon=True).start()
          pump(hub, client)
      while True:
          raw, _ = listener.accept()
          threading.Thread(target=serve, args=(raw,), daemon=True).start()
      """
    program = try Program(Program.python, ["-c", python], folder: folder)
    port = UInt16(try program.line(with: "port ").split(separator: " ").last.map(String.init) ?? "") ?? 0
  }
}

// SPDX-License-Identifier: MIT

import COpenSSL
import Deflate
import EventLoop
import Foundation
import HTTP
import JSON
import Sockets
import TestSupport
import Testing
import Timing

/// Tests compression with a foreign implementation (PyPI `websockets`), and TLS sessions with Python's OpenSSL.
@Suite struct ForeignLinkTests {
  /// Echoes messages, in one frame or in several.
  private static let server = """
    import asyncio, random, sys
    from websockets.asyncio.server import serve
    from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
    takeover = sys.argv[1] == "context"
    factory = ServerPerMessageDeflateFactory(server_no_context_takeover=not takeover, client_no_context_takeover=not takeover)
    async def echo(socket):
        async for text in socket:
            if len(text) > 3 and random.random() < 0.5:
                cut = random.randrange(1, len(text) - 1)
                await socket.send([text[:cut], text[cut:]])
            else:
                await socket.send(text)
    async def main():
        async with serve(echo, "127.0.0.1", 0, compression=None, extensions=[factory]) as server:
            print("port", server.sockets[0].getsockname()[1], flush=True)
            await asyncio.sleep(600)
    asyncio.run(main())
    """

  @Test(arguments: ["context", "none"]) func `a foreign WebSocket server echoes our compressed messages`(_ kind: String)
    throws
  {
    let server = try Program(Program.python, ["-c", Self.server, kind])
    let port = UInt16(try server.line(with: "port ").split(separator: " ").last.map(String.init) ?? "") ?? 0
    let loop = EventLoop()
    let socket = WebSocket(
      WebSocket.Settings(
        host: "127.0.0.1", port: port, target: "/",
        compression: PerMessageDeflate.Offer(clientBits: 12, serverBits: 10, dictionary: true)), tls: nil, on: loop)
    var random = SeededRandom(seed: 1)
    let sent = (0..<300).map { number in
      "{\"n\":\(number),\"text\":\"" + (0..<Int.random(in: 0...60, using: &random)).map { _ in "älteste 17 🏔" }.joined()
        + "\(UInt64.random(in: 0 ... .max, using: &random))\"}"
    }
    var got: [String] = []
    var failure: WebSocketFailure?
    _ = loop.begin {
      do throws(WebSocketFailure) {
        try await socket.open()
        for text in sent { socket.send(text: Array(text.utf8)) }
        while got.count < sent.count {
          if case .message(let bytes) = try await socket.next() { got.append(String(decoding: bytes, as: UTF8.self)) }
        }
      } catch {
        failure = error
      }
    }
    #expect(turn(loop) { got.count == sent.count || failure != nil })
    #expect(got == sent)
    #expect(failure == nil)
    let plain = sent.reduce(0) { $0 + $1.utf8.count }
    #expect(socket.bytesSent < UInt64(plain / 2), "\(socket.bytesSent) bytes for \(plain)")
    socket.close()
  }

  /// Serves connections one after another, one line for each.
  private static let tlsServer = """
    import socket, ssl, sys
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("server.pem", "server.key")
    context.maximum_version = ssl.TLSVersion.TLSv1_2 if sys.argv[1] == "1.2" else ssl.TLSVersion.TLSv1_3
    listener = socket.create_server(("127.0.0.1", 0))
    print("port", listener.getsockname()[1], flush=True)
    while True:
        raw, _ = listener.accept()
        try:
            with context.wrap_socket(raw, server_side=True) as tls:
                tls.recv(100)
                tls.sendall(b"resumed" if tls.session_reused else b"anew")
                tls.recv(100)
        except OSError:
            pass
    """

  /// Answers without the length of the body, and ends TLS before the connection only if the request asks for it.
  private static let lengthlessServer = """
    import socket, ssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("server.pem", "server.key")
    listener = socket.create_server(("127.0.0.1", 0))
    print("port", listener.getsockname()[1], flush=True)
    while True:
        raw, _ = listener.accept()
        try:
            with context.wrap_socket(raw, server_side=True) as tls:
                head = tls.recv(4000)
                tls.sendall(b"HTTP/1.1 " + (b"503 x" if b"/busy" in head else b"200 OK") + b"\\r\\n\\r\\n123")
                if b"/whole" in head: tls.unwrap()
        except OSError:
            pass
    """

  @Test func `an answer that ends with its connection is whole only if TLS has ended, unless its status is enough`()
    throws
  {
    let scratch = Scratch()
    let (server, port) = try tlsServer("1.3", scratch, Self.lengthlessServer)
    defer { withExtendedLifetime(server) {} }
    let loop = EventLoop()
    let tls = try TLSContext(authorities: scratch.location("server.pem"))
    func ask(_ target: String, ignoresBody: Bool = false) -> Result<HTTPResponse, HTTPFailure>? {
      let client = HTTPClient(.tcp(host: "localhost", port: port, tls: true), tls: tls, on: loop)
      var result: Result<HTTPResponse, HTTPFailure>?
      _ = loop.begin {
        do throws(HTTPFailure) {
          let request = HTTPRequest("GET", target)
          result = .success(try await client.send(request, timeout: .seconds(60), ignoresBody: ignoresBody))
        } catch {
          result = .failure(error)
        }
      }
      #expect(turn(loop) { result != nil })
      client.close()
      return result
    }
    #expect(try ask("/whole")?.get().body == Array("123".utf8))
    #expect(ask("/cut") == .failure(.closed("the end of the answer may be missing")))
    #expect(try ask("/cut", ignoresBody: true)?.get().status == 200)
    #expect(try ask("/busy")?.get().status == 503)
  }

  private func tlsServer(
    _ version: String, _ scratch: Scratch, _ script: String = Self.tlsServer
  ) throws -> (Program, port: UInt16) {
    let make = """
      openssl req -x509 -newkey rsa:2048 -nodes -keyout server.key -out server.pem -days 2 -subj /CN=localhost \
      -addext subjectAltName=DNS:localhost 2>/dev/null
      """
    #expect(try Program("/bin/bash", ["-c", make], folder: scratch.folder).ended() == 0)
    let server = try Program(Program.python, ["-c", script, version], folder: scratch.folder)
    return (server, UInt16(try server.line(with: "port ").split(separator: " ").last.map(String.init) ?? "") ?? 0)
  }

  @Test func `an error that other code has left with OpenSSL does not end a TLS connection`() throws {
    let scratch = Scratch()
    let (server, port) = try tlsServer("1.3", scratch)
    defer { withExtendedLifetime(server) {} }
    let loop = EventLoop()
    let tls = try TLSContext(authorities: scratch.location("server.pem"))
    var (heard, end) = ([UInt8](), StreamEnd?.none)
    _ = loop.begin {
      do {
        let socket = try await loop.connect(host: "localhost", port: port, through: nil, timeout: .seconds(20))
        let stream = try #require(TLSStream(SocketStream(socket, on: loop), tls, host: "localhost"))
        stream.write([0x78])
        heard += try await stream.read()
        // A key that is too short.
        EVP_PKEY_free(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nil, [1], 1))
        #expect(ERR_peek_error() != 0)
        stream.write([0x78])
        heard += try await stream.read()
      } catch {
        end = error as? StreamEnd ?? .failed("\(error)")
      }
    }
    #expect(turn(loop) { end != nil })
    #expect(heard == Array("anew".utf8))
    #expect(end == .cut, "the server ends it after the second byte, and Python does not end TLS")
  }

  @Test(arguments: ["1.2", "1.3"]) func `a TLS session is resumed after a cut, only with the same context`(
    _ version: String
  )
    throws
  {
    let scratch = Scratch()
    let (server, port) = try tlsServer(version, scratch)
    defer { withExtendedLifetime(server) {} }
    let loop = EventLoop()
    let tls = try TLSContext(authorities: scratch.location("server.pem"))
    let other = try TLSContext(authorities: scratch.location("server.pem"))
    var answers: [(words: String, isResumed: Bool, bytes: UInt64)] = []
    var failure: (any Error)?
    _ = loop.begin {
      do {
        for context in [tls, tls, tls, other] {
          let socket = try await loop.connect(host: "localhost", port: port, through: nil, timeout: .seconds(20))
          let stream = try #require(TLSStream(SocketStream(socket, on: loop), context, host: "localhost"))
          stream.write([0x78])
          let words = String(decoding: try await stream.read(), as: UTF8.self)
          answers.append((words, stream.isResumed, stream.movedBytes))
          // The connection ends without a closing handshake.
          stream.close()
        }
      } catch {
        failure = error
      }
    }
    #expect(turn(loop) { answers.count == 4 || failure != nil })
    #expect(failure == nil)
    #expect(answers.map(\.words) == ["anew", "resumed", "resumed", "anew"])
    #expect(answers.map(\.isResumed) == [false, true, true, false])
    print("TLS \(version), bytes of a handshake: \(answers.map(\.bytes))")
    if answers.count == 4 { #expect(answers[1].bytes + 500 < answers[0].bytes) }
  }
}

extension WholeProgramTests {
  @Suite struct LinkCompression {
    private static let client = """
      import asyncio, json, random, sys
      from websockets.asyncio.client import connect
      from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
      port, token, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
      extensions = [] if kind == "plain" else [
          ClientPerMessageDeflateFactory(client_max_window_bits=True, server_no_context_takeover=kind == "none")]
      async def main():
          async with connect(f"ws://127.0.0.1:{port}/v1/gateways/foreign/link", compression=None, extensions=extensions,
                             subprotocols=["meshpost.v1"], additional_headers={"Authorization": f"Bearer {token}"}) as socket:
              print("extensions", socket.response.headers.get("Sec-WebSocket-Extensions"), flush=True)
              await socket.send(json.dumps({"type": "hello", "protocol": 1, "epoch": kind, "gateway": "foreign", "brief": True}))
              assert json.loads(await socket.recv())["type"] == "welcome"
              seq = 0
              for n in range(1, 101):
                  events = []
                  for _ in range(random.randrange(1, 5)):
                      seq += 1
                      events.append({"seq": seq, "at": 1795236950695 + seq, "trusted": True, "kind": "message",
                                     "body": {"id": seq, "kind": "channel", "text": "words " * random.randrange(50)}})
                  text = json.dumps({"type": "events", "n": n, "events": events})
                  cut = random.randrange(1, len(text) - 1)
                  await socket.send([text[:cut], text[cut:]] if random.random() < 0.5 else text)
                  assert json.loads(await socket.recv()) == n
              if kind == "context":
                  await socket.send("a" * 50_000_000)
                  try:
                      await socket.recv()
                  except Exception as error:
                      print("closed", socket.close_code, flush=True)
          print("done", seq, flush=True)
      asyncio.run(main())
      """

    @Test(arguments: ["context", "none", "plain"])
    func `a foreign gateway is served, and its decompression bomb is refused`(
      _ kind: String
    ) throws {
      let rig = try Rig()
      try rig.startHub()
      let client = try Program(Program.python, ["-c", Self.client, "\(rig.hubPort)", Rig.token, kind])
      let agreed = try client.line(with: "extensions")
      #expect(agreed.contains("permessage-deflate; client_max_window_bits=12") == (kind != "plain"))
      if kind == "context" { #expect(try client.line(with: "closed").contains("1009")) }
      _ = try client.line(with: "done")
    }

    @Test func `batches over HTTP are compressed, and arrive unchanged`() throws {
      let rig = try Rig()
      try rig.startRadio(["--queue", "500"])
      rig.writeGatewayConfiguration(extra: "link = \"http\"")
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("inject r0 0 300")
      try untilTrue("300 at the hub") {
        try rig.status()?["store"]?["messages"]?.integer == 300
          && rig.status()?["upstreams"]?.array?.first?["pending"]?.integer == 0
      }
      #expect(try rig.hubTexts().count == 300)
      let sent = try rig.status()?["upstreams"]?.array?.first?["bytes_sent"]?.integer ?? .max
      #expect(sent < 300 * 150, "\(sent) bytes for 300 messages")
      let zip = ["-c", "head -c 9000000 /dev/zero | tr '\\0' a | gzip -n >bomb; tail -c +11 bomb | head -c -8 >flat"]
      #expect(try Program("/bin/bash", zip, folder: rig.scratch.folder).ended() == 0)
      let cases = [
        ("@bomb", "gzip", "413"), ("{}", "gzip", "400"), ("{}", "br", "415"), ("@flat", "meshpost-1", "413"),
        ("{}", "meshpost-1", "400"),
      ]
      for (body, encoding, status) in cases {
        let curl = [
          "-s", "-o", "/dev/null", "-w", "status %{http_code}\\n", "-H", "Authorization: Bearer \(Rig.token)", "-H",
          "Content-Encoding: \(encoding)", "--data-binary", body,
          "http://127.0.0.1:\(rig.hubPort)/v1/gateways/x/events",
        ]
        let answer = try Program("/usr/bin/curl", curl, folder: rig.scratch.folder)
        #expect(try answer.line(with: "status").hasSuffix(status))
      }
    }
  }
}

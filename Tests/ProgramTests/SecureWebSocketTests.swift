// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import HTTP
import Sockets
import TestSupport
import Testing

/// A server that sends several messages in one piece of TCP, each in its own TLS record.
@Suite struct SecureWebSocketTests {
  private static let server = """
    import base64, hashlib, socket, ssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("server.pem", "server.key")
    listener = socket.create_server(("127.0.0.1", 0))
    print("port", listener.getsockname()[1], flush=True)
    raw, _ = listener.accept()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    def run(what):
        while True:
            try: result = what()
            except ssl.SSLWantReadError: result = None
            if data := outgoing.read(): raw.sendall(data)
            if result is not None: return result
            incoming.write(raw.recv(65536))
    run(lambda: tls.do_handshake() or True)
    head = b""
    while b"\\r\\n\\r\\n" not in head: head += run(lambda: tls.read(4096))
    key = next(l.split(b": ")[1] for l in head.split(b"\\r\\n") if l.lower().startswith(b"sec-websocket-key"))
    answer = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    tls.write(b"HTTP/1.1 101 x\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + answer + b"\\r\\n\\r\\n")
    for number in range(20):
        text = str(number).encode()
        tls.write(bytes([0x81, len(text)]) + text + bytes([0x81, 1]) + b"x")
    raw.sendall(outgoing.read())
    raw.recv(65536)
    import time; time.sleep(30)
    """

  @Test func `answers that are sent while more can be read arrive in order, and nothing traps`() throws {
    let scratch = Scratch()
    let make = """
      openssl req -x509 -newkey rsa:2048 -nodes -keyout server.key -out server.pem -days 2 -subj /CN=localhost \
      -addext subjectAltName=DNS:localhost 2>/dev/null
      """
    #expect(try Program("/bin/bash", ["-c", make], folder: scratch.folder).ended() == 0)
    let server = try Program(Program.python, ["-c", Self.server], folder: scratch.folder)
    let port = UInt16(try server.line(with: "port ").split(separator: " ").last.map(String.init) ?? "") ?? 0
    let loop = EventLoop()
    let tls = try TLSContext(authorities: scratch.location("server.pem"))
    let socket = WebSocket(
      WebSocket.Settings(host: "localhost", port: port, target: "/"), tls: tls, on: loop)
    var texts: [String] = []
    var failure: WebSocketFailure?
    _ = loop.begin {
      do throws(WebSocketFailure) {
        try await socket.open()
        while true {
          guard case .message(let bytes) = try await socket.next() else { continue }
          texts.append(String(decoding: bytes, as: UTF8.self))
          socket.send(text: bytes)
        }
      } catch {
        if error != .cancelled { failure = error }
      }
    }
    let isOver = turn(loop) { texts.count == 40 || failure != nil }
    #expect(isOver)
    let days = (tls.peerExpiry ?? 0) - Int64(Date().timeIntervalSince1970)
    #expect((86_400...172_800).contains(days), "the certificate was made for two days")
    socket.close()
    #expect(failure == nil)
    #expect(texts == (0..<20).flatMap { ["\($0)", "x"] })
  }
}

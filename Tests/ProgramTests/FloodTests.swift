// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Peers that send without end: the gateway still answers its operator.
  @Suite struct Floods {
    /// Sends the same bytes without end to each client (or connects itself, as a client of the proxy), and prints how much it sent and when it was
    /// disconnected.
    private static let flood = """
      import base64, hashlib, os, socket, sys, threading, time
      \(Program.say)
      mode, port = sys.argv[1], int(sys.argv[2])
      total, told, lock = 0, 0.0, threading.Lock()
      def send(peer, data):
          global total, told
          peer.sendall(data)
          with lock:
              total += len(data)
              if time.monotonic() - told > 0.05:
                  told = time.monotonic()
                  say(f"sent {total}")
      def head(peer):
          data = b""
          while b"\\r\\n\\r\\n" not in data:
              more = peer.recv(4096)
              if not more: raise OSError("gone")
              data += more
          return data
      def upgrade(peer):
          key = next(l.split(b": ")[1] for l in head(peer).split(b"\\r\\n") if l.lower().startswith(b"sec-websocket-key"))
          answer = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
          peer.sendall(b"HTTP/1.1 101 x\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: " + answer + b"\\r\\n\\r\\n")
      def forever(peer, data):
          while True: send(peer, data)
      def serve(peer):
          before = total
          try:
              if mode == "interim": head(peer); forever(peer, b"HTTP/1.1 100 Continue\\r\\n\\r\\n" * 1000)
              if mode == "headers": head(peer); peer.sendall(b"HTTP/1.1 200 OK\\r\\n"); forever(peer, b"X: y\\r\\n" * 1000)
              if mode == "bytes":
                  head(peer); peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                  peer.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n")
                  while True:
                      for byte in b"1\\r\\nx\\r\\n": send(peer, bytes([byte]))
              if mode == "pieces": upgrade(peer); peer.sendall(b"\\x01\\x01x"); forever(peer, b"\\x00\\x00" * 10000)
              if mode == "pings": upgrade(peer); threading.Thread(target=drain, args=(peer,), daemon=True).start(); forever(peer, b"\\x89\\x00" * 10000)
              if mode == "unread pings": upgrade(peer); forever(peer, b"\\x89\\x00" * 10000)
              if mode == "pongs": peer.recv(4096); peer.sendall(b"\\x20\\x03\\x00\\x00\\x00"); forever(peer, b"\\xd0\\x00" * 10000)
              if mode == "rubbish": forever(peer, os.urandom(100000))
              if mode == "markers": forever(peer, b">" * 100000)
              if mode == "pushes": forever(peer, (b">\\x21\\x00\\x80" + bytes(range(32))) * 1000)
              if mode == "client": forever(peer, b"<" * 100000)
          except OSError: pass
          say(f"cut {total - before}")
      def drain(peer):
          try:
              while peer.recv(65536): pass
          except OSError: pass
      if mode == "client":
          while True:
              try: serve(socket.create_connection(("127.0.0.1", port)))
              except OSError: time.sleep(0.1)
      listener = socket.create_server(("127.0.0.1", port))
      say("ready")
      while True:
          peer, _ = listener.accept()
          threading.Thread(target=serve, args=(peer,), daemon=True).start()
      """

    enum Place: String, Sendable { case webhook, hub, broker, radio, proxy }
    struct Peer: Sendable, CustomTestStringConvertible {
      let place: Place
      let mode: String
      /// Whether it was disconnected before it had sent this many bytes.
      var isCut = false
      var testDescription: String { "\(place.rawValue): \(mode)" }
    }

    @Test(arguments: [
      Peer(place: .webhook, mode: "interim", isCut: true), Peer(place: .webhook, mode: "headers", isCut: true),
      Peer(place: .webhook, mode: "bytes"), Peer(place: .hub, mode: "pieces", isCut: true),
      Peer(place: .hub, mode: "pings"), Peer(place: .hub, mode: "unread pings"),
      Peer(place: .hub, mode: "headers", isCut: true),
      Peer(place: .broker, mode: "pongs"), Peer(place: .radio, mode: "rubbish"), Peer(place: .radio, mode: "markers"),
      Peer(place: .radio, mode: "pushes"), Peer(place: .proxy, mode: "client"),
    ]) func `an operator is answered while a peer floods the gateway`(_ peer: Peer) throws {
      let rig = try Rig()
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      if peer.place == .radio { rig.link = "tcp:127.0.0.1:\(port)" } else { try rig.startRadio() }
      let upstream =
        switch peer.place {
        case .webhook: "kind = \"webhook\"\nurl = \"http://127.0.0.1:\(port)/\"\ntemplate = '{\"text\":\"{{text}}\"}'"
        case .hub: "url = \"http://127.0.0.1:\(port)\""
        case .broker: "kind = \"mqtt\"\nurl = \"mqtt://127.0.0.1:\(port)\""
        case .radio, .proxy: ""
        }
      _ = rig.scratch.write(
        "gw.toml",
        """
        [radio]
        link = "\(rig.link)"
        [store]
        location = "\(rig.scratch.location("gw.db"))"
        [control]
        socket = "\(rig.socket)"
        \(upstream.isEmpty ? "" : "[[upstream]]\nname = \"peer\"\n\(upstream)")
        \(peer.place == .proxy ? "[[proxy]]\nlisten = \"127.0.0.1:\(port)\"" : "")
        """)
      let flood = try Program(Program.python, ["-c", Self.flood, peer.mode, "\(port)"])
      if peer.place != .proxy { try flood.line(with: "ready") }
      try rig.startGateway()
      if peer.place == .webhook {
        try rig.waitForSync()
        rig.radio?.write("chan r1 0 something to tell")
      }
      try flood.line(with: "sent")
      var answers = 0
      for _ in 0..<20 {
        if try rig.status() != nil { answers += 1 }
        // Meanwhile it continued, or was ended.
        let before = flood.lines.count
        try untilTrue("the flood to go on: \(flood.lines.suffix(3))") {
          flood.lines.count > before || flood.lines.contains { $0.hasPrefix("cut") }
        }
      }
      #expect(answers == 20)
      guard peer.isCut else { return }
      let cut = try flood.line(with: "cut").split(separator: " ").last.flatMap { Int($0) }
      // Most of it is in the kernel's buffers between the two.
      #expect((cut ?? .max) < 32 << 20)
    }

    @Test func `without free descriptors the operator is still answered, and nothing spins`() throws {
      let rig = try Rig()
      try rig.startRadio()
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      _ = rig.scratch.write(
        "gw.toml",
        """
        [radio]
        link = "\(rig.link)"
        [store]
        location = "\(rig.scratch.location("gw.db"))"
        [control]
        socket = "\(rig.socket)"
        [[proxy]]
        listen = "127.0.0.1:\(port)"
        max_clients = 16
        """)
      try rig.startGateway()
      try rig.waitForSync()
      let id = try #require(rig.gateway?.processID)
      let used = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(id)/fd").count
      #expect(try Program("/usr/bin/prlimit", ["--pid", "\(id)", "--nofile=\(used + 3)"]).ended() == 0)
      let clients = try (0..<10).map { _ in try LoopbackPort.connect(port) }
      defer { for client in clients { close(client) } }
      try rig.gateway?.line(with: "cannot accept connections")
      for _ in 0..<5 { #expect(try rig.status() != nil) }
      // Connections that cannot be served get an answer: otherwise they would wait in the queue, and each turn would report them.
      let before = try rig.status()?["wakeups"]?.integer ?? 0
      usleep(1_000_000)
      let after = try rig.status()?["wakeups"]?.integer ?? .max
      #expect(after - before < 200)
      #expect(rig.gateway?.lines.count { $0.contains("cannot accept connections") } ?? 99 <= 2)
    }
  }
}

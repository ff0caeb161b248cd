// SPDX-License-Identifier: MIT

import Foundation
import TestSupport

/// Stands between a client and a server, and replaces numbers in the server's answers: in JSON bodies (whole, in pieces or line by line) and in
/// messages of a WebSocket.
final class LyingPeer {
  static let numbers = [
    "-9223372036854775808", "9223372036854775807", "9007199254740993", "9007199254740992", "-1", "1e308", "-1e308",
    "4294967296", String(repeating: "9", count: 400),
  ]

  private let program: Program
  private let mode: String
  private let scratch: Scratch
  private var changes = 0

  /// `listen`, `target`: the location of a Unix socket, or a port of 127.0.0.1.
  init(_ scratch: Scratch, listen: String, target: String) throws {
    self.scratch = scratch
    mode = scratch.write("lies-\(UUID().uuidString.prefix(4))", "")
    program = try Program(Program.python, ["-u", "-c", Program.say + "\n" + Self.script, listen, target, mode])
    try program.line(with: "ready")
  }

  /// Replaces every number, or those under `keys`, by `number`; `nil`: none. It ends the connections, so that the client connects again.
  func tell(_ number: String?, under keys: [String] = []) throws {
    changes += 1
    let text = number.map { "\(changes) \($0) \(keys.joined(separator: ","))" } ?? "\(changes)"
    try text.write(toFile: mode, atomically: true, encoding: .utf8)
    try program.line(with: "mode \(changes) ")
  }

  /// Waits until it has replaced a number since the last `tell`; `poke` causes a request.
  func haveLied(_ poke: () -> Void) throws {
    try untilTrue("a lie: \(program.lines.suffix(5))") {
      poke()
      return program.lines.contains { $0.contains("lied \(changes) ") }
    }
  }

  private static let script = #"""
    import os, re, socket, sys, threading, time
    listen, target, mode_file = sys.argv[1:]
    token = re.compile(rb'"((?:\\.|[^"\\])*)"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?')
    state = {"n": "0", "value": None, "keys": [], "told": False}
    peers, lock = set(), threading.Lock()

    def address(text):
        return (socket.AF_INET, ("127.0.0.1", int(text))) if text.isdigit() else (socket.AF_UNIX, text)

    def lie(body, key=b""):
        if state["value"] is None: return body
        out, at = [], 0
        for found in token.finditer(body):
            out.append(body[at:found.start()])
            at = found.end()
            text = found.group(0)
            if text.startswith(b'"'):
                if body[found.end():found.end() + 2].lstrip().startswith(b":"): key = found.group(1)
            elif not state["keys"] or key.decode() in state["keys"]:
                text = state["value"].encode()
                if not state["told"]:
                    state["told"] = True
                    say(f'lied {state["n"]} {key.decode()}')
            out.append(text)
        return b"".join(out) + body[at:]

    class Reader:
        def __init__(self, s): self.s, self.b = s, b""
        def more(self):
            d = self.s.recv(65536)
            if not d: raise EOFError
            self.b += d
        def line(self):
            while b"\r\n" not in self.b: self.more()
            l, self.b = self.b.split(b"\r\n", 1)
            return l
        def take(self, n):
            while len(self.b) < n: self.more()
            d, self.b = self.b[:n], self.b[n:]
            return d

    def frames(r, client):
        while True:
            head = r.take(2)
            n = head[1] & 127
            if n == 126: n = int.from_bytes(r.take(2), "big")
            elif n == 127: n = int.from_bytes(r.take(8), "big")
            body = r.take(n)
            if head[0] & 15 == 1: body = lie(body)
            n = len(body)
            size = bytes([n]) if n < 126 else bytes([126]) + n.to_bytes(2, "big") if n < 65536 else bytes([127]) + n.to_bytes(8, "big")
            client.sendall(head[:1] + size + body)

    def answers(server, client):
        r = Reader(server)
        while True:
            head = [r.line()]
            while head[-1]: head.append(r.line())
            low = [h.lower() for h in head]
            if head[0].split()[1] == b"101":
                client.sendall(b"\r\n".join(head) + b"\r\n")
                return frames(r, client)
            length = next((int(h.split(b":")[1]) for h in low if h.startswith(b"content-length:")), None)
            if any(h.startswith(b"transfer-encoding: chunked") for h in low):
                client.sendall(b"\r\n".join(head) + b"\r\n")
                while True:
                    n = int(r.line(), 16)
                    body = r.take(n)
                    r.line()
                    if n: body = lie(body)
                    client.sendall(b"%x\r\n%s\r\n" % (len(body), body))
                    if not n: break
            else:
                # A number alone is how far a small batch was taken.
                body = lie(r.take(length or 0), b"acknowledged")
                head = [h for h in head if not h.lower().startswith(b"content-length:")]
                head.insert(-1, b"Content-Length: %d" % len(body))
                client.sendall(b"\r\n".join(head) + b"\r\n" + body)

    def serve(client):
        family, place = address(target)
        server = socket.socket(family)
        try:
            server.connect(place)
            with lock: peers.update((client, server))
            def up():
                try:
                    while d := client.recv(65536): server.sendall(d)
                except OSError: pass
                try: server.shutdown(socket.SHUT_WR)
                except OSError: pass
            threading.Thread(target=up, daemon=True).start()
            answers(server, client)
        except (OSError, EOFError, ValueError, IndexError): pass
        finally:
            with lock: peers.difference_update((client, server))
            for s in (client, server):
                try: s.shutdown(socket.SHUT_RDWR)
                except OSError: pass
                s.close()

    def watch():
        last = None
        while True:
            text = open(mode_file).read()
            if text and text != last:
                last = text
                words = text.split(" ")
                state["n"] = words[0]
                state["keys"] = [k for k in words[2].split(",") if k] if len(words) > 2 else []
                state["value"] = words[1] if len(words) > 1 else None
                state["told"] = False
                with lock:
                    for s in peers:
                        try: s.shutdown(socket.SHUT_RDWR)
                        except OSError: pass
                say(f"mode {words[0]} ")
            time.sleep(0.02)

    threading.Thread(target=watch, daemon=True).start()
    family, place = address(listen)
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(place)
    listener.listen(64)
    say("ready")
    while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
    """#
}

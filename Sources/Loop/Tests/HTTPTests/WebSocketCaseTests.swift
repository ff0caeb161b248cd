// SPDX-License-Identifier: MIT

import EventLoop
import Testing

@testable import HTTP

/// Behaviour of servers towards our client: the cases of Autobahn's test suite for clients, sections 1 to 7, rewritten. The client sends back each
/// message that it gets; the test compares its answers, including the code of its close.
@Suite struct WebSocketCaseTests {
  struct Case: CustomTestStringConvertible {
    let name: String
    var sent: [UInt8]
    var echoes: [[UInt8]] = []
    var pongs: [[UInt8]] = []
    /// `nil`: nothing is wrong: the server closes with 1000, and the client answers with the same.
    var refusal: UInt16?
    var testDescription: String { name }
  }

  private static func frame(_ opcode: UInt8, _ payload: [UInt8] = [], final: Bool = true, reserved: UInt8 = 0)
    -> [UInt8]
  {
    let first = (final ? 0x80 : 0) | reserved << 4 | opcode
    let length: [UInt8] =
      payload.count < 126
      ? [UInt8(payload.count)] : [126, UInt8(payload.count >> 8), UInt8(truncatingIfNeeded: payload.count)]
    return [first] + length + payload
  }
  private static func text(_ words: String, final: Bool = true) -> [UInt8] { frame(1, Array(words.utf8), final: final) }
  private static func more(_ words: String, final: Bool = true) -> [UInt8] { frame(0, Array(words.utf8), final: final) }
  private static func ping(_ words: String = "") -> [UInt8] { frame(9, Array(words.utf8)) }
  private static func bytes(_ words: String) -> [UInt8] { Array(words.utf8) }
  private static func close(_ code: UInt16, _ reason: [UInt8] = []) -> [UInt8] {
    frame(8, [UInt8(code >> 8), UInt8(code & 0xFF)] + reason)
  }

  static let lengths = [0, 125, 126, 127, 128, 65535].flatMap { count in
    [1, 2].map { opcode in
      let payload = [UInt8](repeating: 0x2A, count: count)
      return Case(
        name: "1: \(count) bytes, opcode \(opcode)", sent: frame(UInt8(opcode), payload), echoes: [payload])
    }
  }

  static let pings = [
    Case(name: "2.1 empty ping", sent: ping(), pongs: [[]]),
    Case(name: "2.2 ping with text", sent: ping("Hello"), pongs: [bytes("Hello")]),
    Case(name: "2.3 ping with bytes", sent: frame(9, [0, 0xFF, 0xFE]), pongs: [[0, 0xFF, 0xFE]]),
    Case(
      name: "2.4 the longest ping", sent: frame(9, .init(repeating: 0xFE, count: 125)),
      pongs: [.init(repeating: 0xFE, count: 125)]),
    Case(name: "2.5 a ping that is too long", sent: frame(9, .init(repeating: 0xFE, count: 126)), refusal: 1002),
    Case(name: "2.7 a pong nobody asked for", sent: frame(10)),
    Case(name: "2.8 with a payload", sent: frame(10, bytes("unsolicited"))),
    Case(name: "2.9 and then a ping", sent: frame(10, bytes("x")) + ping("y"), pongs: [bytes("y")]),
    Case(
      name: "2.10 ten pings", sent: (0..<10).flatMap { ping("payload-\($0)") },
      pongs: (0..<10).map { bytes("payload-\($0)") }),
    Case(
      name: "a hundred pings: the first and the last are answered", sent: (0..<100).flatMap { ping("\($0)") },
      pongs: (0..<16).map { bytes("\($0)") } + [bytes("99")]),
  ]

  static let reserved = (1...7).flatMap { bits in
    [1, 2, 9, 10, 8].map { opcode in
      Case(
        name: "3: reserved bits \(bits), opcode \(opcode)",
        sent: text("ok") + frame(UInt8(opcode), bytes("x"), reserved: UInt8(bits)), echoes: [bytes("ok")],
        refusal: 1002)
    }
  }

  static let opcodes = [3, 4, 5, 6, 7, 11, 12, 13, 14, 15].flatMap { opcode in
    [[], bytes("reserved")].map { payload in
      Case(
        name: "4: opcode \(opcode), \(payload.count) bytes", sent: text("ok") + frame(UInt8(opcode), payload) + ping(),
        echoes: [bytes("ok")], refusal: 1002)
    }
  }

  static let pieces = [
    Case(name: "5.1 a ping in two", sent: frame(9, bytes("a"), final: false) + more("b"), refusal: 1002),
    Case(name: "5.2 a pong in two", sent: frame(10, bytes("a"), final: false) + more("b"), refusal: 1002),
    Case(name: "5.3 a text in two", sent: text("frag", final: false) + more("ment"), echoes: [bytes("fragment")]),
    Case(
      name: "5.6 with a ping between", sent: text("frag", final: false) + ping("p") + more("ment"),
      echoes: [bytes("fragment")], pongs: [bytes("p")]),
    Case(name: "5.9 a piece of nothing, the last", sent: more("x") + text("ok"), refusal: 1002),
    Case(name: "5.12 a piece of nothing, more to come", sent: more("x", final: false) + text("ok"), refusal: 1002),
    Case(
      name: "5.15 another piece after the last",
      sent: text("a", final: false) + more("b") + more("c", final: false) + text("d"), echoes: [bytes("ab")],
      refusal: 1002),
    Case(name: "5.18 a text in a text", sent: text("a", final: false) + text("b"), refusal: 1002),
    Case(
      name: "5.19 five pieces, two pings",
      sent: text("1", final: false) + more("2", final: false) + ping("a") + more("3", final: false)
        + more("4", final: false) + ping("b") + more("5"), echoes: [bytes("12345")],
      pongs: [bytes("a"), bytes("b")]),
    Case(name: "6.1 empty", sent: text(""), echoes: [[]]),
    Case(
      name: "6.1 three empty pieces", sent: text("", final: false) + more("", final: false) + more(""), echoes: [[]]),
    Case(
      name: "6.1 empty at both ends", sent: text("", final: false) + more("x", final: false) + more(""),
      echoes: [bytes("x")]),
    Case(name: "a length in a longer form", sent: [0x81, 126, 0, 1, 0x61], refusal: 1002),
    Case(name: "masked", sent: [0x81, 0x81, 0, 0, 0, 0, 0x61], refusal: 1002),
    Case(name: "larger than we take", sent: [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 1], refusal: 1009),
    Case(name: "larger than any number", sent: [0x82, 127] + [UInt8](repeating: 0xFF, count: 8), refusal: 1009),
  ]

  /// Sections 6.2 to 6.23: UTF-8 and invalid sequences, whole and in pieces of one byte.
  private static let goodTexts: [[UInt8]] = [
    bytes("Hello-µ@ßöäüàá-UTF-8!!"), bytes("κόσμε"), [0], [0xC2, 0x80], [0xE0, 0xA0, 0x80], [0xF0, 0x90, 0x80, 0x80],
    [0x7F], [0xDF, 0xBF], [0xEF, 0xBF, 0xBF], [0xF4, 0x8F, 0xBF, 0xBF], [0xED, 0x9F, 0xBF], [0xEE, 0x80, 0x80],
    [0xEF, 0xBF, 0xBD], [0xEF, 0xBF, 0xBE], [0xF0, 0x9F, 0xBF, 0xBF],
  ]
  private static let badTexts: [[UInt8]] = [
    [0x80], [0xBF], [0x80, 0xBF], [0xC0, 0x20], [0xE0, 0x20], [0xF0, 0x20], [0xF8, 0x20], [0xFC, 0x20], [0xC0], [0xFE],
    [0xFF], [0xFE, 0xFE, 0xFF, 0xFF], [0xF8, 0x88, 0x80, 0x80, 0x80], [0xFC, 0x84, 0x80, 0x80, 0x80, 0x80],
    [0xF7, 0xBF, 0xBF, 0xBF], [0xF4, 0x90, 0x80, 0x80], [0xC0, 0xAF], [0xE0, 0x80, 0xAF], [0xF0, 0x80, 0x80, 0xAF],
    [0xC1, 0xBF], [0xE0, 0x9F, 0xBF], [0xF0, 0x8F, 0xBF, 0xBF], [0xC0, 0x80], [0xE0, 0x80, 0x80], [0xED, 0xA0, 0x80],
    [0xED, 0xAD, 0xBF], [0xED, 0xAE, 0x80], [0xED, 0xBF, 0xBF], [0xED, 0xA0, 0x80, 0xED, 0xB0, 0x80],
    [0xCE, 0xBA, 0xE1, 0xBD, 0xB9, 0xCF, 0x83, 0xCE, 0xBC, 0xCE, 0xB5, 0xED, 0xA0, 0x80, 0x65],
  ]
  private static let half: [[UInt8]] = [[0xC3], [0xE0, 0xA0], [0xEF, 0xBF], [0xF0, 0x90, 0x80], [0xF4, 0x8F, 0xBF]]

  private static func cut(_ payload: [UInt8]) -> [UInt8] {
    payload.enumerated().flatMap { frame($0.offset == 0 ? 1 : 0, [$0.element], final: false) } + frame(0)
  }
  static let texts =
    goodTexts.flatMap {
      [
        Case(name: "6: \($0)", sent: frame(1, $0), echoes: [$0]),
        Case(name: "6: \($0), byte by byte", sent: cut($0), echoes: [$0]),
      ]
    }
    + (badTexts + half).flatMap {
      [
        Case(name: "6: not \($0)", sent: frame(1, $0), refusal: 1007),
        Case(name: "6: not \($0), byte by byte", sent: cut($0), refusal: 1007),
      ]
    }
    + badTexts.map {
      // No more bytes follow: the text is refused at its first wrong byte.
      Case(name: "6.4: \($0), the rest never comes", sent: [0x01, 126, 0xFF, 0xFF] + $0, refusal: 1007)
    }

  static let closes =
    [
      Case(name: "7.3.2 half a code", sent: frame(8, [3]), refusal: 1002),
      Case(
        name: "7.3.6 a reason that is too long", sent: frame(8, [0x03, 0xE8] + .init(repeating: 0x2A, count: 124)),
        refusal: 1002),
      Case(name: "7.5.1 a reason that is no text", sent: close(1000, [0xED, 0xA0, 0x80]), refusal: 1007),
      Case(name: "7.1 a close, and then more", sent: close(1000) + text("x") + ping("y"), refusal: 1000),
      Case(name: "7.3.1 an empty close", sent: frame(8), refusal: 0),
      Case(name: "7.3.5 the longest reason", sent: close(1000, .init(repeating: 0x2A, count: 123)), refusal: 1000),
      Case(name: "a close in the midst of a text", sent: text("a", final: false) + close(1001), refusal: 1001),
    ]
    + ([1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999] as [UInt16]).map
  {
    Case(name: "7.7 code \($0)", sent: close($0), refusal: $0)
  }
    + ([0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535] as [UInt16]).map {
      Case(name: "7.9 code \($0)", sent: close($0), refusal: 1002)
    }

  static let all = lengths + pings + reserved + opcodes + pieces + texts + closes

  @Test(arguments: all) func `the client handles a server's frames, valid and invalid, as RFC 6455 demands`(
    _ step: Case
  ) throws {
    for isChopped in [false, true] where !isChopped || step.sent.count < 1000 {
      let loop = EventLoop()
      let server = try RawServer(on: loop)
      server.onHeard = { server in
        guard let key = server.key else { return }
        server.onHeard = { _ in }
        server.say(Self.handshake(key))
        let bytes = step.sent + (step.refusal == nil ? Self.close(1000) : [])
        if isChopped { for byte in bytes { server.say([byte]) } } else { server.say(bytes) }
      }
      server.onEnded = { loop.stop() }
      let socket = WebSocket(
        WebSocket.Settings(host: "127.0.0.1", port: server.port, target: "/", maxMessage: 65536), tls: nil, on: loop)
      var ends = 0
      _ = loop.begin {
        do {
          try await socket.open()
          while true { if case .message(let bytes) = try await socket.next() { socket.send(binary: bytes) } }
        } catch {
          ends += 1
        }
      }
      let limit = loop.schedule(after: .seconds(60)) { loop.stop() }
      loop.run()
      limit.cancel()
      let frames = Self.frames(server.heard)
      #expect(frames.filter { $0.opcode == .binary }.map(\.payload) == step.echoes)
      // In pieces, they do not all arrive at once.
      if !isChopped || step.pongs.count <= 16 {
        #expect(frames.filter { $0.opcode == .pong }.map(\.payload) == step.pongs)
      }
      let code = step.refusal ?? 1000
      #expect(
        frames.last == WebSocketFrame(opcode: .close, payload: code == 0 ? [] : [UInt8(code >> 8), UInt8(code & 0xFF)]))
      #expect(ends == 1)
    }
  }

  static func handshake(_ key: String) -> String {
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"
      + "Sec-WebSocket-Accept:  \(WebSocketKey.answer(to: key)) \r\n\r\n"
  }

  /// The frames that a client has sent after its handshake.
  static func frames(_ heard: [UInt8]) -> [WebSocketFrame] {
    guard let end = heard.firstRange(of: [13, 10, 13, 10] as [UInt8]) else { return [] }
    var rest = heard[end.upperBound...]
    var frames: [WebSocketFrame] = []
    while let first = rest.popFirst(), let second = rest.popFirst() {
      var length = Int(second & 0x7F)
      let more = length == 126 ? 2 : length == 127 ? 8 : 0
      if more > 0 { length = rest.prefix(more).reduce(0) { $0 << 8 | Int($1) } }
      rest = rest.dropFirst(more)
      let mask = Array(rest.prefix(4))
      rest = rest.dropFirst(4)
      let payload = rest.prefix(length).enumerated().map { $0.element ^ mask[$0.offset & 3] }
      rest = rest.dropFirst(length)
      guard second & 0x80 != 0, let opcode = WebSocketFrame.Opcode(rawValue: first & 0x0F) else { return [] }
      frames.append(WebSocketFrame(isFinal: first & 0x80 != 0, opcode: opcode, payload: payload))
    }
    return frames
  }

  @Test(arguments: [
    "HTTP/1.1 101 x\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: KEY\r\n\r\n",
    "HTTP/1.1 101 x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: KEY\r\n\r\n",
    "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: KEY\r\n\r\n",
    "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: close\r\nSec-WebSocket-Accept: KEY\r\n\r\n",
    "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: AAAA\r\n\r\n",
    "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: KEY\r\n"
      + "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
    "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: KEY\r\n"
      + "Sec-WebSocket-Protocol: other\r\n\r\n",
    "HTTP/1.1 101 x\r\nUpgrade : websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: KEY\r\n\r\n",
    "SSH-2.0-OpenSSH_9.2\r\n\r\n",
  ]) func `an invalid handshake opens no connection`(_ answer: String) throws {
    let loop = EventLoop()
    let server = try RawServer(on: loop)
    server.onHeard = { server in
      guard let key = server.key else { return }
      server.say(
        answer.split(separator: "KEY", omittingEmptySubsequences: false).joined(separator: WebSocketKey.answer(to: key))
      )
      server.say(Self.text("x"))
    }
    let socket = WebSocket(
      WebSocket.Settings(host: "127.0.0.1", port: server.port, target: "/", subprotocol: "meshpost.v1"), tls: nil,
      on: loop)
    var failure: WebSocketFailure?
    _ = loop.begin {
      do throws(WebSocketFailure) {
        try await socket.open()
        Issue.record("it opened")
      } catch {
        failure = error
      }
      loop.stop()
    }
    loop.run()
    guard case .blocked? = failure else {
      Issue.record("\(String(describing: failure))")
      return
    }
  }

  @Test func `the HTTP parser reads the handshake: interim answers, and a refusal with its status`() throws {
    for (answer, status) in [
      ("HTTP/1.1 103 Early\r\nLink: <x>\r\n\r\nHTTP/1.1 401 No\r\nContent-Length: 3\r\n\r\nabc", 401),
      ("HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 503),
    ] {
      let loop = EventLoop()
      let server = try RawServer(on: loop)
      server.onHeard = { if $0.key != nil { $0.say(answer) } }
      let socket = WebSocket(
        WebSocket.Settings(host: "127.0.0.1", port: server.port, target: "/"), tls: nil, on: loop)
      var failure: WebSocketFailure?
      _ = loop.begin {
        do throws(WebSocketFailure) { try await socket.open() } catch { failure = error }
        loop.stop()
      }
      loop.run()
      guard case .notUpgraded(let response)? = failure else {
        Issue.record("\(String(describing: failure))")
        continue
      }
      #expect(response.status == status && response.body == Array("abc".utf8))
    }
  }

  @Test(arguments: ["HTTP/1.1 503 x\r\n\r\n", "HTTP/1.1 503 x\r\nContent-Length: 99999999\r\n\r\n"])
  func `of a refusal's body the beginning is kept, and a rest that does not come is not waited for`(
    _ head: String
  ) throws {
    for size in [5, 5000] {
      let loop = EventLoop()
      let server = try RawServer(on: loop)
      server.onHeard = { if $0.key != nil { $0.say(head + String(repeating: "x", count: size)) } }
      let socket = WebSocket(
        WebSocket.Settings(host: "127.0.0.1", port: server.port, target: "/"), tls: nil, on: loop)
      var failure: WebSocketFailure?
      _ = loop.begin {
        do throws(WebSocketFailure) { try await socket.open() } catch { failure = error }
        loop.stop()
      }
      loop.run()
      guard case .notUpgraded(let response)? = failure else {
        Issue.record("\(String(describing: failure))")
        continue
      }
      #expect(response.status == 503 && response.body.count == min(size, 1024))
    }
  }
}

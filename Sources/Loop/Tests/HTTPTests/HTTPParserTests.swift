// SPDX-License-Identifier: MIT

import Testing
import Timing

@testable import HTTP

@Suite struct HTTPParserTests {
  /// All messages in the bytes, each with its head, its body and whether it ended; or the error.
  private func read(
    _ text: String, _ kind: HTTPParser.Kind = .responses, maxBody: Int = 1000, piece: Int = .max
  ) throws -> [String] {
    var parser = HTTPParser(kind, maxBody: maxBody)
    var messages: [String] = []
    var body: [UInt8] = []
    var rest = Array(text.utf8)[...]
    while !rest.isEmpty {
      let taken = try parser.parse(rest.prefix(piece)) { event in
        switch event {
        case .request(let method, let target, let headers):
          messages.append("\(method) \(target) \(Self.shown(headers))")
        case .response(let status, let headers): messages.append("\(status) \(Self.shown(headers))")
        case .body(let bytes): body += bytes
        case .end:
          messages[messages.count - 1] += "[\(String(decoding: body, as: UTF8.self))]."
          body = []
        }
      }
      guard taken > 0 else { break }
      rest = rest.dropFirst(taken)
    }
    if parser.endsWithConnection { messages[messages.count - 1] += "[\(String(decoding: body, as: UTF8.self))]…" }
    return messages
  }

  private static func shown(_ headers: HTTPHeaders) -> String {
    headers.fields.filter { $0.name.hasPrefix("X") }.map { "\($0.name)=\($0.value);" }.joined()
  }

  @Test(arguments: [
    (
      "HTTP/1.1 200 OK\r\nX-A: one \t \r\nX-B:\ttwo\r\nX-C:\r\nContent-Length: 2 \r\n\r\nhi",
      ["200 X-A=one;X-B=two;X-C=;[hi]."]
    ),
    ("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", ["200 []."]),
    ("HTTP/1.1 200 OK\nContent-Length: 1\n\nx", ["200 [x]."]),
    (
      "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
      ["204 [].", "200 [a]."]
    ),
    ("HTTP/1.1 304 Not\r\nTransfer-Encoding: chunked\r\n\r\n", ["304 []."]),
    ("HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\nContent-Length: 3\r\n\r\nabc", ["200 [abc]."]),
    (
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=\"y\"\r\nabc\r\n0a  \r\n0123456789\r\n0\r\nX-T: 1\r\n\r\n",
      ["200 [abc0123456789]."]
    ),
    (
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nX-A: 1\r\n\r\nHTTP/1.1 200 OK\r\nX-B: 2\r\nContent-Length: 0\r\n\r\n",
      ["200 X-B=2;[]."]
    ),
    ("HTTP/1.0 200 OK\r\nX-A: one\r\n two\r\n\r\nall the rest", ["200 X-A=one two;[all the rest]…"]),
    ("\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ["200 []."]),
  ]) func `answers of real servers are read, whole and byte by byte`(_ text: String, _ expected: [String]) throws {
    #expect(try read(text) == expected)
    #expect(try read(text, piece: 1) == expected)
  }

  @Test(arguments: [
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length: 2 2\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length: ٢\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1 1\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 1\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n;x\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno field\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX : 1\r\n\r\n",
    "HTTP/1.1 200 OK\r\n: 1\r\n\r\n",
    "HTTP/1.1 200 OK\r\n X: 1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX\u{E9}: 1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n",
    "HTTP/1.1 200 OK\r\nX: a\u{1B}[2J\r\n\r\n",
    "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 +20 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n", "HTTP/1.1  200 OK\r\n\r\n",
    "HTTP/2 200 OK\r\n\r\n", "HTTP/1.11 200 OK\r\n\r\n", "http/1.1 200 OK\r\n\r\n", "ICY 200 OK\r\n\r\n",
    "HTTP/1.1 101 Other\r\n\r\n",
  ]) func `answers that could be read in two ways are refused`(_ text: String) {
    #expect(throws: HTTPParseError.self) { try read(text) }
    #expect(throws: HTTPParseError.self) { try read(text, piece: 1) }
  }

  @Test(arguments: [
    "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a\u{7F} HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET x HTTP/1.1\r\nHost: a\r\n\r\n",
    "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "GET /\r\n\r\n",
    " / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", "GET / HTTP/1.1\r\n X: 1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost : a\r\n\r\n",
  ]) func `malformed requests are refused`(_ text: String) {
    #expect(throws: HTTPParseError.self) { try read(text, .requests) }
  }

  @Test func `pipelined requests are read one at a time`() throws {
    let text =
      "GET /a HTTP/1.1\r\nHost: h\r\n\r\nPOST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET /c HTTP/1.0\r\n\r\n"
    #expect(try read(text, .requests) == ["GET /a [].", "POST /b [hi].", "GET /c []."])
    var parser = HTTPParser(.requests, maxBody: 10)
    #expect(try parser.parse(Array(text.utf8)[...]) { _ in } == 28)
    #expect(parser.keepsAlive)
  }

  @Test func `heads, interim answers and chunks have limits`() {
    let begin = "HTTP/1.1 200 OK\r\n"
    #expect(throws: HTTPParseError.headTooLarge) { try read(begin + "X: " + String(repeating: "a", count: 20_000)) }
    #expect(throws: HTTPParseError.headTooLarge) { try read(begin + String(repeating: "X: a\r\n", count: 200)) }
    #expect(throws: HTTPParseError.headTooLarge) { try read(String(repeating: "\r\n", count: 10_000)) }
    #expect(throws: HTTPParseError.malformed("too many interim responses")) {
      try read(String(repeating: "HTTP/1.1 100 Continue\r\n\r\n", count: 20))
    }
    let chunked = begin + "Transfer-Encoding: chunked\r\n\r\n"
    #expect(throws: HTTPParseError.malformed("chunks with more overhead than data")) {
      try read(chunked + String(repeating: "1;\(String(repeating: "x", count: 1000))\r\na\r\n", count: 30))
    }
    #expect(throws: HTTPParseError.bodyTooLarge) { try read(chunked + "FFFFFFFFFFFFFFFFFFFFFFFFFFF\r\n") }
    #expect(throws: HTTPParseError.bodyTooLarge) { try read(begin + "Content-Length: 99999999999999999999999\r\n\r\n") }
    #expect(throws: HTTPParseError.bodyTooLarge) {
      try read(chunked + String(repeating: "64\r\n\(String(repeating: "a", count: 100))\r\n", count: 11))
    }
    #expect(throws: Never.self) { try read(chunked + String(repeating: "1\r\na\r\n", count: 1000) + "0\r\n\r\n") }
  }

  @Test(arguments: [UInt64(1), 2]) func `random and mutated messages never trap`(_ seed: UInt64) {
    var random = SeededRandom(seed: seed)
    let corpus = [
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
      "HTTP/1.1 204 No\r\nContent-Length: 0\r\nX: a, b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
      "POST /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabcGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ].map { Array($0.utf8) }
    for round in 0..<60_000 {
      var bytes = corpus[round % 3]
      for _ in 0..<Int.random(in: 1...5, using: &random) {
        let place = Int.random(in: 0..<bytes.count, using: &random)
        bytes[place] =
          [0, 10, 13, 32, 58, 59, 255, UInt8.random(in: 0...255, using: &random)]
          .randomElement(using: &random) ?? 0
      }
      var parser = HTTPParser(round % 2 == 0 ? .responses : .requests, maxBody: 100)
      var rest = bytes[...]
      var told = 0
      // `try?`: an error is allowed, too.
      while !rest.isEmpty,
        let taken = try? parser.parse(rest.prefix(7), { if case .body(let b) = $0 { told += b.count } }),
        taken > 0
      {
        rest = rest.dropFirst(taken)
      }
      #expect(told <= bytes.count)
    }
  }
}

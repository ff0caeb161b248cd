// SPDX-License-Identifier: MIT

import Sockets

/// A server of HTTP/1.1 as far as a gateway uses it.
class WebServer: Server {
  struct Request {
    var method: String
    var target: String
    var headers: [(String, String)]
    var body: [UInt8] = []

    subscript(_ name: String) -> String? { headers.first { $0.0.lowercased() == name }?.1 }
  }

  struct Answer {
    var status: Int
    var headers: [(String, String)] = []
    var body: [UInt8] = []

    var bytes: [UInt8] {
      let fields = headers.filter { $0.0.lowercased() != "content-length" }.map { "\($0.0): \($0.1)\r\n" }.joined()
      return Array("HTTP/1.1 \(status) .\r\n\(fields)Content-Length: \(body.count)\r\n\r\n".utf8) + body
    }
  }

  func answer(_ request: Request, of gateway: String) throws -> Answer { Answer(status: 404) }

  /// Takes over the connection after this request; `false`: it is an ordinary one.
  func upgrades(_ request: Request, _ peer: Peer, _ rest: [UInt8], of gateway: String) async throws(StreamEnd) -> Bool {
    false
  }

  override func serve(_ peer: Peer, of gateway: String) async throws(StreamEnd) {
    var unread: [UInt8] = []
    while true {
      let request = try await Self.request(peer, &unread)
      switch mood {
      case .status(let status, let retryAfter):
        peer.write(
          Answer(status: status, headers: retryAfter.map { [("Retry-After", $0)] } ?? [], body: Array("{}".utf8)).bytes)
        continue
      case .portal:
        let page = Array("<html><body>Welcome to the hotel</body></html>".utf8)
        peer.write(Answer(status: 200, headers: [("Content-Type", "text/html")], body: page).bytes)
        continue
      default: break
      }
      try await untilItAnswers(peer)
      if try await upgrades(request, peer, unread, of: gateway) { return }
      let answer: Answer
      do { answer = try self.answer(request, of: gateway) } catch { throw .failed("\(error)") }
      if mood == .losesAnswers { return }
      peer.write(answer.bytes)
    }
  }

  private static func request(_ peer: Peer, _ unread: inout [UInt8]) async throws(StreamEnd) -> Request {
    while true {
      if let end = endOfHead(unread) {
        // By bytes, which cost a fraction of characters.
        let lines = unread[..<end].split(separator: 13).map { $0.first == 10 ? $0.dropFirst() : $0 }
        let words = (lines.first ?? []).split(separator: 32).map(text)
        var request = Request(
          method: words.first ?? "", target: words.count > 1 ? words[1] : "",
          headers: lines.dropFirst().filter { !$0.isEmpty }.map { line in
            let parts = line.split(separator: 58, maxSplits: 1)
            return (text(parts[0]), parts.count > 1 ? text(parts[1].drop { $0 == 32 }) : "")
          })
        let length = request["content-length"].flatMap { Int($0) } ?? 0
        if unread.count - end >= length {
          request.body = Array(unread[end..<end + length])
          unread.removeFirst(end + length)
          return request
        }
      }
      unread += try await peer.read()
    }
  }

  private static func text(_ bytes: ArraySlice<UInt8>) -> String { String(decoding: bytes, as: UTF8.self) }

  /// The place behind the empty line.
  private static func endOfHead(_ bytes: [UInt8]) -> Int? {
    guard bytes.count >= 4 else { return nil }
    return (4...bytes.count).first { end in
      bytes[end - 1] == 10 && bytes[end - 2] == 13 && bytes[end - 3] == 10 && bytes[end - 4] == 13
    }
  }
}

/// A webhook's server: keeps each event once.
final class WorldWebhook: WebServer {
  var ledger = Ledger()
  private var requests = 0

  override func answer(_ request: Request, of gateway: String) throws -> Answer {
    guard request.method == "POST" else { return Answer(status: 405) }
    requests += 1
    if mood == .takesHalf, requests.isMultiple(of: 2) { return Answer(status: 503) }
    if case .dislikes(let status, let every) = mood, Ledger.number(request.body)?.isMultiple(of: every) == true {
      return Answer(status: status)
    }
    ledger.take(request.body, of: gateway)
    return Answer(status: 200)
  }
}

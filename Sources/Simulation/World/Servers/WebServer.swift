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
    let separator = Array("\r\n\r\n".utf8)
    while true {
      if let end = unread.firstRange(of: separator) {
        let lines = String(decoding: unread[..<end.lowerBound], as: UTF8.self).split(separator: "\r\n").map(String.init)
        let words = (lines.first ?? "").split(separator: " ").map(String.init)
        var request = Request(
          method: words.first ?? "", target: words.count > 1 ? words[1] : "",
          headers: lines.dropFirst().map { line in
            let parts = line.split(separator: ":", maxSplits: 1).map(String.init)
            return (parts[0], parts.count > 1 ? String(parts[1].drop { $0 == " " }) : "")
          })
        let length = request["content-length"].flatMap { Int($0) } ?? 0
        if unread.count - end.upperBound >= length {
          request.body = Array(unread[end.upperBound..<end.upperBound + length])
          unread.removeFirst(end.upperBound + length)
          return request
        }
      }
      unread += try await peer.read()
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

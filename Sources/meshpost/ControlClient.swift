// SPDX-License-Identifier: MIT

import ArgumentParser
import EventLoop
import Glibc
import HTTP
import JSON

/// Asks the daemon, one request a run.
struct ControlClient {
  struct Answer {
    let text: String
    let value: JSONValue
  }

  private let connection: Connection

  init(_ connection: Connection) { self.connection = connection }

  static func escape(_ text: String) -> String { PercentCoding.encode(text) }

  /// `limit`: seconds to wait for the answer.
  func get(_ target: String, limit: Int = 30) throws -> Answer { try ask(HTTPRequest("GET", target), limit) }
  func post(_ target: String, body: [UInt8] = [], limit: Int = 30) throws -> Answer {
    try ask(HTTPRequest("POST", target, body: body), limit)
  }

  /// Rows as they come: printed as they are with `--json`, else shown for people. `look` sees each of them.
  func lines(
    _ target: String, look: @escaping (JSONValue) -> Void = { _ in }, _ show: @escaping (JSONValue) -> String
  ) throws {
    var partial: [UInt8] = []
    let json = connection.json
    let response = try send(HTTPRequest("GET", target), limit: nil) { piece in
      for byte in piece {
        guard byte == 10 else {
          partial.append(byte)
          continue
        }
        let line = partial
        partial.removeAll()
        // `try?`: a torn line, after the stream broke off.
        let value = try? JSONValue(parsing: line)
        if let value { look(value) }
        if json { print(String(decoding: line, as: UTF8.self)) } else if let value { print(show(value)) }
      }
      fflush(nil)
    }
    guard response.status == 200 else { throw refusal(response, partial) }
  }

  private func ask(_ request: HTTPRequest, _ limit: Int) throws -> Answer {
    let response = try send(request, limit: limit, nil)
    guard (200..<300).contains(response.status) else { throw refusal(response, response.body) }
    let text = String(decoding: response.body.dropLast(response.body.last == 10 ? 1 : 0), as: UTF8.self)
    return Answer(text: text, value: try JSONValue(parsing: text))
  }

  private func refusal(_ response: HTTPResponse, _ body: [UInt8]) -> any Error {
    // `try?`: an answer without words is shown by its number.
    let answer = try? JSONValue(parsing: body)
    let words = [answer?["error"]?.string ?? "HTTP \(response.status)", answer?["remedy"]?.string]
    return fail(words.compactMap { $0 }.joined(separator: ". "), Self.exitCode(answer?["code"]?.string))
  }

  private static func exitCode(_ code: String?) -> Int32 {
    switch code {
    case "ambiguous", "invalid": EX_USAGE
    case "too_long": EX_DATAERR
    case "not_found", "not_on_radio": EX_NOUSER
    case "full": EX_TEMPFAIL
    case "radio": EX_PROTOCOL
    default: EX_UNAVAILABLE
    }
  }

  private func send(
    _ request: HTTPRequest, limit: Int?, _ onPiece: (([UInt8]) -> Void)?
  ) throws -> HTTPResponse {
    let loop = EventLoop()
    let client = HTTPClient(.unix(location: connection.socket), on: loop)
    var result: Result<HTTPResponse, HTTPFailure>?
    client.send(request, timeout: limit.map { .seconds(Int64($0)) }, onPiece: onPiece) { outcome in
      result = outcome
      loop.stop()
    }
    if result == nil { loop.run() }
    switch result {
    case .success(let response): return response
    case .failure(let failure):
      throw fail("\(failure). Is meshpostd running, and may you use its socket?", EX_UNAVAILABLE)
    case nil: throw fail("no answer", EX_UNAVAILABLE)
    }
  }

  private func fail(_ words: String, _ code: Int32) -> any Error {
    let line = Array("meshpost: \(words)\n".utf8)
    _ = Glibc.write(2, line, line.count)  // nowhere is left to report that it failed
    return ExitCode(code)
  }
}

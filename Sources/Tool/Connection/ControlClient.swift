// SPDX-License-Identifier: MIT

import Console
import ControlShapes
import EventLoop
import Glibc
import HTTP
import JSON
import Timing
import UntrustedText

/// The client of the daemon's control socket. Most commands send one request.
struct ControlClient {
  struct Answer {
    /// The received answer, safe to print.
    let text: String
    let value: JSONValue
  }

  private let connection: Connection

  init(_ connection: Connection) { self.connection = connection }

  func get(_ target: String) throws -> Answer { try ask(HTTPRequest("GET", target), 30) }
  /// `limit`: seconds to wait for the answer. `remedy`: what the user can do if the request was sent, and its answer was lost.
  func post(_ target: String, body: [UInt8] = [], limit: Int = 30, remedy: String? = nil) throws -> Answer {
    try ask(HTTPRequest("POST", target, body: body), limit, remedy: remedy)
  }

  /// Sends the request, and prints the answer.
  @discardableResult
  func carryOut(_ exchange: Exchange) throws -> JSONValue {
    let answer = try ask(exchange.request, exchange.limit)
    if connection.json { print(answer.text) } else { try exchange.show(answer.value) }
    return answer.value
  }

  /// Prints rows while they arrive: unchanged with `--json`, otherwise by `show`, with further lines by `details`. Returns
  /// the other radios.
  @discardableResult
  func lines(
    _ target: String, details: @escaping (JSONValue) -> [Styled] = { _ in [] }, _ show: @escaping (JSONValue) -> Styled
  ) throws -> OtherRadios {
    let json = connection.json
    var isEmpty = true
    let others = try rows(target) { row in
      isEmpty = false
      if let count = row.missed {
        OtherRadios.note("\(count) \(count == 1 ? "event was" : "events were") deleted before being told here")
      } else if json {
        print(json: row)
      } else {
        print(lines: [show(row)] + details(row))
      }
    }
    // One that follows ends only with the gateway.
    if isEmpty, !json, !target.mentions("follow=1") { OtherRadios.note("nothing to list") }
    return others
  }

  /// An answer within a moment, otherwise nothing, without a message: for completions.
  func quietly(_ target: String) -> JSONValue? { quietRows(target).first }

  func quietRows(_ target: String) -> [JSONValue] {
    // `try?`: there is nobody to tell.
    guard let answer = try? send(HTTPRequest("GET", target), limit: 2, isQuiet: true, nil), answer.status == 200 else {
      return []
    }
    return answer.body.split(separator: 10).compactMap { try? JSONValue(parsing: Array($0)) }  // as above
  }

  /// An answer's bytes while they arrive. An incomplete answer is an error.
  func pieces(_ target: String, _ take: @escaping ([UInt8]) throws -> Void) throws {
    var failure: (any Error)?
    let response = try send(HTTPRequest("GET", target), limit: nil) { piece in
      guard failure == nil else { return }
      do { try take(piece) } catch { failure = error }
    }
    if let failure { throw failure }
    guard response.status == 200 else { throw refusal(response, response.body) }
  }

  /// The text of an answer that need not be JSON.
  func text(_ target: String) throws -> String {
    let response = try send(HTTPRequest("GET", target), limit: 30, nil)
    guard response.status == 200 else { throw refusal(response, response.body) }
    return String(decoding: response.body, as: UTF8.self)
  }

  /// Passes rows to `take` while they arrive, until their end or the end by `ending`. It throws the first error of `take`.
  @discardableResult
  func rows(
    _ target: String, until ending: Ending? = nil, _ take: @escaping (JSONValue) throws -> Void
  ) throws -> OtherRadios {
    try rows(HTTPRequest("GET", target), until: ending, take)
  }

  @discardableResult
  func rows(
    _ request: HTTPRequest, until ending: Ending? = nil, _ take: @escaping (JSONValue) throws -> Void
  ) throws -> OtherRadios {
    var reader = RowReader()
    var failure: (any Error)?
    let response = try send(request, limit: nil, until: ending) { piece in
      do {
        try reader.take(piece) { row in
          guard failure == nil, ending?.hasEnded != true else { return }
          do { try take(JSONValue(parsing: row)) } catch let error as JSONError {
            throw Failure.say("a row that is not JSON: \(error)", EX_PROTOCOL)
          }
        }
        if reader.hasLeftOut { throw Failure.say("a row without end", EX_PROTOCOL) }
      } catch {
        failure = failure ?? error
        ending?.end()
      }
    }
    if let failure { throw failure }
    guard response.status == 200 else { throw refusal(response, response.body) }
    return OtherRadios(response)
  }

  private func ask(_ request: HTTPRequest, _ limit: Int, remedy: String? = nil) throws -> Answer {
    let response = try send(request, limit: limit, remedy: remedy, nil)
    guard (200..<300).contains(response.status) else { throw refusal(response, response.body) }
    let text = String(decoding: response.body.dropLast(response.body.last == 10 ? 1 : 0), as: UTF8.self)
    return Answer(text: Visible.json(text), value: try JSONValue(parsing: text))
  }

  private func refusal(_ response: HTTPResponse, _ body: [UInt8]) -> any Error {
    // `try?`: without a message, the status number is the message.
    let answer = try? JSONValue(parsing: body)
    let words = [answer?["error"]?.string ?? "HTTP \(response.status)", answer?["remedy"]?.string]
    let code = Self.exitCode(answer?["code"]?.string.flatMap { RefusalCode(rawValue: $0) })
    return Failure.say(words.compactMap { $0 }.joined(separator: ". "), code)
  }

  /// `nil`: there is no code, or an unknown one.
  private static func exitCode(_ code: RefusalCode?) -> Int32 {
    switch code {
    case .ambiguous, .invalid, .otherMessage: EX_USAGE
    case .tooLong: EX_DATAERR
    case .notFound, .notOnRadio: EX_NOUSER
    case .readOnly: EX_NOPERM
    case .full: EX_TEMPFAIL
    case .radio: EX_PROTOCOL
    case .cancelled, .linkDown, .silence, .store, nil: EX_UNAVAILABLE
    }
  }

  private func send(
    _ request: HTTPRequest, limit: Int?, until ending: Ending? = nil, isQuiet: Bool = false, remedy: String? = nil,
    _ onPiece: (([UInt8]) -> Void)?
  ) throws -> HTTPResponse {
    let loop = EventLoop()
    let (endpoint, tunnel) = try connection.endpoint()
    let client = HTTPClient(endpoint, on: loop)
    var result: Result<HTTPResponse, HTTPFailure>?
    let asking: () async throws -> Void = {
      do throws(HTTPFailure) {
        result = .success(
          try await client.send(request, timeout: limit.map { .seconds(Int64($0)) }, onPiece: onPiece))
      } catch {
        if error != .cancelled { result = .failure(error) }
      }
    }
    loop.run {
      // `try?`: `result` has the outcome.
      if let ending { try? await loop.race(asking, { try await ending.comes(loop) }) } else { try? await asking() }
    }
    if result == nil, ending?.hasEnded == true { return HTTPResponse(status: 200) }
    switch result {
    case .success(let response): return response
    case .failure where isQuiet: return HTTPResponse(status: 0)
    case .failure(let failure):
      let doubt = Self.doubt(failure, of: request, remedy)
      if let tunnel {
        client.close()
        throw tunnel.failure("\(failure)", doubt: doubt)
      }
      if let doubt { throw Failure.say("\(failure): \(doubt)", EX_UNAVAILABLE) }
      if let refused = Failure.socket(connection.socket) { throw refused }
      throw Failure.say("\(failure). Is meshpostd running? See `systemctl status meshpost`", EX_UNAVAILABLE)
    case nil: throw Failure.say("no answer", EX_UNAVAILABLE)
    }
  }

  /// What is not known after this failure; `nil`: nothing was sent, or the request changes nothing. Whoever takes it for not done does it twice.
  private static func doubt(_ failure: HTTPFailure, of request: HTTPRequest, _ remedy: String?) -> String? {
    if case .unreachable = failure { return nil }
    guard request.method == "POST" else { return nil }
    return "it is not known whether the gateway has done it; \(remedy ?? "look before you repeat it")"
  }
}

/// The end of a stream of rows: Ctrl-C, a time limit, or a decision of its reader.
final class Ending {
  private let seconds: Int?
  private let over = Waiter()
  private(set) var hasEnded = false

  init(seconds: Int?) { self.seconds = seconds }

  func comes(_ loop: EventLoop) async throws {
    let signals = Signals([SIGINT, SIGTERM], on: loop) { [over] _ in over.resume() }
    try await over.wait(until: seconds.map { loop.now + .seconds(Int64($0)) }, on: loop)
    hasEnded = true
    withExtendedLifetime(signals) {}
  }

  func end() {
    hasEnded = true
    over.resume()
  }
}

extension JSONValue {
  /// The number of events that were deleted before this stream got them; `nil`: this is another row.
  var missed: Int64? { self["missed"]?.integer }
}

extension Connection {
  /// The location of the control socket, and the tunnel to a remote one.
  func endpoint() throws -> (HTTPEndpoint, SSHTunnel?) {
    guard let address = place.flatMap({ SSHAddress($0) }) else { return (.unix(location: socket), nil) }
    let tunnel = try SSHTunnel(address)
    return (.connected(tunnel.socket), tunnel)
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON

/// Two connections of a full-screen program: one for requests, one after the other, and one for a stream of rows.
final class GatewayLine {
  /// The connection through `ssh` has ended for good.
  struct Lost: Error {}

  private static let maxWaiting = 32

  private let loop: EventLoop
  private let asking: HTTPClient
  private let following: HTTPClient
  private let tunnels: [SSHTunnel]
  private let turns = LoopSemaphore<Int>(bound: maxWaiting)
  /// The error of the last request; `nil`: it has an answer.
  private(set) var trouble: String?

  init(_ connection: Connection, on loop: EventLoop) throws {
    self.loop = loop
    let (first, second) = (try connection.endpoint(), try connection.endpoint())
    asking = HTTPClient(first.0, on: loop)
    following = HTTPClient(second.0, on: loop)
    tunnels = [first.1, second.1].compactMap(\.self)
  }

  // MARK: Asking

  /// The answer; `nil`: there is none, and `trouble` has the error. Throws `Lost`.
  func ask(_ request: HTTPRequest) async throws -> HTTPResponse? {
    try await turns.with(0) { () async throws -> HTTPResponse? in
      do throws(HTTPFailure) {
        let response = try await asking.send(request, timeout: .seconds(30))
        trouble = nil
        return response
      } catch {
        try Task.checkCancellation()
        trouble = "\(error)"
        guard tunnels.isEmpty else { throw Lost() }
        return nil
      }
    }
  }

  /// The objects of an answer with status 200, one a line; otherwise `nil`.
  func rows(_ target: String) async throws -> [JSONValue]? {
    guard let response = try await ask(HTTPRequest("GET", target)), response.status == 200 else { return nil }
    // `try?`: it leaves out unreadable rows.
    return response.body.split(separator: 10).compactMap { try? JSONValue(parsing: Array($0)) }
  }

  // MARK: Following

  /// Passes each row to `take`. Returns some time after the end of the connection: then the caller may follow again.
  func follow(_ target: String, pause: Duration, _ take: @escaping (JSONValue) -> Void) async throws {
    var rows = RowReader()
    // `try?`: the caller follows again after any error.
    _ = try? await following.send(HTTPRequest("GET", target), timeout: nil) { piece in
      // `try?`: an incomplete line is no row.
      rows.take(piece) { if let row = try? JSONValue(parsing: $0) { take(row) } }
    }
    // A tunnel carries one connection. The next request finds out whether its own tunnel has ended, too.
    if tunnels.isEmpty { try await loop.sleep(for: pause) } else { try await Waiter().wait() }
  }
}

/// Makes lines of pieces. It leaves out a line that is too long for a row: a row without end uses no more memory than `longest`.
struct RowReader {
  static let longest = 1 << 20

  private var partial: [UInt8] = []
  private var isLeftOut = false
  /// Whether a line was too long.
  private(set) var hasLeftOut = false

  mutating func take(_ piece: [UInt8], _ row: ([UInt8]) throws -> Void) rethrows {
    var rest = piece[...]
    while let end = rest.firstIndex(of: 10) {
      add(rest[..<end])
      if !isLeftOut { try row(partial) }
      (partial, isLeftOut) = ([], false)
      rest = rest[(end + 1)...]
    }
    add(rest)
  }

  private mutating func add(_ bytes: ArraySlice<UInt8>) {
    isLeftOut = isLeftOut || partial.count + bytes.count > Self.longest
    hasLeftOut = hasLeftOut || isLeftOut
    if isLeftOut { partial = [] } else { partial += bytes }
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON

/// Two connections of a program with a whole screen: one to ask on, one question after the other, and one on which rows are followed.
final class GatewayLine {
  /// The connection through `ssh` has ended; it is not made again.
  struct Lost: Error {}

  private static let maxWaiting = 32

  private let loop: EventLoop
  private let asking: HTTPClient
  private let following: HTTPClient
  private let tunnels: [SSHTunnel]
  private let turns = LoopSemaphore<Int>(bound: maxWaiting)
  /// Why the last question has no answer; `nil`: it has one.
  private(set) var trouble: String?

  init(_ connection: Connection, on loop: EventLoop) throws {
    self.loop = loop
    let (first, second) = (try connection.endpoint(), try connection.endpoint())
    asking = HTTPClient(first.0, on: loop)
    following = HTTPClient(second.0, on: loop)
    tunnels = [first.1, second.1].compactMap(\.self)
  }

  // MARK: Asking

  /// The answer; `nil`: there is none, and `trouble` says why. Throws `Lost`.
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

  /// The objects of a good answer, one a line; else `nil`.
  func rows(_ target: String) async throws -> [JSONValue]? {
    guard let response = try await ask(HTTPRequest("GET", target)), response.status == 200 else { return nil }
    // `try?`: unreadable rows are left out.
    return response.body.split(separator: 10).compactMap { try? JSONValue(parsing: Array($0)) }
  }

  // MARK: Following

  /// Takes each row that comes. Returns a while after the connection has ended, when it may be followed anew.
  func follow(_ target: String, pause: Duration, _ take: @escaping (JSONValue) -> Void) async throws {
    var rows = RowReader()
    // `try?`: however it has ended, it is followed anew.
    _ = try? await following.send(HTTPRequest("GET", target), timeout: nil) { piece in
      var found: [[UInt8]] = []
      rows.take(piece) { found.append($0) }
      // `try?`: a torn line is no row.
      for row in found.compactMap({ try? JSONValue(parsing: $0) }) { take(row) }
    }
    // A tunnel is good for one connection; that the other one has ended, too, the next question finds out.
    if tunnels.isEmpty { try await loop.sleep(for: pause) } else { try await Waiter().wait() }
  }
}

/// Lines out of pieces. One that is too long for a row is left out to its end: a gateway that sends a row without end takes no
/// more memory than one that sends none.
struct RowReader {
  static let longest = 1 << 20

  private var partial: [UInt8] = []
  private var isLeftOut = false

  mutating func take(_ piece: [UInt8], _ row: ([UInt8]) -> Void) {
    var rest = piece[...]
    while let end = rest.firstIndex(of: 10) {
      add(rest[..<end])
      if !isLeftOut { row(partial) }
      (partial, isLeftOut) = ([], false)
      rest = rest[(end + 1)...]
    }
    add(rest)
  }

  private mutating func add(_ bytes: ArraySlice<UInt8>) {
    isLeftOut = isLeftOut || partial.count + bytes.count > Self.longest
    if isLeftOut { partial = [] } else { partial += bytes }
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import JSON

/// Two connections of a program with a whole screen: one to ask on, one question after the other, and one on which rows are followed.
final class GatewayLine {
  private let loop: EventLoop
  private let asking: HTTPClient
  private let following: HTTPClient
  private let tunnels: [SSHTunnel]
  private let most: Int
  private var waiting: [(request: HTTPRequest, take: (HTTPResponse) -> Void)] = []
  private var rows = RowReader()
  /// Why the last question has no answer; `nil`: it has one. On a tunnel the loop is stopped then: it is good for one connection.
  private(set) var trouble: String?
  /// A question was answered, or was not.
  var onAnswer: () -> Void = {}

  /// `most`: questions that wait; what is beyond is dropped, because a far end that is so slow is asked again soon.
  init(_ connection: Connection, most: Int, on loop: EventLoop) throws {
    (self.loop, self.most) = (loop, most)
    let (first, second) = (try connection.endpoint(), try connection.endpoint())
    asking = HTTPClient(first.0, on: loop)
    following = HTTPClient(second.0, on: loop)
    tunnels = [first.1, second.1].compactMap(\.self)
  }

  // MARK: Asking

  func ask(_ request: HTTPRequest, _ take: @escaping (HTTPResponse) -> Void) {
    guard waiting.count < most else { return }
    waiting.append((request, take))
    if waiting.count == 1 { next() }
  }

  /// The objects of a good answer, one a line.
  func rows(_ target: String, _ take: @escaping ([JSONValue]) -> Void) {
    ask(HTTPRequest("GET", target)) { response in
      guard response.status == 200 else { return }
      // `try?`: what cannot be read is left out.
      take(response.body.split(separator: 10).compactMap { try? JSONValue(parsing: Array($0)) })
    }
  }

  private func next() {
    guard let (request, take) = waiting.first else { return }
    loop.begin { [weak self, asking] in
      do throws(HTTPFailure) {
        let response = try await asking.send(request, timeout: .seconds(30))
        self?.trouble = nil
        take(response)
      } catch {
        guard let self else { return }
        self.trouble = "\(error)"
        if !self.tunnels.isEmpty { return self.loop.stop() }
      }
      guard let self else { return }
      self.waiting.removeFirst()
      self.onAnswer()
      self.next()
    }
  }

  // MARK: Following

  /// Takes each row that comes; when the connection has ended, `again` after a pause, which follows anew.
  func follow(
    _ target: String, pause: Duration, _ take: @escaping (JSONValue) -> Void, again: @escaping () -> Void
  ) {
    rows = RowReader()
    loop.begin { [weak self, following, loop, tunnels] in
      // `try?`: however it has ended, it is followed anew.
      _ = try? await following.send(HTTPRequest("GET", target), timeout: nil) { piece in
        guard let self else { return }
        var found: [[UInt8]] = []
        self.rows.take(piece) { found.append($0) }
        // `try?`: a torn line is no row.
        for row in found.compactMap({ try? JSONValue(parsing: $0) }) { take(row) }
      }
      guard tunnels.isEmpty, (try? await loop.sleep(for: pause)) != nil else { return }  // `try?`: nobody cancels it
      again()
    }
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

// SPDX-License-Identifier: MIT

/// The HTTP answer to a WebSocket's handshake. Of a refusal's body it keeps the beginning, which may have the reason.
final class HandshakeAnswer {
  private static let mostWords = 1024

  private var parser = HTTPParser(.upgrade, maxBody: .max)
  /// `nil`: its head is incomplete.
  private(set) var response: HTTPResponse?
  /// No more of it is needed.
  private(set) var isOver = false

  /// Returns how many of the bytes belong to it, and why it cannot be read.
  func take(_ bytes: [UInt8]) -> (taken: Int, failure: HTTPParseError?) {
    do throws(HTTPParseError) {
      let taken = try parser.parse(bytes[...]) { take($0) }
      return (taken, nil)
    } catch {
      isOver = true
      return (bytes.count, error)
    }
  }

  private func take(_ event: HTTPParser.Event) {
    switch event {
    case .response(let status, let headers): response = HTTPResponse(status: status, headers: headers)
    case .body(let piece):
      let room = Self.mostWords - (response?.body.count ?? 0)
      response?.body.append(contentsOf: piece.prefix(room))
      if piece.count >= room { isOver = true }
    case .end: isOver = true
    case .request: break
    }
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import HTTP
import Sockets

/// A request to a server elsewhere. They are rare: each has its own thread, loop and connection.
struct OutgoingRequest: Sendable {
  private static let limit: Duration = .seconds(15)

  /// Why there is no answer, behind the address: without it, which may be a secret.
  struct Failure: Error, Sendable {
    let words: String
  }

  let method: String
  let url: String
  var headers: HTTPHeaders = [:]
  var body: [UInt8] = []
  /// Only the status matters, also that of an answer without end.
  var ignoresBody = false
  /// A PEM file with the authorities to trust instead of the system's.
  let authorities: String?

  func send() async throws(Failure) -> HTTPResponse {
    let result: Result<HTTPResponse, Failure> = await withCheckedContinuation { ended in
      DetachedThread.run {
        let loop = EventLoop()
        var result: Result<HTTPResponse, Failure> = .failure(Failure(words: ": it was abandoned"))
        loop.run { result = await self.result(on: loop) }
        ended.resume(returning: result)
      }
    }
    return try result.get()
  }

  private func result(on loop: EventLoop) async -> Result<HTTPResponse, Failure> {
    guard OpenIDSettings.isAllowed(url), let (endpoint, target) = HTTPEndpoint.parse(url, allowsQuery: true) else {
      return .failure(Failure(words: " is not allowed: expected an address with https://"))
    }
    do {
      guard case .tcp(_, _, let isSecure) = endpoint else { return .failure(Failure(words: "")) }
      let tls = isSecure ? try TLSContext(authorities: authorities) : nil
      let client = HTTPClient(endpoint, tls: tls, on: loop)
      defer { client.close() }
      var headers = headers
      headers.add("User-Agent", "meshpost-hub")
      headers.add("Connection", "close")
      let request = HTTPRequest(method, target.isEmpty ? "/" : target, headers: headers, body: body)
      return .success(
        try await loop.withTimeout(Self.limit) {
          try await client.send(request, timeout: Self.limit, ignoresBody: ignoresBody)
        })
    } catch is TimedOut {
      return .failure(Failure(words: ": no answer in time"))
    } catch {
      return .failure(Failure(words: ": \(error)"))
    }
  }
}

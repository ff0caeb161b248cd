// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import HTTP
import Sockets

/// A request to a provider. Sign-ins are rare: each request has its own thread, loop and connection.
struct ProviderRequest: Sendable {
  /// Limit of the whole request.
  private static let limit: Duration = .seconds(15)

  let url: String
  /// The fields of a POST; `nil`: it is a GET.
  var form: [(String, String)]?
  var authorization: String?
  /// A PEM file with the authorities to trust instead of the system's.
  let authorities: String?

  struct Answer: Sendable {
    let status: Int
    let body: [UInt8]
  }

  func send() async throws(OpenIDFailure) -> Answer {
    let result: Result<Answer, OpenIDFailure> = await withCheckedContinuation { ended in
      DetachedThread.run {
        let loop = EventLoop()
        var result: Result<Answer, OpenIDFailure> = .failure(.unavailable("it was abandoned"))
        loop.run { result = await self.result(on: loop) }
        ended.resume(returning: result)
      }
    }
    return try result.get()
  }

  private func result(on loop: EventLoop) async -> Result<Answer, OpenIDFailure> {
    guard OpenIDSettings.isAllowed(url), let (endpoint, target) = HTTPEndpoint.parse(url, allowsQuery: true) else {
      return .failure(.unavailable("\(url) is not allowed: expected an address with https://"))
    }
    do {
      guard case .tcp(_, _, let isSecure) = endpoint else { return .failure(.unavailable(url)) }
      let tls = isSecure ? try TLSContext(authorities: authorities) : nil
      let client = HTTPClient(endpoint, tls: tls, on: loop)
      defer { client.close() }
      let request = request(target.isEmpty ? "/" : target)
      let answer = try await loop.withTimeout(Self.limit) { try await client.send(request, timeout: Self.limit) }
      return .success(Answer(status: answer.status, body: answer.body))
    } catch is TimedOut {
      return .failure(.unavailable("\(url): no answer in time"))
    } catch {
      return .failure(.unavailable("\(url): \(error)"))
    }
  }

  private func request(_ target: String) -> HTTPRequest {
    var headers: HTTPHeaders = ["Accept": "application/json", "User-Agent": "meshpost-hub", "Connection": "close"]
    if let authorization { headers.add("Authorization", authorization) }
    guard let form else { return HTTPRequest("GET", target, headers: headers) }
    headers.add("Content-Type", "application/x-www-form-urlencoded")
    return HTTPRequest("POST", target, headers: headers, body: Array(Self.encode(form).utf8))
  }

  /// Encodes fields as a query or a form.
  static func encode(_ fields: [(String, String)]) -> String {
    fields.map { "\(PercentCoding.encode($0))=\(PercentCoding.encode($1))" }.joined(separator: "&")
  }
}

// SPDX-License-Identifier: MIT

import HTTP
import Timing

/// What a server's answer means for the shipment. Source: docs/hub-protocol.md.
enum Verdict: Equatable {
  /// Everything up to this seq is durable there.
  case acknowledged(through: Int64)
  /// The whole upstream waits: no network, time-out, 408, 425, 429, 5xx, an answer that makes no sense. For ever.
  case retry(reason: String, after: Duration?)
  /// The server understood and refuses something in the batch: 400, 413, 422.
  case refused(status: Int, reason: String)
  /// 401, 403: nothing is lost, somebody has to act.
  case stopped(reason: String)
}

enum RetryPolicy {
  static let first: Duration = .seconds(1)
  static let limit: Duration = .seconds(300)
  /// A server that wants longer is asked again after this.
  static let longestRetryAfter = 86_400

  static func verdict(_ result: Result<HTTPResponse, HTTPFailure>, parse: ([UInt8]) -> Int64?) -> Verdict {
    switch result {
    case .failure(let failure): return .retry(reason: failure.description, after: nil)
    case .success(let response): return verdict(response, parse: parse)
    }
  }

  private static func verdict(_ response: HTTPResponse, parse: ([UInt8]) -> Int64?) -> Verdict {
    let words = "HTTP \(response.status)\(serverWords(response.body))"
    switch response.status {
    case 200..<300:
      guard let through = parse(response.body) else {
        return .retry(reason: "the answer makes no sense (no acknowledgement in it)", after: nil)
      }
      return .acknowledged(through: through)
    case 401, 403: return .stopped(reason: "\(words): check the token")
    case 400, 413, 422: return .refused(status: response.status, reason: words)
    case 408, 425, 429, 500...599: return .retry(reason: words, after: retryAfter(response))
    default: return .retry(reason: "\(words): check the URL", after: nil)
    }
  }

  /// Seconds; a date is not taken (the usual back-off is then).
  private static func retryAfter(_ response: HTTPResponse) -> Duration? {
    response.headers["Retry-After"].flatMap { Int($0) }.map { .seconds(min(max($0, 0), longestRetryAfter)) }
  }

  /// The beginning of what the server said, on one line.
  private static func serverWords(_ body: [UInt8]) -> String {
    let text = String(decoding: body.prefix(200), as: UTF8.self).filter { !$0.isNewline }
    return text.isEmpty ? "" : ": \(text)"
  }
}

// SPDX-License-Identifier: MIT

import Glibc
import HTTP
import Timing
import UntrustedText

/// What a server's answer means for the shipment. Source: docs/hub-protocol.md.
enum Verdict: Error, Equatable {
  /// The server has stored everything up to this seq.
  case acknowledged(through: Int64)
  /// The whole upstream waits, and retries without end: no network, 408, 425, 429, an invalid or unexpected answer.
  case retry(reason: String, after: Duration?)
  /// The server itself answers that it failed: 5xx, an unspecified error of a broker, a hook's exit code 75. It counts as `retry`, except that an
  /// operator can skip the event (`Skipping.swift`).
  case failing(reason: String, after: Duration? = nil)
  /// The server is overloaded: the connection stays, and the same batch is sent again later.
  case busy(reason: String, after: Duration?)
  /// The connection ended, or nothing moved for long, while the batch was under way: the reason may be the line, the server or an event. A 502 or 504
  /// says the same about a server behind a proxy.
  case hungUp(reason: String)
  /// The server refuses something in the batch: 400, 413, 422.
  case refused(status: Int, reason: String)
  /// The server has another event under a number of this epoch: the batch is sent again in a new epoch.
  case diverged(reason: String)
  /// 401, 403, a webhook's redirect: nothing is lost, but an operator has to act.
  case stopped(reason: String)

  /// Why the server has not taken the batch; `nil`: it has.
  var trouble: String? {
    switch self {
    case .acknowledged: nil
    case .retry(let reason, _), .failing(let reason, _), .busy(let reason, _), .hungUp(let reason),
      .diverged(let reason),
      .stopped(let reason), .refused(_, let reason):
      reason
    }
  }

  /// The server itself has judged the batch, and not a line or a server before it.
  var isAnswer: Bool {
    switch self {
    case .acknowledged, .failing, .refused: true
    case .retry, .busy, .hungUp, .diverged, .stopped: false
    }
  }

  /// The same verdict with another reason.
  func rewording(_ words: (String) -> String) -> Verdict {
    switch self {
    case .acknowledged: self
    case .retry(let reason, let after): .retry(reason: words(reason), after: after)
    case .failing(let reason, let after): .failing(reason: words(reason), after: after)
    case .busy(let reason, let after): .busy(reason: words(reason), after: after)
    case .hungUp(let reason): .hungUp(reason: words(reason))
    case .refused(let status, let reason): .refused(status: status, reason: words(reason))
    case .diverged(let reason): .diverged(reason: words(reason))
    case .stopped(let reason): .stopped(reason: words(reason))
    }
  }
}

/// When a server is tried again, and what its answers mean.
public enum RetryPolicy {
  static let first: Duration = .seconds(1)
  /// The longest pause that the gateway makes by itself.
  public static let limit: Duration = .seconds(300)
  /// The longest pause that a server can ask for, in seconds.
  static let longestRetryAfter: Int64 = 3600

  /// `now`: seconds since 1970, for a Retry-After with a date.
  static func verdict(
    _ result: Result<HTTPResponse, HTTPFailure>, now: Int64, parse: ([UInt8]) -> Int64?
  ) -> Verdict {
    switch result {
    case .failure(.unreachable(let words)): return .retry(reason: words, after: nil)
    case .failure(let failure): return .hungUp(reason: failure.description)
    case .success(let response): return verdict(response, now, parse: parse)
    }
  }

  /// A webhook's answer: 2xx takes the event, and a 4xx refuses it for good, except 401, 403, 408, 425 and 429. A redirect needs an operator.
  static func webhookVerdict(_ result: Result<HTTPResponse, HTTPFailure>, now: Int64, through: Int64) -> Verdict {
    if case .success(let response) = result {
      if let redirect = redirect(response) { return .stopped(reason: redirect) }
      if (400..<500).contains(response.status), ![401, 403, 408, 425, 429].contains(response.status) {
        return .refused(status: response.status, reason: words(response))
      }
    }
    return verdict(result, now: now) { _ in through }
  }

  private static func verdict(_ response: HTTPResponse, _ now: Int64, parse: ([UInt8]) -> Int64?) -> Verdict {
    let words = words(response)
    switch response.status {
    case 200..<300:
      guard let through = parse(response.body) else {
        return .retry(reason: "invalid answer: no acknowledgement in it", after: nil)
      }
      return .acknowledged(through: through)
    case 401, 403: return .stopped(reason: "\(words): check the token")
    case 400, 413, 422: return .refused(status: response.status, reason: words)
    case let status where [502, 504].contains(status) && response.headers["Retry-After"] == nil:
      return .hungUp(reason: words)
    case 408, 425, 429, 502, 504: return .retry(reason: words, after: retryAfter(response, now))
    case 500...599: return .failing(reason: words, after: retryAfter(response, now))
    default: return .retry(reason: redirect(response) ?? "\(words): check the URL", after: nil)
    }
  }

  /// A redirect, for people; `nil`: it is none. None is followed: it would carry the token and the events elsewhere.
  private static func redirect(_ response: HTTPResponse) -> String? {
    guard (300..<400).contains(response.status), let target = response.headers["Location"] else { return nil }
    // The rest of an address may be a secret.
    return "HTTP \(response.status), a redirect to \(Visible.excerpt(ServerAddress.shown(target))): check the URL"
  }

  /// Seconds, or a date as HTTP writes it (RFC 9110 § 5.6.7, the preferred form); else the usual back-off.
  static func retryAfter(_ response: HTTPResponse, _ now: Int64) -> Duration? {
    guard let text = response.headers["Retry-After"] else { return nil }
    // By the server's own clock, if it sends its time: ours may be wrong.
    let now = response.headers["Date"].flatMap(date) ?? now
    // A number that is too large for any clock asks for the longest pause, not for none.
    let isNumber = !text.isEmpty && text.utf8.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
    let seconds: Int64? = Int64(text) ?? (isNumber ? Int64.max : date(text).map { $0 - now })
    return seconds.map { .seconds(min(max($0, 0), longestRetryAfter)) }
  }

  /// `Sat, 21 Nov 2026 05:00:30 GMT`
  private static func date(_ text: String) -> Int64? {
    let words = text.split(separator: " ", omittingEmptySubsequences: false)
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    guard words.count == 6, words[5] == "GMT", let month = months.firstIndex(of: String(words[2])),
      let day = Int32(words[1]), let year = Int32(words[3]), (1970...9999).contains(year)
    else { return nil }
    let clock = words[4].split(separator: ":").compactMap { Int32($0) }
    guard clock.count == 3, (1...31).contains(day), clock.allSatisfy({ (0...60).contains($0) }) else { return nil }
    var parts = tm()
    (parts.tm_mday, parts.tm_mon, parts.tm_year) = (day, Int32(month), year - 1900)
    (parts.tm_hour, parts.tm_min, parts.tm_sec) = (clock[0], clock[1], clock[2])
    return Int64(timegm(&parts))
  }

  /// An answer, for people.
  static func words(_ response: HTTPResponse) -> String { "HTTP \(response.status)\(serverWords(response.body))" }

  /// The beginning of the server's words, on one line.
  private static func serverWords(_ body: [UInt8]) -> String {
    let text = Visible.excerpt(String(decoding: body.prefix(1024), as: UTF8.self))
    return text.isEmpty ? "" : ": \(text)"
  }
}

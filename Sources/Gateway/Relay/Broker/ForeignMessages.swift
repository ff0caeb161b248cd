// SPDX-License-Identifier: MIT

import Timing
import UntrustedText

/// A broker's messages on topics that the gateway does not read. The broker keeps subscriptions with the session of a client id: one to an earlier
/// `command_topic`, or one of another client that used the id. Pure.
struct ForeignMessages {
  enum Remedy {
    case none
    /// To end a subscription to this topic. One with wildcards remains: a message does not show them.
    case unsubscribe
    /// A new session has no subscription of an earlier one, and no command that waited there.
    case newSession
  }

  /// Most topics that are unsubscribed from: more come from a subscription with wildcards.
  private static let maxEnded = 8
  private static let longestTopic = 256
  /// Messages that wait at the broker still come after the end of their subscription, with commands among them.
  private static let patience: Duration = .seconds(60)
  /// The status tells of them for so long.
  private static let memory: Duration = .seconds(3600)

  private(set) var needsNewSession = false
  /// The first of those that the present remedy is to end.
  private var since: MonotonicTime?
  private var last: (topic: String, at: MonotonicTime)?
  private var ended: [String] = []
  /// Some brokers subscribe their clients themselves: a new session does not help there.
  private var sessions = Ration.hourly

  mutating func received(_ topic: String, now: MonotonicTime) -> Remedy {
    // A session may last for months: after a quiet time another topic is of another subscription, which has its own remedy.
    let wasQuiet = last.map { now - $0.at >= Self.memory } ?? false
    let canEnd =
      ended.count < Self.maxEnded && topic.utf8.count <= Self.longestTopic
      && !ended.contains { $0.isExactly(topic) }
    if wasQuiet, canEnd { since = nil }
    last = (topic: Visible.excerpt(topic), at: now)
    let first = since ?? now
    since = first
    guard now - first < Self.patience else { return demandSession(now: now) ? .newSession : .none }
    guard canEnd else { return .none }
    ended.append(topic)
    return .unsubscribe
  }

  /// A new session is needed; false: it is known already, or there was a new one within the hour.
  mutating func demandSession(now: MonotonicTime) -> Bool {
    guard !needsNewSession, sessions.take(at: now) else { return false }
    needsNewSession = true
    return true
  }

  mutating func sessionBegan() { (needsNewSession, since, ended) = (false, nil, []) }

  /// For people; `nil`: none came within the hour.
  func trouble(now: MonotonicTime) -> String? {
    guard let last, now - last.at < Self.memory else { return nil }
    return "messages came on topics that the gateway does not read, the last on \(last.topic): its session at the "
      + "broker has, or had, a subscription to an earlier command_topic, or of another client with this client id"
  }
}

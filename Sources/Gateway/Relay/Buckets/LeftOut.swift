// SPDX-License-Identifier: MIT

import Timing

/// Why a wanted message of another gateway is not sent here.
public enum LeftOut: String, CaseIterable, Sendable {
  case notAccepted = "not_accepted"
  case unknownAge = "unknown_age"
  case tooOld = "too_old"
  case beforeRestore = "before_restore"
  case tooMany = "too_many"

  var words: String {
    switch self {
    case .notAccepted: "of gateways that relay.gateways does not name"
    case .unknownAge: "that waited in a radio for an unknown time"
    case .tooOld: "that are too old"
    case .beforeRestore: "from before the database was put back"
    case .tooMany: "of gateways that have too many, or when half of messaging.queue was taken"
    }
  }
}

/// Counts left-out messages, and limits their log lines to one an hour. A message can come several times: in its
/// channel's list, in the list `heard`, and again when another gateway reports it. It counts once, with the last
/// reason, and no longer once it was sent. Pure.
struct LeftOutMessages {
  /// The most messages to remember: more than the list `heard` has.
  private static let mostKnown = 2048

  private(set) var counts: [LeftOut: Int] = [:]
  private var untold: [LeftOut: Int] = [:]
  /// The reasons by the ids' hash values, which are smaller; the oldest is forgotten first.
  private var known: [Int: LeftOut] = [:]
  private var order: [Int] = []
  private var lines = Ration.hourly

  /// Returns the line to log now, if any.
  mutating func add(_ why: LeftOut, _ message: String, now: MonotonicTime) -> String? {
    let place = message.hashValue
    if let before = known[place] {
      guard before != why else { return nil }
      forget(before)
    } else {
      if order.count == Self.mostKnown { known[order.removeFirst()] = nil }
      order.append(place)
    }
    known[place] = why
    counts[why, default: 0] += 1
    untold[why, default: 0] += 1
    return lines.take(at: now) ? line() : nil
  }

  /// The line about all that no line has told yet; `nil`: there is none.
  mutating func line() -> String? {
    guard !untold.isEmpty else { return nil }
    let parts = LeftOut.allCases.compactMap { why in untold[why].map { "\($0) \(why.words)" } }
    untold = [:]
    return "messages of other gateways were not sent: \(parts.joined(separator: ", ")) (logged at most once an hour)"
  }

  /// The message was sent, or received here.
  mutating func remove(_ message: String) {
    guard let why = known.removeValue(forKey: message.hashValue) else { return }
    order.removeAll { $0 == message.hashValue }
    forget(why)
  }

  private mutating func forget(_ why: LeftOut) {
    for path in [\Self.counts, \Self.untold] {
      guard let count = self[keyPath: path][why] else { continue }
      self[keyPath: path][why] = count > 1 ? count - 1 : nil
    }
  }
}

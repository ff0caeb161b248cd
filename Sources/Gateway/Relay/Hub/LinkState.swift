// SPDX-License-Identifier: MIT

import Store
import Timing

/// The batches of a live link that have no answer yet, in order. Pure.
struct BatchesInFlight {
  private var waiting: [(number: Int, lane: Lane?, last: Int64)] = []
  /// Batches that the hub has taken.
  private(set) var taken: UInt64 = 0

  /// The only batch that the hub may answer now.
  var first: (number: Int, lane: Lane?, last: Int64)? { waiting.first }

  mutating func sent(_ number: Int, lane: Lane?, last: Int64) { waiting.append((number, lane, last)) }

  /// The hub has answered the first batch. If it does not accept the batch, those behind it are void: all, or after
  /// `refused` those of its lane.
  mutating func answered(_ verdict: Verdict) {
    let first = waiting.removeFirst()
    switch verdict {
    case .acknowledged: taken &+= 1
    case .refused: waiting.removeAll { $0.lane == first.lane }
    case .retry, .failing, .busy, .hungUp, .diverged, .stopped: waiting = []
    }
  }
}

/// When a live link needs a ping, and what the answer shows about the path. Pure.
struct LinkPulse {
  private(set) var silences: KeepAlive
  private var lastHeard: MonotonicTime
  /// A ping is due at once.
  private var isProbed = false
  /// The silence before a ping that has no answer yet.
  private var pingedAfter: Duration?

  /// The link is open.
  init(_ silences: KeepAlive, now: MonotonicTime) { (self.silences, lastHeard) = (silences, now) }

  var isPinged: Bool { pingedAfter != nil }
  var due: MonotonicTime { isProbed ? lastHeard : lastHeard + silences.interval }

  mutating func probe() { isProbed = true }

  mutating func pinged(now: MonotonicTime) { (isProbed, pingedAfter) = (false, now - lastHeard) }

  /// Anything received counts as the answer to a ping. Returns whether a ping was answered.
  mutating func heard(now: MonotonicTime) -> Bool {
    lastHeard = now
    guard isPinged else { return false }
    pingedAfter = nil
    silences.answered(now: now)
    return true
  }

  /// Returns further facts about the end of the link, if any.
  mutating func unanswered(now: MonotonicTime) -> String? {
    guard let silence = pingedAfter, silences.unanswered(after: silence, now: now) else { return nil }
    return "a silence of \(Int(silence.inSeconds)) s ended the link; \(silences)"
  }
}

/// Limits unasked data of the hub, over all links, to the speed of a metered line: 1 MiB at once, and 8 KiB a second.
/// The rest waits at the hub. Pure.
struct UnaskedTraffic {
  /// Bytes that each message or ping costs in addition to its content.
  private static let frameCost = 32
  private var bytes = Ration(most: 1 << 20, oneIn: .microseconds(122))
  private var lines = Ration.hourly

  /// The pause before the next read; `nil`: none. `isTold`: log it.
  mutating func pause(after count: Int, now: MonotonicTime) -> (duration: Duration, isTold: Bool)? {
    let pause = bytes.wait(for: Int64(count + Self.frameCost), at: now)
    return pause > .zero ? (pause, lines.take(at: now)) : nil
  }
}

/// Decides when to try a live link again after one did not get through. Pure.
struct LinkRetry {
  private static let pause: Duration = .seconds(900)
  /// `nil`: at once.
  private(set) var at: MonotonicTime?
  /// Why there is no live link, if an operator can solve it.
  var trouble: String?
  /// The log has reported that there is no live link.
  private var isTold = false
  private var rivalLines = Ration.hourly
  /// Links in a row that came to nothing: refused with 429 or 503, as a hub under load does, without a welcome, or with batches of which none was
  /// answered. A proxy may pass HTTP and no WebSocket.
  private var failures = 0
  /// At this number, HTTP is tried.
  private static let mostFailures = 5

  func isDue(at now: MonotonicTime) -> Bool { at.map { now >= $0 } ?? true }

  mutating func opened() { (at, trouble) = (nil, nil) }
  /// The hub has answered a batch over the link.
  mutating func worked() { (failures, isTold) = (0, false) }
  /// HTTP fails, too, so the WebSocket was not the problem.
  mutating func nothingWorks() { (at, failures) = (nil, 0) }
  /// A link came to nothing.
  mutating func failed() { failures += 1 }
  /// HTTP is tried before another link.
  var wantsHTTP: Bool { failures >= Self.mostFailures }
  mutating func tryNow(_ now: MonotonicTime) { at = now }

  /// Only HTTP works. Returns whether to log that.
  mutating func fellBack(now: MonotonicTime) -> Bool {
    // The next link is tried, and one failure is enough then.
    failures = min(failures, Self.mostFailures - 1)
    defer { (at, isTold) = (now + Self.pause, true) }
    return !isTold
  }

  /// Another gateway with the same id has the link. Returns whether to log that.
  mutating func foundRival(now: MonotonicTime) -> Bool { rivalLines.take(at: now) }
}

/// The newest state of each name, and which of them the hub has. Pure.
struct NewestStates {
  typealias State = (name: String, body: [UInt8])

  private static let most = 16
  private var states: [(state: State, isTold: Bool)] = []

  var all: [State] { states.map(\.state) }
  /// States that the hub does not have, as far as is known.
  var untold: [State] { states.filter { !$0.isTold }.map(\.state) }

  mutating func set(_ name: String, _ body: [UInt8]) {
    states.removeAll { $0.state.name == name }
    states.append(((name, body), false))
    if states.count > Self.most { states.removeFirst() }
  }

  /// The hub has this state. A newer one of the name stays untold.
  mutating func wasTold(_ told: State) {
    for (place, one) in states.enumerated() where one.state == told { states[place].isTold = true }
  }

  /// Whether the hub has any of them is not known.
  mutating func doubtAll() { for place in states.indices { states[place].isTold = false } }
}

// SPDX-License-Identifier: MIT

import Companion
import Store
import Timing

/// What is known of the radio's message queue: how long messages waited in it, and whether it was full. Pure.
///
/// The queue has no times in it. But what it hands over came after it was last said to be empty: by this radio, in the life of
/// this program. Nor does it say what it dropped. But it hints at each message that comes while a client is connected, also at one that it
/// drops; and of the sizes that firmware is built with, one is as many as have waited. These may be fetched over several links, and by several
/// runs of this program: they are counted until the queue is empty.
public struct RadioQueue {
  /// A message that came at most so long ago came just now: two questions into an idle radio (`Synchronizer.pollInterval`).
  static let justNow: Duration = .seconds(120)
  /// OFFLINE_QUEUE_SIZE of all builds of the companion firmware.
  static let sizes = [16, 128, 256]

  /// Messages that the radio dropped, or may have dropped.
  public struct Loss: Equatable, Sendable, CustomStringConvertible {
    /// So many were handed over.
    public var waited: Int
    /// So many more came at least; `nil`: nobody knows whether any did.
    public var atLeast: Int?
    /// The queue was not full, but so many questions had no answer: the radio forgets a message as it hands it over.
    public var atMost: Int?
    /// The radio's start, before it had said that it has no more: what it held is gone, and nobody knows how much that was.
    public var start: Start?

    /// Whether the radio was started anew.
    public enum Start: Sendable {
      case anew
      /// Its firmware does not say.
      case unknown
    }

    /// Both, told as one.
    static func + (one: Loss, other: Loss) -> Loss {
      func sum(_ one: Int?, _ other: Int?) -> Int? { one == nil && other == nil ? nil : (one ?? 0) + (other ?? 0) }
      let isBounded = one.isBounded && other.isBounded
      return Loss(
        waited: max(one.waited, other.waited), atLeast: sum(one.atLeast, other.atLeast),
        atMost: isBounded ? sum(one.atMost, other.atMost) : nil,
        start: one.start == .anew ? one.start : other.start ?? one.start)
    }

    private var isBounded: Bool { start == nil && (atLeast != nil || atMost != nil) }

    public var description: String {
      switch start {
      case .anew:
        let lost = atLeast.map { "at least \($0) are lost" } ?? "nobody knows how many are lost"
        return "the radio was started anew before it had handed over all that waited in it: \(waited) came, and \(lost)"
      case .unknown:
        return "answers of the radio did not come, and it may have been started anew since: "
          + "messages may be lost, and nobody knows how many"
      case nil: break
      }
      if let atLeast, waited >= RadioQueue.sizes[0] {
        return
          "the radio's queue was full: \(waited) messages were taken from it, and at least \(atLeast) more are lost"
      }
      if let atLeast {
        return
          "the radio told of \(atLeast) \(atLeast == 1 ? "message" : "messages") or more that it has not handed over, "
          + "and has no more: \(atLeast == 1 ? "it is" : "they are") lost"
      }
      if let atMost {
        return atMost == 1
          ? "an answer of the radio did not come: a message may be lost with it"
          : "\(atMost) answers of the radio did not come: up to \(atMost) messages may be lost with them"
      }
      return "\(waited) messages waited in the radio, as many as its queue can hold: others may be lost. "
        + "The oldest on channels make room for new ones; where there are none, new ones are dropped"
    }
  }

  private(set) var radio: PublicKey?
  /// When the radio was asked, and then said that it had none.
  private var emptyAt: MonotonicTime?
  /// It has not been empty since the link came up: what it hands over may be from before.
  private var isBacklog = true
  /// Since it was empty, over links and over runs of this program; and what of that was before this link.
  private(set) var counts = QueueCounts()
  private var before = QueueCounts()
  /// When the reading of what waits began: as the link came up, or with the first hint.
  private var began: MonotonicTime?
  private var linkedAt: MonotonicTime?
  /// An earlier link ended in that reading.
  private var isCut = false
  /// Whether the radio was started anew since then, it does not say.
  private var isStartUnknown = false
  /// Answers to questions of an earlier run, which came before it is known which radio this is: its port outlives the program.
  private var early = 0
  /// The most that this radio is known to have held at once.
  private var most = 0

  /// Another radio's queue is another queue. `kept`: of an earlier run, or of the last time that this radio was attached.
  mutating func connected(to radio: PublicKey, kept: QueueCounts? = nil, now: MonotonicTime) {
    if radio != self.radio {
      (emptyAt, most, counts, began) = (nil, 0, kept ?? QueueCounts(), kept?.began)
      (isCut, counts.began) = (began != nil, nil)
      // That run was killed: whether the radio had handed over another one nobody knows.
      if counts.isAsked { counts.unanswered += 1 }
      (counts.isAsked, counts.unanswered, early) = (false, max(0, counts.unanswered - early), 0)
    } else if isRead {
      began = nil
    } else {
      isCut = true
    }
    self.radio = radio
    (began, linkedAt, isBacklog, before, isStartUnknown) = (began ?? now, now, true, counts, false)
  }

  /// Whether the radio has still what it had depends on when it was started.
  var dependsOnStart: Bool { isCut || isBacklog && counts.unanswered > 0 }

  /// `start`: when that was at the latest; `nil`: it does not say. A radio that was started anew has forgotten what it had. Returns what was lost so.
  mutating func wasStarted(at start: MonotonicTime?, now: MonotonicTime) -> Loss? {
    isStartUnknown = start == nil
    guard let start, let began, let linkedAt, start >= began else { return nil }
    let lacks = before.hints - counts.taken
    let loss = Loss(waited: counts.taken, atLeast: lacks > 0 ? lacks : nil, start: .anew)
    // Before this link: what this one brought is of the new queue.
    let isBefore = start <= linkedAt
    counts =
      isBefore
      ? QueueCounts(hints: counts.hints - before.hints, unanswered: max(0, counts.unanswered - before.unanswered))
      : QueueCounts()
    (self.began, before, isBacklog, isCut) = (isBefore ? linkedAt : now, QueueCounts(), true, false)
    return loss
  }

  /// `wasAsked`: else it may be the late answer to a question that was given up.
  mutating func took(wasAsked: Bool = true) {
    counts.taken += 1
    if !wasAsked { answeredLate() }
  }

  /// An answer came to a question that was given up, or that an earlier run had asked.
  mutating func answeredLate() {
    if counts.unanswered > 0 { counts.unanswered -= 1 } else if radio == nil { early += 1 }
  }

  mutating func hinted(now: MonotonicTime) {
    counts.hints += 1
    began = began ?? now
  }

  /// The radio was asked for a message, and its answer did not come: the message, if there was one, is gone. Each that came since the queue
  /// was empty was hinted at. False: there was none.
  @discardableResult mutating func wasSilent() -> Bool {
    guard mayHaveMore else { return false }
    counts.unanswered += 1
    return true
  }

  /// The next question may be answered with a message.
  var mayHaveMore: Bool { isBacklog || counts.hints > counts.taken + counts.unanswered }

  /// Messages are known to be there, or to be lost.
  var lacksSome: Bool { counts.unanswered > 0 || counts.hints > counts.taken }

  /// All that it has is here.
  var isRead: Bool { !isBacklog && !lacksSome }

  /// What the disk is to have of it. Without the beginning of a reading that is over.
  var kept: QueueCounts {
    var kept = counts
    kept.began = isRead ? nil : began
    return kept
  }

  /// A message alone that came just now is not worth a place on the disk.
  var isWorthKeeping: Bool { isBacklog || counts.taken > 1 }

  /// Returns what was lost before this.
  mutating func wasEmpty(askedAt: MonotonicTime) -> Loss? {
    let loss = loss
    most = max(most, held)
    emptyAt = askedAt
    (isBacklog, counts, before) = (false, QueueCounts(), QueueCounts())
    (began, isCut, isStartUnknown) = (nil, false, false)
    return loss
  }

  /// So many waited together at least: what this link brought, without those that came meanwhile.
  private var held: Int { max(0, counts.taken - before.taken - (counts.hints - before.hints)) }

  private var loss: Loss? {
    let (taken, hints) = (counts.taken, counts.hints)
    // As far as hints tell, what was not handed over is still to come, or was; of what waited before there were none.
    let missing = isBacklog ? counts.unanswered : 0
    // It was full, or started anew, or the answers were lost: the firmware hints once at each.
    if hints > taken { return Loss(waited: taken, atLeast: hints - taken) }
    if taken + missing >= Self.sizes[0] {
      // Of those that came while it was emptied, or between two links, nobody knows whether they found room.
      let waited = held...(taken + missing)
      if isBacklog, Self.sizes.contains(where: { waited.contains($0) && $0 >= most }) { return Loss(waited: taken) }
    }
    guard missing > 0 else { return nil }
    return isStartUnknown ? Loss(waited: taken, start: .unknown) : Loss(waited: taken, atMost: missing)
  }

  /// How long the message that is taken now waited in the radio.
  func wait(now: MonotonicTime) -> RadioWait {
    guard let emptyAt else { return .unknown }
    let longest = now - emptyAt
    if !isBacklog, longest <= Self.justNow { return .none }
    return .atMost(seconds: Int64(max(0, longest.inSeconds).rounded(.up)))
  }
}

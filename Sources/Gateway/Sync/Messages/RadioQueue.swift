// SPDX-License-Identifier: MIT

import Companion
import Store
import Timing

/// Knowledge about the radio's message queue: how long messages waited in it, and how many it lost. Pure.
///
/// The queue has no times, but its messages came after the radio last reported it as empty in this run. Nor does the
/// queue report drops. But the radio hints at each message that comes while a client is connected, even at dropped
/// ones; and the firmware has few queue sizes: if as many messages waited, the queue was full. Reading it can take
/// several links and runs of this program, so counts continue until it is empty.
public struct RadioQueue {
  /// A message that waited no longer than this counts as new: two intervals of questions to an idle radio
  /// (`Synchronizer.pollInterval`).
  static let justNow: Duration = .seconds(120)
  /// OFFLINE_QUEUE_SIZE of all builds of the companion firmware.
  static let sizes = [16, 128, 256]

  /// Messages that the radio lost, or may have lost.
  public struct Loss: Equatable, Sendable, CustomStringConvertible {
    /// The number of messages that the radio handed over.
    public var waited: Int
    /// The minimum number of lost messages; `nil`: unknown, may be none.
    public var atLeast: Int?
    /// The maximum number of lost messages: questions without an answer, while the queue was not full. The radio
    /// forgets a message as it hands it over.
    public var atMost: Int?
    /// The radio was restarted, or may have been, before its queue was empty: the rest is lost.
    public var start: Start?
    /// An earlier run of the gateway ended while it waited for one of the answers that `atMost` counts.
    public var gatewayEnded = false

    /// Whether the radio was restarted.
    public enum Start: Sendable {
      case anew
      /// While no gateway read its queue.
      case unattended
      /// The firmware does not report it.
      case unknown
      /// It was not: it served another program, or what is between dropped the connection.
      case taken
    }

    /// Another program may have been connected to the radio.
    static let taken = Loss(waited: 0, start: .taken)

    /// Both losses as one.
    static func + (one: Loss, other: Loss) -> Loss {
      func sum(_ one: Int?, _ other: Int?) -> Int? { one == nil && other == nil ? nil : (one ?? 0) + (other ?? 0) }
      let isBounded = one.isBounded && other.isBounded
      return Loss(
        waited: max(one.waited, other.waited), atLeast: sum(one.atLeast, other.atLeast),
        atMost: isBounded ? sum(one.atMost, other.atMost) : nil,
        start: one.start == .anew ? one.start : other.start ?? one.start,
        gatewayEnded: one.gatewayEnded || other.gatewayEnded)
    }

    private var isBounded: Bool { start == nil && (atLeast != nil || atMost != nil) }

    public var description: String {
      switch start {
      case .anew:
        let lost = atLeast.map { "at least \($0) are lost" } ?? "nobody knows how many are lost, if any"
        return "the radio was restarted before it had handed over all of its messages: \(waited) came, and \(lost)"
      case .unattended:
        return "the radio was restarted while this gateway did not read its messages: "
          + "what it received meanwhile is lost, and nobody knows whether there was any"
      case .unknown:
        let why = gatewayEnded ? "\(Self.ended), which" : "the radio left questions unanswered, and"
        return "\(why) may have been restarted since: messages may be lost, and nobody knows how many"
      case .taken:
        return "the radio's link was closed from its side, and the radio was not restarted: "
          + "if another program was connected to it, the messages that this program has read are lost here; "
          + "if a bridge or the network dropped the link, none are"
      case nil: break
      }
      if let atLeast, waited >= RadioQueue.sizes[0] {
        return
          "the radio's queue was full: \(waited) messages were taken from it, and at least \(atLeast) more are lost"
      }
      if let atLeast {
        return
          "the radio announced \(atLeast) \(atLeast == 1 ? "message" : "messages") or more that did not arrive here, "
          + "and has none left: \(atLeast == 1 ? "it is" : "they are") lost"
      }
      if let atMost {
        let much = atMost == 1 ? "a message" : "up to \(atMost) messages"
        if gatewayEnded { return "\(Self.ended): \(much) may be lost" }
        return atMost == 1
          ? "the radio left a question unanswered: a message may be lost"
          : "the radio left \(atMost) questions unanswered: \(much) may be lost"
      }
      return "\(waited) messages waited in the radio, as many as its queue can hold: others may be lost. "
        + "A full queue drops its oldest channel message for a new one, or the new one if it has none"
    }

    private static let ended = "the gateway ended while a message may have been on its way from the radio"
  }

  private(set) var radio: PublicKey?
  /// When the radio was asked and then reported an empty queue.
  private var emptyAt: MonotonicTime?
  /// The queue has not been empty since the link came up: messages may be from before.
  private var isBacklog = true
  /// Counts since the queue was last empty, across links and runs; `before`: those before this link.
  private(set) var counts = QueueCounts()
  private var before = QueueCounts()
  /// When the reading of the queue began: when the link came up, or with the first hint.
  private var began: MonotonicTime?
  private var linkedAt: MonotonicTime?
  /// An earlier link ended during this reading.
  private var isCut = false
  /// The radio does not report whether it was restarted in this reading.
  private var isStartUnknown = false
  /// The run before ended during one of the unanswered questions.
  private var hasEnded = false
  /// Late answers to an earlier run's questions that came before the handshake: the serial port outlives the program.
  private var early = 0
  /// The most messages that this radio is known to have held at once.
  private var most = 0
  /// The last reading that found a loss: a restart of the radio within it was the cause.
  private var lossy: ClosedRange<MonotonicTime>?

  /// The link is up. Each radio has its own queue. `kept`: its counts from an earlier run or attachment.
  mutating func connected(to radio: PublicKey, kept: QueueCounts? = nil, now: MonotonicTime) {
    if radio != self.radio {
      (emptyAt, most, lossy, counts, began) = (nil, 0, nil, kept ?? QueueCounts(), kept?.began)
      (isCut, counts.began) = (began != nil, nil)
      // That run was killed during a question: the radio may have handed over a message.
      let wasAsked = counts.isAsked
      if wasAsked { counts.unanswered += 1 }
      (counts.isAsked, counts.unanswered, early) = (false, max(0, counts.unanswered - early), 0)
      hasEnded = wasAsked && counts.unanswered > 0
    } else if isRead {
      began = nil
    } else {
      isCut = true
    }
    self.radio = radio
    (began, linkedAt, isBacklog, before, isStartUnknown) = (began ?? now, now, true, counts, false)
  }

  /// Whether the radio can have lost messages by a restart.
  var dependsOnStart: Bool { isCut || isBacklog && counts.unanswered > 0 }

  /// Announced messages are missing: if the radio was restarted meanwhile, they are lost with its queue.
  var lacksAnnounced: Bool { !isBacklog && counts.hints > counts.taken }

  /// What a restart at this time has lost was reported when the queue was empty after it.
  func hasToldLoss(ofStart start: MonotonicTime) -> Bool { lossy?.contains(start) ?? false }

  /// `start`: the latest possible start of the radio; `nil`: not reported. Returns the restart's losses.
  mutating func wasStarted(at start: MonotonicTime?, now: MonotonicTime) -> Loss? {
    isStartUnknown = start == nil
    guard let start, let began, let linkedAt, start >= began else { return nil }
    let lacks = before.hints - counts.taken
    let loss = Loss(waited: counts.taken, atLeast: lacks > 0 ? lacks : nil, start: .anew)
    // If the restart was before this link, the messages of this link are in the new queue.
    let isBefore = start <= linkedAt
    counts =
      isBefore
      ? QueueCounts(hints: counts.hints - before.hints, unanswered: max(0, counts.unanswered - before.unanswered))
      : QueueCounts()
    (self.began, before, isBacklog, isCut) = (isBefore ? linkedAt : now, QueueCounts(), true, false)
    hasEnded = false
    return loss
  }

  /// A message came. If not `wasAsked`, it may be the late answer to a question that timed out.
  mutating func took(wasAsked: Bool = true) {
    counts.taken += 1
    if !wasAsked { answeredLate() }
  }

  /// The same frame came again. A line can bring an answer twice, and a radio can hand a message over again; but the
  /// sender of a direct message repeats it, too, and only the number of the attempt differs, which the radio keeps to
  /// itself. A repeat was announced and asked for. (A channel message has no attempts: its packet is dropped as known.)
  mutating func tookAgain(wasAsked: Bool, isDirect: Bool) {
    if wasAsked, isDirect, isBacklog || counts.hints > counts.taken { took() }
  }

  /// The answer came to a question that timed out, or to one of an earlier run.
  mutating func answeredLate() {
    if counts.unanswered > 0 { counts.unanswered -= 1 } else if radio == nil { early += 1 }
    if counts.unanswered == 0 { hasEnded = false }
  }

  mutating func hinted(now: MonotonicTime) {
    counts.hints += 1
    began = began ?? now
  }

  /// A question had no answer: if the radio had a message, that message is lost. Returns false if there was none: after
  /// an empty queue, the radio hints at each message.
  @discardableResult mutating func wasSilent() -> Bool {
    guard mayHaveMore else { return false }
    counts.unanswered += 1
    return true
  }

  /// The next question may bring a message. More came than were announced if one announcement stands for several, or
  /// the line has lost some: then nothing shows how many follow.
  var mayHaveMore: Bool {
    isBacklog || counts.hints > counts.taken + counts.unanswered || counts.taken > counts.hints
  }

  /// Messages are known to be waiting, or to be lost.
  var lacksSome: Bool { counts.unanswered > 0 || counts.hints > counts.taken }

  /// The gateway has read the whole queue.
  var isRead: Bool { !isBacklog && !lacksSome }

  /// The counts for the database, without the beginning of a reading that is complete.
  var kept: QueueCounts {
    var kept = counts
    kept.began = isRead ? nil : began
    return kept
  }

  /// A single new message does not need stored counts. Behind the first of several they cost nothing: the second needs
  /// them.
  var isWorthKeeping: Bool { isBacklog || counts.taken > 1 || counts.hints > counts.taken }

  /// The radio reports an empty queue. Returns the losses before that.
  mutating func wasEmpty(askedAt: MonotonicTime) -> Loss? {
    let loss = loss
    if loss != nil, let began { lossy = began...max(began, askedAt + RadioStarts.exactness) }
    most = max(most, held)
    emptyAt = askedAt
    (isBacklog, counts, before) = (false, QueueCounts(), QueueCounts())
    (began, isCut, isStartUnknown, hasEnded) = (nil, false, false, false)
    return loss
  }

  /// The minimum number of messages that waited together: those of this link, without those that came meanwhile.
  private var held: Int { max(0, counts.taken - before.taken - (counts.hints - before.hints)) }

  private var loss: Loss? {
    let (taken, hints) = (counts.taken, counts.hints)
    // Hints account for the messages after the backlog; only questions during the backlog can have lost unhinted ones.
    let missing = isBacklog ? counts.unanswered : 0
    // The radio hints once at each message: missing ones were dropped, or lost with a restart or an answer.
    if hints > taken { return Loss(waited: taken, atLeast: hints - taken) }
    if taken + missing >= Self.sizes[0] {
      // Messages that came during the reading, or between two links, may or may not have found room.
      let waited = held...(taken + missing)
      if isBacklog, Self.sizes.contains(where: { waited.contains($0) && $0 >= most }) { return Loss(waited: taken) }
    }
    guard missing > 0 else { return nil }
    return isStartUnknown
      ? Loss(waited: taken, start: .unknown, gatewayEnded: hasEnded)
      : Loss(waited: taken, atMost: missing, gatewayEnded: hasEnded)
  }

  /// How long the message that comes now waited in the radio.
  func wait(now: MonotonicTime) -> RadioWait {
    guard let emptyAt else { return .unknown }
    let longest = now - emptyAt
    if !isBacklog, longest <= Self.justNow { return .none }
    return .atMost(seconds: Int64(max(0, longest.inSeconds).rounded(.up)))
  }
}

// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Store
import Timing

extension Synchronizer {
  /// The gateway has every message that the radio had since the link came up, as far as the radio reports.
  public var hasReadQueue: Bool { inbox.queue.isRead }

  /// Makes the gateway read the radio's queue. Returns true when the radio has reported an empty queue since the call
  /// and all its messages are on disk; false if `limit` is over before.
  public func readQueue(within limit: Duration) async throws(CancellationError) -> Bool {
    let (before, end) = (questions.asked, loop.now + limit)
    hints.hinted()
    woken.resume()
    while questions.lastEmpty <= before || !hasReadQueue || !inbox.isEmpty {
      guard connection.state == .up, loop.now < end else { return false }
      try await questions.queueRead.wait(until: end, on: loop)
    }
    return true
  }

  /// The radio has handed over a message that is not on disk yet.
  public var hasMessageInHand: Bool { !inbox.isEmpty }

  /// Requests messages until the radio has none. The radio forgets a message as it hands it over, so the next is
  /// requested when the last is on disk, or is in the transaction if messages may wait for a later commit.
  func takeMessages() async throws {
    questions.takerCame()
    defer { questions.takerLeft() }
    // The report of lost messages comes before the new ones.
    try await learnStart()
    let known = counters.duplicates
    var taken = questions.taken
    repeat {
      // A push during a question causes one more question.
      hints.followed()
      taken = questions.taken
      repeat {
        while !inbox.hasRoom { try await waitToBeWoken(by: nil) }
        guard try await takeMessage() != nil else { break }
        // No mesh repeats so many: the radio does not remove them from its queue, and this loop would never end.
        guard counters.duplicates - known < Self.mostRepeats else {
          hints.ignore(until: loop.now + Self.pollInterval)
          throw SyncFailure("the radio hands over the same messages again and again", remedy: "Restart the radio.")
        }
      } while true
    } while hints.isHinted && (questions.taken > taken || hints.mayFollow(at: loop.now))
    // If a restart of the radio was the cause of a loss, its start is stored now: otherwise the next run would tell the
    // restart once more.
    try await learnStart()
  }

  /// Asks the radio for its start, if that decides what it has lost.
  private func learnStart() async throws(CancellationError) {
    guard inbox.dependsOnStart else { return }
    if inbox.queue.dependsOnStart || isServing { radioClock.forgetStart() }
    if radioClock.started == nil { _ = try await whenRadioStarted() }
    let taken = connection.wasTaken() ? RadioQueue.Loss.taken : nil
    if let loss = inbox.radioWasStarted(at: radioClock.started) ?? taken { tell(loss) }
  }

  /// This many messages that are stored already end the part.
  private static let mostRepeats = 64

  /// Requests one message, which is then in the inbox; `nil`: the radio has none.
  private func takeMessage() async throws -> QueuedMessage? {
    let asked = loop.now
    let number = questions.asks()
    // When the frame is decoded: hints that follow in the same read are about later messages.
    let ifEmpty = { [weak self] (_: Int, answer: RadioAnswer) in
      guard let self, case .replied(.noMoreMessages) = answer.outcome else { return }
      slots.mixed = []
      if let loss = inbox.radioWasEmpty(askedAt: asked) { tell(loss) }
    }
    let question = connection.submit(group: [.init(.syncNextMessage)], .sync, ifEmpty)?.first
    let outcome = await question?.outcome() ?? .failed(.linkLost)
    questions.answered()
    note(outcome)
    switch outcome {
    case .replied(.noMoreMessages): questions.foundNothing(number)
    case .replied(.message), .replied(.error): break
    // The radio may have handed over a message, which it then no longer has; also if something else came in place of it.
    case .replied, .failed(.timedOut), .failed(.linkLost): if question != nil { inbox.radioWasSilent() }
    default: break
    }
    endIfNothingIsInHand()
    try Task.checkCancellation()
    switch outcome {
    case .replied(.message(let message)):
      questions.took()
      return message
    case .replied(.noMoreMessages): return nil
    default: throw SyncFailure("the radio does not return its messages")
    }
  }

  /// Reports lost messages. The event comes after those of the messages that the radio handed over.
  private func tell(_ loss: RadioQueue.Loss) {
    if let loss = losses.add(loss, on: loop, { [weak self] in self?.tellWhatIsUntold() }) { tellNow(loss) }
  }

  /// Also called before the daemon ends.
  func tellWhatIsUntold() {
    if let loss = losses.takeUntold(at: loop.now) { tellNow(loss) }
    keepUnkept()
  }

  private func tellNow(_ loss: RadioQueue.Loss) {
    log.warning("\(loss)")
    keep(loss)
    observer?.messagesWereLost(loss)
  }

  private func keepUnkept() { if let loss = losses.takeUnkept() { keep(loss) } }

  /// The counts that show the loss are reset in this transaction or a later one, whatever becomes of the event: so the event is written until the disk takes
  /// it.
  private func keep(_ loss: RadioQueue.Loss) {
    let commit = write { [moment = now, radio = connection.identity?.info.name.string] store throws(SQLiteError) in
      let body = EventBody.radioGap(
        waited: loss.waited, lost: loss.atLeast, atMost: loss.atMost,
        restarted: loss.start == .anew || loss.start == .unattended, taken: loss.start == .taken, radio: radio)
      _ = try store.append(.radioGap, at: moment, body: body)
    }
    tasks.begin { [weak self] in
      guard await commit.failure() != nil, !Task.isCancelled, let self else { return }
      losses.wasNotKept(loss, on: loop) { [weak self] in self?.keepUnkept() }
    }
  }

  /// The daemon ends: waits up to `limit` for a message that the radio is handing over, and requests no more.
  public func finish(within limit: Duration) async {
    let end = Promise<Void>()
    life.halt()
    life = .ending(end)
    tellWhatIsUntold()
    store.commit(everything: true)
    endIfNothingIsInHand()
    // `try?`: a cancelled wait is an end, too.
    let isDone: Void? = (try? await end.value(within: limit, on: loop)) ?? nil
    if isDone == nil, inbox.isEmpty { log.info("stopping: the radio no longer answers") }
    stop()
  }

  private func endIfNothingIsInHand() { if !questions.isOpen, inbox.isEmpty { life.nothingIsInHand() } }
}

// MARK: Results of the inbox

extension Synchronizer {
  func stored(_ message: QueuedMessage, _ arrival: MessageArrival) {
    switch arrival {
    case .stored: counters.messagesStored += 1
    case .duplicate:
      counters.duplicates += 1
      observer?.messageRepeated(message)
    }
    if case .syncing(.messages, let current, _) = state {
      enter(.syncing(.messages, current: current + 1, total: 0))
    }
    if case .stored = arrival { observer?.messageStored(message) }
    inboxChanged()
  }

  /// The radio reports the channel slot of a message as empty.
  func droppedMessage() {
    counters.emptySlotMessages += 1
    inboxChanged()
  }

  /// The disk has refused a message; the inbox retries.
  func refused(_ failure: StoreError) {
    let words = "a message cannot be stored, and no more are fetched from the radio meanwhile: \(failure)"
    guard state != .failed(words) else { return }
    let failure = SyncFailure(words, remedy: failure.remedy)
    enter(failure)
    if connection.state == .up { begin(after: failure) }
  }

  /// The inbox may have more room, or is empty.
  private func inboxChanged() {
    woken.resume()
    questions.queueRead.resume()
    endIfNothingIsInHand()
    if inbox.isEmpty, connection.state != .up { enter(.idle) }
  }
}

// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Store
import Timing

extension Synchronizer {
  /// Whatever the radio had for this gateway since the link came up is here, as far as it has told.
  public var hasReadQueue: Bool { inbox.queue.isRead }

  /// Asks the radio for what it holds. True: it has said since that it has nothing, and what it had is on disk. False: not in that time.
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

  /// Asks for one message after the other until the radio has none. The radio forgets a message once it has handed it over, so the next is
  /// asked for when the last is on disk; where messages may wait for company, when it is in the transaction.
  func takeMessages() async throws {
    questions.takerCame()
    defer { questions.takerLeft() }
    // What it has forgotten stands before what it has now.
    if inbox.queue.dependsOnStart {
      radioClock.forgetStart()
      _ = try await whenRadioStarted()
      if let loss = inbox.radioWasStarted(at: radioClock.started) { tell(loss) }
    }
    let known = counters.duplicates
    var taken = questions.taken
    repeat {
      // One that comes while the radio is asked makes one more question follow.
      hints.followed()
      taken = questions.taken
      repeat {
        while !inbox.hasRoom { try await wake(by: nil) }
        guard try await takeMessage() != nil else { break }
        // No mesh repeats so many: the radio does not take them out of its queue, and nothing else would ever have its turn.
        guard counters.duplicates - known < Self.mostRepeats else {
          hints.ignore(until: loop.now + Self.pollInterval)
          throw SyncFailure("the radio hands over the same messages again and again", remedy: "Restart the radio.")
        }
      } while true
    } while hints.isHinted && (questions.taken > taken || hints.mayFollow(at: loop.now))
  }

  /// So many messages that are here already end a sync.
  private static let mostRepeats = 64

  /// `nil`: the radio has none. Else it is in the inbox by now.
  private func takeMessage() async throws -> QueuedMessage? {
    let asked = loop.now
    let number = questions.asks()
    let question = connection.submit(.syncNextMessage, .sync)
    let outcome = await question?.outcome() ?? .failed(.linkLost)
    questions.answered()
    note(outcome)
    switch outcome {
    case .replied(.noMoreMessages):
      if let loss = inbox.radioWasEmpty(askedAt: asked) { tell(loss) }
      questions.foundNothing(number)
    // The radio has perhaps handed over a message, which it then no longer has.
    case .failed(.timedOut), .failed(.linkLost): if question != nil { inbox.radioWasSilent() }
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

  /// The radio dropped messages or has forgotten them, or may have. The event stands behind those that it did hand over.
  private func tell(_ loss: RadioQueue.Loss) {
    if let loss = losses.add(loss, on: loop, { [weak self] in self?.tellWhatIsUntold() }) { tellNow(loss) }
  }

  /// Also before the daemon ends.
  func tellWhatIsUntold() { if let loss = losses.takeUntold(at: loop.now) { tellNow(loss) } }

  private func tellNow(_ loss: RadioQueue.Loss) {
    log.warning("\(loss)")
    write { [moment = now, radio = connection.identity?.info.name.string] store throws(SQLiteError) in
      let body = EventBody.radioGap(
        waited: loss.waited, lost: loss.atLeast, atMost: loss.atMost, restarted: loss.start == .anew, radio: radio)
      _ = try store.append(.radioGap, at: moment, body: body)
    }
    observer?.messagesWereLost(loss)
  }

  /// The daemon ends: what the radio is handing over just now is stored first, nothing more is asked for.
  public func finish(within limit: Duration) async {
    let end = Promise<Void>()
    life.halt()
    life = .ending(end)
    tellWhatIsUntold()
    store.commit(everything: true)
    endIfNothingIsInHand()
    // `try?`: an end that is cancelled is an end.
    let isDone: Void? = (try? await end.value(within: limit, on: loop)) ?? nil
    if isDone == nil, inbox.isEmpty { log.info("stopping: the radio no longer answers") }
    stop()
  }

  private func endIfNothingIsInHand() { if !questions.isOpen, inbox.isEmpty { life.nothingIsInHand() } }
}

extension Synchronizer: InboxOwner {
  func stored(_ message: QueuedMessage, _ arrival: MessageArrival) {
    switch arrival {
    case .stored: counters.messagesStored += 1
    case .duplicate: counters.duplicates += 1
    }
    if case .syncing(.messages, let current, _) = state {
      enter(.syncing(.messages, current: current + 1, total: 0))
    }
    if case .stored = arrival { observer?.messageStored(message) }
  }

  func dropped(_ message: QueuedMessage) { counters.emptySlotMessages += 1 }

  func refused(_ failure: StoreError) {
    let words = "a message cannot be stored, and no more are fetched from the radio meanwhile: \(failure)"
    guard state != .failed(words) else { return }
    let failure = SyncFailure(words, remedy: failure.remedy)
    enter(failure)
    if connection.state == .up { begin(after: failure) }
  }

  func inboxChanged() {
    woken.resume()
    questions.queueRead.resume()
    endIfNothingIsInHand()
    if inbox.isEmpty, connection.state != .up { enter(.idle) }
  }
}

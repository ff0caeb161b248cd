// SPDX-License-Identifier: MIT

import EventLoop
import Timing

/// What the radio says of messages that wait in it, and how far its word counts. Pure.
struct MessageHints {
  /// The radio has said that a message waits.
  private(set) var isHinted = false
  /// Until then its word counts for nothing: it handed over the same messages again and again, or hinted at none.
  private var deafUntil: MonotonicTime?
  private var fruitless = Ration(most: 64, oneIn: .milliseconds(200))

  /// It is to be asked for a message.
  func isCalled(at now: MonotonicTime) -> Bool { isHinted && deafUntil.map { now >= $0 } ?? true }

  /// When its word counts again; `nil`: it has said nothing, or counts already.
  var nextCall: MonotonicTime? { isHinted ? deafUntil : nil }

  mutating func hinted() { isHinted = true }

  /// It is asked, or cannot be.
  mutating func followed() { isHinted = false }

  mutating func ignore(until time: MonotonicTime) { deafUntil = time }

  /// The radio has hinted at a message, and had none, or no answer: one that does so without end would keep us asking. False: not for a second.
  mutating func mayFollow(at now: MonotonicTime) -> Bool {
    if fruitless.take(at: now) { return true }
    let until = now + .seconds(1)
    deafUntil = deafUntil.map { max($0, until) } ?? until
    return false
  }
}

/// Questions for messages that the radio was asked, and what came of them.
struct MessageQuestions {
  private var open = 0
  private(set) var asked = 0
  /// The number of the last question that found nothing.
  private(set) var lastEmpty = 0
  /// Tasks that take messages until the radio has no more: one; an earlier one waits for its last answer at most.
  private var takers = 0
  private(set) var taken = 0
  /// Resumed when the radio has no more messages, and when the disk has the last one.
  let queueRead = Waiter()
  /// Resumed when there may be time to ask for a contact.
  let idle = Waiter()

  var areTaken: Bool { takers > 0 }
  /// One has no answer yet.
  var isOpen: Bool { open > 0 }

  mutating func takerCame() { takers += 1 }

  mutating func takerLeft() {
    takers -= 1
    idle.resume()
  }

  /// Returns its number.
  mutating func asks() -> Int {
    open += 1
    asked += 1
    return asked
  }

  mutating func answered() { open -= 1 }

  mutating func foundNothing(_ number: Int) {
    lastEmpty = number
    queueRead.resume()
  }

  mutating func took() {
    taken += 1
    idle.resume()
  }
}

/// Losses of messages: the first ones are told at once. A radio that tells of messages that it does not have would fill the journal, so what
/// comes beyond is told together, later.
struct LossReports {
  private static let interval: Duration = .seconds(60)

  private var ration = Ration(most: 16, oneIn: interval)
  private var later: (loss: RadioQueue.Loss, timer: LoopTimer)?

  /// What is told later.
  var untold: RadioQueue.Loss? { later?.loss }

  /// Returns what is to be told now. `tell`: called when the time for the rest has come.
  mutating func add(
    _ loss: RadioQueue.Loss, on loop: EventLoop, _ tell: @escaping () -> Void
  ) -> RadioQueue.Loss? {
    if let (before, timer) = later {
      later = (before + loss, timer)
      return nil
    }
    if ration.take(at: loop.now) { return loss }
    later = (loss, loop.schedule(after: Self.interval, tell))
    return nil
  }

  /// It is told now.
  mutating func takeUntold(at now: MonotonicTime) -> RadioQueue.Loss? {
    guard let (loss, timer) = later else { return nil }
    timer.cancel()
    later = nil
    _ = ration.take(at: now)
    return loss
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import Timing

/// The radio's hints at waiting messages, and when to ignore them. Pure.
struct MessageHints {
  /// The radio has reported a waiting message.
  private(set) var isHinted = false
  /// Until then hints are ignored: the radio handed over the same messages repeatedly, or its hints led to no message.
  private var deafUntil: MonotonicTime?
  private var fruitless = Ration(most: 64, oneIn: .milliseconds(200))

  /// The radio is to be asked for a message.
  func isCalled(at now: MonotonicTime) -> Bool { isHinted && deafUntil.map { now >= $0 } ?? true }

  /// When an ignored hint counts; `nil`: there is no hint, or hints are not ignored.
  var nextCall: MonotonicTime? { isHinted ? deafUntil : nil }

  mutating func hinted() { isHinted = true }

  /// The radio is asked, or the link is lost.
  mutating func followed() { isHinted = false }

  mutating func ignore(until time: MonotonicTime) { deafUntil = time }

  /// A hint led to no message or no answer. Returns whether further hints count; if not, they are ignored for a second,
  /// because endless false hints would cause endless questions.
  mutating func mayFollow(at now: MonotonicTime) -> Bool {
    if fruitless.take(at: now) { return true }
    let until = now + .seconds(1)
    deafUntil = deafUntil.map { max($0, until) } ?? until
    return false
  }
}

/// Counts the requests for messages and their results.
struct MessageQuestions {
  private var open = 0
  private(set) var asked = 0
  /// The number of the last request without a message.
  private(set) var lastEmpty = 0
  /// Tasks that read messages until the radio has no more: usually one; a replaced one only waits for its last answer.
  private var takers = 0
  private(set) var taken = 0
  /// Resumed when the radio has no more messages, and when the last one is on disk.
  let queueRead = Waiter()
  /// Resumed when a contact may be fetched.
  let idle = Waiter()

  var areTaken: Bool { takers > 0 }
  /// A request has no answer yet.
  var isOpen: Bool { open > 0 }

  mutating func takerCame() { takers += 1 }

  mutating func takerLeft() {
    takers -= 1
    idle.resume()
  }

  /// Returns the request's number.
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

/// Limits reports of lost messages: the first ones are reported at once, further ones together and later. Otherwise a
/// radio that hints at messages without having them would fill the journal.
struct LossReports {
  private static let interval: Duration = .seconds(60)

  private var ration = Ration(most: 16, oneIn: interval)
  private var later: (loss: RadioQueue.Loss, timer: LoopTimer)?

  /// Losses that were reported, and whose event the disk has refused.
  private var unkept: (loss: RadioQueue.Loss, timer: LoopTimer)?

  /// The losses to report later.
  var untold: RadioQueue.Loss? { later?.loss }

  /// Returns the loss to report now. `tell`: called when the delayed report is due.
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

  /// The disk has refused the event. `keep`: called when the next attempt is due.
  mutating func wasNotKept(_ loss: RadioQueue.Loss, on loop: EventLoop, _ keep: @escaping () -> Void) {
    unkept?.timer.cancel()
    unkept = (unkept.map { $0.loss + loss } ?? loss, loop.schedule(after: Self.interval, keep))
  }

  /// Returns the losses whose event is missing, and cancels their timer: the caller writes it now.
  mutating func takeUnkept() -> RadioQueue.Loss? {
    defer { unkept = nil }
    unkept?.timer.cancel()
    return unkept?.loss
  }

  /// Returns the delayed losses, and cancels their timer: the caller reports them now.
  mutating func takeUntold(at now: MonotonicTime) -> RadioQueue.Loss? {
    guard let (loss, timer) = later else { return nil }
    timer.cancel()
    later = nil
    _ = ration.take(at: now)
    return loss
  }
}

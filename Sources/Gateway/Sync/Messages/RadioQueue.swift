// SPDX-License-Identifier: MIT

import Companion
import Store
import Timing

/// What is known of the radio's message queue: how long messages waited in it, and whether it was full. Pure.
///
/// The queue has no times in it. But what it hands over came after it was last said to be empty: by this radio, in the life of
/// this program. Nor does it say what it dropped. But it hints at each message that comes while a client is connected, also at one that it
/// drops; and of the sizes that firmware is built with, one is as many as have waited.
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

    public var description: String {
      guard let atLeast else {
        return
          "\(waited) messages waited in the radio, as many as its queue can hold: those that came after may be lost"
      }
      return "the radio's queue was full: \(waited) messages were taken from it, and at least \(atLeast) more are lost"
    }
  }

  private var radio: PublicKey?
  /// When the radio was asked, and then said that it had none.
  private var emptyAt: MonotonicTime?
  /// It has not been empty since the link came up: what it hands over may be from before.
  private var isBacklog = true
  /// Messages taken, and hints at messages, since then or since it was empty.
  private var taken = 0
  private var hints = 0
  /// The most that this radio is known to have held at once.
  private var most = 0

  /// Another radio's queue is another queue.
  mutating func connected(to radio: PublicKey) {
    if radio != self.radio { (emptyAt, most) = (nil, 0) }
    self.radio = radio
    (isBacklog, taken, hints) = (true, 0, 0)
  }

  mutating func took() { taken += 1 }
  mutating func hinted() { hints += 1 }

  /// Returns what was lost before this.
  mutating func wasEmpty(askedAt: MonotonicTime) -> Loss? {
    let loss = loss
    most = max(most, taken - hints)
    emptyAt = askedAt
    (isBacklog, taken, hints) = (false, 0, 0)
    return loss
  }

  private var loss: Loss? {
    // With fewer it was not full, whatever became of the hints.
    guard taken >= Self.sizes[0] else { return nil }
    if hints > taken { return Loss(waited: taken, atLeast: hints - taken) }
    // Of those that came while it was emptied nobody knows whether they found room.
    let waited = (taken - hints)...taken
    guard isBacklog, Self.sizes.contains(where: { waited.contains($0) && $0 >= most }) else { return nil }
    return Loss(waited: taken, atLeast: nil)
  }

  /// How long the message that is taken now waited in the radio.
  func wait(now: MonotonicTime) -> RadioWait {
    guard let emptyAt else { return .unknown }
    let longest = now - emptyAt
    if !isBacklog, longest <= Self.justNow { return .none }
    return .atMost(seconds: Int64(max(0, longest.inSeconds).rounded(.up)))
  }
}

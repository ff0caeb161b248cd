// SPDX-License-Identifier: MIT

import Timing

/// Channel messages that the radio accepted and that nobody was heard with.
extension DeliverySession {
  /// When a channel message is sent once more; `nil`: it is not.
  func repetition(of message: Ended) -> MonotonicTime? {
    guard settings.repeatsUnheard, let copy = message.atRadio, copy.item.tries == 1 else { return nil }
    let time = copy.at + DeliverySettings.repeatDelay
    return time < copy.item.expires ? time : nil
  }

  mutating func repeatUnheard(_ now: MonotonicTime) -> [DeliveryAction] {
    var actions: [DeliveryAction] = []
    for place in ended.indices.reversed() {
      guard let time = repetition(of: ended[place]), time <= now, let copy = ended[place].atRadio else { continue }
      ended.remove(at: place)
      actions.append(again(copy))
    }
    return actions
  }

  /// The radio sends a channel message that it had accepted once more.
  mutating func again(_ copy: Ended.AtRadio) -> DeliveryAction {
    live[copy.item.id] = Live(
      item: copy.item, phase: .ready(notBefore: nil), isOpen: false, round: Round(limit: settings.maxAttempts))
    return .waiting(id: copy.item.id)
  }
}

// SPDX-License-Identifier: MIT

import Timing

/// Channel messages that the radio accepted and that nobody was heard with.
///
/// Those who have the message must still know it when it comes again, so it has little time for that: if the air time
/// or the link does not allow it by then, it ends as sent. New messages do not wait for it.
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

  /// Those that the radio had perhaps not transmitted when it was started anew. `radioStarted`: as for `linkUp`.
  mutating func repeatCutOff(_ radioStarted: MonotonicTime?, _ now: MonotonicTime) -> [DeliveryAction] {
    var actions: [DeliveryAction] = []
    for place in ended.indices.reversed() {
      guard let copy = ended[place].atRadio, radioRanAt.map({ $0 < copy.out }) ?? true,
        radioStarted.map({ $0 + DeliverySettings.uptimeTolerance > copy.at }) ?? true
      else { continue }
      // If the start is unknown, only the link may have failed, and that again and again.
      let most = radioStarted == nil ? 2 : settings.maxAttempts
      guard copy.item.tries < most, copy.item.expires > now, live[copy.item.id] == nil else { continue }
      ended.remove(at: place)
      actions.append(again(copy))
    }
    return actions
  }

  /// The radio has accepted a packet, which it transmits after those before it. The result: when it has.
  mutating func accepted(_ airtime: Int64, _ now: MonotonicTime) -> MonotonicTime {
    if isUp { radioRanAt = now }
    // Older firmware is silent after each packet for as long as it took.
    radioDone = max(radioDone, now) + .milliseconds(2 * airtime)
    return airtime > 0 ? radioDone + DeliverySettings.busyAir : now + DeliverySettings.duplicatesKnown
  }

  /// The radio sends a channel message that it had accepted once more.
  mutating func again(_ copy: Ended.AtRadio) -> DeliveryAction {
    live[copy.item.id] = Live(
      item: copy.item, phase: .ready(notBefore: nil), isOpen: false, round: Round(limit: settings.maxAttempts))
    return .waiting(id: copy.item.id)
  }
}

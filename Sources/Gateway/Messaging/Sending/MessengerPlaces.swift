// SPDX-License-Identifier: MIT

import Companion
import Delivery
import Store

/// A message needs its recipient in the radio's table, when it is sent and until it is acknowledged.
extension Messenger {
  /// Why the radio cannot have this recipient. A node that was evicted is restored when its message is sent.
  func refusal(of stored: StoredContact) throws(Refusal) -> Refusal? {
    guard let keeper else { return stored.onRadio ? nil : .notOnRadio(stored.contact.name.string) }
    return try keeper.refusal(of: stored)
  }

  /// Whether the message can go. Its recipient may have left the table, to make room or by the hand of an app: then the
  /// message waits for a place.
  func hasPlace(_ id: Int64) async -> Bool {
    guard let recipient = row(id)?.recipient, let keeper else { return true }
    let isThere = await keeper.restore(recipient: recipient, isDoubted: unknownOnce.contains(id))
    if isThere { placeless.remove(id) } else { placeless.insert(id) }
    return isThere
  }

  /// Whether the message waits for a place of its recipient in the radio's table.
  public func waitsForPlace(_ message: OutgoingMessage) -> Bool { !message.hasEnded && placeless.contains(message.id) }

  func forgetPlace(of id: Int64) {
    placeless.remove(id)
    unknownOnce.remove(id)
  }

  /// The radio does not know the recipient of a message, because an app has removed it: it is put back once.
  func puttingBack(_ recipient: PublicKey?, of id: Int64, _ answer: DeliveryAnswer) -> DeliveryAnswer {
    if case .sent = answer { unknownOnce.remove(id) }
    // Without the store, nobody is put back.
    guard answer == .unknown, keeper != nil, let recipient,
      (store.ifReadable { try store.contact(recipient) }) ?? nil != nil
    else { return answer }
    return unknownOnce.insert(id).inserted ? .notTried : answer
  }

  /// Nodes that the radio must not lose now.
  var recipients: (waiting: Set<PublicKey>, underWay: Set<PublicKey>) {
    let recipients = session.recipients
    return (recipients.waiting, recipients.underWay.union(nodes?.requests.questioned ?? []))
  }
}

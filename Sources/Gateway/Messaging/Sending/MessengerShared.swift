// SPDX-License-Identifier: MIT

import Companion
import Delivery
import MeshCrypto
import Store
import Sync

/// Stores messages that other programs send with the shared radio.
extension Messenger {
  /// A program that shares the radio has sent a message, and the radio took it. It is stored as ours, with the program as its origin; only the
  /// program repeats it.
  public func noteShared(_ message: SharedMessage, from client: String) {
    let moment = synchronizer.now
    var row = OutgoingMessage(
      key: "", origin: String((OutgoingMessage.sharedOrigin + client).unicodeScalars.prefix(64)),
      priority: DeliveryPriority.relayed.rawValue, kind: .direct, text: message.text, created: moment,
      lifetime: 0, radio: store.radio)
    do throws(StoreError) {
      switch message.to {
      case .node(let prefix):
        guard let contact = try store.contact(prefix: prefix)?.contact else { return }
        (row.recipient, row.kind) = (contact.key, contact.type == .room ? .room : .direct)
      case .slot(let slot):
        guard let channel = try store.channel(slot: slot), !channel.isEmpty, !synchronizer.doubts(slot) else {
          return
        }
        (row.channel, row.kind) = (channel.secret.digest, .channel)
      }
    } catch {
      return log.info("a message of \(client) was not stored: \(error)")
    }
    (row.state, row.senderTime, row.endedAt) = (.sent, message.time, moment.milliseconds)
    (row.attempts.accepted, row.attempts.floods) = (1, message.isFlood ? 1 : 0)
    if let code = message.code { row.attempts.expect(code) }
    // A repetition has the same time: it is the same message.
    let place = (row.recipient?.bytes ?? []) + Array((row.channel ?? "").utf8)
    let time = withUnsafeBytes(of: message.time.bigEndian) { Array($0) }
    let sender = store.radioKey?.bytes ?? []
    row.key = "proxy-" + Hex.string(Digest.sha256(sender + place + time + message.text.bytes).prefix(8))
    keep(shared: row, client)
  }

  private func keep(shared row: OutgoingMessage, _ client: String) {
    store.post("a message of \(client)") { store throws(SQLiteError) in
      if let stored = try store.insertOutgoing(row) { return try noteReaction(stored) }
      guard var known = try store.readOutgoing(key: row.key) else { return }
      for code in row.attempts.codes { known.attempts.expect(code) }
      known.attempts.accepted += 1
      known.attempts.floods += row.attempts.floods
      try store.updateOutgoing(known, at: row.created)
    }
  }
}

/// A message that the radio took from a program that shares it.
public struct SharedMessage: Equatable, Sendable {
  public enum Recipient: Equatable, Sendable { case node(KeyPrefix), slot(UInt8) }

  public var to: Recipient
  public var text: Text
  /// Seconds since 1970, by the program's clock.
  public var time: UInt32
  /// The code of its acknowledgement; `nil` on a channel.
  public var code: AckCode?
  public var isFlood: Bool

  public init(to: Recipient, text: Text, time: UInt32, code: AckCode?, isFlood: Bool) {
    self.to = to
    self.text = text
    self.time = time
    self.code = code
    self.isFlood = isFlood
  }
}

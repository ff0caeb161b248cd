// SPDX-License-Identifier: MIT

import Companion
import Delivery
import MeshCrypto
import RadioSession
import Store
import Sync

/// Stores messages that other programs send with the shared radio.
extension Messenger {
  /// A program that shares the radio sends a message. It is on disk before the radio gets it, as ours and as sent, with the program as its origin; only
  /// the program repeats it. `nil`: it is not stored, because its recipient is not known here.
  public func keepShared(_ message: SharedMessage, from client: String) async throws(StoreError) -> OutgoingMessage? {
    guard let row = try row(for: message, from: client) else { return nil }
    try await store.save { store throws(SQLiteError) in
      if let stored = try store.insertOutgoing(row) { return try self.noteReaction(stored) }
      try self.change(row) { known in
        if known.state == .failed { (known.state, known.reason) = (.sent, nil) }
        for code in row.attempts.codes { known.attempts.expect(code) }
        known.attempts.accepted += 1
        known.attempts.floods += row.attempts.floods
      }
    }
    return row
  }

  /// The radio has answered: corrects what was kept of the attempt. Without an answer the radio may have sent it.
  public func settleShared(_ kept: OutgoingMessage, _ outcome: RadioSession.Outcome) {
    let correct: (inout OutgoingMessage) -> Void
    switch outcome {
    case .replied(.sent(let sent)):
      let floods = (sent.flood ? 1 : 0) - kept.attempts.floods
      guard floods != 0 || !kept.attempts.codes.contains(sent.ackOrTag) else { return }
      correct = { known in
        known.attempts.floods += floods
        known.attempts.expect(sent.ackOrTag)
      }
    case .failed(.refused), .failed(.notSent):
      correct = { known in
        known.attempts.accepted = max(0, known.attempts.accepted - 1)
        known.attempts.floods = max(0, known.attempts.floods - kept.attempts.floods)
        guard known.attempts.accepted == 0, known.state == .sent else { return }
        (known.state, known.reason) = (.failed, DeliveryFailure.refused.rawValue)
      }
    default: return
    }
    store.post("a message of a program") { [weak self] _ throws(SQLiteError) in try self?.change(kept, correct) }
  }

  /// A node has answered a login or a request of a program. `time`: the radio's, when it sent that.
  public func sharedWasAnswered(by node: PublicKey, at time: UInt32) {
    if isRoom(node) { roomWasAsked(node, at: time) }
  }

  /// A login or a request of a program is on its way to a node, whose answer may get lost. `time`: the radio's.
  public func sharedMayHave(_ node: PublicKey, at time: UInt32, isLogin: Bool) {
    guard isRoom(node) else { return }
    roomMayHave(node, at: time, isLogin: isLogin)
  }

  /// If the store cannot be read, posts wait for their rounds.
  private func isRoom(_ node: PublicKey) -> Bool {
    store.ifReadable { try store.contact(node) }?.contact.type == .room
  }

  /// Within a `write`: changes the row of that message.
  private func change(_ row: OutgoingMessage, _ change: (inout OutgoingMessage) -> Void) throws(SQLiteError) {
    guard var known = try store.readOutgoing(key: row.key) else { return }
    change(&known)
    try store.updateOutgoing(known, at: synchronizer.now)
  }

  private func row(for message: SharedMessage, from client: String) throws(StoreError) -> OutgoingMessage? {
    let moment = synchronizer.now
    var row = OutgoingMessage(
      key: "", origin: String((OutgoingMessage.sharedOrigin + client).unicodeScalars.prefix(64)),
      priority: DeliveryPriority.relayed.rawValue, kind: .direct, text: message.text, created: moment,
      lifetime: 0, radio: store.radio)
    (row.state, row.senderTime, row.endedAt) = (.sent, message.time, moment.milliseconds)
    (row.attempts.accepted, row.attempts.floods) = (1, 1)
    let sender = store.radioKey
    switch message.to {
    case .node(let prefix, let attempt):
      guard let contact = try store.contact(prefix: prefix)?.contact else { return nil }
      (row.recipient, row.kind) = (contact.key, contact.type == .room ? .room : .direct)
      if contact.outPath != nil { row.attempts.floods = 0 }
      if let sender {
        row.attempts.expect(.expected(time: message.time, attempt: attempt, text: message.text, sender: sender))
      }
    case .slot(let slot):
      guard let channel = try store.channel(slot: slot), !channel.isEmpty, !synchronizer.doubts(slot) else {
        return nil
      }
      (row.channel, row.kind) = (channel.secret.digest, .channel)
    }
    // A repetition has the same time: it is the same message.
    let place = (row.recipient?.bytes ?? []) + Array((row.channel ?? "").utf8)
    let time = withUnsafeBytes(of: message.time.bigEndian) { Array($0) }
    row.key = "proxy-" + Hex.string(Digest.sha256((sender?.bytes ?? []) + place + time + message.text.bytes).prefix(8))
    return row
  }
}

/// A message that a program sends with the shared radio.
public struct SharedMessage: Equatable, Sendable {
  public enum Recipient: Equatable, Sendable { case node(KeyPrefix, attempt: UInt8), slot(UInt8) }

  public var to: Recipient
  public var text: Text
  /// Seconds since 1970, by the program's clock.
  public var time: UInt32

  public init(to: Recipient, text: Text, time: UInt32) {
    self.to = to
    self.text = text
    self.time = time
  }
}

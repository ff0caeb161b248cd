// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import Store

extension StoredMessage {
  /// The message as the radio's queue would deliver it, for a client of this version: with SNR from 3 on.
  ///
  /// `slot`: its channel's current slot. Returns `nil` if its channel was removed.
  func queued(for version: UInt8, slot: UInt8?) -> QueuedMessage? {
    let quality = version >= 3 ? snr ?? SNR(quarters: 0) : nil
    switch kind {
    case .direct, .room, .cli:
      guard let sender else { return nil }
      return .contact(
        ContactMessage(
          snr: quality, sender: sender, path: path, textType: textType, senderTime: senderTime ?? 0, author: author,
          text: text))
    case .channel:
      guard let slot else { return nil }
      let whole = senderName.map { Text(bytes: $0.bytes + Array(": ".utf8) + text.bytes) } ?? text
      return .channel(
        ChannelMessage(
          snr: quality, slot: slot, path: path, textType: textType, senderTime: senderTime ?? 0, text: whole))
    case .datagram:
      guard let slot else { return nil }
      return .datagram(
        ChannelDatagram(
          snr: snr ?? SNR(quarters: 0), slot: slot, path: path, dataType: dataType ?? 0, data: text.bytes))
    case .deleted: return nil
    }
  }
}

extension Store {
  /// The current slot of a message's channel.
  func slotNow(of message: StoredMessage) throws(StoreError) -> UInt8? {
    guard let digest = message.channel else { return message.slot }
    if let slot = message.slot, try channel(slot: slot)?.secret.digest == digest { return slot }
    return try channels().last { $0.secret.digest == digest }?.slot
  }
}

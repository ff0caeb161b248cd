// SPDX-License-Identifier: MIT

import Companion
import Control
import JSON
import Store
import Sync
import Timing

/// The packets that the radio hears: passes them to clients that follow, and journals them while an upstream wants
/// packets.
final class PacketFeed {
  let taps: TapAPI
  /// An upstream wants packets. Otherwise they are not journaled, because they are many.
  var isWanted = false
  private let synchronizer: Synchronizer
  private let store: Store

  init(_ synchronizer: Synchronizer, _ store: Store, clock: WallClock) {
    taps = TapAPI(clock: clock)
    (self.synchronizer, self.store) = (synchronizer, store)
  }

  func heard(_ packet: [UInt8], _ snr: SNR, _ rssi: Int8) {
    let radio = synchronizer.connection.identity?.info
    taps.heard(packet, snr, rssi, radio?.radio)
    guard isWanted else { return }
    let moment = synchronizer.now
    let body = JSONWriter.object { json in
      // Before the handshake, the serial port may still hold bytes of the previous radio.
      json.field("radio", store.markInEvent(of: radio?.key))
      json.field("raw", Hex.string(packet))
      json.field("snr", snr.decibels)
      json.field("rssi", rssi)
    }
    store.post(when: .heard, "a packet") { store throws(SQLiteError) in
      try store.append(.packet, at: moment, body: body)
    }
  }
}

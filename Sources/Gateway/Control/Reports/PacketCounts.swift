// SPDX-License-Identifier: MIT

import Companion

/// Counts of received packets since the start.
public final class PacketCounts {
  public private(set) var packets: UInt64 = 0
  public private(set) var lastSNR: SNR?
  public private(set) var lastRSSI: Int8?

  public init() {}

  public func heard(_ snr: SNR, _ rssi: Int8) {
    packets &+= 1
    (lastSNR, lastRSSI) = (snr, rssi)
  }
}

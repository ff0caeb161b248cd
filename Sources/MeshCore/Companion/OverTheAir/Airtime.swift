// SPDX-License-Identifier: MIT

/// Time on air of a LoRa packet (Semtech SX1261/2 data sheet § 6.1.4), with explicit header and CRC. The preamble is
/// that of firmware 1.16 and later: 32 symbols up to SF8 and 16 above (`preambleLengthForSF`). Older firmware always
/// uses 16, so its air time is overestimated a little.
public enum Airtime {
  /// Milliseconds; 0 for parameters that no LoRa radio has.
  public static func milliseconds(bytes: Int, _ radio: RadioParameters) -> Double {
    let spreading = Double(radio.spreadingFactor)
    guard radio.bandwidth > 0, (5...12).contains(radio.spreadingFactor) else { return 0 }
    let symbol = Double(1 << Int(radio.spreadingFactor)) / Double(radio.bandwidth) * 1000
    let lowRate: Double = symbol >= 16 ? 1 : 0
    // SF5 and SF6 have a longer sync word, and no 8 bits beside the header's 20.
    let isShort = radio.spreadingFactor < 7
    let (sync, header): (Double, Double) = isShort ? (6.25, 20) : (4.25, 28)
    let bits = 8 * Double(bytes) - 4 * spreading + header + 16
    let blocks = max(0, (bits / (4 * (spreading - 2 * lowRate))).rounded(.up))
    let preamble: Double = radio.spreadingFactor <= 8 ? 32 : 16
    return (preamble + sync + 8 + blocks * Double(radio.codingRate)) * symbol
  }
}

/// Sizes of sent packets on the air, in bytes. Source: docs/protocol/companion.md § 13.
public enum PacketLength {
  /// Both transport codes, which a flood in a region carries after its header.
  public static let transportCodes = 4

  /// Header and path length; then the path.
  private static func headed(path: Int, payload: Int) -> Int { 2 + max(0, path) + payload }

  private static func blocks(_ plain: Int) -> Int { (max(0, plain) + 15) / 16 * 16 }

  /// A direct message, without a region: two hashes and the MAC, then time, flags and text in blocks of 16.
  public static func text(_ bytes: Int, path: Int) -> Int { headed(path: path, payload: 4 + blocks(5 + bytes)) }

  /// A channel message, always flooded, without a region; `bytes` includes the name that the radio prepends.
  public static func channelText(_ bytes: Int) -> Int { headed(path: 0, payload: 3 + blocks(5 + bytes)) }

  /// A flooded datagram of a channel, without a region: type and length, then the data.
  public static func channelData(_ bytes: Int) -> Int { headed(path: 0, payload: 3 + blocks(3 + bytes)) }

  /// A flooded advert in a scope: transport codes, key, time, signature and app data. A zero-hop advert is slightly
  /// shorter.
  public static func advert(name: Int, hasPosition: Bool) -> Int {
    headed(path: 0, payload: 4 + 32 + 4 + 64 + min(32, 1 + (hasPosition ? 8 : 0) + max(0, name)))
  }

  /// A request to another node; a login carries the whole key.
  public static func request(_ bytes: Int, path: Int, isLogin: Bool = false) -> Int {
    headed(path: path, payload: (isLogin ? 35 : 4) + blocks(4 + bytes))
  }
}

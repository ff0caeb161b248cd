// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// Nodes that the gateway has started anew to set their clocks, which is not done yet.
extension Store {
  private static let clocksName = "clocks_under_way"
  /// A person sets one after the other.
  private static let mostClocks = 16

  /// Whether another node may be one of them.
  public func mayBeUnderWay(_ key: PublicKey) -> Bool {
    clocksUnderWay.contains(key) || clocksUnderWay.count < Self.mostClocks
  }

  /// Within a `write`: nodes that are forgotten are not waited for.
  func forgetClocksOfForgottenNodes() throws(SQLiteError) {
    for key in clocksUnderWay {
      let isKnown = try database.value("SELECT 1 FROM contacts WHERE key = ?", .blob(key.bytes)) != nil
      if !isKnown { try setClockUnderWay(false, of: key) }
    }
  }

  /// Within a `write`.
  public func setClockUnderWay(_ isUnderWay: Bool, of key: PublicKey) throws(SQLiteError) {
    var keys = clocksUnderWay.filter { $0 != key }
    if isUnderWay { keys.append(key) }
    keys = keys.suffix(Self.mostClocks)
    try setMeta(Self.clocksName, .blob(keys.flatMap(\.bytes)))
    clocksUnderWay = keys
  }

  func loadClocksUnderWay() throws(StoreError) -> [PublicKey] {
    let bytes = try meta(Self.clocksName)?.blob ?? []
    return stride(from: 0, to: bytes.count, by: 32).compactMap { PublicKey(bytes: Array(bytes[$0...].prefix(32))) }
  }
}

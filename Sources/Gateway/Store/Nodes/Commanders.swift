// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// Nodes that may run commands on the attached radio (`Contact.mayCommand`).
extension Store {
  private var commandersName: String { "commanders:\(radio)" }

  /// Those to which this was granted here, and not by another program.
  public func grantedCommanders() throws(StoreError) -> Set<PublicKey> {
    let bytes = try meta(commandersName)?.blob ?? []
    return Set(stride(from: 0, to: bytes.count, by: 32).compactMap { PublicKey(bytes: Array(bytes[$0...].prefix(32))) })
  }

  /// Within a `write`.
  public func setGranted(_ isGranted: Bool, to key: PublicKey) throws(SQLiteError) {
    let bytes = try database.meta(commandersName)?.blob ?? []
    var keys = stride(from: 0, to: bytes.count, by: 32).map { Array(bytes[$0...].prefix(32)) }
    keys.removeAll { $0 == key.bytes }
    if isGranted { keys.append(key.bytes) }
    try setMeta(commandersName, .blob(keys.suffix(Self.mostCommanders).flatMap { $0 }))
  }

  private static let mostCommanders = 64

  /// Contacts of the radio that may run commands on it, by key.
  public func commanders() throws(StoreError) -> [(key: PublicKey, name: Text, isGranted: Bool)] {
    let granted = try grantedCommanders()
    return try rows(
      "SELECT key, name FROM contacts WHERE on_radio = 1 AND flags & \(Contact.commandFlag) != 0 ORDER BY key"
    ) { row in
      PublicKey(bytes: row.blob(0)).map { ($0, Text(bytes: row.blob(1)), granted.contains($0)) }
    }
  }
}

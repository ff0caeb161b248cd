// SPDX-License-Identifier: MIT

import Companion
import SQLite
import Timing

/// Changes of contacts that the radio has confirmed and may not have on its flash yet: they outlive this program, which may lose its power together
/// with the radio.
extension Store {
  /// Milliseconds after which a change counts no more: a database may have been restored from an old backup.
  private static let changeAge: Int64 = 86_400_000

  private static func names(ofChangesOn radio: PublicKey) -> String { "contact change \(radio.hex) " }

  /// Stores the last change of a contact with the next transaction; `nil`: the radio has it on its flash.
  public func keepContactChange(_ command: Command?, of key: PublicKey, at time: MonotonicTime, on radio: PublicKey) {
    let name = Self.names(ofChangesOn: radio) + key.hex
    let change = command.map { command in
      "\(clocks.wallMilliseconds) \(Hex.string(command.encode())) \(time.nanoseconds)@\(clocks.boot)"
    }
    transactions.writeAlong(name) { store throws(SQLiteError) in
      guard let change else {
        try store.database.run("DELETE FROM meta WHERE name = ?", .text(name))
        return
      }
      try store.setMeta(name, .text(change))
    }
  }

  /// The changes of an earlier run; a time of another boot is unknown.
  public func contactChanges(
    on radio: PublicKey
  ) throws(StoreError) -> [(command: Command, at: MonotonicTime?)] {
    let now = clocks.wallMilliseconds
    let texts = try rows(
      "SELECT value FROM meta WHERE name GLOB ?", [.text(Self.names(ofChangesOn: radio) + "*")]
    ) { $0.textIfAny(0) }
    return texts.compactMap { text in
      let words = text.split(separator: " ", maxSplits: 2)
      // `try?`: what cannot be read is no change.
      guard words.count == 3, let wall = Int64(words[0]), let age = Self.distance(wall, now), age < Self.changeAge,
        let frame = Hex.bytes(words[1]), let command = try? Command(decoding: frame)
      else { return nil }
      return (command, timeOfThisBoot(words[2]))
    }
  }

  private static func distance(_ one: Int64, _ other: Int64) -> Int64? {
    let (difference, overflow) = one.subtractingReportingOverflow(other)
    return overflow || difference == .min ? nil : abs(difference)
  }
}

// SPDX-License-Identifier: MIT

import Companion
import SQLite

/// A radio that is or was attached.
public struct KnownRadio: Equatable, Sendable {
  /// The radio's number, from 1, to which rows refer.
  public var id: Int64
  public var key: PublicKey
  public var name: Text
  /// Milliseconds since 1970; 0: before radios were distinguished.
  public var firstSeen: Int64
  public var lastSeen: Int64
  /// The range of its messages' ids; without a last one, the radio is attached.
  var firstMessage: Int64
  var lastMessage: Int64?
  /// The newest message of all radios when this one was last attached.
  var sinceMessage: Int64
  /// Messages that it had received when it was last attached.
  var messages: Int64

  /// The radio's name in rows: the first 6 bytes of its key.
  public var mark: String { key.prefix.hex }
}

/// The store's radios, in memory as on disk.
struct RadioState {
  var all: [KnownRadio] = []
  /// The number of the attached radio, or of the last one. In a store without radios it is 1, the number of the first
  /// one to be attached.
  var present: Int64 = 1

  subscript(id: Int64) -> KnownRadio? { all.first { $0.id == id } }

  mutating func set(_ radio: KnownRadio) {
    all.removeAll { $0.id == radio.id }
    all.append(radio)
    all.sort { $0.id < $1.id }
  }
}

/// Radios are identified by their public keys: each has its own messages and its own queue.
///
/// `attach` makes a radio known without a write of its own: its row is stored with the first transaction after that, so
/// no row on disk refers to a missing radio.
extension Store {
  /// The radio number of rows that belong to every radio, such as messages that several have received.
  public static let everyRadio: Int64 = 0

  /// The number of the attached radio, or of the last one.
  public var radio: Int64 { radioState.present }
  /// Its key; `nil`: none was ever attached.
  public var radioKey: PublicKey? { radioState[radioState.present]?.key }
  public var radios: [KnownRadio] { radioState.all }
  public func radio(_ id: Int64) -> KnownRadio? { radioState[id] }

  /// The number of the radio with this key; an unknown one counts as the attached radio.
  public func number(ofRadio key: KeyPrefix) -> Int64 { radios.first { $0.key.prefix == key }?.id ?? radio }

  /// The name of a radio in rows: the first 6 bytes of its key in hex. `nil`: several radios, or an unknown one.
  public func mark(ofRadio id: Int64) -> String? { radioState[id]?.mark }

  /// The radio's name in events: while only one radio is known it is omitted, to save bytes on the uplink.
  public func markInEvent(ofRadio id: Int64) -> String? { radioState.all.count > 1 ? mark(ofRadio: id) : nil }

  /// The same for a radio that may not be known yet; `nil`: the present radio.
  public func markInEvent(of key: PublicKey?) -> String? {
    key.flatMap { $0 == radioKey ? nil : $0.prefix.hex } ?? markInEvent(ofRadio: radio)
  }

  /// The radio of an event. Without a name it is the first radio, because there was no other then.
  public func radio(inEvent mark: String?) -> KnownRadio? {
    guard let mark else { return radioState.all.first }
    return radioState.all.first { $0.mark.isExactly(mark) }
  }

  /// The radio was attached: new messages belong to it. True: it is not the previous one.
  @discardableResult
  public func attach(_ key: PublicKey, name: Text, at milliseconds: Int64) throws(StoreError) -> Bool {
    if var same = radioState[radioState.present], same.key == key {
      (same.name, same.lastSeen) = (name, milliseconds)
      keep(same)
      return false
    }
    let newest = try lastMessageID()
    let isFirst = radioState.all.isEmpty
    if var last = radioState[radioState.present] {
      last.messages += max(0, newest - last.sinceMessage)
      (last.lastMessage, last.lastSeen) = (newest, milliseconds)
      keep(last)
    }
    let known = radioState.all.first { $0.key == key }
    var radio =
      known
      ?? KnownRadio(
        id: (radioState.all.map(\.id).max() ?? 0) + 1, key: key, name: name, firstSeen: milliseconds,
        lastSeen: milliseconds, firstMessage: isFirst ? 1 : newest + 1, sinceMessage: isFirst ? 0 : newest, messages: 0)
    (radio.name, radio.lastSeen, radio.lastMessage) = (name, milliseconds, nil)
    if known != nil { radio.sinceMessage = newest }
    keep(radio)
    radioState.present = radio.id
    transactions.writeAlong("radio") { [id = radio.id] store throws(SQLiteError) in
      try store.setMeta("radio", .integer(id))
    }
    return !isFirst
  }

  /// The attached radio has this name from now on: who mentions us, and who is told of it, goes by it.
  public func radioWasRenamed(_ name: Text) {
    guard var radio = radioState[radioState.present], radio.name.bytes != name.bytes else { return }
    radio.name = name
    keep(radio)
  }

  /// Notes that the radio was connected until now.
  public func radioSeen(at milliseconds: Int64) {
    guard var radio = radioState[radioState.present] else { return }
    radio.lastSeen = milliseconds
    keep(radio)
  }

  private func keep(_ radio: KnownRadio) {
    radioState.set(radio)
    transactions.writeAlong("radio \(radio.id)") { store throws(SQLiteError) in try store.write(radio) }
  }

  private func write(_ radio: KnownRadio) throws(SQLiteError) {
    try database.run(
      "INSERT OR REPLACE INTO radios VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", .integer(radio.id), .blob(radio.key.bytes),
      .blob(radio.name.bytes), .integer(radio.firstSeen), .integer(radio.lastSeen), .integer(radio.firstMessage),
      .optional(radio.lastMessage), .integer(radio.sinceMessage), .integer(radio.messages))
  }

  /// Within a `write`: the message belongs to this radio, too, whichever is attached now.
  func widen(_ id: Int64, toMessage message: Int64) throws(SQLiteError) {
    guard var radio = radioState[id] else { return }
    let last = radio.lastMessage.map { max($0, message) }
    guard message < radio.firstMessage || last != radio.lastMessage else { return }
    (radio.firstMessage, radio.lastMessage) = (min(radio.firstMessage, message), last)
    if id != radioState.present { radio.messages += 1 }
    radioState.set(radio)
    try write(radio)
  }

  func readRadios() throws(SQLiteError) -> RadioState {
    var state = RadioState()
    state.all = try database.rows(
      """
      SELECT id, key, name, first_seen, last_seen, first_message, last_message, since_message, messages FROM radios
      ORDER BY id
      """
    ) { row in
      guard let key = PublicKey(bytes: row.blob(1)) else { return nil }
      return KnownRadio(
        id: row.integer(0), key: key, name: Text(bytes: row.blob(2)), firstSeen: row.integer(3),
        lastSeen: row.integer(4), firstMessage: row.integer(5), lastMessage: row.integerIfAny(6),
        sinceMessage: row.integer(7), messages: row.integer(8))
    }
    state.present = try database.meta("radio")?.integer ?? 1
    return state
  }

  // MARK: Counts

  /// The approximate number of stored messages that a radio has received: if radios alternated, deleted messages of
  /// others in between are subtracted, too.
  public func messageCount(ofRadio id: Int64) throws(StoreError) -> Int64 {
    guard let radio = radioState[id] else { return 0 }
    let newest = try lastMessageID()
    let oldest = try value("SELECT min(id) FROM messages")?.integer ?? 1
    let since = id == radioState.present ? max(0, newest - radio.sinceMessage) : 0
    let span = (radio.lastMessage ?? newest) - max(radio.firstMessage, oldest) + 1
    return max(0, min(radio.messages + since, span))
  }

  /// Messages of a radio that have not ended; `nil`: of all radios except the attached one.
  public func heldCount(ofRadio id: Int64? = nil) throws(StoreError) -> Int64 {
    try value(
      "SELECT count(*) FROM outgoing WHERE ended_at IS NULL AND radio <> ?1 AND (?2 IS NULL OR radio = ?2)",
      .integer(radio), .optional(id))?.integer ?? 0
  }

  /// Nodes last reported by a radio.
  public func contactCount(ofRadio id: Int64) throws(StoreError) -> Int64 {
    try value("SELECT count(*) FROM contacts WHERE radio = ?", .integer(id))?.integer ?? 0
  }
}

// SPDX-License-Identifier: MIT

import Companion
import JSON
import SQLite

/// One attempt to send a message to a node or room, according to the journal.
public struct OutgoingAttempt: Equatable, Sendable {
  /// Counted from 1.
  public var number: Int
  /// When the radio got it, in milliseconds since 1970; `nil`: the journal no longer has the event.
  public var at: Int64?
  /// Whether it was flooded, or sent along the path known then; `nil`: the journal no longer has the event.
  public var isFlood: Bool?
  /// The acknowledgement's code; `nil`: it is unknown which of the codes belongs to this attempt.
  public var code: AckCode?
}

extension Store {
  /// Events that are searched for one message: beyond them, attempts have no time.
  private static let mostSearched: Int64 = 20_000

  /// The attempts that the radio accepted, oldest first, from the message's states in the journal. There is no table of
  /// attempts.
  public func attempts(toSend message: OutgoingMessage) throws(StoreError) -> [OutgoingAttempt] {
    guard message.kind != .channel, message.attempts.accepted > 0 else { return [] }
    let tries = min(message.attempts.accepted, Int(UInt8.max))
    var attempts = (1...tries).map { OutgoingAttempt(number: $0) }
    // An attempt that the radio did not accept has a code, too; then codes and attempts cannot be paired.
    if message.attempts.codes.count == tries {
      for (index, code) in message.attempts.codes.enumerated() { attempts[index].code = code }
    }
    try translating { () throws(SQLiteError) in
      var (known, floods, begun) = (0, 0, Int64?.none)
      try eachState(of: message) { at, state in
        let total = Int(clamping: state["attempts"]?.integer ?? 0)
        let flooded = Int(clamping: state["floods"]?.integer ?? 0)
        // An attempt counts once the radio has accepted it; an unanswered one counts when the next begins.
        if total == known + 1, total <= tries, let begun {
          (attempts[total - 1].at, attempts[total - 1].isFlood) = (begun, flooded > floods)
        }
        if total > known { (known, floods, begun) = (total, flooded, nil) }
        if state["state"]?.string == OutgoingState.sending.rawValue { begun = at }
      }
    }
    return attempts
  }

  private func eachState(
    of message: OutgoingMessage, _ state: (_ at: Int64, _ body: JSONValue) -> Void
  ) throws(SQLiteError) {
    let seqs: (Int64, Int64)? = try database.first(
      "SELECT seq, newest_seq FROM outgoing WHERE id = ?", [.integer(message.id)]
    ) { row in
      row.integerIfAny(0).map { ($0, min(row.integerIfAny(1) ?? $0, $0 + Self.mostSearched)) }
    }
    guard let (first, last) = seqs, first < last else { return }
    try database.every(
      """
      SELECT at, body FROM journal WHERE seq > ?1 AND seq <= ?2 AND kind = 'outgoing' AND instr(body, ?3) > 0 ORDER BY seq
      """, [.integer(first), .integer(last), .blob(Array(message.key.utf8))]
    ) { row in
      // `try?`: a damaged event has no attempt; `doctor` reports it.
      guard let body = try? JSONValue(parsing: row.blob(1)), body["id"]?.string == message.key else { return }
      state(row.integer(0), body)
    }
  }

  /// Whether the message's newest event says that it is held. Later rounds have no events, and after a restart in one of them it is held as if for the
  /// first time.
  func isToldAsHeld(_ id: Int64) throws(SQLiteError) -> Bool {
    var isHeld = false
    let newest = "SELECT j.body FROM outgoing o JOIN journal j ON j.seq = o.newest_seq WHERE o.id = ?"
    try database.every(newest, [.integer(id)]) { row in
      // `try?`: a damaged event says nothing.
      let body = try? JSONValue(parsing: row.blob(0))
      isHeld = body?["state"]?.string == OutgoingState.heldForRecipient.rawValue
    }
    return isHeld
  }
}

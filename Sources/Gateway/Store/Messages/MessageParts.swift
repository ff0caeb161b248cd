// SPDX-License-Identifier: MIT

import SQLite

/// Parts of a query. What is rare is looked for in many messages: each part is for one turn of the loop.
extension Store {
  /// Received messages that a part looks at.
  private static let partSpan: Int64 = 2048
  /// The same with an index, which leads to those that fit.
  private static let indexedPartSpan: Int64 = 16_384

  /// The oldest part of a query, and the rest of it; `nil`: the part is all. `span`: received messages of the part.
  public func oldestPart(
    of query: MessageQuery, span: Int64? = nil
  ) throws(StoreError) -> (part: MessageQuery, rest: MessageQuery?) {
    let span = span ?? Self.usualSpan(of: query)
    let (begin, end) = try looked(query)
    guard end > begin, end - begin > span else { return (query, nil) }
    var (part, rest) = (query, query)
    part.before = MessagePlace(message: begin + span + 1)
    rest.after = MessagePlace(message: begin + span, outgoing: .max)
    return (part, rest)
  }

  /// The newest part of a query, and the rest of it, as above.
  public func newestPart(
    of query: MessageQuery, span: Int64? = nil
  ) throws(StoreError) -> (part: MessageQuery, rest: MessageQuery?) {
    let span = span ?? Self.usualSpan(of: query)
    let (begin, end) = try looked(query)
    guard end > begin, end - begin > span else { return (query, nil) }
    var (part, rest) = (query, query)
    part.after = MessagePlace(message: end - span, outgoing: .max)
    rest.before = MessagePlace(message: end - span + 1)
    return (part, rest)
  }

  private static func usualSpan(of query: MessageQuery) -> Int64 {
    query.usesIndex ? indexedPartSpan : partSpan
  }

  /// The received messages at which the query looks: those after `begin`, up to `end`.
  private func looked(_ query: MessageQuery) throws(StoreError) -> (begin: Int64, end: Int64) {
    try translating { () throws(SQLiteError) in
      let oldest = try database.value("SELECT min(id) FROM messages")?.integer ?? 0
      let newest = try database.value("SELECT max(id) FROM messages")?.integer ?? 0
      // The position of a received message is not before itself.
      let last = query.before.outgoing > 0 ? query.before.message : query.before.message - 1
      var (begin, end) = (max(query.after.message, oldest - 1), min(last, newest))
      // Sent messages have other times than the received ones around them.
      if query.directions == .received {
        let (low, high) = try ids(query)
        (begin, end) = (max(begin, low), min(end, high))
      }
      return (begin, end)
    }
  }
}

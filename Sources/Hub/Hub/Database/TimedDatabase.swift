// SPDX-License-Identifier: MIT

import UntrustedText

/// A database that reports slow statements without their values, a full disk and a locked file.
final class TimedDatabase: HubDatabase {
  static let slow: Duration = .seconds(1)

  private let inner: any HubDatabase
  private let report: @Sendable (String, Duration) -> Void
  private let isFull: @Sendable (HubDatabaseError) -> Void
  private let isLocked: @Sendable (HubDatabaseError) -> Void
  private let wrote: @Sendable () -> Void
  private var begun: ContinuousClock.Instant?

  /// `report` gets the statement and its duration; `isFull`: called when the disk is full; `isLocked`: when another program has locked the file;
  /// `wrote`: after a transaction.
  init(
    _ inner: any HubDatabase, isFull: @escaping @Sendable (HubDatabaseError) -> Void = { _ in },
    isLocked: @escaping @Sendable (HubDatabaseError) -> Void = { _ in }, wrote: @escaping @Sendable () -> Void = {},
    _ report: @escaping @Sendable (String, Duration) -> Void
  ) {
    (self.inner, self.isFull, self.isLocked) = (inner, isFull, isLocked)
    (self.wrote, self.report) = (wrote, report)
  }

  private func timed<Value>(
    _ what: @autoclosure () -> String, _ work: () throws(HubDatabaseError) -> Value
  ) throws(HubDatabaseError) -> Value {
    let start = ContinuousClock.now
    defer { reportIfSlow(since: start, what()) }
    do throws(HubDatabaseError) {
      return try work()
    } catch {
      if error.cause == .fullDisk { isFull(error) }
      if error.cause == .locked { isLocked(error) }
      throw error
    }
  }

  private func reportIfSlow(since start: ContinuousClock.Instant, _ what: @autoclosure () -> String) {
    let took = ContinuousClock.now - start
    if took > Self.slow { report(Self.short(what()), took) }
  }

  static func short(_ sql: String) -> String {
    sql.split(whereSeparator: \.isWhitespace).joined(separator: " ").cut(toBytes: 120)
  }

  private static func words(_ calls: [HubCall]) -> String {
    guard let first = calls.first(where: { $0.rows > 0 }) else { return "nothing" }
    return "\(calls.count) statements, of which the first has \(first.rows) rows: \(short(first.sql))"
  }

  // MARK: Forwarding

  func run(_ sql: String, _ values: [any SQLBindable]) throws(HubDatabaseError) -> Int {
    try timed(sql) { () throws(HubDatabaseError) in try inner.run(sql, values) }
  }

  func each(_ sql: String, _ values: [any SQLBindable], _ row: (any HubRow) throws(HubDatabaseError) -> Bool)
    throws(HubDatabaseError)
  {
    try timed(sql) { () throws(HubDatabaseError) in try inner.each(sql, values, row) }
  }

  func rollback() {
    inner.rollback()
    begun = nil
  }

  func perform(_ calls: [HubCall], begins: Bool, ends: Bool) throws(HubDatabaseError) {
    if begins { begun = .now }
    try timed(calls.isEmpty ? (begins ? "BEGIN" : "COMMIT") : Self.words(calls)) { () throws(HubDatabaseError) in
      try inner.perform(calls, begins: begins, ends: ends)
    }
    if ends {
      ended()
      wrote()
    }
  }

  private func ended() {
    if let begun { reportIfSlow(since: begun, "a transaction") }
    begun = nil
  }

  func read(_ calls: [HubCall]) throws(HubDatabaseError) {
    try timed(Self.words(calls)) { () throws(HubDatabaseError) in try inner.read(calls) }
  }

  var dialect: HubSchema.Dialect { inner.dialect }
}

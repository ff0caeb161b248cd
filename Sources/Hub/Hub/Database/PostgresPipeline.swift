// SPDX-License-Identifier: MIT

import CPostgres
import Glibc
import SQLite

/// Statements that are sent together, and sets of rows as arrays. Source: libpq, "Pipeline Mode"; PostgreSQL's `array_send`.
extension PostgresHubDatabase {
  /// Seconds without data until a server counts as lost, and its answer as unknown.
  private static let patience: Int32 = 30

  func perform(_ calls: [HubCall], begins: Bool, ends: Bool) throws(HubDatabaseError) {
    guard begins else { return try performOnce(calls, nil, ends) }
    try reconnecting(if: !ends) { () throws(HubDatabaseError) in try performOnce(calls, .ordinary, ends) }
  }

  func read(_ calls: [HubCall]) throws(HubDatabaseError) {
    defer { rollback() }
    // One statement has a snapshot of its own.
    let beginning: Beginning = calls.count(where: { $0.rows > 0 }) > 1 ? .snapshot : .ordinary
    try reconnecting { () throws(HubDatabaseError) in try performOnce(calls, beginning, true) }
  }

  /// How a transaction begins.
  private enum Beginning {
    case ordinary
    /// All statements read what was there at the first one.
    case snapshot

    /// `isGuarded`: the guards of the tables follow. A snapshot does not show an upgrade that ends while a guard waits,
    /// so a transaction of its own waits before.
    var statements: [(sql: String, isGuarded: Bool)] {
      switch self {
      case .ordinary: [("BEGIN", true)]
      case .snapshot:
        [("BEGIN", true), ("COMMIT", false), ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", true)]
      }
    }
  }

  /// `beginning`: begins a transaction first; `nil`: within one.
  private func performOnce(_ calls: [HubCall], _ beginning: Beginning?, _ ends: Bool) throws(HubDatabaseError) {
    let calls = calls.filter { $0.rows > 0 }
    let guards = beginning == nil ? [] : schemaGuard
    let guardNames = try guards.map { (sql) throws(HubDatabaseError) in try prepare(sql) }
    var names: [String] = []
    for call in calls {
      let text = texts.text(of: call, mark: "$") { sql in
        let arrays = call.columns.enumerated().map { "$\($0.offset + 1)::\($0.element.isText ? "text" : "bigint")[]" }
        let names = call.columns.map(\.name).joined(separator: ", ")
        return sql.replacing("@rows", with: "unnest(\(arrays.joined(separator: ", "))) AS v(\(names))")
      }
      names.append(try prepare(text + call.returning))
    }
    guard PQenterPipelineMode(connection) == 1 else { throw lost() }
    // Only a new connection clears the state after some failures.
    defer { if PQexitPipelineMode(connection) != 1 { isBroken = true } }
    PQsetnonblocking(connection, 1)
    defer { PQsetnonblocking(connection, 0) }
    var opened = 0
    for (sql, isGuarded) in beginning?.statements ?? [] {
      try send(sql)
      for name in isGuarded ? guardNames : [] { try send(HubCall(""), as: name) }
      opened += 1 + (isGuarded ? guardNames.count : 0)
    }
    for (call, name) in zip(calls, names) { try send(call, as: name) }
    if ends {
      willCommit()
      try send("COMMIT")
    }
    guard PQpipelineSync(connection) == 1 else { throw lost() }
    isInTransaction = true
    try flush()
    var failure: HubDatabaseError?
    for _ in 0..<opened { try read(nil, &failure) }
    // The guard's error is a text that is no number.
    if failure?.kind == .unfit { failure = .outdated }
    let readers = calls.map(\.row) + (ends ? [nil] : [])
    for row in readers { try read(row, &failure) }
    try finishPipeline()
    if let failure { throw failure }
    if ends { try checkCommit() }
  }

  // MARK: Sending

  private func send(_ sql: String) throws(HubDatabaseError) {
    guard PQsendQueryParams(connection, sql, 0, nil, nil, nil, nil, 0) == 1 else { throw lost() }
  }

  func send(_ call: HubCall, as name: String) throws(HubDatabaseError) {
    let arrays = call.columns.map { Self.array($0.values, isText: $0.isText) }
    // Values end with a NUL, as texts do; arrays have lengths.
    let values = call.values.map { Self.text($0).map { Array($0.utf8) + [0] } }
    let all: [[UInt8]?] = arrays + values
    var buffer: [UInt8] = []
    var places: [Int?] = []
    for bytes in all {
      places.append(bytes.map { _ in buffer.count })
      buffer += bytes ?? []
    }
    let lengths = all.map { Int32($0?.count ?? 0) }
    let formats = arrays.map { _ in Int32(1) } + values.map { _ in Int32(0) }
    let sent = buffer.withUnsafeBytes { buffer in
      let pointers = places.map { place in
        place.flatMap { buffer.baseAddress?.advanced(by: $0).assumingMemoryBound(to: CChar.self) }
      }
      return PQsendQueryPrepared(connection, name, Int32(all.count), pointers, lengths, formats, 0)
    }
    guard sent == 1 else { throw lost() }
  }

  /// An array's binary form: dimensions, whether it has NULLs, the elements' type, their number, the first index, and each element with its length.
  static func array(_ values: [SQLiteValue], isText: Bool) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(values.reduce(32) { $0 + 12 + ($1.text?.utf8.count ?? 0) })
    func add(_ value: some FixedWidthInteger) {
      withUnsafeBytes(of: value.bigEndian) { bytes.append(contentsOf: $0) }
    }
    let head: [Int32] = [1, values.contains(.null) ? 1 : 0, isText ? 25 : 20, Int32(values.count), 1]
    for number in head { add(number) }
    for value in values {
      switch value {
      case .text(let text):
        let text = Self.withoutNul(text)
        add(Int32(text.utf8.count))
        bytes.append(contentsOf: text.utf8)
      case .integer(let integer):
        add(Int32(8))
        add(integer)
      case .null, .real, .blob: add(Int32(-1))
      }
    }
    return bytes
  }

  /// Sends everything, and reads meanwhile: a server stops reading if nobody reads its answers.
  private func flush() throws(HubDatabaseError) {
    while true {
      let left = PQflush(connection)
      guard left >= 0 else { throw lost() }
      if left == 0 { return }
      try wait(for: Int16(POLLIN | POLLOUT))
    }
  }

  private func wait(for events: Int16) throws(HubDatabaseError) {
    do {
      try Self.wait(for: events, on: connection, endsWithTask: endsWithTask)
    } catch {
      isBroken = true
      throw error
    }
  }

  private static func wait(
    for events: Int16, on connection: OpaquePointer, endsWithTask: Bool = false
  ) throws(HubDatabaseError) {
    var descriptor = pollfd(fd: PQsocket(connection), events: events, revents: 0)
    var ready: Int32
    var (left, looks) = (patience * 1000, endsWithTask)
    repeat {
      let slice = looks ? min(left, look) : left
      ready = poll(&descriptor, 1, slice)
      if ready == 0 { left -= slice }
      if ready == 0, looks, Task.isCancelled {
        looks = false
        cancel(connection)
      }
    } while (ready < 0 && errno == EINTR) || (ready == 0 && left > 0)
    guard ready > 0 else {
      throw HubDatabaseError(kind: .unavailable, message: "PostgreSQL: no answer within \(patience) s")
    }
    if descriptor.revents & Int16(POLLIN | POLLHUP | POLLERR) != 0, PQconsumeInput(connection) == 0 {
      throw lost(connection)
    }
  }

  /// Milliseconds between two checks whether the task was cancelled.
  private static let look: Int32 = 250

  /// Ends the statement in progress with an error.
  private static func cancel(_ connection: OpaquePointer) {
    guard let request = PQgetCancel(connection) else { return }
    var words = [CChar](repeating: 0, count: 256)
    PQcancel(request, &words, Int32(words.count))
    PQfreeCancel(request)
  }

  /// Runs one statement without a result on an idle connection. `false`: the server refuses it. A silent server counts as lost: libpq's own function
  /// would wait without end.
  static func execute(_ sql: String, on connection: OpaquePointer) throws(HubDatabaseError) -> Bool {
    guard PQsendQuery(connection, sql) == 1 else { throw lost(connection) }
    var isDone = true
    while true {
      while PQisBusy(connection) == 1 { try wait(for: Int16(POLLIN), on: connection) }
      guard let result = PQgetResult(connection) else { break }
      isDone = isDone && [PGRES_COMMAND_OK, PGRES_TUPLES_OK].contains(PQresultStatus(result))
      PQclear(result)
    }
    guard PQstatus(connection) == CONNECTION_OK else { throw lost(connection) }
    return isDone
  }

  // MARK: Receiving

  /// The result of the last statement. `sent`: libpq's result of sending, 1: it was sent.
  func answer(to sent: Int32 = 1) throws(HubDatabaseError) -> OpaquePointer? {
    guard sent == 1 else { throw lost() }
    var last: OpaquePointer?
    do {
      while let result = try next() {
        PQclear(last)
        last = result
      }
    } catch {
      PQclear(last)
      throw error
    }
    return last
  }

  /// Reads the result of the next statement. The first error is kept; the server skips the statements behind it.
  private func read(_ row: ((any HubRow) -> Void)?, _ failure: inout HubDatabaseError?) throws(HubDatabaseError) {
    while true {
      guard let result = try next() else { return }
      defer { PQclear(result) }
      if PQresultStatus(result) == PGRES_PIPELINE_ABORTED { continue }
      do {
        try check(result)
        guard let row else { continue }
        for index in 0..<PQntuples(result) { row(PostgresRow(result: result, row: index)) }
      } catch {
        if failure == nil { failure = error }
        if PQstatus(connection) != CONNECTION_OK { throw failure ?? error }
      }
    }
  }

  /// `nil` at the end of a statement's result.
  private func next() throws(HubDatabaseError) -> OpaquePointer? {
    while PQisBusy(connection) == 1 { try wait(for: Int16(POLLIN)) }
    return PQgetResult(connection)
  }

  /// The synchronisation's result is the last of all.
  private func finishPipeline() throws(HubDatabaseError) {
    while true {
      guard let result = try next() else {
        if PQstatus(connection) != CONNECTION_OK { throw lost() }
        continue
      }
      defer { PQclear(result) }
      if PQresultStatus(result) == PGRES_PIPELINE_SYNC { return }
    }
  }

  func lost() -> HubDatabaseError { Self.lost(connection) }

  private static func lost(_ connection: OpaquePointer) -> HubDatabaseError {
    HubDatabaseError(kind: .unavailable, message: "PostgreSQL: \(words(PQerrorMessage(connection)))")
  }
}

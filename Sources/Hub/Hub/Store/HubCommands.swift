// SPDX-License-Identifier: MIT

import JSON
import SQLite

/// Commands for gateways, queued on disk until the gateway's journal has their result.
extension HubStore {
  static let maxWaiting: Int64 = 1000
  private static let lifetime: Int64 = 7 * 86_400
  /// Waiting commands that are looked at together.
  private static let expiryPage = 100

  public enum CommandState: String, Sendable { case queued, done, refused, expired }

  /// A command and its result.
  public struct Command: Sendable, Equatable {
    public var id: String
    public var state: CommandState
    /// JSON: the request, and the gateway's answer to it.
    public var body: String
    public var answer: String?
    /// The name of the token or person that sent it.
    public var author: String
    public var createdAt: Int64
    public var endedAt: Int64?
  }

  public enum Queued: Sendable, Equatable {
    case taken(Command)
    /// Too many commands wait already.
    case full
  }

  /// Queues a command. A second command with the same id is ignored.
  public func enqueue(
    _ body: JSONValue, id: String, for gateway: String, by author: String, at now: Int64,
    clocks: ClockReading = .now
  ) throws(HubDatabaseError) -> Queued {
    try transaction { () throws(HubDatabaseError) in
      try database.lock(gateway)
      let time = try keepMark(clocks)
      try expire(gateway, time, now)
      if let known = try command(id, of: gateway) { return .taken(known) }
      let waiting = try database.number(
        "SELECT count(*) FROM commands WHERE gateway = ?1 AND state = 'queued'", gateway)
      guard waiting < Self.maxWaiting else { return .full }
      let text = body.text
      try database.insert(
        into: "commands",
        ["gateway": gateway, "id": id, "body": text, "state": "queued", "author": author, "created_at": now])
      try push("commands", of: gateway, id: id, body: text, now: time)
      return .taken(Command(id: id, state: .queued, body: text, author: author, createdAt: now))
    }
  }

  /// Ends the gateway's commands whose time is over.
  func expireCommands(of gateway: String, at now: Int64, clocks: ClockReading = .now) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) in
      try database.lock(gateway)
      try expire(gateway, try keepMark(clocks), now)
    }
  }

  public func command(_ id: String, of gateway: String) throws(HubDatabaseError) -> Command? {
    try database.first(
      "SELECT \(Self.commandColumns) FROM commands WHERE gateway = ?1 AND id = ?2", gateway, id, read: Self.command)
  }

  /// The newest commands first, as many as fit a page.
  public func commands(of gateway: String, limit: Int) throws(HubDatabaseError) -> [Command] {
    let filter = "FROM commands WHERE gateway = ?1 ORDER BY created_at DESC, id"
    return try page(
      Self.commandColumns, sizes: ["body", "answer"], filter, [gateway], limit: limit, read: Self.command
    ).rows
  }

  static let commandColumns = "id, state, body, answer, author, created_at, ended_at"

  static func command(_ row: any HubRow) -> Command {
    let ended = row.textIfAny(6).flatMap { Int64($0) }
    return Command(
      id: row.text(0), state: CommandState(rawValue: row.text(1)) ?? .queued, body: row.text(2),
      answer: row.textIfAny(3), author: row.text(4), createdAt: row.integer(5), endedAt: ended)
  }

  /// Stores a finished live request: a later command with the same id must not be queued.
  public func record(
    _ body: JSONValue, answer: JSONValue, id: String, for gateway: String, by author: String, at now: Int64
  ) throws(HubDatabaseError) {
    try transaction { () throws(HubDatabaseError) -> Void in
      let state: CommandState = answer["ok"]?.bool == true ? .done : .refused
      try database.insert(
        into: "commands",
        [
          "gateway": gateway, "id": id, "body": body.text, "state": state.rawValue, "answer": Self.kept(answer),
          "author": author, "created_at": now, "ended_at": now,
        ], "ON CONFLICT(gateway, id) DO NOTHING")
      announce(HubChange(gateway: gateway, bucket: "result/\(id)", seq: 0))
      try forget(gateway)
    }
  }

  /// Within a transaction: stores the result of a command from the gateway's journal.
  func endCommand(_ event: HubEvent, of gateway: String, now: Int64) throws(HubDatabaseError) {
    guard let id = event.body["id"]?.string else { return }
    let state: CommandState = event.body["error"] == nil ? .done : .refused
    let ended = try database.run(
      """
      UPDATE commands SET state = ?3, answer = ?4, ended_at = ?5 WHERE gateway = ?1 AND id = ?2 AND state = 'queued'
      """, gateway, id, state.rawValue, Self.kept(event.body), now)
    guard ended > 0 else { return }
    try forget(gateway)
    try supersede("commands", of: gateway, id: id)
    announce(HubChange(gateway: gateway, bucket: "result/\(id)", seq: 0))
  }

  /// The answer, or a note that it was too large to be stored.
  private static func kept(_ answer: JSONValue) -> String {
    let text = answer.text
    guard text.utf8.count > HubBounds.answerBytes else { return text }
    return JSONWriter.text([
      "ok": answer["ok"]?.bool, "code": "too_large", "error": "the answer was not stored: \(text.utf8.count) bytes",
    ])
  }

  /// Within a transaction, now and then: deletes the oldest ended commands.
  private func forget(_ gateway: String) throws(HubDatabaseError) {
    guard ended.isDue(gateway) else { return }
    try database.run(
      """
      DELETE FROM commands WHERE gateway = ?1 AND state <> 'queued' AND id NOT IN (
      SELECT id FROM commands WHERE gateway = ?1 AND state <> 'queued' ORDER BY ended_at DESC, id LIMIT ?2)
      """, gateway, HubBounds.endedCommands)
  }

  /// `time` is by the queues' clock: a wall clock that is ahead, or was not set, makes no command old.
  private func expire(_ gateway: String, _ time: Int64, _ now: Int64) throws(HubDatabaseError) {
    var old: [String] = []
    var (rows, last) = (0, Int64(0))
    repeat {
      rows = 0
      try database.every(
        """
        SELECT c.id, c.body, u.at, u.seq FROM updates u JOIN commands c ON c.gateway = u.gateway AND c.id = u.id
        WHERE u.gateway = ?1 AND u.bucket = 'commands' AND u.seq > ?2 AND u.body <> '' AND c.state = 'queued'
        ORDER BY u.seq LIMIT \(Self.expiryPage)
        """, [gateway, last]
      ) { row in
        (rows, last) = (rows + 1, row.integer(3))
        // `try?`: stored values were valid JSON when they arrived.
        let wanted = (try? JSONValue(parsing: row.text(1)))?["expires_s"]?.integer ?? Self.lifetime
        let age = (time - row.integer(2)) / 1000
        if age > min(max(wanted, 1), 30 * 86_400) { old.append(row.text(0)) }
      }
    } while rows == Self.expiryPage
    for id in old {
      try database.run(
        "UPDATE commands SET state = 'expired', ended_at = ?3 WHERE gateway = ?1 AND id = ?2", gateway, id, now)
      try supersede("commands", of: gateway, id: id)
      announce(HubChange(gateway: gateway, bucket: "result/\(id)", seq: 0))
      try forget(gateway)
    }
  }
}

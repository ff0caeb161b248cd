// SPDX-License-Identifier: MIT

import EarlierSchemas
import EventLoop
import FoundationEssentials
import HTTP
import Hub
import JSON
import SQLite
import Sockets

/// A hub of the world: the real one without its network, at ports of this machine, with its database in a folder.
final class WorldHub: WebServer {
  private let folder: String
  private var generation = 0
  private var copies: [Int: Int] = [:]
  /// `nil`: it is closed.
  private var hub: HubWithoutNetwork?
  private var links: [ObjectIdentifier: OpenLink] = [:]

  private final class OpenLink {
    let gateway: String
    let peer: Peer
    var buckets: Set<String> = []
    init(_ gateway: String, _ peer: Peer) { (self.gateway, self.peer) = (gateway, peer) }
  }

  /// A proxy before it knows no WebSockets.
  var refusesLinks = false

  static let token = "a-token-of-the-world"
  static let operators = "a-token-of-operators"

  /// More of its configuration.
  private let settings: String

  init(
    _ name: String, _ folder: String, gateways: [String], settings: String = "", on loop: EventLoop,
    of clock: WorldClock
  ) throws {
    (self.folder, self.settings) = (folder, settings)
    try FileManager.default.createDirectory(atPath: "\(folder)/tokens", withIntermediateDirectories: true)
    for gateway in gateways {
      try Self.write("\(Self.token)-\(gateway)\n", to: "\(folder)/tokens/\(gateway)")
    }
    try Self.write("\(Self.operators)\n", to: "\(folder)/operators.token")
    try FileManager.default.createDirectory(atPath: "\(folder)/0", withIntermediateDirectories: true)
    hub = try Self.open(folder, 0, settings)
    super.init(name, on: loop, of: clock)
  }

  private static func write(_ text: String, to file: String) throws {
    try text.write(toFile: file, atomically: true, encoding: .utf8)
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
  }

  private static func open(_ folder: String, _ generation: Int, _ settings: String) throws -> HubWithoutNetwork {
    let configuration = """
      database = "\(folder)/\(generation)/hub.db"
      gateway_tokens = "\(folder)/tokens"
      log_level = "error"
      [[token]]
      file = "\(folder)/operators.token"
      gateway = "*"
      access = "all"
      \(settings)

      """
    return try blocking { try await HubWithoutNetwork(configuration) }
  }

  // MARK: Requests

  override func answer(_ request: Request, of gateway: String) throws -> Answer {
    let half = mood == .takesHalf ? Self.half(request.body) : nil
    let answer = ask(request.method, request.target, request.headers, half?.bytes ?? request.body)
    announce()
    return answer
  }

  private func ask(_ method: String, _ target: String, _ headers: [(String, String)], _ body: [UInt8]) -> Answer {
    guard let hub else { return Answer(status: 503) }
    let answer = blocking { await hub.answer(method, target, headers, body) }
    return Answer(status: answer.status, headers: answer.headers, body: answer.body)
  }

  /// Asks as an operator.
  func ask(_ method: String, _ target: String, _ body: String = "") -> JSONValue? {
    let answer = ask(method, target, [("Authorization", "Bearer \(Self.operators)")], Array(body.utf8))
    announce()
    // `try?`: a refusal has no JSON in some cases, and no value for the caller.
    return try? JSONValue(parsing: answer.body)
  }

  /// Writes events in a gateway's name, with its token.
  func forge(_ gateway: String, _ body: String) -> Answer {
    let answer = ask(
      "POST", "/v1/gateways/\(gateway)/events", [("Authorization", "Bearer \(Self.token)-\(gateway)")], Array(body.utf8)
    )
    announce()
    return answer
  }

  // MARK: Links

  override func upgrades(_ request: Request, _ peer: Peer, _ rest: [UInt8], of gateway: String)
    async throws(StreamEnd) -> Bool
  {
    guard let key = request["sec-websocket-key"], !refusesLinks else { return false }
    let path = request.target.split(separator: "/").map(String.init)
    guard path.count == 4, path[3] == "link",
      let session = hub?.link(of: path[2], authorization: request["authorization"])
    else { return false }
    peer.write(
      Array(
        """
        HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r
        Sec-WebSocket-Protocol: meshpost.v1\r\nSec-WebSocket-Accept: \(WebSocketKey.answer(to: key))\r\n\r\n
        """.utf8))
    let link = OpenLink(gateway, peer)
    links[ObjectIdentifier(link)] = link
    defer { links[ObjectIdentifier(link)] = nil }
    let messages = Mailbox<[UInt8]>(bound: 100_000)
    let worker = loop.begin { [self] in
      // `try?`: the link has ended.
      while let bytes = try? await messages.next() {
        // `try?`: as above.
        guard (try? await untilItAnswers(peer)) != nil, (try? handle(bytes, session, link)) != nil else { break }
      }
      peer.abort()
    }
    defer { worker.cancel() }
    var frames = ClientFrames(unread: rest)
    while true {
      let (opcode, payload) = try await frames.next(peer)
      switch opcode {
      case 1: _ = messages.put(payload)
      case 8: return true
      case 9: if mood != .mute, mood != .deaf { peer.write(Self.frame(10, payload)) }
      default: break
      }
    }
  }

  private func handle(_ bytes: [UInt8], _ session: HubWithoutNetwork.Link, _ link: OpenLink) throws {
    // `try?`: the session judges invalid JSON.
    if let message = try? JSONValue(parsing: bytes), message["method"]?.string == "getUpdatesState" {
      link.buckets = Set((message["params"]?["buckets"]?.array ?? []).compactMap(\.string))
    }
    let half = mood == .takesHalf ? Self.half(bytes) : nil
    let taken = half?.bytes ?? bytes
    var answer = try blocking { try await session.answer(taken) }
    // A number alone would acknowledge the whole batch.
    if let half, let number = half.number, answer == Array("\(number)".utf8) {
      answer = Array(#"{"type":"taken","n":\#(number),"acknowledged":\#(half.last)}"#.utf8)
    }
    if mood == .losesAnswers {
      link.peer.abort()
      return
    }
    if let answer { link.peer.write(Self.frame(1, answer)) }
    announce()
  }

  /// The batch without the second half of its events; `nil`: it is none, or has one event.
  private static func half(_ bytes: [UInt8]) -> (bytes: [UInt8], number: Int64?, last: Int64)? {
    // `try?`: the hub judges what is not JSON.
    guard let batch = try? JSONValue(parsing: bytes), let fields = batch.fields, let events = batch["events"]?.array,
      events.count > 1, let last = events[events.count / 2 - 1]["seq"]?.integer
    else { return nil }
    let half = fields.map { ($0.0, $0.0 == "events" ? .array(Array(events.prefix(events.count / 2))) : $0.1) }
    return (Array(JSONValue.object(half).text.utf8), batch["n"]?.integer, last)
  }

  /// Tells linked gateways of new updates.
  private func announce() {
    for change in hub?.takeChanges() ?? [] {
      for link in links.values where link.buckets.contains(change.bucket) {
        guard change.gateway.isEmpty || change.gateway == link.gateway else { continue }
        link.peer.write(
          Self.frame(1, Array(#"{"type":"has_new","bucket":"\#(change.bucket)","seq":\#(change.seq)}"#.utf8)))
      }
    }
  }

  private static func frame(_ opcode: UInt8, _ payload: [UInt8]) -> [UInt8] {
    let length: [UInt8] =
      payload.count < 126
      ? [UInt8(payload.count)]
      : payload.count < 65536
        ? [126, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
        : [127] + stride(from: 56, through: 0, by: -8).map { UInt8(truncatingIfNeeded: payload.count >> $0) }
    return [0x80 | opcode] + length + payload
  }

  // MARK: Its database

  private func database(_ generation: Int) -> String { "\(folder)/\(generation)" }

  /// Keeps a copy of the database under this number.
  func copy(_ number: Int) throws {
    let place = 100_000 + number
    try copyFiles(from: generation, to: place)
    copies[number] = place
  }

  /// Puts the copy in the place of the database; `nil`: an empty one. Without a copy of this number nothing happens.
  func putBack(_ number: Int?) throws -> Bool {
    guard let number else {
      try become(nil)
      return true
    }
    guard let place = copies[number] else { return false }
    try become(place)
    return true
  }

  /// The hub starts again.
  func restart() throws { try become(generation) }

  /// The hub ends. Its tasks do in the loop's next turns, and then its files are closed.
  func close() {
    mood = .refuses
    hub = nil
  }

  /// The hub starts again, with the same files.
  func open() throws {
    hub = try Self.open(folder, generation, settings)
    mood = .well
  }

  /// Deletes what is older than its configuration says, as it does each hour. `uptime`: of its machine, milliseconds.
  func deleteOld(uptime: Int64) {
    guard let hub else { return }
    blocking { await hub.deleteOld(uptime: uptime) }
  }

  var databaseFile: String { "\(database(generation))/hub.db" }

  func openDatabase() throws -> Database { try Database(location: databaseFile, readOnly: true) }

  /// `before`: what happens to the files before the hub opens them. It returns the folder that has them then.
  private func become(_ place: Int?, _ before: (_ next: Int) throws -> Int = { $0 }) throws {
    hangUp()
    var next = generation + 1
    if let place {
      try copyFiles(from: place, to: next)
    } else {
      try FileManager.default.createDirectory(atPath: database(next), withIntermediateDirectories: true)
    }
    next = try before(next)
    hub = try Self.open(folder, next, settings)
    generation = next
  }

  // MARK: Other versions

  private func age(_ folder: String, to version: Int) throws {
    try EarlierSchema.hub.undo(to: version, in: "\(folder)/hub.db")
    // Before, hubs kept no names of databases beside it.
    // `try?`: there is none yet.
    if version < 19 { try? FileManager.default.removeItem(atPath: "\(folder)/hub.db.mark") }
  }

  func ageCopy(_ number: Int, to version: Int) throws {
    if let place = copies[number] { try age(database(place), to: version) }
  }

  /// The hub was one with an earlier schema, and is upgraded, perhaps not at once.
  func upgrade(from version: Int, _ cut: FlushCut?) throws {
    try become(generation) { next in
      try age(database(next), to: version)
      guard let cut else { return next }
      let isCut = try cut.leaves(of: database(next), in: database(next + 1)) {
        _ = try Self.open(folder, next, settings)
      }
      return isCut ? next + 1 : next
    }
  }

  /// A newer hub has ended, and an older one is tried. Returns what it should not have done.
  func tryOlderProgram() throws -> [String] {
    var breaches: [String] = []
    try become(generation) { next in
      try whileNewer("\(database(next))/hub.db", than: EarlierSchema.hub.newest) {
        let before = try FolderContent(database(next))
        do {
          _ = try Self.open(folder, next, settings)
          breaches.append("an older hub has started with a newer database")
        } catch {
          let isRefusal = "\(error)".contains("and this program knows versions up to")
          if !isRefusal { breaches.append("an older hub has ended with: \(error)") }
        }
        let changes = before.changes(to: try FolderContent(database(next)))
        if !changes.isEmpty { breaches.append("an older hub has changed \(changes)") }
      }
      return next
    }
    return breaches
  }

  private func copyFiles(from: Int, to: Int) throws {
    let files = FileManager.default
    try files.createDirectory(atPath: database(to), withIntermediateDirectories: true)
    for name in try files.contentsOfDirectory(atPath: database(from)) where !name.hasSuffix("-shm") {
      try files.copyItem(atPath: "\(database(from))/\(name)", toPath: "\(database(to))/\(name)")
    }
  }

  /// The stored messages of a gateway, in the order of arrival: epoch, seq and text.
  func messages(of gateway: String) throws -> [(epoch: String, seq: Int64, text: String)] {
    try rows(gateway, "message").map { ($0.epoch, $0.seq, $0.body["text"]?.string ?? "") }
  }

  /// The newest event of a gateway; `nil`: it has none.
  func newest(of gateway: String) throws -> (epoch: String, seq: Int64)? {
    let newest = "SELECT epoch, seq FROM events WHERE gateway = ?1 ORDER BY id DESC LIMIT 1"
    return try openDatabase().rows(newest, [.text(gateway)]) { (epoch: $0.text(0), seq: $0.integer(1)) }.first
  }

  func gaps(of gateway: String) throws -> [JSONValue] { try rows(gateway, "gap").map(\.body) }

  private func rows(_ gateway: String, _ kind: String) throws -> [(epoch: String, seq: Int64, body: JSONValue)] {
    let ofKind = "SELECT epoch, seq, body FROM events WHERE gateway = ?1 AND kind = ?2 ORDER BY id"
    return try openDatabase().rows(ofKind, [.text(gateway), .text(kind)]) { row in
      // `try?`: all stored bodies are JSON.
      (epoch: row.text(0), seq: row.integer(1), body: (try? JSONValue(parsing: row.text(2))) ?? .null)
    }
  }
}

/// The frames of a client, which are masked. Source: RFC 6455 § 5.2.
private struct ClientFrames {
  var unread: [UInt8]
  private var message: [UInt8] = []

  init(unread: [UInt8]) { self.unread = unread }

  /// The next whole message or control frame.
  mutating func next(_ peer: Peer) async throws(StreamEnd) -> (opcode: UInt8, payload: [UInt8]) {
    while true {
      if let (isFinal, opcode, payload) = take() {
        if opcode >= 8 { return (opcode, payload) }
        message += payload
        guard isFinal else { continue }
        defer { message = [] }
        return (1, message)
      }
      unread += try await peer.read()
    }
  }

  private mutating func take() -> (Bool, UInt8, [UInt8])? {
    guard unread.count >= 6 else { return nil }
    var (length, place) = (Int(unread[1] & 0x7F), 2)
    if length >= 126 {
      let count = length == 126 ? 2 : 8
      guard unread.count >= 2 + count + 4 else { return nil }
      length = unread[2..<2 + count].reduce(0) { $0 << 8 | Int($1) }
      place += count
    }
    guard unread.count >= place + 4 + length else { return nil }
    let mask = Array(unread[place..<place + 4])
    let payload = unread[(place + 4)..<(place + 4 + length)].enumerated().map { $1 ^ mask[$0 & 3] }
    defer { unread.removeFirst(place + 4 + length) }
    return (unread[0] & 0x80 != 0, unread[0] & 0x0F, payload)
  }
}

/// Does work of the hub, which is over when this returns.
func blocking<Value: Sendable>(_ work: @escaping @Sendable () async throws -> Value) throws -> Value {
  try HubWithoutNetwork.wait(for: work)
}

func blocking<Value: Sendable>(_ work: @escaping @Sendable () async -> Value) -> Value {
  // `try!`: the work throws nothing.
  try! HubWithoutNetwork.wait { () async throws -> Value in await work() }
}

// SPDX-License-Identifier: MIT

import Foundation
import Hummingbird
import JSON
import NIOCore
import Synchronization

/// Lists over all gateways, for people who look after them.
extension HubAPI {
  func routeReaders(_ router: Router<HubContext>) {
    router.get("/v1/fleet") { request, context in try await answer(request, context, .read, fleet) }
    router.get("/v1/channels") { request, context in
      try await answer(request, context, .read) { _ in Self.json(try await stores.pages.channels()) }
    }
    router.get("/v1/commands") { request, context in
      try await answer(request, context, .read) { call in
        Self.json(try await stores.pages.commands(before: call.number("before") ?? .max, limit: call.limit))
      }
    }
    router.get("/v1/messages/{position}") { request, context in
      try await answer(request, context, .read) { call in
        guard let position = call.parameters.get("position", as: Int64.self),
          let body = try await stores.pages.joinedMessage(at: position)
        else { return Self.refusal(.notFound, "no such message") }
        return Self.json(body)
      }
    }
    router.get("/v1/live") { request, context in try await answer(request, context, .read, live) }
  }

  private func fleet(_ call: Call) async throws -> Response {
    let rows = try await stores.pages.fleet(after: call.query("after") ?? "", limit: call.limit)
    let linked = await registry.open
    return Self.json(
      JSONWriter.object { json in
        json.arrayField("gateways") { json in
          for row in rows { json.raw(Self.bytes(of: row, isLinked: linked.contains(row.gateway))) }
        }
        if rows.count == call.limit { json.field("next", rows.last?.gateway) }
      })
  }

  static func bytes(of row: HubStore.FleetRow, isLinked: Bool) -> [UInt8] {
    JSONWriter.object { json in
      json.field("gateway", row.gateway)
      json.field("linked", isLinked)
      json.field("last_seen", row.lastSeen)
      for (name, value) in row.fields.fields ?? [] { json.field(name, value) }
    }
  }

  // MARK: Live

  /// What changes, as server-sent events (WHATWG HTML § 9.2), for as long as the reader stays.
  private func live(_ call: Call) async throws -> Response {
    guard let place = stores.live.join() else {
      return Self.refusal(.serviceUnavailable, "too many readers", retryAfter: 30)
    }
    let newest = try await stores.pages.newestPosition()
    let wanted = call.request.headers[.init("Last-Event-ID")!].flatMap { Int64($0) } ?? call.number("after")
    // Who knows a position that is not ours begins with what comes.
    let start = wanted.flatMap { (0...newest).contains($0) ? $0 : nil } ?? newest
    var headers = HTTPFields()
    headers[.contentType] = "text/event-stream"
    headers[.cacheControl] = "no-store"
    let (request, who) = (call.request, call.way)
    let body = ResponseBody { [self] writer in
      defer { withExtendedLifetime(place) {} }
      try await writer.write(ByteBuffer(string: "retry: 2000\n\n"))
      try await writer.write(Self.event("hello", id: start, JSONWriter.object { $0.field("position", start) }))
      var reader = LiveReader(position: start, fleet: await fleetNow())
      while !Task.isCancelled, !Task.isShuttingDownGracefully {
        try await Task.sleep(for: LiveReader.pause)
        var pieces = try await news(&reader)
        if reader.isCheckDue {
          // A session that ended ends what it follows.
          if who == .password, try await web?.visitor(request) == nil { break }
          // An event, and not a comment: pages that are told nothing see a cut line.
          if pieces.isEmpty { pieces = [Self.event("tick", id: nil, Array("{}".utf8))] }
        }
        for piece in pieces { try await writer.write(piece) }
      }
      try await writer.finish(nil)
    }
    return Response(status: .ok, headers: headers, body: body)
  }

  /// What the reader has not had.
  private func news(_ reader: inout LiveReader) async throws -> [ByteBuffer] {
    reader.turns += 1
    var pieces: [ByteBuffer] = []
    if try await stores.live.newest(stores) > reader.position {
      let page = try await stores.pages.joinedMessages(channel: nil, after: reader.position, limit: LiveReader.atOnce)
      for message in try JSONValue(parsing: page)["messages"]?.array ?? [] {
        guard let position = message["position"]?.integer else { continue }
        reader.position = position
        pieces.append(Self.event("message", id: position, Array(JSONWriterText.text(message).utf8)))
      }
    }
    guard reader.isFleetDue else { return pieces }
    let fleet = await fleetNow()
    for (gateway, row) in fleet where reader.fleet[gateway] != row {
      pieces.append(Self.event("gateway", id: nil, row))
    }
    reader.fleet = fleet
    return pieces
  }

  private func fleetNow() async -> [String: [UInt8]] {
    let linked = await registry.open
    // `try?`: a database that does not answer has nothing new; the reader stays.
    guard let rows = try? await stores.live.fleet(stores) else { return [:] }
    return Dictionary(
      rows.map { ($0.gateway, Self.bytes(of: $0, isLinked: linked.contains($0.gateway))) }, uniquingKeysWith: { $1 })
  }

  private static func event(_ name: String, id: Int64?, _ data: [UInt8]) -> ByteBuffer {
    var buffer = ByteBuffer()
    if let id { buffer.writeString("id: \(id)\n") }
    buffer.writeString("event: \(name)\ndata: ")
    // JSON of ours has no line breaks.
    buffer.writeBytes(data)
    buffer.writeString("\n\n")
    return buffer
  }
}

/// How far somebody who follows is.
private struct LiveReader {
  /// Readers look that often for what is new.
  static let pause: Duration = .seconds(1)
  /// Messages that are sent before anything else is looked at.
  static let atOnce = 100
  private static let fleetTurns = 5
  private static let checkTurns = 20

  var position: Int64
  var turns = 0
  /// Rows that it has.
  var fleet: [String: [UInt8]]

  init(position: Int64, fleet: [String: [UInt8]]) { (self.position, self.fleet) = (position, fleet) }

  var isFleetDue: Bool { turns.isMultiple(of: Self.fleetTurns) }
  var isCheckDue: Bool { turns.isMultiple(of: Self.checkTurns) }
}

/// What readers of `/v1/live` share: the database is asked once for all of them, and not at all without any.
final class HubLive: Sendable {
  private static let mostReaders = 200
  private static let positionAge: Duration = .milliseconds(500)
  private static let fleetAge: Duration = .seconds(4)
  /// Of a larger fleet, rows are not live.
  private static let mostRows = 5000

  private struct State {
    var readers = 0
    var position: (value: Int64, at: ContinuousClock.Instant)?
    var fleet: (rows: [HubStore.FleetRow], at: ContinuousClock.Instant)?
  }

  private let state = Mutex(State())

  /// A reader's place; it is free again when nobody has this any more.
  final class Place: Sendable {
    private let live: HubLive

    init(_ live: HubLive) { self.live = live }

    deinit { live.state.withLock { $0.readers -= 1 } }
  }

  /// `nil`: there are as many as there may be.
  func join() -> Place? {
    let hasRoom = state.withLock { state in
      guard state.readers < Self.mostReaders else { return false }
      state.readers += 1
      return true
    }
    return hasRoom ? Place(self) : nil
  }

  func newest(_ stores: HubStores) async throws -> Int64 {
    let now = ContinuousClock.now
    if let known = state.withLock({ $0.position }), now - known.at < Self.positionAge { return known.value }
    let value = try await stores.pages.newestPosition()
    state.withLock { $0.position = (value, now) }
    return value
  }

  func fleet(_ stores: HubStores) async throws -> [HubStore.FleetRow] {
    let now = ContinuousClock.now
    if let known = state.withLock({ $0.fleet }), now - known.at < Self.fleetAge { return known.rows }
    var rows: [HubStore.FleetRow] = []
    while rows.count < Self.mostRows {
      let page = try await stores.pages.fleet(after: rows.last?.gateway ?? "", limit: 1000)
      rows += page
      guard page.count == 1000 else { break }
    }
    state.withLock { $0.fleet = (rows, now) }
    return rows
  }
}

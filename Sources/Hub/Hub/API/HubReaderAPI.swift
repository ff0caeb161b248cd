// SPDX-License-Identifier: MIT

import HTTPTypes
import Hummingbird
import JSON

/// Lists over all gateways, for pages and for programs.
extension HubAPI {
  /// The query of a list: `after` begins at the oldest row, `before` or `order=newest` at the newest. The default is the oldest row.
  private func query(_ call: Call) throws(BadQuery) -> ListQuery {
    let (after, before) = (try call.bound("after"), try call.bound("before"))
    guard after == nil || before == nil else { throw BadQuery("after and before exclude each other") }
    let order = call.query("order")
    guard order == nil || order == "newest" || order == "oldest" else { throw BadQuery("order is newest or oldest") }
    let isNewestFirst = before != nil || order == "newest"
    guard !isNewestFirst || after == nil, before == nil || order != "oldest" else {
      throw BadQuery("after goes with order=oldest, before with order=newest")
    }
    var query = ListQuery(after: isNewestFirst ? nil : after ?? 0, before: before, limit: try call.pageLimit())
    (query.since, query.until) = (try call.bound("since"), try call.bound("until"))
    query.words = try SearchTerms(call.query("q"))
    return query
  }

  /// Answers with the result of a long query.
  func reading(_ question: @escaping @Sendable (isolated HubStore, Call) throws -> [UInt8]) -> Handler {
    { call in Self.json(try await stores.readers.ask(call.holder) { try question($0, call) }) }
  }

  func joined(_ call: Call) async throws -> Response {
    var query = try query(call)
    (query.channel, query.gateway) = (call.query("channel"), call.query("gateway"))
    query.from = try SearchTerms(call.query("from"), of: "from")
    let page = try await stores.readers.ask(call.holder) { [query] in try $0.messages(query) }
    return Self.json(stores.probe.isHiding() ? page.dropLast() + Array(",\"hidden\":true}".utf8) : page)
  }

  func page(_ call: Call, kind: String?) async throws -> Response {
    var query = try query(call)
    query.kind = kind ?? call.query("kind")
    query.channel = call.query("channel")
    return Self.json(
      try await stores.readers.ask(call.holder) { [query] in
        if let wrong = try $0.unknown(query.kind.map { [$0] } ?? []).first {
          throw BadQuery("\"\(wrong)\" is not a kind of event: expected \(KnownKinds.allowed)")
        }
        return try $0.events(of: call.gateway, query)
      })
  }

  func oneMessage(_ call: Call) async throws -> Response {
    guard let position = call.parameters.get("position").flatMap({ Int64($0) }), position >= 0,
      let message = try await stores.readers.ask(call.holder, { try $0.messageWithWays(position) })
    else { return Self.refusal(.notFound, "no such message") }
    return Self.json(message)
  }

  func fleet(_ call: Call) async throws -> Response {
    let limit = try call.pageLimit()
    let rows = try await stores.readers.ask(call.holder) {
      try $0.fleet(after: call.query("after") ?? "", limit: limit)
    }
    let figures = await figures.ifCounted()
    let links = await links.times()
    let open = try await alerts(rows.map(\.gateway))
    var list = JSONWriter()
    var (last, isCut) = (String?.none, false)
    list.array { json in
      for row in rows {
        let alerts = open[row.gateway] ?? OpenAlerts()
        let body = JSONWriter.object(row.json(linkedAt: links[row.gateway], figures, alerts: alerts))
        guard last == nil || Int64(json.bytes.count + body.count) < HubStore.pageBytes else {
          isCut = true
          break
        }
        json.raw(body)
        last = row.gateway
      }
    }
    return Self.json(["gateways": RawJSON(list.bytes), "next": isCut || rows.count == limit ? last : nil])
  }

  func fleetSummary(_ call: Call) async throws -> Response {
    let now = HubClock.now
    let figures = await figures.ifCounted()
    let links = await links.times()
    let gateways = try await stores.readers.ask(call.holder) { try $0.gatewayCount() }
    let open = try await alerts([])
    let silent = open.filter { $0.value.isSilent && links[$0.key] == nil }.count
    let count = open.values.reduce(Int64(0)) { $0 + $1.count }
    let hours = (Int64(0)...23).map { (now / 3_600_000 - 23 + $0) * 3_600_000 }
    let counted = figures.map { figures in
      hours.map { ["at": $0, "messages": figures.hours[$0] ?? 0] as JSONObject }
    }
    return Self.json([
      "gateways": gateways, "linked": links.count, "silent": silent, "alerts": count,
      "messages_today": figures?.total, "hours": counted,
    ])
  }

  func coverage(_ call: Call) async throws -> Response {
    let parts = (call.query("after") ?? "").split(separator: "/", maxSplits: 1).map(String.init)
    return Self.json(
      try await stores.readers.ask(call.holder) {
        try $0.coverage(
          after: (parts.first ?? "", parts.count > 1 ? parts[1] : ""), since: try call.bound("since") ?? 0,
          limit: try call.pageLimit())
      })
  }

  func allCommands(_ call: Call) async throws -> Response {
    let before = try Self.commandPosition(call.query("before"))
    let limit = try call.pageLimit()
    let found = try await expiring({ Set($0.rows.filter { $0.command.state == .queued }.map(\.gateway)) }) {
      try await stores.readers.ask(call.holder) { try $0.allCommands(before: before, limit: limit) }
    }
    let (rows, hasMore) = found
    let next = rows.last.map { "\($0.command.createdAt)/\($0.gateway)/\($0.command.id)" }
    return Self.json(["commands": rows.map(\.json), "next": hasMore ? next : nil])
  }

  private static func commandPosition(_ text: String?) throws(BadQuery) -> (at: Int64, gateway: String, id: String)? {
    guard let text else { return nil }
    let parts = text.split(separator: "/", maxSplits: 2, omittingEmptySubsequences: false).map(String.init)
    guard let at = parts.first.flatMap({ Int64($0) }), at >= 0 else { throw BadQuery("before is a page's next") }
    return (at, parts.count > 1 ? parts[1] : "", parts.count > 2 ? parts[2] : "")
  }
}

extension HubStore.OwnedCommand {
  var json: JSONObject {
    [
      "gateway": gateway, "id": command.id, "state": command.state.rawValue,
      // `try?`: stored values were valid JSON when they arrived.
      "command": (try? JSONValue(parsing: command.body))?["command"]?.string, "body": RawJSON(command.body),
      "answer": command.answer.map { RawJSON($0) }, "author": command.author, "created_at": command.createdAt,
      "ended_at": command.endedAt,
    ]
  }
}

extension HubAPI.Call {
  /// 0 to 2⁵³: a whole number outside counts as the nearest bound; anything else is refused.
  func bound(_ name: String) throws(BadQuery) -> Int64? {
    guard let text = query(name) else { return nil }
    return try Self.whole(text, name)
  }

  private static func whole(_ text: String, _ name: String) throws(BadQuery) -> Int64 {
    let digits = text.utf8.drop { $0 == UInt8(ascii: "-") }
    guard (1...40).contains(digits.count), text.utf8.count - digits.count <= 1,
      digits.allSatisfy({ (0x30...0x39).contains($0) })
    else { throw BadQuery("\(name) must be a whole number") }
    if digits.count < text.utf8.count { return 0 }
    return min(Int64(text) ?? .max, JSONValue.wholeNumbers.upperBound)
  }

  /// The reader's last message, by the header `Last-Event-ID`: a browser sends it when it reconnects, with the address of its first request.
  func lastEvent() throws(BadQuery) -> Int64? {
    let name = "Last-Event-ID"
    guard let text = HTTPField.Name(name).flatMap({ request.headers[$0] }), !text.isEmpty else { return nil }
    return try Self.whole(text, name)
  }

  /// Rows of a page: 1 to 1000, 100 by default.
  func pageLimit() throws(BadQuery) -> Int { Int(min(max(try bound("limit") ?? 100, 1), 1000)) }
}

// SPDX-License-Identifier: MIT

import Documents
import FoundationEssentials
import Glibc
import HTTP
import Hummingbird
import JSON
import UntrustedText

extension HubAPI {
  /// Commands that the hub can queue for a disconnected gateway. Other commands are about the present.
  private static let queueable: Set = ["send"]
  /// Seconds that a request may wait for the end of a command.
  private static let longestWait: Int64 = 60

  /// Sends the command over the gateway's link, or queues it if the command allows that.
  func command(_ call: Call) async throws -> Response {
    guard let body = try await object(of: call), let name = body["command"]?.string else {
      return Self.refusal(.badRequest, "expected a JSON object with \"command\"")
    }
    guard let id = (body["id"] ?? .string(UUID().uuidString)).string, Visible.isLine(id, bytes: 1...48) else {
      return Self.refusal(
        .badRequest, "\"id\" must be a text with 1 to 48 bytes, not only blanks, and no control characters")
    }
    if let wrong = Self.wrongField(of: body, name) { return Self.refusal(.badRequest, wrong, ["id": id]) }
    do {
      return try await carryOut(body, name, id: id, call)
    } catch let error as HubDatabaseError where error.kind != .unfit {
      // It may have been queued: sent again with this id, it is carried out once.
      return unanswered(error, ["id": id])
    }
  }

  private func carryOut(_ body: JSONValue, _ name: String, id: String, _ call: Call) async throws -> Response {
    let begun = ContinuousClock.now
    let wait = min(try call.bound("wait_s") ?? 15, Self.longestWait)
    if let known = try await stores.writer.command(id, of: call.gateway) {
      // `try?`: stored values were valid JSON when they arrived.
      let before = (try? JSONValue(parsing: known.body)) ?? .null
      // What a deleted one said nobody knows any more: it was carried out.
      guard
        known.body == EmptiedEvent.body
          || ["command", "to", "text"].allSatisfy({ before[$0]?.bytes == body[$0]?.bytes })
      else {
        return Self.refusal(.conflict, "the id \(id) belongs to another command", ["id": id])
      }
      return await ended(known, call, wait: wait)
    }
    guard try await isKnown(call.gateway) || body["queue"]?.bool == true else {
      return Self.unknownGateway(call.gateway, "; with \"queue\":true the command waits until it comes", ["id": id])
    }
    let request = JSONValue.object(
      (body.fields ?? []).filter { !["id", "queue"].contains($0.0) } + [("id", .string(id))])
    guard request.text.utf8.count <= HubBounds.commandBytes else {
      return Self.refusal(
        .contentTooLarge, "a command may have at most \(HubBounds.commandBytes) bytes", ["id": id])
    }
    let isQueueable = body["queue"]?.bool ?? Self.queueable.contains(name)
    do {
      // A linked gateway may be slow or silent, and whoever does not want to wait must not: the queue has the command.
      guard !isQueueable || wait > 0 else { throw LinkRegistry.Failure.timedOut }
      let limit: Duration? = isQueueable ? .seconds(wait) : nil
      let answer = try await ask(call.gateway, id: id, request, isQueueable: isQueueable, within: limit)
      // Queue the command if the gateway could not store it, or asks for a retry.
      if answer["code"]?.string != "store", answer["retry"]?.bool != true {
        return await record(answer, request, id, call, keep: name != "status")
      }
    } catch let failure as LinkRegistry.Failure {
      guard isQueueable else {
        return Self.refusal(
          failure == .away ? .serviceUnavailable : .gatewayTimeout,
          failure == .away ? "the gateway is not connected" : "the gateway did not answer in time", ["id": id])
      }
    }
    guard isQueueable else {
      return Self.refusal(.serviceUnavailable, "the gateway cannot accept it now", ["id": id])
    }
    switch try await stores.writer.enqueue(request, id: id, for: call.gateway, by: call.author, at: HubClock.now) {
    case .full:
      stores.metrics.wasBusy(.queue)
      return Self.refusal(
        .tooManyRequests, "\(HubStore.maxWaiting) commands are already waiting", retryAfter: 60, ["id": id])
    case .taken(let command):
      // A refusal now would make clients send it again.
      await logging("command \(id) for \(call.gateway) is queued, but not in the audit") {
        try await auditCommand(request, id, call)
      }
      return await ended(command, call, wait: wait - (ContinuousClock.now - begun).components.seconds)
    }
  }

  /// A field that the gateway would refuse: a queued command would say so days later. Fields that this version does not know are the gateway's.
  private static func wrongField(of body: JSONValue, _ name: String) -> String? {
    func isWrong(_ field: String, _ isRight: (JSONValue) -> Bool) -> Bool { body[field].map { !isRight($0) } ?? false }
    for field in ["queue", "split", "full"] where isWrong(field, { $0.bool != nil }) {
      return "\"\(field)\" must be true or false"
    }
    guard name == "send" else { return nil }
    for field in ["to", "text"] where body[field]?.string?.isEmpty ?? true { return "\"\(field)\" must be a text" }
    if isWrong("expires_s", { $0.count ?? 0 > 0 }) { return "\"expires_s\" must be a whole number from 1" }
    if isWrong("region", { !($0.string?.isEmpty ?? true) }) { return "\"region\" must be a text" }
    let priorities: Set = ["interactive", "relayed", "bulk"]
    if isWrong("priority", { $0.string.map(priorities.contains) ?? false }) {
      return "\"priority\" must be one of \(priorities.sorted().joined(separator: ", "))"
    }
    return nil
  }

  /// Whether the gateway was ever here, or a token is for it.
  private func isKnown(_ gateway: String) async throws -> Bool {
    if await links.isLinked(gateway) { return true }
    if try await !stores.lookups.gateways(gateway).isEmpty { return true }
    return try await access.expects(gateway, in: stores.lookups)
  }

  /// Refuses requests about an unknown gateway: its id is probably misspelt.
  func ifKnown(_ handler: @escaping Handler) -> Handler {
    { call in try await isKnown(call.gateway) ? handler(call) : Self.unknownGateway(call.gateway) }
  }

  private static func unknownGateway(
    _ gateway: String, _ more: String = "", _ fields: JSONObject = [:]
  ) -> Response {
    refusal(.notFound, "no gateway \(gateway) was ever here\(more)", fields)
  }

  /// Does what must not change the answer any more; a failure is only logged.
  private func logging(_ what: String, _ work: () async throws -> Void) async {
    do {
      try await work()
    } catch {
      stores.metrics.wasBusy(.database)
      Self.failures.say("\(what): \(error)")
    }
  }

  private func auditCommand(_ request: JSONValue, _ id: String, _ call: Call) async throws {
    try await note(
      "command", call,
      [
        "id": id, "command": HubBounds.cut(request["command"]?.string, HubBounds.nameBytes),
        "to": HubBounds.cut(request["to"]?.string, HubBounds.nameBytes),
      ])
  }

  /// Sends a request over the gateway's link, at this hub or at a peer hub. A command that the hub can queue reaches the peer hub through the queue.
  private func ask(
    _ gateway: String, id: String, _ request: JSONValue, isQueueable: Bool, within limit: Duration?
  ) async throws -> JSONValue {
    do {
      return try await registry.request(gateway, id: id, command: request, within: limit)
    } catch LinkRegistry.Failure.away {
      guard !isQueueable, let peerHubs else { throw LinkRegistry.Failure.away }
      return try await peerHubs.request(gateway, id: id, command: request)
    }
  }

  private func record(
    _ answer: JSONValue, _ request: JSONValue, _ id: String, _ call: Call, keep: Bool
  ) async -> Response {
    let plain = JSONValue.object((answer.fields ?? []).filter { $0.0 != "type" })
    if keep {
      // The gateway has carried it out: a refusal now would make clients send it again.
      await logging("the end of command \(id) of \(call.gateway) is not stored") {
        try await stores.writer.record(
          request, answer: plain, id: id, for: call.gateway, by: call.author, at: HubClock.now)
        try await auditCommand(request, id, call)
      }
    }
    let state = plain["ok"]?.bool == true ? "done" : "refused"
    return Self.json(["id": id, "state": state, "answer": plain])
  }

  /// Answers 200 when the command has ended, or 202 if it has not ended within the wait.
  private func ended(_ command: HubStore.Command, _ call: Call, wait: Int64) async -> Response {
    var command = command
    if command.state == .queued, wait > 0 {
      await registry.waitForResult(call.gateway, command.id, limit: .seconds(wait)) {
        [stores, gateway = call.gateway, id = command.id] in
        // `try?`: if the database fails, the notification of the end counts.
        let known = try? await stores.writer.command(id, of: gateway)
        return known.map { $0.state != .queued } ?? false
      }
      // `try?`: if the database fails, the answer is the known state.
      command = (try? await stores.writer.command(command.id, of: call.gateway)) ?? command
    }
    return Self.json(command.json, status: command.state == .queued ? .accepted : .ok)
  }

  /// Reads commands. If some of them wait, ends those of their gateways (`waiting`) whose time is over, and reads again.
  func expiring<Found>(_ waiting: (Found) -> Set<String>, _ read: () async throws -> Found) async throws -> Found {
    let found = try await read()
    let gateways = waiting(found)
    guard !gateways.isEmpty else { return found }
    for gateway in gateways { try await stores.writer.expireCommands(of: gateway, at: HubClock.now) }
    return try await read()
  }

  func commands(_ call: Call) async throws -> Response {
    let limit = try call.pageLimit()
    let found = try await expiring({ $0.contains { $0.state == .queued } ? [call.gateway] : [] }) {
      try await stores.readers.ask(call.holder) { try $0.commands(of: call.gateway, limit: limit) }
    }
    // An unknown gateway may have queued commands.
    if found.isEmpty, try await !isKnown(call.gateway) { return Self.unknownGateway(call.gateway) }
    return Self.json(["commands": found.map(\.json)])
  }

  func oneCommand(_ call: Call) async throws -> Response {
    guard let id = call.parameters.get("command").flatMap({ PercentCoding.decode($0) }),
      let found = try await expiring(
        { $0?.state == .queued ? [call.gateway] : [] }, { try await stores.writer.command(id, of: call.gateway) })
    else {
      return Self.refusal(.notFound, "no such command")
    }
    return await ended(found, call, wait: min(try call.bound("wait_s") ?? 0, Self.longestWait))
  }

  // MARK: Documents

  func documents(_ call: Call) async throws -> Response {
    let limit = try call.pageLimit()
    let (page, allowed) = try await stores.readers.ask(call.holder) {
      (
        try $0.documents(of: call.gateway, after: call.query("after") ?? "", limit: limit),
        try $0.allowed(by: call.gateway)
      )
    }
    return Self.json([
      "documents": page.found.filter(\.isAllowed).map { $0.shown(allowed: allowed) },
      "next": page.hasMore ? page.found.last?.key : nil,
    ])
  }

  /// Handles `PUT` with `{"value": …}`, and `DELETE`, which leaves a tombstone.
  func editDocument(_ call: Call) async throws -> Response {
    let key = call.parameters.getCatchAll().joined(separator: "/")
    guard let kind = DocumentKey(key) else { return Self.refusal(.badRequest, "\(DocumentKey.allowed)") }
    var value: String?
    if call.request.method == .put {
      guard let body = try await object(of: call), let given = body["value"], kind.allows(given) else {
        return Self.refusal(.unprocessableContent, "expected {\"value\": …} with \(kind.wanted)")
      }
      value = given.text
    }
    guard let document = try await stores.writer.editDocument(key, value, of: call.gateway, at: HubClock.now) else {
      return Self.refusal(.tooManyRequests, "a gateway may have at most \(HubBounds.documents) documents")
    }
    try await note(
      "document", call,
      ["key": key, "deleted": value == nil ? true : nil])
    let allowed = try await stores.writer.allowed(by: call.gateway)
    return Self.json(document.shown(allowed: allowed))
  }
}

extension HubStore.Command {
  var json: JSONObject {
    [
      "id": id, "state": state.rawValue, "command": RawJSON(body), "answer": answer.map { RawJSON($0) }, "by": author,
      "created_at": createdAt, "ended_at": endedAt,
    ]
  }
}

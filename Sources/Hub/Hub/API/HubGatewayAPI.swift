// SPDX-License-Identifier: MIT

import Deflate
import Hummingbird
import JSON

extension HubAPI {
  func take(_ call: Call) async throws -> Response {
    let bytes: [UInt8]
    do throws(Unreadable) {
      bytes = try await plainBody(of: call)
    } catch {
      return Self.refusal(error.status, error.message)
    }
    let batch: EventBatch
    do throws(EventBatch.Refusal) {
      batch = try EventBatch(parsing: bytes, epoch: call.short?.epoch)
    } catch {
      stores.metrics.refusedBatch()
      return Self.refusal(HTTPResponse.Status(code: error.status), error.message, seq: error.seq)
    }
    if let wait = await limiter.admit(call.gateway, events: batch.events.count, bytes: bytes.count) {
      stores.metrics.wasBusy(.rate)
      return Self.refusal(.tooManyRequests, RateLimiter.message, retryAfter: wait)
    }
    var prepared = PreparedBatch(batch, from: call.gateway, after: batch.after, at: HubClock.now)
    // A sender that gives the batch's predecessor handles conflicts, too.
    prepared.handlesConflicts = batch.after != nil
    if let wait = stores.ingest.admission.enter(call.gateway, bytes: prepared.bytes) {
      stores.metrics.wasBusy(.queue)
      return Self.refusal(.serviceUnavailable, Admission.message, retryAfter: wait)
    }
    defer { stores.ingest.admission.leave(call.gateway, bytes: prepared.bytes) }
    await registry.noteEpoch(call.gateway, epoch: batch.epoch)
    switch try await stores.ingest.take(prepared) {
    case .acknowledged(let through), .outOfOrder(let through):
      if let session = call.short {
        short.took(bytes, by: session)
        return Self.brief("\(through)")
      }
      var response = Self.json(["acknowledged": through])
      // Only gateways use this encoding: they pay for each byte and need no type.
      if call.coding == LinkDictionary.contentEncoding { response.headers[.contentType] = nil }
      return response
    case .conflict(let seq):
      return Self.refusal(.conflict, "event \(seq) of this epoch is here with other content", seq: seq)
    }
  }

  func greet(_ call: Call) async throws -> Response {
    guard let known = try await stores.lookups.gateways(call.gateway).first else {
      return Self.refusal(
        .notFound, "unknown gateway",
        JSONObject(
          joining: HubStore.Progress().json(), Self.abilities, call.query("epoch").map { short(call, epoch: $0) } ?? [:]
        ))
    }
    let epoch = call.query("epoch") ?? known.epoch
    let asked = HubStore.Progress { call.number($0.rawValue) }
    let standing =
      asked.lanes.isEmpty
      ? try await stores.standing(gateway: call.gateway, epoch: epoch)
      : HubStore.Standing(
        progress: try await stores.lookups.progress(gateway: call.gateway, epoch: epoch, through: asked))
    let isLinked = await links.isLinked(call.gateway)
    return Self.json(
      JSONObject(
        joining: known.json, ["epoch": epoch, "acknowledged": standing.progress?.acknowledged],
        (standing.progress ?? HubStore.Progress()).json(), standing.json, ["linked": isLinked], Self.abilities,
        short(call, epoch: epoch)))
  }

  /// Answers a request that opened no link: it is not a WebSocket handshake, or another upstream holds the link.
  func refuseLink(_ call: Call) async -> Response {
    let field = LinkProtocol.Origin.name
    let origin = LinkProtocol.Origin(call.request.headers[field])
    guard let holder = await registry.holder(call.gateway, against: origin) else {
      return Self.refusal(.upgradeRequired, "this is a WebSocket endpoint")
    }
    var response = Self.refusal(
      .conflict, "this hub has a live link of this gateway already, by its upstream \(holder)")
    response.headers[field] = holder
    return response
  }

  func gateways(_ call: Call) async throws -> Response {
    let limit = try call.pageLimit()
    let found = try await stores.readers.ask(call.holder) {
      try $0.gateways(after: call.query("after") ?? "", limit: limit)
    }
    let rows = found.map {
      JSONObject(joining: $0.json, ["epoch": $0.epoch, "acknowledged": $0.progress.acknowledged])
    }
    return Self.json(["gateways": rows, "next": found.count == limit ? found.last?.id : nil])
  }

  /// With `buckets`: their states, and with `lanes` the position in `epoch`; without that, or if the hub does not have
  /// it, in the epoch that began last. With `bucket` and `after`: a page of one bucket.
  func updates(_ call: Call) async throws -> Response {
    if let names = call.query("buckets") {
      let buckets = names.split(separator: ",").map(String.init)
      let hearers = call.query("gateways").map { $0.split(separator: ",").map(String.init) }
      let states = try await stores.bucketStates(of: buckets, for: call.gateway, hearers: hearers)
      guard call.query("lanes") != nil else { return Self.json(HubUpdates.states(states)) }
      var (epoch, progress) = (call.query("epoch"), HubStore.Progress?.none)
      if let epoch { progress = try await stores.standing(gateway: call.gateway, epoch: epoch).progress }
      if progress == nil {
        let known = try await stores.lookups.gateways(call.gateway).first
        (epoch, progress) = (known?.epoch, known?.progress)
      }
      return Self.json(
        JSONObject(
          joining: ["epoch": epoch], (progress ?? HubStore.Progress()).json(withDigests: false),
          HubUpdates.states(states)))
    }
    guard let query = HubUpdates.Query({ call.number($0) }, bucket: call.query("bucket")) else {
      return Self.refusal(.badRequest, "buckets, or bucket and after, are required")
    }
    return Self.json(try await query.run(stores, call.gateway))
  }

  func setState(_ call: Call) async throws -> Response {
    guard let name = call.parameters.get("name"), Name.isAllowed(name), let body = try await object(of: call) else {
      return Self.refusal(.badRequest, "expected a JSON object, and a name of \(Name.allowed)")
    }
    if let wait = await limiter.admit(call.gateway, bytes: body.text.utf8.count) {
      stores.metrics.wasBusy(.rate)
      return Self.refusal(.tooManyRequests, RateLimiter.message, retryAfter: wait)
    }
    guard try await stores.setState(name, body, of: call.gateway, at: HubClock.now) else {
      return Self.refusal(
        .contentTooLarge,
        "a gateway may have at most \(HubBounds.states) states, each of at most \(HubBounds.stateBytes) bytes")
    }
    return Self.json(["ok": true])
  }
}

/// Answers requests for updates, over a link or HTTP.
enum HubUpdates {
  struct Query: Sendable {
    let bucket: String
    let position: HubStore.Position
    let until: Int64?
    let limit: Int
    let most: Int64?

    init?(_ number: (String) -> Int64?, bucket: String?) {
      guard let bucket, HubStore.isBucket(bucket), let after = number("after"), after >= 0 else { return nil }
      self.bucket = bucket
      position = HubStore.Position(after: after, at: number("at"), since: number("since"))
      until = number("until")
      limit = Int(min(max(number("limit") ?? 100, 1), 1000))
      most = number("most").map { min(max($0, 1), HubStore.maxShared) }
    }

    /// Runs when it is the gateway's turn.
    func run(_ stores: HubStores, _ gateway: String) async throws -> [UInt8] {
      try await stores.pages.ask(gateway) { store in
        try store.updates(bucket, of: gateway, from: position, until: until, limit: limit, most: most)
      }
    }
  }

  static func states(_ states: [HubStore.BucketState]) -> JSONObject {
    ["buckets": states.map { ["bucket": $0.bucket, "seq": $0.seq, "at": $0.at] as JSONObject }]
  }
}

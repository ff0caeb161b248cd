// SPDX-License-Identifier: MIT

import Companion
import Deflate
import EventLoop
import HTTP
import JSON
import MeshCrypto
import ProxyTunnel
import Sockets
import Store
import Timing
import UntrustedText

/// Sends batches to a Meshpost hub over HTTP; each answer is a cumulative acknowledgement. Questions and states use a
/// connection of their own, so that neither delays the other. Source: docs/hub-protocol.md.
final class HubOverHTTP {
  private let server: AuthorizedHTTP
  private let queryConnection: AuthorizedHTTP
  let path: String
  private let store: Store
  private let loop: EventLoop
  private var clock: WallClock { loop.wallClock }
  /// The compression that the hub accepts; `isPackingBroken`: something between here and the hub does not pass it.
  private var (packing, isPackingBroken) = (Packing?.none, false)
  /// Replaces the token, gateway and epoch in posts of small batches; `last`: the previous batch, part of the
  /// dictionary. `nil`: the hub gave none.
  private var short: (key: [UInt8], epoch: String, last: [UInt8])?
  /// Consecutive answers in which the hub did not know its own key.
  private var unknownKeys = 0
  /// The hub's positions in this epoch, according to its last answer.
  private var has = (epoch: "", seqs: ByLane<Int64?>(all: nil), since: MonotonicTime(seconds: 0))
  /// The hub has fewer events than it reported: it was restored from a backup, and needs a new greeting.
  private(set) var isPutBack = false
  /// As in `Carrier`.
  private(set) var otherEpochs: [OtherEpoch] = []
  /// At the last greeting it had less than it said before.
  private(set) var hasForgotten = false
  /// When the hub's positions were last compared.
  private var comparedAt = MonotonicTime(seconds: 0)
  /// When to greet again without questions: answers to batches compare only their own lane.
  var compareAgainAt: MonotonicTime { comparedAt + .seconds(3600) }
  /// Limits greetings if a hub contradicts itself.
  private static let leastPause: Duration = .seconds(60)
  /// Larger batches gain nothing.
  private static let mostShort = 4096
  enum Packing {
    case gzip, dictionary

    /// Smaller bodies are not compressed.
    private static let gzipFrom = 256

    var coding: String {
      switch self {
      case .gzip: "gzip"
      case .dictionary: LinkDictionary.contentEncoding
      }
    }

    func pack(_ body: [UInt8]) -> [UInt8]? {
      switch self {
      case .gzip: body.count < Self.gzipFrom ? nil : Deflater.gzip(body)
      case .dictionary: Deflater.whole(body, dictionary: LinkDictionary.fromGateway)
      }
    }
  }

  /// Serialises requests on the connection for questions.
  private let turn = LoopSemaphore<Int>(bound: 32)
  /// Whether the hub carries out deletions, by its last greeting; `nil`: there was none.
  var deletes: Bool?
  /// Why questions and states fail, until an operator solves it; batches then fail for the same reason.
  private(set) var trouble: String?

  init(
    _ settings: UpstreamSettings, proxy: TunnelSettings?, meter: TrafficMeter, store: Store, on loop: EventLoop
  ) throws {
    server = try AuthorizedHTTP(settings, proxy: proxy, meter: meter, on: loop)
    queryConnection = try AuthorizedHTTP(settings, proxy: proxy, meter: meter, on: loop)
    path = "\(server.path)/v1/gateways/\(PercentCoding.encode(store.gatewayID))"
    self.store = store
    self.loop = loop
  }

  var certificateExpiry: Int64? { server.certificateExpiry }
  var bytesSent: UInt64 { server.bytesSent &+ queryConnection.bytesSent }

  func greet() async -> Greeting {
    do throws(Verdict) {
      let epoch = store.epoch
      let result = try await server.send(HTTPRequest("GET", "\(path)?epoch=\(epoch)&short=1"))
      packing = Self.packing(result)
      otherEpochs = result.json.map { OtherEpoch.all($0) } ?? []
      short = result.json?["short"]?.string.flatMap { Hex.bytes($0) }.map { ($0, epoch, []) }
      let (greeting, before) = (greeting(result), has)
      // What the hub had is still to be compared when it answers again.
      guard case .has = greeting else { return greeting }
      (has, comparedAt) = ((epoch, ByLane(all: nil), loop.now), loop.now)
      if case .has(.byLane(let seqs), _) = greeting { has.seqs = seqs }
      hasForgotten =
        isPutBack
        || before.epoch.isExactly(epoch) && Lane.allCases.contains { before.seqs[$0] ?? 0 > has.seqs[$0] ?? 0 }
      isPutBack = false
      return greeting
    } catch {
      return .failed(error)
    }
  }

  func standing(of epoch: String, through seqs: ByLane<Int64?>) async -> Greeting {
    let asked = Lane.allCases.compactMap { lane in seqs[lane].map { "&\(lane.rawValue)=\($0)" } }
    do throws(Verdict) {
      return greeting(try await server.send(HTTPRequest("GET", "\(path)?epoch=\(epoch)\(asked.joined())")))
    } catch {
      return .failed(error)
    }
  }

  private func greeting(_ result: Result<HTTPResponse, HTTPFailure>) -> Greeting {
    // Only a hub's own 404 says that it has nothing. One of a proxy, or of another server at this address, says nothing.
    if result.status == 404, let json = result.json,
      json["lanes"]?.fields != nil || json["error"]?.string == "unknown gateway"
    {
      deletes = json["deletes"]?.bool == true
      return .has(Self.acknowledged(json) ?? .whole(nil), ByLane(all: nil))
    }
    var (acknowledged, digests) = (Acknowledged.whole(nil), ByLane<String?>(all: nil))
    let verdict = RetryPolicy.verdict(result, now: clock.seconds) { _ in
      guard let json = result.json, json.fields != nil, let has = Self.acknowledged(json) else { return nil }
      (acknowledged, digests) = (has, Self.digests(json))
      deletes = json["deletes"]?.bool == true
      return 0
    }
    guard case .acknowledged = verdict else { return .failed(verdict) }
    return .has(acknowledged, digests)
  }

  /// The hub's positions in a greeting; `nil`: invalid.
  static func acknowledged(_ greeting: JSONValue) -> Acknowledged? {
    if let lanes = greeting["lanes"], lanes != .null {
      guard lanes.fields != nil else { return nil }
      var found = ByLane<Int64?>(all: nil)
      for lane in Lane.allCases {
        guard let given = lanes[lane.rawValue], given != .null else { continue }
        guard let count = given.count else { return nil }
        found[lane] = count
      }
      return .byLane(found)
    }
    guard let given = greeting["acknowledged"], given != .null else { return .whole(nil) }
    return given.count.map { .whole($0) }
  }

  /// The digest of each lane's newest event at the hub; `nil`: not reported.
  static func digests(_ greeting: JSONValue) -> ByLane<String?> {
    ByLane { greeting["digests"]?[$0.rawValue]?.string }
  }

  private static func packing(_ greeting: Result<HTTPResponse, HTTPFailure>) -> Packing? {
    guard greeting.status == 200 || greeting.status == 404, let json = greeting.json else { return nil }
    if json["deflate"]?.string == LinkDictionary.name { return .dictionary }
    return json["gzip"]?.bool == true ? .gzip : nil
  }

  /// `nil`: the batch has to be sent in the long form: it is too large, or the hub gave no key or has forgotten it.
  private func carryShort(_ batch: Batch) async -> Verdict? {
    guard let short, short.epoch.isExactly(store.epoch), packing == .dictionary, !isPackingBroken else { return nil }
    let body = batch.encode(of: store, isShort: true)
    guard body.count <= Self.mostShort,
      let packed = Deflater.whole(body, dictionary: LinkDictionary.fromGateway + short.last)
    else { return nil }
    // Detects a hub that unpacks with another last batch.
    let check = Digest.sha256(body).prefix(4)
    // Without an answer, the hub's last batch is unknown.
    self.short = nil
    let result = await server.sendBare(HTTPRequest("POST", "\(server.path)/v1/e", body: short.key + check + packed))
    if let status = result.status, (400..<500).contains(status), ![422, 429].contains(status) {
      unknownKeys += 1
      return nil
    }
    let verdict = verdict(result) { Self.position($0) }
    switch verdict {
    case .acknowledged:
      unknownKeys = 0
      self.short = (short.key, short.epoch, LinkDictionary.last(of: body))
    case .refused, .busy: self.short = short
    case .retry, .failing, .hungUp, .diverged, .stopped: break
    }
    return verdict
  }

  /// The position in the answer to a short post: digits alone. Greater numbers than in JSON are refused, as there.
  static func position(_ answer: [UInt8]) -> Int64? {
    Int64(String(decoding: answer, as: UTF8.self)).flatMap { JSONValue.integer($0).count }
  }

  func carry(_ batch: Batch) async -> Verdict {
    let unknown = unknownKeys
    let verdict: Verdict
    if let short = await carryShort(batch) { verdict = short } else { verdict = await carryWhole(batch) }
    if case .acknowledged(let through) = verdict, let lane = batch.lane {
      has.seqs[lane] = max(has.seqs[lane] ?? 0, through)
    }
    // A restarted hub gives a new key; behind a load balancer each hub has its own: ask at most twice in a row.
    if case .acknowledged = verdict, unknownKeys > unknown, unknownKeys <= 2 {
      _ = await greet()
      // Only a greeting of the upstream compares the histories.
      isPutBack = isPutBack || hasForgotten
    }
    return verdict
  }

  private func carryWhole(_ batch: Batch) async -> Verdict {
    let body = batch.encode(of: store)
    guard let packing, !isPackingBroken, let packed = packing.pack(body) else { return await carry(body) }
    let verdict = await carry(packed, packing)
    // The compression may be the reason, not the events: something on the way, or a replaced hub, does not read it.
    guard case .refused(let status, _) = verdict, status == 400 || status == 415 else { return verdict }
    let plain = await carry(body)
    if case .acknowledged = plain { isPackingBroken = true }
    return plain
  }

  private func carry(_ body: [UInt8], _ packing: Packing? = nil) async -> Verdict {
    var request = HTTPRequest("POST", "\(path)/events", body: body)
    if let packing { request.headers.add("Content-Encoding", packing.coding) }
    do throws(Verdict) {
      // With this compression, the content type is implied.
      let result = try await server.send(request, contentType: packing == .dictionary ? nil : "application/json")
      if packing != nil, result.status == 415 { return .refused(status: 415, reason: "HTTP 415") }
      if case .success(let response) = result, response.status == 409 {
        return .diverged(reason: RetryPolicy.words(response))
      }
      return verdict(result) { _ in result.json?["acknowledged"]?.count }
    } catch {
      return error
    }
  }

  private func verdict(_ result: Result<HTTPResponse, HTTPFailure>, _ acknowledged: ([UInt8]) -> Int64?) -> Verdict {
    let verdict = RetryPolicy.verdict(result, now: clock.seconds, parse: acknowledged)
    // With JSON in the answer the hub itself is busy, not a server before it: its positions are still known.
    guard result.status == 429 || result.status == 503, result.json?["error"]?.string != nil else { return verdict }
    switch verdict {
    case .retry(let reason, let after?), .failing(let reason, let after?): return .busy(reason: reason, after: after)
    default: return verdict
    }
  }

  // MARK: Questions and states

  /// `nil`: the answer is missing or invalid.
  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    let before = has
    var isPoll: Bool { if case .state = question { true } else { false } }
    // Otherwise the hub answers for the epoch that began last, which may be another card's.
    let named = otherEpochs.isEmpty || before.epoch.isEmpty ? "" : "&epoch=\(before.epoch)"
    let response = try await answer(
      HTTPRequest("GET", "\(path)/updates?\(question.query)\(isPoll ? "\(named)&lanes=1" : "")"))
    // `try?`: an answer that is not JSON is invalid.
    let answer = response.flatMap { try? JSONValue(parsing: $0.body) }
    if isPoll, let answer, case .byLane(let seqs)? = Self.acknowledged(answer), before.epoch.isExactly(has.epoch),
      loop.now - has.since >= Self.leastPause
    {
      let isSame = answer["epoch"]?.string?.isExactly(before.epoch) == true
      comparedAt = loop.now
      isPutBack = isPutBack || Lane.allCases.contains { before.seqs[$0] ?? 0 > (isSame ? seqs[$0] ?? 0 : 0) }
    }
    return answer
  }

  /// True: the hub has it.
  func publish(_ state: NewestStates.State) async -> Bool {
    // `try?`: `trouble` has the reason.
    (try? await answer(HTTPRequest("PUT", "\(path)/state/\(state.name)", body: state.body))) != nil
  }

  /// `nil`: no answer, or another status than 200.
  private func answer(_ request: HTTPRequest) async throws(BucketSync.Trouble) -> HTTPResponse? {
    let result: Result<HTTPResponse, HTTPFailure>
    do {
      result = try await turn.with(0) { try await self.queryConnection.send(request) }
      trouble = nil
    } catch Verdict.stopped(let reason) {
      trouble = reason
      throw BucketSync.Trouble(message: reason)
    } catch {
      // Too many requests wait already, or the caller was cancelled.
      return nil
    }
    if case .failure(.endless) = result {
      throw BucketSync.Trouble(message: "the hub's answer takes too long for this line", isTooLong: true)
    }
    guard case .success(let response) = result, response.status == 200 else { return nil }
    return response
  }

  func close() {
    server.close()
    queryConnection.close()
  }
}

extension Result<HTTPResponse, HTTPFailure> {
  /// `nil`: there is no answer.
  fileprivate var status: Int? { if case .success(let response) = self { response.status } else { nil } }

  /// `nil`: there is no answer, or it is not JSON.
  fileprivate var json: JSONValue? {
    // `try?`: as above.
    if case .success(let response) = self { try? JSONValue(parsing: response.body) } else { nil }
  }
}

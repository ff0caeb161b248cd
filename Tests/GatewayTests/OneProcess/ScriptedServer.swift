// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Store
import Testing
import Timing

@testable import Relay

/// A hub, a broker or a webhook without a network: it accepts events, and has the faults that a test sets. It outlives the gateways that it serves.
final class ScriptedServer {
  enum Mood: Equatable {
    case well
    /// It accepts the connection and all data, and does not answer until it is well.
    case standsStill
    /// It closes the connection at each batch, and stores none of it.
    case hangsUp
    /// It stores each batch, and closes the connection before its answer.
    case losesAnswers
    case unreachable
    /// HTTP 401.
    case locked
    /// Its answers are delayed by this time.
    case late(Duration)
  }

  /// The stored events in the server's order, each once.
  struct Event {
    let seq: Int64
    let epoch: String
    let kind: String
    let body: JSONValue
    let digest: String
  }

  let kind: String
  var mood = Mood.well {
    didSet {
      moodChanged.resume()
      switch mood {
      case .unreachable, .locked: hangUp()
      default: break
      }
    }
  }
  /// Events that it always refuses.
  var refuses: (Event) -> Bool = { _ in false }
  /// Events over which it always fails.
  var failsOver: (Event) -> Bool = { _ in false }
  private(set) var events: [Event] = []
  /// The texts of all messages that came, also of those that it did not take, or had already.
  private(set) var tried: [String] = []
  /// Events at which it closes the connection each time.
  var hangsUpOver: (Event) -> Bool = { _ in false }
  /// How often it has closed the connection at a batch.
  fileprivate(set) var hangUps = 0
  /// The updates for gateways, by bucket: JSON bodies with their ids, numbered from 1.
  private var buckets: [String: [(id: String, at: Int64, body: String)]] = [:]
  /// Buckets that a gateway has asked for.
  private(set) var asked: Set<String> = []
  /// How often a gateway has asked for the position.
  private(set) var greetings = 0
  private var acknowledged: [String: ByLane<Int64?>] = [:]
  private var lines: [ServerLine] = []
  fileprivate let moodChanged = Waiter()

  init(_ kind: String) { self.kind = kind }

  var texts: [String] { events.filter { $0.kind == "message" }.compactMap { $0.body["text"]?.string } }

  /// The number of carriers to this server that gateways have built.
  var carriers: Int { lines.count }

  /// Rules and states of the alert events, in order.
  var alerts: [String] {
    events.filter { $0.kind == "alert" }.map { "\($0.body["rule"]?.string ?? "?") \($0.body["state"]?.string ?? "?")" }
  }

  /// Sends a request to the gateway, and returns the answer.
  func ask(_ request: String) async -> String? {
    guard let answer = await lines.last?.commands?.take(Array(request.utf8)) else { return nil }
    return String(decoding: answer, as: UTF8.self)
  }

  /// The server's time, which it tells with its updates; `nil`: it tells none.
  var now: () -> Int64? = { nil }

  /// Adds an update for the gateway, with this time of the server's clock.
  func put(_ body: String, in bucket: String, id: String, at: Int64) {
    buckets[bucket, default: []].append((id, at, body))
    for line in lines { line.updates?.hasNew(bucket, Int64(buckets[bucket]?.count ?? 0)) }
  }

  /// The server's database: a copy can be put back later.
  var database: (events: [Event], acknowledged: [String: ByLane<Int64?>]) {
    get { (events, acknowledged) }
    set {
      (events, acknowledged) = newValue
      hangUp()
    }
  }

  func forget() { database = ([], [:]) }

  func hangUp() { for line in lines { line.end() } }

  /// Ignores all further data of a killed gateway.
  func forgetLines() {
    for line in lines { line.isDead = true }
    lines = []
  }

  func line(_ store: Store, on loop: EventLoop) -> any Carrier {
    let line = ServerLine(self, store, on: loop)
    lines.append(line)
    return line
  }

  // MARK: For its connections

  /// Source: docs/hub-protocol.md.
  fileprivate func answer(_ question: UpdatesQuestion) -> String {
    switch question {
    case .state(let names, _):
      asked.formUnion(names)
      let states = names.map { name in
        let updates = buckets[name] ?? []
        return #"{"bucket":"\#(name)","seq":\#(updates.count),"at":\#(updates.last?.at ?? 0)}"#
      }
      return "{\"buckets\":[\(states.joined(separator: ","))]}"
    case .page(let bucket, let from, _, let limit, _):
      let all = buckets[bucket] ?? []
      let news = all.enumerated().dropFirst(Int(from.seq)).prefix(limit).map { number, update in
        #"{"seq":\#(number + 1),"at":\#(update.at),"id":"\#(update.id)","body":\#(update.body)}"#
      }
      return """
        {"first":1,"last":\(all.count),\(now().map { "\"now\":\($0)," } ?? "")"last_at":\(all.last?.at ?? 0),"more":\(Int(from.seq) + news.count < all.count),\
        "updates":[\(news.joined(separator: ","))]}
        """
    }
  }

  fileprivate func greeted(_ epoch: String) -> Greeting {
    switch mood {
    case .unreachable: return .failed(.retry(reason: "no connection", after: nil))
    case .locked: return .failed(.stopped(reason: "HTTP 401: check the token"))
    default: break
    }
    greetings += 1
    guard kind == "hub" else { return .ready }
    let has = acknowledged[epoch] ?? ByLane(all: nil)
    var digests = ByLane<String?>(all: nil)
    for lane in Lane.allCases {
      digests[lane] = events.first { $0.seq == has[lane] && $0.epoch == epoch }?.digest
    }
    return .has(.byLane(has), digests)
  }

  fileprivate func take(_ batch: Batch, _ epoch: String) -> Verdict {
    let lane = batch.lane ?? .messages
    var journal = acknowledged[epoch] ?? ByLane(all: nil)
    if kind == "hub", let after = batch.after, after > journal[lane] ?? 0 {
      return .retry(reason: "earlier events are missing", after: nil)
    }
    let came = batch.events.map { event in
      // `try?`: all bodies are JSON, and a test would notice another.
      let body = (try? JSONValue(parsing: event.body)) ?? .null
      let digest = EventContent.digest(at: event.at, kind: event.kind, body: body)
      return Event(seq: event.seq, epoch: epoch, kind: event.kind, body: body, digest: digest)
    }
    tried += came.compactMap { $0.kind == "message" ? $0.body["text"]?.string : nil }
    if came.contains(where: hangsUpOver) { return .hungUp(reason: "it hung up") }
    if came.contains(where: failsOver) { return .failing(reason: "HTTP 500") }
    if let bad = came.first(where: refuses) { return .refused(status: 422, reason: "not \(bad.seq)") }
    for event in came where !events.contains(where: { $0.seq == event.seq && $0.epoch == epoch }) {
      if event.kind == "message" {
        let others = Set((event.body.fields ?? []).map(\.0)).subtracting(EventBody.messageFields)
        #expect(others.isEmpty, "fields that the configuration's check does not know")
      }
      events.append(event)
    }
    guard kind == "hub" else { return .acknowledged(through: batch.last) }
    if let last = came.last?.seq { journal[lane] = max(journal[lane] ?? 0, last) }
    acknowledged[epoch] = journal
    return .acknowledged(through: journal[lane] ?? 0)
  }
}

/// A gateway's connection to a scripted server.
private final class ServerLine: Carrier, UpdatesSource {
  private static let latency: Duration = .milliseconds(50)

  private let server: ScriptedServer
  private let store: Store
  private let loop: EventLoop
  private var ended = Promise<ConnectionEnd>()
  private var isUp = false
  private var underWay = 0
  var isDead = false
  weak var commands: CommandIntake?
  weak var updates: BucketSync?
  private(set) var bytesSent: UInt64 = 0

  init(_ server: ScriptedServer, _ store: Store, on loop: EventLoop) {
    (self.server, self.store, self.loop) = (server, store, loop)
  }

  var kind: String { server.kind }
  var serverKeepsCount: Bool { kind == "hub" }
  let place = "in this process"
  var window: Int { kind == "hub" ? 4 : 1 }
  var keepsConnection: Bool { kind != "webhook" }
  var updatesSource: (any UpdatesSource)? { kind == "hub" ? self : nil }

  func greet() async -> Greeting {
    // `try?`, as below: a cancelled caller needs no answer.
    try? await loop.sleep(for: Self.latency)
    guard !isDead else { return .failed(.retry(reason: "dead", after: nil)) }
    let greeting = server.greeted(store.epoch)
    if case .failed = greeting { return greeting }
    (ended, isUp) = (Promise(), true)
    return greeting
  }

  func hold() async throws(CancellationError) -> ConnectionEnd {
    updates?.reachable(true)
    defer { updates?.reachable(false) }
    return try await ended.value()
  }

  func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
    try? await loop.sleep(for: Self.latency)
    guard isUp, !isDead, server.mood != .standsStill else { return nil }
    // `try?`: tests write this JSON.
    return try? JSONValue(parsing: Array(server.answer(question).utf8))
  }

  func carry(_ batch: Batch) async -> Verdict {
    guard isUp, !isDead else { return .retry(reason: "no connection", after: nil) }
    bytesSent += UInt64(batch.size)
    underWay += 1
    defer { underWay -= 1 }
    let line = ended
    try? await loop.sleep(for: Self.latency)
    while server.mood == .standsStill, !Task.isCancelled, isUp {
      try? await server.moodChanged.wait(until: loop.now + .seconds(1), on: loop)
    }
    guard isUp, !isDead, line === ended, !Task.isCancelled else { return .hungUp(reason: "the connection ended") }
    if server.mood == .hangsUp {
      server.hangUps += 1
      end()
      return .hungUp(reason: "it hung up")
    }
    let verdict = server.take(batch, store.epoch)
    if case .hungUp = verdict {
      server.hangUps += 1
      end()
      return verdict
    }
    if server.mood == .losesAnswers {
      end()
      return .hungUp(reason: "it hung up before it answered")
    }
    if case .late(let delay) = server.mood { try? await loop.sleep(for: delay) }
    return isUp && line === ended ? verdict : .hungUp(reason: "the connection ended")
  }

  func end() {
    guard isUp else { return }
    isUp = false
    ended.keep(.lost(underWay > 0 ? nil : .retry(reason: "the server hung up", after: nil)))
  }

  func close() { isUp = false }
}

// SPDX-License-Identifier: MIT

import Deflate
import Dispatch
import JSON
import LoopTestSupport
import NIOCore
import NIOEmbedded
import NIOWebSocket
import Synchronization
import TOML
import UntrustedText

@testable import Hub

extension FuzzTarget {
  // MARK: The link

  /// A gateway's frames, with and without compression, as a hub reads them.
  static func link(_ bytes: [UInt8]) {
    let input = CutInput(bytes)
    let whole = messages([input.whole[...]], input.choice)
    must(messages(input.pieces, input.choice) == whole, "a link gives the same messages, however it is cut")
    for case .message(.text(let text)) in whole {
      _ = LinkSession.batch(of: text)
      guard let message = try? JSONValue(parsing: text) else { continue }
      if let batch = try? EventBatch(message, epoch: "e") { judge(batch) }
      let parameters = message["params"] ?? .null
      if let query = HubUpdates.Query({ parameters[$0]?.integer }, bucket: parameters["bucket"]?.string) {
        must((1...1000).contains(query.limit) && query.position.after >= 0, "a page has a bound: \(parameters.text)")
      }
    }
  }

  private enum LinkResult: Equatable {
    case message(LinkMessageAssembler.Message)
    /// Which of several mistakes shows first depends on the cuts.
    case refused
  }

  private static func messages(_ pieces: [ArraySlice<UInt8>], _ choice: UInt8) -> [LinkResult] {
    let most = 8192
    let channel = EmbeddedChannel(handler: ByteToMessageHandler(WebSocketFrameDecoder(maxFrameSize: most)))
    // `try?`: it was refused before, or has frames that nobody reads.
    defer { _ = try? channel.finish(acceptAlreadyClosed: true) }
    var agreed = PerMessageDeflate()
    agreed.clientBits = LinkCompressor.gatewayWindowBits
    agreed.clientKeepsContext = choice & 2 == 0
    agreed.hasDictionary = choice & 4 != 0
    var assembler = LinkMessageAssembler(most: most, choice & 1 == 0 ? nil : agreed)
    var results: [LinkResult] = []
    for piece in pieces {
      var isRefused = false
      do { try channel.writeInbound(ByteBuffer(bytes: piece)) } catch { isRefused = true }
      do {
        while let frame = try channel.readInbound(as: WebSocketFrame.self) {
          guard let message = try assembler.take(frame) else { continue }
          if case .text(let text) = message { must(text.count <= most, "a message has at most its limit") }
          results.append(.message(message))
        }
      } catch {
        isRefused = true
      }
      if isRefused { return results + [.refused] }
    }
    return results
  }

  // MARK: Batches

  /// A batch of a gateway, over HTTP or from a broker.
  static func batches(_ bytes: [UInt8]) {
    if let batch = try? EventBatch(parsing: bytes, epoch: "e") {
      judge(batch)
      keep(batch)
    }
    guard let own = TopicPattern("meshpost/{gateway}/events"), let any = TopicPattern("any/#") else { return }
    for topic in ["meshpost/g1/events", "any/g1"] {
      // `try?`: a refusal is an answer.
      guard let found = try? Publication(topic: topic, payload: bytes).meaning([own, any]) else { continue }
      must(topic == "any/g1" || found.gateway == "g1", "a gateway's topic has events of this gateway: \(found)")
      must(Name.isAllowed(found.gateway) && Name.isAllowed(found.epoch), "names are allowed ones: \(found)")
      must(found.events.count <= EventBatch.maxEvents, "a publication has a bound")
    }
  }

  private static func judge(_ batch: EventBatch) {
    must(batch.events.count <= EventBatch.maxEvents, "a batch has a bound")
    must(Name.isAllowed(batch.epoch) && batch.before.map(Name.isAllowed) ?? true, "epochs are allowed names: \(batch)")
    let seqs = batch.events.map(\.seq)
    must(zip([0] + seqs, seqs).allSatisfy { $0 < $1 }, "numbers increase: \(seqs)")
    must((try? EventBatch(written(batch))) == batch, "a batch survives writing: \(batch)")
  }

  private static func written(_ batch: EventBatch) -> JSONValue {
    var fields: [(String, JSONValue)] = [("epoch", .string(batch.epoch))]
    if let lane = batch.lane { fields.append(("lane", .string(lane.rawValue))) }
    if let before = batch.before { fields.append(("before", .string(before))) }
    if let after = batch.after { fields.append(("after", .integer(after))) }
    let events = batch.events.map { event in
      JSONValue.object([
        ("seq", .integer(event.seq)), ("at", .integer(event.at)), ("trusted", .bool(event.trusted)),
        ("kind", .string(event.kind)), ("body", event.body),
      ])
    }
    return .object(fields + [("events", .array(events))])
  }

  /// Stores a batch twice, in a hub's tables: both times it gets the same answer.
  private static func keep(_ batch: EventBatch) {
    let (store, gateway) = IngestBench.next()
    var prepared = PreparedBatch(batch, from: gateway, after: batch.after, at: 1_795_000_000_000)
    prepared.handlesConflicts = batch.after != nil
    let answers = waiting { [prepared] in
      do {
        var answers: [HubStore.IngestAnswer] = []
        for _ in 0..<2 { answers += try await store.take([prepared]) }
        return Result<[HubStore.IngestAnswer], any Error>.success(answers)
      } catch {
        return .failure(error)
      }
    }
    switch answers {
    case .success(let answers):
      must(answers.count == 2 && answers[0] == answers[1], "a batch is stored once: \(answers)")
    case .failure(let error): must(false, "a batch that was read can be stored: \(error)")
    }
  }
}

/// A hub's tables, and a new gateway for each input. They begin again before they are large.
private enum IngestBench {
  private static let state = Mutex((store: HubStore?.none, count: 0))

  static func next() -> (HubStore, gateway: String) {
    state.withLock { state in
      if state.store == nil || state.count % 5000 == 0 {
        // `try?`: without a store there is nothing to be tried.
        state.store = try? HubStore(location: Workplace.location("hub\(state.count).db"))
      }
      state.count += 1
      guard let store = state.store else { fatalError("the store does not begin") }
      return (store, "g\(state.count)")
    }
  }
}

/// Runs asynchronous work on a queue of its own, and waits: the runtime's own threads may all be waiting here.
private final class WorkQueue: TaskExecutor {
  static let shared = WorkQueue()
  private let queue = DispatchQueue(label: "meshpost.fuzz")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}

private func waiting<Value: Sendable>(_ work: @escaping @Sendable () async -> Value) -> Value {
  let (done, found) = (DispatchSemaphore(value: 0), Found<Value>())
  Task(executorPreference: WorkQueue.shared) {
    let value = await work()
    found.value.withLock { $0 = value }
    done.signal()
  }
  done.wait()
  guard let value = found.value.withLock({ $0 }) else { fatalError("the work has ended without a value") }
  return value
}

private final class Found<Value: Sendable>: Sendable {
  let value = Mutex(Value?.none)
}

// MARK: OpenID Connect

extension FuzzTarget {
  private static let expected = IDToken.Expected(
    issuer: "https://id.example.org", clientID: "meshpost", nonce: "n", now: 1_000_000)

  /// What a provider answers, and what comes back with a browser: descriptions, keys, claims and tokens, one a line.
  static func openid(_ bytes: [UInt8]) {
    var keys: [WebKey] = []
    for line in bytes.split(separator: 10) {
      let text = String(decoding: line, as: UTF8.self)
      journey(text)
      _ = IDToken.keyID(text)
      if let claims = try? IDToken.claims(text, keys, expected) {
        must(!keys.isEmpty, "a token without a key's signature is refused")
        judge(claims)
      }
      guard let json = try? JSONValue(parsing: text) else { continue }
      if let found = try? OpenIDProvider.Metadata(json, issuer: expected.issuer) {
        let addresses = [found.authorization, found.token, found.keys] + [found.userInfo].compactMap { $0 }
        must(addresses.allSatisfy { OpenIDSettings.isAllowed($0) }, "secrets go to allowed addresses: \(addresses)")
        must(
          addresses.allSatisfy { $0.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7F } },
          "an address breaks no header: \(addresses)")
      }
      let more = WebKey.keys(json)
      must(more.count <= WebKey.mostKeys, "a set of keys has a bound")
      for key in more {
        for algorithm in WebKey.Algorithm.allCases {
          let isSigned = key.hasSigned(Array("words".utf8), [UInt8](repeating: 7, count: 64), algorithm)
          must(!isSigned || key.algorithms.contains(algorithm), "a key signs with its own algorithms")
        }
      }
      keys = more.isEmpty ? keys : more
      judge(json)
      // `try?`: a refusal is an answer.
      if (try? IDToken.check(json, expected)) != nil {
        must(json["sub"]?.string?.isEmpty == false, "accepted claims name somebody: \(json.text)")
      }
    }
  }

  private static let settings: OpenIDSettings? = {
    let text = """
      issuer = "https://id.example.org"
      client_id = "meshpost"
      role_claim = "realm.roles"
      roles = { staff = "administer", guest = "view" }
      """
    // `try?`: `judge` says that there are none.
    guard let table = try? TOMLParser.parse(Array(text.utf8)) else { return nil }
    var reader = TOMLReader(table)
    return OpenIDSettings(&reader)
  }()

  private static func judge(_ claims: JSONValue) {
    guard let settings else { return must(false, "the settings are valid") }
    must(Name.isAllowed(settings.personName(of: claims)), "a person's name is allowed: \(claims.text)")
    let role = settings.role(of: claims)
    must(role != .administer || claims.text.mentions("staff"), "a role needs its claim: \(claims.text)")
    must(role != .operate, "no claim gives a role that is not in the table: \(claims.text)")
  }

  private static func journey(_ text: String) {
    let key = Array("key".utf8)
    must(SignInAttempt(text, key: key, at: 1000) == nil, "a cookie needs its signature: \(text)")
    let attempt = SignInAttempt(back: text, at: 1000)
    must(attempt.back.begins(with: "/") && !attempt.back.begins(with: "//"), "the way back leads here: \(attempt.back)")
    must(SignInAttempt(attempt.cookie(key: key), key: key, at: 1001) == attempt, "a sign-in survives its cookie")
  }
}

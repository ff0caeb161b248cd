// SPDX-License-Identifier: MIT

import JSON
import UntrustedText

/// The open links, and the requests waiting for their answers.
actor LinkRegistry {
  /// Sends one message; `false`: the link is gone.
  typealias Send = @Sendable ([UInt8]) async -> Bool

  /// The upstream that holds the link of a gateway with several upstreams, and a test of that link.
  struct Holder: Sendable {
    let origin: LinkProtocol.Origin
    /// When the hub last heard from the link.
    let heard: @Sendable () -> ContinuousClock.Instant
    let ping: @Sendable () -> Void
  }

  private struct Link {
    let id: Int
    let holder: Holder?
    let send: Send
    let isSilent: @Sendable () -> Bool
    let close: @Sendable () -> Void
    /// Closes the link, and tells the gateway that another link has its place.
    let giveWay: @Sendable () -> Void
    /// Milliseconds since 1970.
    let since = HubClock.now
    let began = ContinuousClock.now
    /// The number of links of this gateway in a row, up to this one, that replaced a young and live link.
    var contested = 0
    var buckets: Set<String> = []
    /// Buckets with change that the gateway does not know of yet.
    var pending: [String: Int64] = [:]
    var isNotifying = false
  }

  /// A command of a gateway. Ids are compared by their bytes.
  private struct Key: Hashable {
    let gateway: String
    let command: [UInt8]
  }

  /// A command under way, and those who wait for its answer: whoever asked may ask again before the hub knows that the first connection is dead.
  private struct Request {
    let message: [UInt8]
    var waiting: [Int: CheckedContinuation<JSONValue, any Error>] = [:]
  }

  /// The beginning of the bucket names of notifications about a command's result.
  static let resultPrefix = "result/"

  enum Failure: Error, Equatable {
    case away
    case timedOut
  }

  /// Pause between two rounds that close silent links.
  private static let round: Duration = .seconds(5)
  private static let askedAtOnce = 1000
  /// A link that is replaced before this age is contested. After `mostContests` of them in a row, a bad line is no longer the likely cause.
  private static let shortLife: Duration = .seconds(30)
  private static let mostContests = 5
  /// Longest pause of a gateway that only polls.
  private static let returnsWithin: Duration = .seconds(86_400)
  /// Most gateways on HTTP with epochs in memory.
  private static let maxEpochs = 10_000
  /// A link with a message within `recent` needs no test. A tested link has to answer within `answerLimit`, which is shorter than the time for a
  /// connection's first request.
  private static let recent: Duration = .seconds(3)
  static let answerLimit: Duration = .seconds(5)
  private static let answerPoll: Duration = .milliseconds(50)
  /// How long a live request waits for its answer.
  static let patience: Duration = .seconds(15)

  private var links: [String: Link] = [:]
  private let contestLog: ThrottledLog
  private var contested: Set<String> = []
  /// For each gateway on HTTP: its epoch, the previous epoch, how often in a row an epoch returned, and the time of the last change.
  private var epochs: [String: (now: String, before: String?, returns: Int, at: ContinuousClock.Instant)] = [:]

  private let patience: Duration
  private let answerLimit: Duration

  init(
    patience: Duration = LinkRegistry.patience, answerLimit: Duration = LinkRegistry.answerLimit,
    log: @escaping HubLog.Write = HubLog.write
  ) {
    (self.patience, self.answerLimit) = (patience, answerLimit)
    contestLog = ThrottledLog(log)
  }

  /// Increases when a link opens or closes.
  private(set) var changes: Int64 = 0
  /// The gateways whose links listen to a shared bucket.
  private var listeners: [String: Set<String>] = [:]
  private var lastID = 0
  private var isWatching = false
  nonisolated let tasks = KeptTasks()
  private var requests: [Key: Request] = [:]
  private var results: [Key: [Int: CheckedContinuation<Void, Never>]] = [:]

  /// Makes this the gateway's only link: an older one may be half-open. `isSilent`: the link is silent for too long, so the registry closes it.
  /// `giveWay`: closes it in favour of a newer one, and says so; `nil`: as `close`.
  func open(
    _ gateway: String, _ send: @escaping Send, isSilent: @escaping @Sendable () -> Bool = { false },
    holder: Holder? = nil, giveWay: (@Sendable () -> Void)? = nil, close: @escaping @Sendable () -> Void
  ) -> Int {
    let before = links[gateway]
    before?.giveWay()
    listen(gateway, to: [])
    lastID += 1
    changes += 1
    var link = Link(id: lastID, holder: holder, send: send, isSilent: isSilent, close: close, giveWay: giveWay ?? close)
    if let before, ContinuousClock.now - before.began < Self.shortLife, !before.isSilent() {
      link.contested = before.contested + 1
    }
    links[gateway] = link
    if link.contested >= Self.mostContests { contest(gateway, "take the link from each other") }
    if !isWatching {
      isWatching = true
      tasks.begin { [self] in await watch() }
    }
    return lastID
  }

  /// The upstream that holds the gateway's link, if that link is alive and `origin` is another upstream of the same gateway: without this check the
  /// two would take the link from each other for ever. An upstream that reconnects gets its link at once.
  func holder(_ gateway: String, against origin: LinkProtocol.Origin?) async -> String? {
    guard let origin, let link = links[gateway], let holder = link.holder, holder.origin.epoch == origin.epoch,
      holder.origin.upstream != origin.upstream
    else { return nil }
    let asked = ContinuousClock.now
    if asked - holder.heard() < Self.recent { return holder.origin.upstream }
    holder.ping()
    while ContinuousClock.now - asked < answerLimit {
      // `try?`: after a cancellation the new connection is gone, and needs no answer.
      guard (try? await Task.sleep(for: Self.answerPoll)) != nil, links[gateway]?.id == link.id else { return nil }
      if holder.heard() > asked { return holder.origin.upstream }
    }
    return nil
  }

  private func contest(_ gateway: String, _ action: String) {
    contested.insert(gateway)
    contestLog.say(
      "gateway \(gateway): two gateways with this id \(action). Was a card copied? Give one of them another id: "
        + "\"One identity, two histories\" in docs/hub.md")
  }

  /// Notes the epoch of a batch on HTTP. A gateway never returns to an ended epoch: if epochs return again and again, two gateways have one id.
  func noteEpoch(_ gateway: String, epoch: String, now: ContinuousClock.Instant = .now) {
    let known = epochs[gateway]
    if known == nil, epochs.count >= Self.maxEpochs { forgetEpochs(now) }
    if let known, known.now.utf8.elementsEqual(epoch.utf8) { return }
    let isReturn = known?.before.map { $0.utf8.elementsEqual(epoch.utf8) } ?? false
    let isRecent = known.map { now - $0.at < Self.returnsWithin } ?? false
    let returns = isReturn ? (isRecent ? known?.returns ?? 0 : 0) + 1 : 0
    epochs[gateway] = (epoch, known?.now, returns, now)
    if returns >= Self.mostContests { contest(gateway, "send in turn, each its own epoch") }
  }

  /// Makes room. It forgets gateways without a change of epoch first: their next batch names the epoch again.
  private func forgetEpochs(_ now: ContinuousClock.Instant) {
    epochs = epochs.filter { $0.value.before != nil && now - $0.value.at < Self.returnsWithin }
    if epochs.count >= Self.maxEpochs { epochs = [:] }
  }

  var epochsKept: Int { epochs.count }

  /// The ids that two gateways seem to have, found since the last call.
  func takeContested() -> Set<String> {
    defer { contested = [] }
    return contested
  }

  /// Closes silent links, in one task for all: a task for each would be an eighth of the memory of an idle link. It ends with the last link.
  private func watch() async {
    // `try?`: it is cancelled while it sleeps.
    while !links.isEmpty, (try? await Task.sleep(for: Self.round)) != nil {
      for link in links.values where link.isSilent() { link.close() }
    }
    isWatching = false
  }

  /// Each gateway greets again: its answer says what the database has.
  func closeAll() { for link in links.values { link.close() } }

  func ended(_ gateway: String, _ id: Int) {
    guard links[gateway]?.id == id else { return }
    listen(gateway, to: [])
    links[gateway] = nil
    changes += 1
    for key in requests.keys where key.gateway == gateway {
      for waiting in requests.removeValue(forKey: key)?.waiting.values ?? [:].values {
        waiting.resume(throwing: Failure.away)
      }
    }
  }

  func isOpen(_ gateway: String) -> Bool { links[gateway] != nil }
  var count: Int { links.count }
  /// When each link opened, milliseconds since 1970.
  func linkTimes() -> [String: Int64] { links.mapValues(\.since) }

  func subscribe(_ gateway: String, _ buckets: Set<String>) {
    guard links[gateway] != nil else { return }
    listen(gateway, to: buckets)
    links[gateway]?.buckets = buckets
  }

  /// Replaces the set of buckets that a gateway listens to.
  private func listen(_ gateway: String, to buckets: Set<String>) {
    let before = links[gateway]?.buckets ?? []
    for bucket in before.subtracting(buckets) where HubStore.isShared(bucket) {
      listeners[bucket]?.remove(gateway)
      if listeners[bucket]?.isEmpty == true { listeners[bucket] = nil }
    }
    for bucket in buckets.subtracting(before) where HubStore.isShared(bucket) {
      listeners[bucket, default: []].insert(gateway)
    }
  }

  // MARK: News

  func received(_ change: HubChange) {
    if change.bucket.begins(with: Self.resultPrefix) {
      let key = Key(gateway: change.gateway, command: Array(change.bucket.utf8.dropFirst(Self.resultPrefix.utf8.count)))
      for waiting in results.removeValue(forKey: key)?.values ?? [:].values { waiting.resume() }
      return
    }
    let concerned = change.gateway.isEmpty ? listeners[change.bucket] ?? [] : [change.gateway]
    for gateway in concerned where links[gateway]?.buckets.contains(change.bucket) == true {
      // Notifications may overtake each other.
      let known = links[gateway]?.pending[change.bucket] ?? 0
      links[gateway]?.pending[change.bucket] = max(known, change.seq)
      notify(gateway)
    }
  }

  /// Sends every gateway the states of its buckets, after missed notifications. It queries a bucket once for all its listeners.
  func notifyAll(from store: HubStore) async {
    let places = Set(
      links.flatMap { gateway, link in link.buckets.map { HubStore.BucketKey($0, of: gateway) } })
    var rest = Array(places)[...]
    while !rest.isEmpty {
      // `try?`: an unreachable database has no change.
      for change in (try? await store.bucketChanges(of: Array(rest.prefix(Self.askedAtOnce)))) ?? [] {
        received(change)
      }
      rest = rest.dropFirst(Self.askedAtOnce)
    }
  }

  /// Sends one notification at a time on each link, and combines later ones.
  private func notify(_ gateway: String) {
    guard let link = links[gateway], !link.isNotifying, !link.pending.isEmpty else { return }
    links[gateway]?.isNotifying = true
    links[gateway]?.pending = [:]
    tasks.begin { [self, id = link.id, pending = link.pending, send = link.send] in
      for (bucket, seq) in pending {
        let message = JSONWriter.object(["type": "has_new", "bucket": bucket, "seq": seq])
        guard await send(message) else { break }
      }
      await notified(gateway, id)
    }
  }

  private func notified(_ gateway: String, _ id: Int) {
    guard links[gateway]?.id == id else { return }
    links[gateway]?.isNotifying = false
    notify(gateway)
  }

  // MARK: Requests

  /// Sends a request to the gateway; throws if the gateway is not connected or does not answer in time. The gateway carries out an id once, so the
  /// same request is sent again, over the present link, and its answer is for all who wait. Another one with an id under way is refused. `limit`: for
  /// whoever does not want to wait as long as the hub would.
  func request(
    _ gateway: String, id: String, command: JSONValue, within limit: Duration? = nil
  ) async throws -> JSONValue {
    guard let link = links[gateway] else { throw Failure.away }
    let key = Key(gateway: gateway, command: Array(id.utf8))
    let message = JSONWriter.object(["type": "request", "id": id, "method": "command", "params": command])
    guard requests[key].map({ $0.message == message }) ?? true else { throw Failure.away }
    lastID += 1
    let number = lastID
    let patience = limit.map { min($0, self.patience) } ?? self.patience
    let timer = Task {
      // `try?`: the answer cancels it.
      try? await Task.sleep(for: patience)
      guard !Task.isCancelled else { return }
      self.giveUp(key, number)
    }
    defer { timer.cancel() }
    return try await withCheckedThrowingContinuation { continuation in
      requests[key, default: Request(message: message)].waiting[number] = continuation
      tasks.begin { [self, send = link.send] in
        if await !send(message) { await giveUp(key, number) }
      }
    }
  }

  private func giveUp(_ key: Key, _ number: Int) {
    requests[key]?.waiting.removeValue(forKey: number)?.resume(throwing: Failure.timedOut)
    if requests[key]?.waiting.isEmpty == true { requests[key] = nil }
  }

  func answered(_ gateway: String, id: String, _ answer: JSONValue) {
    let key = Key(gateway: gateway, command: Array(id.utf8))
    for waiting in requests.removeValue(forKey: key)?.waiting.values ?? [:].values { waiting.resume(returning: answer) }
  }

  /// Returns when the command has ended, or after `limit`. `isOver`: asked once the end would be noticed, for the
  /// command may have ended before.
  func waitForResult(
    _ gateway: String, _ id: String, limit: Duration, isOver: @escaping @Sendable () async -> Bool = { false }
  ) async {
    let key = Key(gateway: gateway, command: Array(id.utf8))
    lastID += 1
    let number = lastID
    let timer = Task {
      // `try?`: the result cancels it.
      try? await Task.sleep(for: limit)
      self.stopWaiting(key, number)
    }
    await withCheckedContinuation { continuation in
      results[key, default: [:]][number] = continuation
      tasks.begin { [self] in
        if await isOver() { await stopWaiting(key, number) }
      }
    }
    timer.cancel()
  }

  private func stopWaiting(_ key: Key, _ number: Int) {
    results[key]?.removeValue(forKey: number)?.resume()
    if results[key]?.isEmpty == true { results[key] = nil }
  }
}

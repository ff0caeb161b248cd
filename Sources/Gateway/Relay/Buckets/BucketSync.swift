// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Store
import Timing

/// A channel message that another gateway has received.
public struct ChannelUpdate: Equatable, Sendable {
  /// The upstream that brought it.
  public var upstream: String
  /// The gateway that received it.
  public var gateway: String
  /// 16 hex digits of the channel's secret.
  public var channel: String
  public var senderName: String
  /// Seconds since 1970 by the sender's clock.
  public var senderTime: UInt32
  public var text: String
  /// The latest time at which it was sent, in milliseconds since 1970.
  public var at: Int64
  /// The upstream's time when it told of the message, in the same unit; `nil`: it does not report it.
  public var now: Int64?
  /// The message waited in the other gateway's radio for an unknown time.
  public var isOfUnknownAge = false

  /// Estimates when a message was sent: the other gateway may have had no hub for long, and its radio no gateway. `at`:
  /// when the hub got it. All in milliseconds since 1970.
  static func sent(_ at: Int64, _ body: JSONValue) -> Int64 {
    var at = at
    if body["trusted"]?.bool == true, let heard = body["at"]?.integer, heard >= 0 { at = min(at, heard) }
    let before = max(body["waited_s"]?.integer ?? 0, body["age_s"]?.integer ?? 0)
    let (result, overflow) = at.subtractingReportingOverflow(min(max(before, 0), maxSeconds) * 1000)
    return overflow ? 0 : result
  }

  /// A hundred years: longer waits are cut to this.
  private static let maxSeconds: Int64 = 3_200_000_000
}

/// The result for a message of another gateway. Writes of the same turn are in the bucket's transaction.
public enum ChannelUpdateFate: Equatable, Sendable {
  case sent
  /// The update was known already.
  case known
  /// Too old, or not wanted here.
  case skipped
  /// Skipped, but an operator may expect it: it is counted, and logged.
  case leftOut(LeftOut)
  /// There is no room for it now: the server has to resend it.
  case later(String)
}

/// Fetches and applies the updates of one upstream's buckets; `CatchUp` decides on the fetches.
final class BucketSync {
  /// The longest pause after a failure, and the interval for servers that do not announce updates.
  static let pollInterval: Duration = .seconds(300)
  /// The interval if this gateway permits nothing, and only refuses. The hub's answer also has its position in the
  /// journal, so it replaces the greeting that would be due after an hour.
  private static let seldom: Duration = .seconds(3500)
  static let firstPause: Duration = .seconds(5)
  /// Commands that may wait on this disk; further ones wait at the hub.
  private static let maxWaiting: Int64 = 200

  let upstream: String
  let rights: Set<String>
  let store: Store
  private let source: any UpdatesSource
  let commands: CommandIntake
  let loop: EventLoop
  let log: Log
  let acknowledged: () -> Int64
  var catchUp = CatchUp([:])
  var holds = BucketHolds()
  var rations = BucketRations()
  private var health = UpdatesHealth()
  var leftOut = LeftOutMessages()
  /// The hub has edits of documents that are not permitted: the position on disk stays before them.
  var hasRefusedEdits = false
  /// Runs while the server is reachable.
  private var task: LoopTask?
  private let woken = Waiter()
  /// The gateways of which messages are wanted, as last reported to the hub.
  private var toldGateways: [String] = []
  /// The hub had the list `heard`, of messages of these gateways, when it was last asked.
  private(set) var hasHeardList = false
  /// Called in the turn of the writes, and so in one transaction with them.
  weak var host: (any RelayHost)?

  init(
    upstream: String, rights: Set<String>, store: Store, source: any UpdatesSource, commands: CommandIntake,
    on loop: EventLoop, log: Log, acknowledged: @escaping () -> Int64
  ) {
    self.upstream = upstream
    self.rights = rights
    self.store = store
    self.source = source
    self.commands = commands
    self.loop = loop
    self.log = log
    self.acknowledged = acknowledged
    source.updates = self
  }

  func stop() {
    task?.cancel()
    if let line = leftOut.line() { log.notice("\(upstream): \(line)") }
    commands.stop()
  }

  func hasNew(_ bucket: String, _ seq: Int64) {
    catchUp.hasNew(bucket, seq)
    woken.resume()
  }

  /// The radio's queue has been read: `RelayHost.knowsWhatRadioHeard` is true again.
  func radioWasRead() {
    if releaseWhatWaitsForRadio() { woken.resume() }
  }

  /// Channels were joined or left, or other gateways' messages are wanted.
  func wantsChanged() {
    guard task != nil else { return }
    releaseWhatWaitsForRadio()
    guard host?.takenGateways ?? [] == toldGateways else { return refresh() }
    do {
      catchUp.want(try positions())
      woken.resume()
    } catch {
      refresh()
    }
  }

  private func positions() throws(StoreError) -> [String: CatchUp.Position] {
    // Fetched even if nothing is allowed: the refusal of a command reaches its sender, that of an edit the operator.
    var names = ["commands", "documents"]
    let channels = (host?.exchangedChannels ?? []).prefix(48).map { "channel/\($0)" }
    names += channels
    if !channels.isEmpty, host?.takenGateways.isEmpty == false { names.append("heard") }
    var positions: [String: CatchUp.Position] = [:]
    for name in names {
      let kept = try store.bucket(name, of: upstream)
      positions[name] = CatchUp.Position(seq: kept.seq, at: kept.at, since: kept.since)
    }
    return positions
  }

  /// The server became reachable, or unreachable.
  func reachable(_ isReachable: Bool) {
    task?.cancel()
    task = nil
    guard isReachable else { return catchUp.disconnected() }
    task = loop.begin { [weak self] in await self?.run() }
  }

  /// Asks for updates again at once.
  func refresh() { if task != nil { reachable(true) } }

  // MARK: Fetching

  struct Trouble: Error {
    let message: String
    /// This gateway limits one bucket, and goes on with the others.
    var isLimit = false
    /// The answer is more than the line transfers in the time that it has.
    var isTooLong = false
  }

  /// Asks for the buckets' positions, fetches updates, and waits for more; repeats after a failure, and at intervals.
  /// Ends when the server is unreachable.
  private func run() async {
    while !Task.isCancelled {
      do {
        try await fetchAll()
      } catch is CancellationError {
        return
      } catch {
        if (error as? Trouble)?.isTooLong == true { catchUp.pageWasTooLong() }
        await failed((error as? Trouble)?.message ?? "\(error)")
      }
    }
  }

  private var interval: Duration {
    rights.isEmpty && catchUp.names == ["commands", "documents"] ? Self.seldom : Self.pollInterval
  }

  /// Returns when the positions are to be asked for again.
  private func fetchAll() async throws {
    catchUp.want(try positions())
    catchUp.connected()
    releaseWhatWaitsForRadio()
    holds.keepRations(of: catchUp.names)
    commands.runNext()
    var askAgainAt = loop.now + interval
    while loop.now < askAgainAt {
      for bucket in holds.end(at: loop.now) { catchUp.release(bucket) }
      guard !catchUp.names.isEmpty, let action = catchUp.next() else {
        let next = holds.firstEnd.map { min($0, askAgainAt) } ?? askAgainAt
        try await woken.wait(until: catchUp.names.isEmpty ? nil : next, on: loop)
        continue
      }
      switch action {
      case .askState(let buckets):
        try await askState(buckets)
        // While a bucket is behind, an answer about positions is no success.
        guard catchUp.isQuiet else { continue }
      case .fetch(let bucket, let from, let until, let limit, let most):
        if bucket == "commands", !hasRoomForCommands() {
          wait(bucket, "too many commands are waiting here", for: CommandIntake.pause)
          continue
        }
        guard mayFetch(bucket) else { continue }
        let result = try await limited(bucket) {
          if bucket == "documents" { try rations.mayAskForDocuments(at: loop.now) }
          return try await fetch(bucket, from, until, limit, most)
        }
        guard let isNews = result, isNews || catchUp.isQuiet else { continue }
      case .skip(let bucket, let first, let last, let position):
        _ = try await limited(bucket) {
          try rations.mayLose(bucket, at: loop.now)
          try await skip(bucket, first...last, "too_long", position)
          return false
        }
        continue
      }
      succeeded()
      askAgainAt = loop.now + interval
    }
  }

  /// If this gateway limits the bucket, it waits, and the result is `nil`.
  private func limited(_ bucket: String, _ work: () async throws -> Bool) async throws -> Bool? {
    do {
      let isNews = try await work()
      if !catchUp.isBehind(bucket) { holds.isNotLimited(bucket) }
      return isNews
    } catch let trouble as Trouble where trouble.isLimit {
      wait(bucket, trouble.message)
      return nil
    }
  }

  /// The bucket waits: for so long or, without a time, longer with each time. The others go on.
  private func wait(_ bucket: String, _ reason: String, for pause: Duration? = nil) {
    var random = SystemRandomNumberGenerator()
    if let line = holds.holdLimited(bucket, reason, for: pause, at: loop.now, using: &random) {
      log.warning("\(upstream): \(line)")
    }
    catchUp.hold(bucket)
  }

  /// Returns false if the bucket waits: it brought nothing new, or the radio may hold the same messages.
  private func mayFetch(_ bucket: String) -> Bool {
    if bucket != "commands", bucket != "documents", host?.knowsWhatRadioHeard == false {
      holds.waitForRadio(bucket)
    } else {
      guard holds.holdIfFruitless(bucket, at: loop.now) else { return true }
      if let line = holds.line(at: loop.now) { log.notice("\(upstream): \(line)") }
    }
    catchUp.hold(bucket)
    return false
  }

  /// Returns false if no bucket waits for the radio.
  @discardableResult private func releaseWhatWaitsForRadio() -> Bool {
    let buckets = holds.radioWasRead()
    for bucket in buckets { catchUp.release(bucket) }
    return !buckets.isEmpty
  }

  private func hasRoomForCommands() -> Bool {
    // If the store cannot be read, it cannot store commands either.
    (store.ifReadable { try store.waitingCommands(of: upstream) } ?? .max) < Self.maxWaiting
  }

  private func askState(_ buckets: [String]) async throws {
    toldGateways = host?.takenGateways ?? []
    let answer = try await source.ask(.state(buckets, gateways: toldGateways))
    try Task.checkCancellation()
    guard let list = answer?["buckets"]?.array else { throw Trouble(message: "the hub does not report its buckets") }
    let states: [(bucket: String, seq: Int64, at: Int64)] = list.compactMap { state in
      guard let name = state["bucket"]?.string, let seq = state["seq"]?.integer,
        (0...CatchUp.maxSeq).contains(seq)
      else { return nil }
      return (name, seq, state["at"]?.count ?? 0)
    }
    hasHeardList = states.contains { $0.bucket == "heard" && $0.seq > 0 }
    catchUp.stateArrived(states)
  }

  /// Fetches and applies a page. Returns whether it brought news; a hub can change documents endlessly.
  private func fetch(
    _ bucket: String, _ from: CatchUp.Position, _ until: Int64?, _ limit: Int, _ most: Int64?
  ) async throws -> Bool {
    let answer = try await source.ask(.page(bucket: bucket, from: from, until: until, limit: limit, most: most))
    try Task.checkCancellation()
    if answer?["joined"]?.bool != false { holds.hubKnows(bucket) } else if joins(bucket, from) { return false }
    guard catchUp.isFetching(bucket) else { return false }
    guard let answer, let page = CatchUp.Page(answer), let outcome = catchUp.read(page, of: bucket) else {
      throw Trouble(message: "the hub's answer about \(bucket) is invalid or missing")
    }
    log.debug(
      "\(upstream): \(bucket): fetched after seq \(from.seq)\(until.map { " up to \($0)" } ?? ""), at most \(limit): "
        + "\(outcome.updates.count) updates, now at seq \(outcome.position.seq), "
        + "date \(Self.date(outcome.position.at))\(outcome.isEnd ? "" : ", more to come")")
    try rations.mayKeep(outcome, of: bucket, at: loop.now)
    let applied = try await apply(outcome, bucket)
    if applied == 0 { holds.wasFruitless(bucket, at: loop.now) }
    if bucket == "documents" { rations.took(documents: applied, at: loop.now) }
    return applied > 0 && bucket != "documents"
  }

  // MARK: Trouble

  private func succeeded() {
    if health.succeeded(at: loop.wallClock.milliseconds, hasAll: catchUp.isQuiet) {
      log.notice("\(upstream): updates are fetched again")
    }
  }

  /// Waits before the next attempt; `refresh` ends the wait.
  private func failed(_ message: String) async {
    var random = SystemRandomNumberGenerator()
    let (isNew, pause) = health.failed(message, using: &random)
    if isNew { log.warning("\(upstream): \(message); retrying automatically") }
    catchUp.failed()
    // `try?`: `run` notices the cancellation.
    try? await loop.sleep(for: pause)
  }

  var report: UpdatesReport {
    UpdatesReport(
      upstream: upstream, isReachable: task != nil, lastSuccess: health.lastSuccess,
      trouble: health.trouble ?? holds.words(radioWasRead: host?.knowsWhatRadioHeard != false),
      buckets: catchUp.statistics.map { name, position, remote, statistics in
        UpdatesReport.Bucket(
          name: name, seq: position.seq, behind: max(0, remote - position.seq), since: position.since,
          statistics: statistics)
      }, leftOut: leftOut.counts)
  }
}

/// The health of the fetches: the last success, the trouble, and the pauses between attempts. Pure.
struct UpdatesHealth {
  private var backoff = Backoff(first: BucketSync.firstPause, limit: BucketSync.pollInterval)
  /// The logged trouble. It ends when nothing is left to fetch.
  private(set) var trouble: String?
  /// Milliseconds since 1970.
  private(set) var lastSuccess: Int64?

  /// `hasAll`: nothing is left to fetch. Returns true if that ends a trouble.
  mutating func succeeded(at milliseconds: Int64, hasAll: Bool) -> Bool {
    lastSuccess = milliseconds
    backoff.reset()
    defer { if hasAll { trouble = nil } }
    return hasAll && trouble != nil
  }

  /// Returns whether the trouble is new to the log, and the pause before the next attempt.
  mutating func failed(
    _ message: String, using random: inout some RandomNumberGenerator
  ) -> (isNew: Bool, pause: Duration) {
    defer { trouble = message }
    return (trouble != message, backoff.next(using: &random))
  }
}

/// The state of an upstream's buckets, for `meshpost sync`.
public struct UpdatesReport: Equatable, Sendable {
  public struct Bucket: Equatable, Sendable {
    public var name: String
    public var seq: Int64
    public var behind: Int64
    public var since: Int64
    public var statistics: Statistics
  }

  public struct Statistics: Equatable, Sendable {
    public var fetches: UInt64 = 0
    /// Fetches because of an announcement during a fetch.
    public var followUps: UInt64 = 0
    public var applied: UInt64 = 0
    /// Given up, or not wanted.
    public var skipped: UInt64 = 0
    public var duplicates: UInt64 = 0
    public var divergences: UInt64 = 0
  }

  public var upstream: String
  public var isReachable: Bool
  public var lastSuccess: Int64?
  public var trouble: String?
  public var buckets: [Bucket]
  /// Messages of other gateways that were not sent, since the start.
  public var leftOut: [LeftOut: Int]
}

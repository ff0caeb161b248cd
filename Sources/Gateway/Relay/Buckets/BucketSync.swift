// SPDX-License-Identifier: MIT

import Documents
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
final class BucketSync: UpdatesListener {
  /// The longest pause after a failure, and the interval for servers that do not announce updates.
  static let pollInterval: Duration = .seconds(300)
  /// The interval if this gateway only refuses commands. The hub's answer also has its position in the journal, so it
  /// replaces the greeting that would be due after an hour.
  private static let seldom: Duration = .seconds(3500)
  static let firstPause: Duration = .seconds(5)
  /// Commands that may wait on this disk; further ones wait at the hub.
  private static let maxWaiting: Int64 = 200
  /// Limits pages that bring nothing new, for each bucket: their messages were also received by radio, are not wanted,
  /// or a faulty server repeats them. A busy channel does not delay the other buckets.
  private var fruitless: [String: Ration] = [:]
  private static let fruitlessInterval: Duration = .seconds(30)
  /// Buckets that wait, until when.
  var held: [String: MonotonicTime] = [:]
  private var heldLines = Ration.hourly
  /// Channels that were reported to the hub: when, and the pauses between checks whether the hub knows them.
  var joined: [String: (told: MonotonicTime, tries: Backoff)] = [:]
  /// Limits the journal's entries for a server that repeatedly forgets channels. A new server has forgotten all 48.
  var announcements = Ration(most: 64, oneIn: .seconds(300))
  /// Buckets that wait until the radio's queue was read: the radio may hold the same messages.
  private var waitForRadio: Set<String> = []
  /// Limits the journal's entries for a faulty server, because they displace events for other upstreams. After a week
  /// without a hub, each of 48 channels may have a loss.
  private var losses = Ration(most: 64, oneIn: .seconds(60))
  private var restores = Ration(most: 2, oneIn: .seconds(3600))
  private var documents = Ration(most: 4096, oneIn: .seconds(10))

  let upstream: String
  let rights: Set<String>
  let store: Store
  private let source: any UpdatesSource
  let commands: CommandIntake
  let loop: EventLoop
  let log: Log
  let clock: WallClock
  let acknowledged: () -> Int64
  var catchUp: CatchUp
  var leftOut = LeftOutMessages()
  /// Runs while the server is reachable.
  private var task: LoopTask?
  private let woken = Waiter()
  private var backoff = Backoff(first: firstPause, limit: pollInterval)
  var random = SystemRandomNumberGenerator()
  private var isReachable = false
  private var troubleLogged: String?
  /// The gateways of which messages are wanted, as last reported to the hub.
  private var toldGateways: [String] = []
  /// The hub had the list `heard`, of messages of these gateways, when it was last asked.
  private(set) var hasHeardList = false
  private(set) var lastSuccess: Int64?
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
    clock = loop.wallClock
    self.log = log
    self.acknowledged = acknowledged
    catchUp = CatchUp([:])
    source.updates = self
  }

  func stop() {
    task?.cancel()
    commands.stop()
  }

  func hasNew(_ bucket: String, _ seq: Int64) {
    catchUp.hasNew(bucket, seq)
    woken.resume()
  }

  /// The radio's queue has been read: `RelayHost.knowsWhatRadioHeard` is true again.
  func radioWasRead() {
    guard !waitForRadio.isEmpty else { return }
    releaseWhatWaitsForRadio()
    woken.resume()
  }

  /// Channels were joined or left, or other gateways' messages are wanted.
  func wantsChanged() {
    guard isReachable else { return }
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
    // Commands are fetched even if none is allowed: the refusal reaches their sender.
    var names = ["commands"]
    if rights.contains("documents") || rights.contains("settings") { names.append("documents") }
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

  func reachable(_ isReachable: Bool) {
    self.isReachable = isReachable
    task?.cancel()
    task = nil
    guard isReachable else { return catchUp.disconnected() }
    task = loop.begin { [weak self] in await self?.run() }
  }

  /// Asks for updates again at once.
  func refresh() { if isReachable { reachable(true) } }

  // MARK: Fetching

  struct Trouble: Error {
    let message: String
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
        await failed((error as? Trouble)?.message ?? "\(error)")
      }
    }
  }

  private var interval: Duration {
    catchUp.names == ["commands"] && rights.isDisjoint(with: CommandIntake.known) ? Self.seldom : Self.pollInterval
  }

  /// Returns when the positions are to be asked for again.
  private func fetchAll() async throws {
    catchUp.want(try positions())
    catchUp.connected()
    releaseWhatWaitsForRadio()
    fruitless = fruitless.filter { catchUp.names.contains($0.key) }
    commands.runNext()
    var askAgainAt = loop.now + interval
    while loop.now < askAgainAt {
      for (bucket, until) in held where until <= loop.now {
        held[bucket] = nil
        catchUp.release(bucket)
      }
      guard !catchUp.names.isEmpty, let action = catchUp.next() else {
        let next = held.values.min().map { min($0, askAgainAt) } ?? askAgainAt
        try await woken.wait(until: catchUp.names.isEmpty ? nil : next, on: loop)
        continue
      }
      switch action {
      case .askState(let buckets):
        try await askState(buckets)
        // While a bucket is behind, an answer about positions is no success.
        guard catchUp.isQuiet else { continue }
      case .fetch(let bucket, let from, let until, let limit, let most):
        if bucket == "commands", !hasRoomForCommands() { throw Trouble(message: "too many commands are waiting here") }
        guard mayFetch(bucket) else { continue }
        if bucket == "documents", !documents.hasOne(at: loop.now) {
          throw Trouble(message: "the hub changes documents too often")
        }
        guard try await fetch(bucket, from, until, limit, most) || catchUp.isQuiet else { continue }
      case .skip(let bucket, let first, let last, let position):
        try mayLose(bucket)
        try await skip(bucket, first...last, "too_long", position)
        continue
      }
      succeeded()
      askAgainAt = loop.now + interval
    }
  }

  /// Called before a page with a loss is applied. If it throws, the page is requested again later.
  private func mayLose(_ bucket: String) throws(Trouble) {
    guard losses.take(at: loop.now) else {
      throw Trouble(message: "the hub has lost updates of \(bucket), again and again")
    }
  }

  /// Returns false if the bucket waits: it brought nothing new, or the radio may hold the same messages.
  private func mayFetch(_ bucket: String) -> Bool {
    if bucket != "commands", bucket != "documents", host?.knowsWhatRadioHeard == false {
      waitForRadio.insert(bucket)
      catchUp.hold(bucket)
      return false
    }
    guard fruitless[bucket]?.hasOne(at: loop.now) == false else { return true }
    held[bucket] = loop.now + Self.fruitlessInterval
    catchUp.hold(bucket)
    if let heldWords, heldLines.take(at: loop.now) {
      log.notice("\(upstream): \(heldWords) (logged at most once an hour)")
    }
    return false
  }

  private func releaseWhatWaitsForRadio() {
    for bucket in waitForRadio { catchUp.release(bucket) }
    waitForRadio = []
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
    if answer?["joined"]?.bool != false { joined[bucket] = nil } else if joins(bucket, from) { return false }
    guard let answer, let page = CatchUp.Page(answer), let outcome = catchUp.read(page, of: bucket) else {
      throw Trouble(message: "the hub's answer about \(bucket) is invalid or missing")
    }
    log.debug(
      "\(upstream): \(bucket): fetched after seq \(from.seq)\(until.map { " up to \($0)" } ?? ""), at most \(limit): "
        + "\(outcome.updates.count) updates, now at seq \(outcome.position.seq), "
        + "date \(Self.date(outcome.position.at))\(outcome.isEnd ? "" : ", more to come")")
    if outcome.lacking > 0 || outcome.hasDiverged { try mayLose(bucket) }
    if outcome.hasDiverged, bucket == "documents", !restores.take(at: loop.now) {
      throw Trouble(message: "the hub has lost documents, again and again")
    }
    let applied = try await apply(outcome, bucket)
    if applied == 0 {
      _ = fruitless[bucket, default: Ration(most: 64, oneIn: Self.fruitlessInterval)].take(at: loop.now)
    }
    if bucket == "documents" { for _ in 0..<applied { _ = documents.take(at: loop.now) } }
    return applied > 0 && bucket != "documents"
  }

  // MARK: Trouble

  private func succeeded() {
    lastSuccess = clock.milliseconds
    backoff.reset()
    guard catchUp.isQuiet else { return }
    if troubleLogged != nil { log.notice("\(upstream): updates are fetched again") }
    troubleLogged = nil
  }

  /// Waits before the next attempt; `refresh` ends the wait.
  private func failed(_ message: String) async {
    if troubleLogged != message { log.warning("\(upstream): \(message); retrying automatically") }
    troubleLogged = message
    catchUp.failed()
    // `try?`: `run` notices the cancellation.
    try? await loop.sleep(for: backoff.next(using: &random))
  }

  private var radioWords: String? {
    waitForRadio.isEmpty || host?.knowsWhatRadioHeard != false
      ? nil : "messages of other places wait until the radio's own queue has been read"
  }

  private var heldWords: String? {
    held.keys.filter { joined[$0] == nil }.min().map {
      "\($0) repeatedly brought nothing new: it is fetched once in \(Int(Self.fruitlessInterval.inSeconds)) s"
    }
  }

  var report: UpdatesReport {
    UpdatesReport(
      upstream: upstream, isReachable: isReachable, lastSuccess: lastSuccess,
      trouble: troubleLogged ?? heldWords ?? radioWords ?? joinWords,
      buckets: catchUp.statistics.map { name, position, remote, statistics in
        UpdatesReport.Bucket(
          name: name, seq: position.seq, behind: max(0, remote - position.seq), since: position.since,
          fetches: statistics.fetches, followUps: statistics.followUps, applied: statistics.applied,
          skipped: statistics.skipped, duplicates: statistics.duplicates, divergences: statistics.divergences)
      }, leftOut: leftOut.counts)
  }
}

/// The state of an upstream's buckets, for `meshpost sync`.
public struct UpdatesReport: Equatable, Sendable {
  public struct Bucket: Equatable, Sendable {
    public var name: String
    public var seq: Int64
    public var behind: Int64
    public var since: Int64
    public var fetches: UInt64
    public var followUps: UInt64
    public var applied: UInt64
    public var skipped: UInt64
    public var duplicates: UInt64
    public var divergences: UInt64
  }

  public var upstream: String
  public var isReachable: Bool
  public var lastSuccess: Int64?
  public var trouble: String?
  public var buckets: [Bucket]
  /// Messages of other gateways that were not sent, since the start.
  public var leftOut: [LeftOut: Int]
}

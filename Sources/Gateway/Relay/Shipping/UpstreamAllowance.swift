// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Store
import Timing

/// The state of an upstream's allowance.
public struct AllowanceStatus: Equatable, Sendable {
  public var dayBytes: Int64
  public var monthBytes: Int64
  public var dailyBytes: Int64?
  public var monthlyBytes: Int64?
  /// Lanes that wait for bytes.
  public var spent: [Lane]
  /// It is outside of the bulk hours.
  public var waitsForHours: Bool
  /// When a waiting lane may be sent, milliseconds since 1970; `nil`: none waits.
  public var until: Int64?
}

/// Keeps an upstream within its allowance.
extension Upstream {
  /// The longest pause, in seconds: an operator may set the clock meanwhile.
  private static let longestPause: Int64 = 3600

  static func account(
    _ settings: Settings, _ store: Store, _ loop: EventLoop, _ log: Log
  ) throws(StoreError) -> AllowanceAccount? {
    let limits = Allowance.Limits(
      daily: settings.dailyBytes, monthly: settings.monthlyBytes, bulkHours: settings.bulkHours)
    return limits.isSome
      ? try AllowanceAccount(limits, of: settings.name, store: store, on: loop, log: log) : nil
  }

  /// Lanes that may be sent now. Without `messages`, none may.
  func permittedLanes() -> ByLane<Bool> {
    guard let account else { return ByLane(all: true) }
    look(account)
    return ByLane { account.allowance.allows($0) }
  }

  /// The same for one lane, as of the last look at the line.
  func permits(_ lane: Lane) -> Bool { account?.allowance.allows(lane) ?? true }

  /// Pending events of permitted lanes.
  var permittedEvents: Int64 {
    guard account != nil, journal.knowsLanes else { return pendingEvents }
    return Lane.allCases.reduce(0) { permits($1) ? $0 + journal.pending($1).events : $0 }
  }

  /// Tells the health whether events wait for the server, and not for the allowance.
  func noteWaiting() {
    let waiting = journal.waiting
    if Lane.allCases.contains(where: { waiting[$0] && permits($0) }) {
      health.eventsWait()
    } else if account != nil, underWay.flights.isEmpty {
      health.nothingWaits()
    }
  }

  private func look(_ account: AllowanceAccount) {
    if account.look(line: carrier.lineBytes) { tell(account) }
    carrier.alarm(after: account.nextLook) { [weak self] in self?.woken.resume() }
  }

  /// Nothing may be sent. The connection, which would cost bytes, is closed once the batches under way are answered, or at once if the allowance is
  /// used up.
  func rest() async throws(CancellationError) {
    let isUsedUp = account.map { $0.allowance.isUsedUp } ?? false
    if !shipment.holds.contains(.resting), underWay.flights.isEmpty || isUsedUp {
      shipment.hold(.resting)
      hangUp()
    }
    try await pause()
  }

  /// Gives up what is under way, and closes the connection.
  func hangUp() {
    underWay.release()
    forgetFlights()
    if !shipment.isDisconnected { shipment.greetAgain() }
    carrier.close()
    // Closing costs bytes, too.
    if let account { look(account) }
  }

  /// Waits for news, until `time`, or until a waiting lane may be sent.
  func pause(until time: MonotonicTime? = nil) async throws(CancellationError) {
    guard let account else { return try await woken.wait(until: time, on: loop) }
    var seconds = account.allowance.changesIn
    if account.isShort { seconds = min(seconds ?? .max, account.allowance.dayEndsIn) }
    let due = seconds.map { loop.now + .seconds(min($0 + 1, Self.longestPause)) }
    try await woken.wait(until: [time, due].compactMap { $0 }.min(), on: loop)
  }

  /// The bytes for opening a connection are on disk as used.
  var mayConnect: Bool { account?.isKept(Allowance.opening) ?? true }

  /// The approximate cost of a batch, with its answer and all headers.
  private static func cost(_ batch: Batch) -> Int64 {
    Int64(batch.size + batch.size / 20 + batch.events.count * 150 + 600)
  }

  /// Bytes that a lane may still use, without those of batches under way.
  private func room(_ lane: Lane, _ account: AllowanceAccount) -> Int64 {
    underWay.flights.reduce(account.allowance.forBatch(lane)) { $0 - Self.cost($1.batch) }
  }

  /// The most bytes of a lane's next batch.
  func maxBatchBytes(_ lane: Lane) -> Int {
    guard let account else { return .max }
    return Int(clamping: max(1, (room(lane, account) - 600) / 2))
  }

  /// The allowance has the bytes for the batch, and they are on disk as used.
  func mayUse(_ batch: Batch, _ lane: Lane) -> Bool {
    guard let account else { return true }
    guard Self.cost(batch) <= room(lane, account) else {
      account.isShort = true
      return false
    }
    return account.isKept(underWay.flights.reduce(Self.cost(batch)) { $0 + Self.cost($1.batch) })
  }

  // MARK: Telling

  private func tell(_ account: AllowanceAccount) {
    let (allowance, spent) = (account.allowance, Lane.allCases.filter(account.allowance.isSpent))
    let used = Self.words(allowance)
    if allowance.isLow, !spent.contains(.messages) {
      log.warning("\(name): the allowance is nearly used up (\(used)): messages will stop, too")
    } else if spent.isEmpty {
      log.notice("\(name): the allowance permits all lanes again (\(used))")
    } else {
      let names = spent.map(\.rawValue).joined(separator: ", ")
      log.warning("\(name): the allowance stops \(names) (\(used)). Their events wait")
    }
    let body = JSONWriter.object { json in
      json.field("upstream", name)
      json.arrayField("stopped") { json in for lane in spent { json.value(lane.rawValue) } }
      json.field("low", allowance.isLow)
      json.field("day_bytes", allowance.day.bytes)
      json.field("daily_bytes", allowance.limits.daily)
      json.field("month_bytes", allowance.month.bytes)
      json.field("monthly_bytes", allowance.limits.monthly)
    }
    account.tell(Moment(loop.wallClock), body: body)
  }

  private static func words(_ allowance: Allowance) -> String {
    let day = allowance.limits.daily.map { "\(allowance.day.bytes) of \($0) bytes today" }
    let month = allowance.limits.monthly.map { "\(allowance.month.bytes) of \($0) bytes this month" }
    return [day, month].compactMap { $0 }.joined(separator: ", ")
  }

  /// `nil`: the upstream has no allowance.
  var allowanceStatus: AllowanceStatus? {
    guard let account else { return nil }
    let allowance = account.allowance
    let until = allowance.changesIn.map { loop.wallClock.milliseconds + $0 * 1000 }
    return AllowanceStatus(
      dayBytes: allowance.day.bytes, monthBytes: allowance.month.bytes, dailyBytes: allowance.limits.daily,
      monthlyBytes: allowance.limits.monthly, spent: Lane.allCases.filter { allowance.isSpent($0) },
      waitsForHours: allowance.waitsForHours(.nodes), until: until)
  }
}

// SPDX-License-Identifier: MIT

import Companion
import Glibc
import JSON
import SQLite
import Synchronization
import Timing

/// Stores publications in a hub's database: all waiting ones in one transaction. It distinguishes an event that can never be stored from a database
/// that stores nothing now.
///
/// A gateway's position stays as it is: no broker says whether all earlier events are stored, too. Source: docs/decisions/0019.
public final class PublicationIngest: Sendable {
  /// Results since the start.
  public struct Counts: Sendable, Equatable {
    public var publications = 0
    /// New events.
    public var stored = 0
    /// Events that were stored before.
    public var known = 0
    /// Publications of which some content could not be stored.
    public var refused = 0
    /// Events that gateways report as missing.
    public var missing = 0

    public init() {}

    public static func += (left: inout Counts, right: Counts) {
      left.publications += right.publications
      left.stored += right.stored
      left.known += right.known
      left.refused += right.refused
      left.missing += right.missing
    }
  }

  private struct QueuedEvent {
    let place: Int
    let gateway: String
    let epoch: String
    let before: String?
    let event: HubEvent

    var key: EventKey { EventKey(gateway: gateway, epoch: epoch, seq: event.seq) }
  }

  private struct Outcome {
    var counts = Counts()
    var failed: [(item: QueuedEvent, error: HubDatabaseError)] = []
    var refusals: [Int: String] = [:]
    /// The refusals of gateways that are not admitted.
    var strangers: [Int: (gateway: String, reason: String)] = [:]
  }

  /// Most events of one transaction; a single publication may exceed it.
  private static let maxEvents = 2000
  private static let maxBytes = 2 << 20

  private let store: HubStore
  private let topics: [TopicPattern]
  private let commandTopics: [TopicPattern]
  private let refused: RefusedFile
  private let gapLog = ThrottledLog(HubLog.write)
  private let refusalLog = ThrottledLog(HubLog.write)
  private let commandLog: ThrottledLog
  private let contentLog: ThrottledLog
  private let newGateways: Mutex<NewGatewayLimit>
  private let log: HubLog.Write
  private let alertsOnRefused: Bool
  private let began = ContinuousClock.now

  public convenience init(_ configuration: HubConfiguration, _ settings: ConsumeSettings) throws {
    let store = try HubStore(
      location: configuration.location, password: configuration.password,
      alertsOnConflicts: configuration.alerts.rules.times[.gatewayConflict] != nil)
    let refused = RefusedFile(location: settings.refusedFile)
    // Otherwise the first publication that is refused would stop all gateways.
    if let code = refused.write([]) {
      let failure = "\(settings.refusedFile): \(String(cString: strerror(code)))"
      guard code != ENOSPC else { throw HubDatabaseError(kind: .unavailable, message: failure, cause: .fullDisk) }
      throw HubConfiguration.Failure(description: "consume.refused_file: \(failure)")
    }
    self.init(
      store, topics: settings.topics, commands: settings.commandTopics, refused: refused,
      newGateways: NewGatewayLimit(perDay: settings.newGateways, most: settings.mostGateways),
      alertsOnRefused: configuration.alerts.rules.times[.gatewaysRefused] != nil)
  }

  /// `alertsOnRefused`: whether refused gateways raise an alert.
  init(
    _ store: HubStore, topics: [TopicPattern], commands: [TopicPattern] = [], refused: RefusedFile,
    newGateways: NewGatewayLimit = NewGatewayLimit(perDay: 1000, most: 10_000),
    alertsOnRefused: Bool = true, log: @escaping HubLog.Write = HubLog.write
  ) {
    (self.store, self.topics, commandTopics, self.refused) = (store, topics, commands, refused)
    (commandLog, contentLog, self.log) = (ThrottledLog(log), ThrottledLog(log), log)
    self.newGateways = Mutex(newGateways)
    self.alertsOnRefused = alertsOnRefused
  }

  /// Stores publications. When it returns, each publication is on disk, has no events, or is in the file of refused ones. Throws if that is
  /// impossible now: the caller gives all publications again, also those that are stored.
  public func keep(_ publications: [Publication]) async throws -> Counts {
    var outcome = Outcome()
    outcome.counts.publications = publications.count
    var (items, bytes) = ([QueuedEvent](), 0)
    for (place, publication) in publications.enumerated() {
      do throws(Publication.Refusal) {
        let meaning = try publication.meaning(topics, commands: commandTopics) {
          commandLog.say(
            "a command came on \(publication.topic), a topic of events: who may ask there may write in the gateway's name. Name it in consume.command_topics"
          )
        }
        // Without events, such as whether a gateway is online.
        guard let events = meaning else { continue }
        items += events.events.map {
          QueuedEvent(place: place, gateway: events.gateway, epoch: events.epoch, before: events.before, event: $0)
        }
        bytes += events.bytes
      } catch {
        outcome.refusals[place] = error.reason
      }
      // A compressed payload may have become many times as large.
      if items.count >= Self.maxEvents || bytes >= Self.maxBytes {
        try await store(try await admit(items, &outcome), &outcome)
        (items, bytes) = ([], 0)
      }
    }
    try await store(try await admit(items, &outcome), &outcome)
    try refuseInvalid(&outcome)
    try await reportRefusedGateways(outcome)
    let refusals = outcome.refusals.sorted { $0.key < $1.key }
    try refused.append(refusals.map { (publication: publications[$0.key], reason: $0.value) }, at: HubClock.now)
    for (place, reason) in refusals {
      refusalLog.say("a publication on \(publications[place].topic) cannot be stored: \(reason)")
    }
    outcome.counts.refused = outcome.refusals.count
    return outcome.counts
  }

  /// Leaves out events of gateways that are not admitted.
  private func admit(_ items: [QueuedEvent], _ outcome: inout Outcome) async throws(HubDatabaseError) -> [QueuedEvent] {
    let asked = newGateways.withLock { $0.unknown(Set(items.map(\.gateway))) }
    guard !asked.isEmpty else { return items }
    let known = try await store.known(asked)
    let now = now
    let refusals = newGateways.withLock { newGateways -> [String: String] in
      newGateways.markKnown(known.known)
      var (refusals, count): ([String: String], Int64) = ([:], known.count)
      for gateway in asked.subtracting(known.known).sorted() {
        refusals[gateway] = newGateways.refusal(gateway, count: count, now: now)
        guard refusals[gateway] == nil else { continue }
        count += 1
        let before = newGateways.admit(gateway)
        if before > 0 {
          log(
            .warning,
            "gateway \(gateway) is let in: at least \(before) of its publications were refused before, see \(refused.location)"
          )
        }
      }
      return refusals
    }
    guard !refusals.isEmpty else { return items }
    for item in items {
      guard let reason = refusals[item.gateway] else { continue }
      outcome.refusals[item.place] = "gateway \(item.gateway) is not known here: \(reason)"
      outcome.strangers[item.place] = (item.gateway, reason)
    }
    return items.filter { refusals[$0.gateway] == nil }
  }

  /// Names each refused gateway in the log: an honest new gateway must not vanish among invented ones.
  private func logStrangers(_ outcome: Outcome) {
    for (gateway, all) in Dictionary(grouping: outcome.strangers.values, by: \.gateway) {
      let now = now
      let isNamed = newGateways.withLock { $0.wasRefused(gateway, publications: all.count, now: now) }
      if isNamed { log(.warning, "gateway \(gateway) is refused: \(all[0].reason); see \(refused.location)") }
    }
  }

  private var now: MonotonicTime { MonotonicTime(since: began) }

  private func reportRefusedGateways(_ outcome: Outcome) async throws {
    logStrangers(outcome)
    guard alertsOnRefused else { return }
    let (now, first) = (now, outcome.strangers.min { $0.key < $1.key }?.value)
    let words = first.map { "publications such as gateway \($0.gateway)'s are refused: \($0.reason)" }
    let report = newGateways.withLock { $0.dueReport(outcome.strangers.count, words, now: now) }
    guard let report else { return }
    try await store.reportRefusedGateways(report.reason, report.count, at: HubClock.now)
  }

  /// Stores all events in one transaction. If it fails, each half is tried, down to the events that cannot be stored.
  private func store(_ items: [QueuedEvent], _ outcome: inout Outcome) async throws(HubDatabaseError) {
    guard !items.isEmpty else { return }
    do throws(HubDatabaseError) {
      let batches = batches(items)
      var new = try await store.keepUnordered(batches)
      if let words = batches.lazy.compactMap(\.refusedWords).first { contentLog.say(words) }
      outcome.counts.stored += new.count
      outcome.counts.known += items.count - new.count
      // Brokers send a gap again, too.
      for item in items where item.event.kind == "gap" && new.remove(item.key) != nil { note(item, &outcome) }
    } catch {
      guard error.kind == .unfit || error.kind == .other else { throw error }
      guard items.count > 1 else { return outcome.failed.append((items[0], error)) }
      try await store(Array(items[..<(items.count / 2)]), &outcome)
      try await store(Array(items[(items.count / 2)...]), &outcome)
    }
  }

  /// Refuses events that the database rejects while it accepts others. A database that rejects all events may be misconfigured: then it refuses none.
  private func refuseInvalid(_ outcome: inout Outcome) throws {
    let takesOthers = outcome.counts.stored + outcome.counts.known > 0
    for (item, error) in outcome.failed {
      guard error.kind == .unfit || takesOthers else { throw error }
      outcome.refusals[item.place] = "event \(item.gateway)/\(item.epoch)/\(item.event.seq): \(error.message)"
    }
  }

  private func note(_ item: QueuedEvent, _ outcome: inout Outcome) {
    let body = item.event.body
    let (count, most) = (body["count"]?.count, body["at_most"]?.count)
    outcome.counts.missing =
      outcome.counts.missing.addingReportingOverflow(Int(clamping: count ?? most ?? 0)).partialValue
    // After the loss of a database the number may be unknown.
    let lost = count.map { "\($0) events" } ?? most.map { "at most \($0) events" } ?? "nobody knows how many events"
    let reason = body["reason"]?.string?.prefix(40) ?? "?"
    gapLog.say("gateway \(item.gateway) has lost, before event \(item.event.seq): \(lost) (\(reason))")
  }

  /// One batch for each epoch, in the order of seq: brokers may change the order of publications.
  private func batches(_ items: [QueuedEvent]) -> [PreparedBatch] {
    var epochs: [GatewayEpoch: [QueuedEvent]] = [:]
    for item in items { epochs[GatewayEpoch(gateway: item.gateway, epoch: item.epoch), default: []].append(item) }
    return epochs.sorted { ($0.key.gateway, $0.key.epoch) < ($1.key.gateway, $1.key.epoch) }.flatMap { epoch, items in
      // The hub looks for events with numbers of an earlier epoch there, too.
      Dictionary(grouping: items, by: \.before).map { before, items in
        var batch = PreparedBatch(
          items.map(\.event).sorted { $0.seq < $1.seq }, of: epoch.epoch, in: nil, from: epoch.gateway, after: nil,
          at: HubClock.now)
        (batch.isOrdered, batch.before) = (false, before)
        return batch
      }
    }
  }
}

extension Collection<UInt8> {
  /// Two lower-case hexadecimal digits for each byte.
  var hex: String { Hex.string(self) }
}

/// Limits new gateways that come through a broker: a client of the broker can invent any number of gateways. Pure.
struct NewGatewayLimit {
  /// Most known gateways in memory, which saves queries.
  private static let mostKnown = 4096

  /// The limit of all known gateways, including those that came directly.
  let most: Int64
  let perDay: Int64
  private var dayQuota: Ration
  private var known: Set<String> = []
  private var (unreported, reason) = (0, "")
  private var reportQuota = Ration(most: 1, oneIn: .seconds(60))
  /// Refused publications of the gateways that the log has named. At `mostRefused` gateways all are forgotten.
  private var refused: [String: Int] = [:]
  private var nameQuota = Ration(most: 64, oneIn: .seconds(1))
  private static let mostRefused = 1024

  init(perDay: Int64, most: Int64) {
    (self.perDay, self.most) = (perDay, most)
    dayQuota = Ration(most: perDay, oneIn: .seconds(86_400) / Int(perDay))
  }

  /// The gateways that may be new: only the database knows.
  func unknown(_ gateways: Set<String>) -> Set<String> { gateways.subtracting(known) }

  mutating func markKnown(_ gateways: some Sequence<String>) {
    for gateway in gateways {
      if known.count >= Self.mostKnown { known = [] }
      known.insert(gateway)
    }
  }

  /// Why a gateway is refused; `nil`: it is admitted. `count`: the number of known gateways.
  mutating func refusal(_ gateway: String, count: Int64, now: MonotonicTime) -> String? {
    guard count < most else {
      return "the hub knows \(count) gateways, and no more than \(most) come by a broker (consume.max_gateways)"
    }
    guard dayQuota.take(at: now) else {
      return "more than \(perDay) new gateways a day come by the broker (consume.new_gateways_per_day)"
    }
    // A second attempt after a failure of the database does not count again.
    markKnown([gateway])
    return nil
  }

  /// Counts refused publications. `true`: the log should name the gateway, once, and not too many gateways a second. A gateway that the log does not
  /// name now has its turn with a later publication.
  mutating func wasRefused(_ gateway: String, publications: Int, now: MonotonicTime) -> Bool {
    if refused[gateway] != nil {
      refused[gateway, default: 0] += publications
      return false
    }
    guard nameQuota.take(at: now) else { return false }
    if refused.count >= Self.mostRefused { refused = [:] }
    refused[gateway] = publications
    return true
  }

  /// Admits a gateway; returns how many of its publications, at least, were refused before.
  mutating func admit(_ gateway: String) -> Int { refused.removeValue(forKey: gateway) ?? 0 }

  /// The number of refused publications to report, and the reason; `nil`: nothing to report now.
  mutating func dueReport(_ refused: Int = 0, _ reason: String? = nil, now: MonotonicTime) -> (
    count: Int, reason: String
  )? {
    unreported += refused
    self.reason = reason ?? self.reason
    guard unreported > 0, reportQuota.take(at: now) else { return nil }
    defer { unreported = 0 }
    return (unreported, self.reason)
  }
}

extension HubStore {
  /// The known gateways among these, and the number of all known gateways.
  func known(_ gateways: Set<String>) throws(HubDatabaseError) -> (known: Set<String>, count: Int64) {
    var (known, count): (Set<String>, Int64) = ([], 0)
    try database.read([
      HubCall("SELECT g.id FROM @rows JOIN gateways g ON g.id = v.id", ["id": gateways.sorted()]) {
        known.insert($0.text(0))
      }, HubCall("SELECT count(*) FROM gateways", values: []) { count = $0.integer(0) },
    ])
    return (known, count)
  }
}

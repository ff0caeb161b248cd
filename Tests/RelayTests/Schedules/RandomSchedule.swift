// SPDX-License-Identifier: MIT

import Store
import Timing

@testable import Relay

/// A random schedule of events at line, server and gateway, determined by its seed, and its evaluation.
struct RandomSchedule {
  /// Counts of events over all schedules.
  struct Tally {
    var (schedules, events, sent, folded, cuts, restarts, kills, restores, goneBack) = (0, 0, 0, 0, 0, 0, 0, 0, 0)
    var (refused, deadly, buried, innocent, stopped, upgraded) = (0, 0, 0, 0, 0, 0)
    var longestSince = ByLane<Int>(all: 0)
  }

  private static let kinds: [EventKind] = [
    .message, .advert, .advert, .contact, .packet, .packet, .outgoing, .contactRemoved, .telemetry,
  ]
  /// The bytes of higher lanes for which a lower lane may have to wait.
  static let longestSince = ByLane(messages: 0, nodes: 20_000, packets: 32_000)

  private let seed: UInt64
  private let schedule: Schedule
  private var random: SeededRandom
  private(set) var faults: [String] = []
  private var (kills, restores, losses, upgrades) = (0, 0, 0, 0)
  /// Former dead letters, which may arrive at any time.
  private var letters: Set<Int64> = []

  private init(_ seed: UInt64) throws {
    self.seed = seed
    random = SeededRandom(seed: seed &+ 1000)
    var kind = Schedule.Kind()
    kind.server = ["hub", "hub", "hub", "mqtt", "hub", "hub", "webhook"][Int(seed % 7)]
    kind.knowsLanes = seed % 7 != 1 && seed % 7 != 4
    // As in the configuration.
    if kind.server == "webhook" { kind.batchEvents = 1 }
    kind.folds = seed / 7 % 2 == 1
    kind.profile = [.durable, .balanced, .wear][Int(seed / 14 % 3)]
    if seed / 42 % 6 == 0 { kind.dailyBytes = Int64.random(in: 40_000...120_000, using: &random) }
    schedule = try Schedule(seed: seed, kind)
  }

  /// Runs the schedule of a seed; returns the errors.
  static func run(_ seed: UInt64, _ tally: inout Tally) throws -> [String] {
    var run = try RandomSchedule(seed)
    try run.happen()
    try run.end(&tally)
    run.schedule.stop()
    return run.faults
  }

  private func chance(_ one: Int, _ random: inout SeededRandom) -> Bool { Int.random(in: 0..<one, using: &random) == 0 }
  private var isHub: Bool { schedule.kind.server == "hub" }
  /// In every third schedule nothing fails.
  private var isQuiet: Bool { seed % 3 == 0 }

  private mutating func happen() throws {
    let hub = schedule.hub
    if !isQuiet {
      hub.line.cuts = [6, 8, 20][Int(seed / 3 % 3)]
      hub.line.isLate = seed % 4 == 0
      hub.line.isBusy = seed % 5 == 0
      // With another beginning a different event may replace the same ones.
      hub.line.hasGhosts = seed % 11 == 0 && !schedule.kind.folds
    }
    for _ in 0..<60 {
      switch Int.random(in: 0..<20, using: &random) {
      case 0...7: append()
      case 8: hub.keepBackup()
      case 9 where seed % 4 == 1 && isHub && !isQuiet:
        hub.restore()
        restores += 1
      case 10 where !isQuiet: try schedule.restart()
      case 11 where seed % 2 == 1 && !isQuiet:
        try schedule.kill()
        kills += 1
      case 12 where seed % 5 == 1:
        hub.refused.insert(schedule.append(Self.kinds.randomElement(using: &random) ?? .message))
      case 13 where seed % 13 == 1 && hub.deadly.isEmpty:
        hub.deadly.insert(schedule.append(Self.kinds.randomElement(using: &random) ?? .message))
      case 14 where !isQuiet:
        hub.lose()
        losses += 1
      case 15: operate()
      case 16 where seed % 8 == 3 && !isQuiet: try chance(2, &random) ? schedule.keepBackup() : goBack()
      case 17 where seed % 7 == 4 && seed % 3 == 1 && upgrades == 0:
        hub.learnLanes()
        upgrades += 1
      case 18 where seed % 4 == 2: schedule.pass(Int64.random(in: 600...40_000, using: &random))
      default: schedule.pass(Int64.random(in: 1...20, using: &random))
      }
      try letters.formUnion(schedule.deadLetters())
    }
  }

  private mutating func append() {
    let many = chance(60, &random)
    for _ in 0..<(many ? 150 : Int.random(in: 1...12, using: &random)) {
      schedule.append(many && !chance(8, &random) ? .message : Self.kinds.randomElement(using: &random) ?? .message)
    }
  }

  /// An operator acts at the gateway.
  private mutating func operate() {
    let upstream = schedule.upstream
    switch Int.random(in: 0..<7, using: &random) {
    case 0: upstream?.setPaused(true)
    case 1, 2: upstream?.setPaused(false)
    case 3: upstream?.networkChanged()
    case 4: schedule.hub.outdate()
    case 5:
      schedule.hub.isLocked.toggle()
      upstream?.resume()
    default:
      // `try?`: an unreadable store has none.
      let known = (try? schedule.deadLetters()) ?? []
      if let one = known.filter({ $0 > 0 }).sorted().randomElement(using: &random), chance(2, &random) {
        schedule.hub.refused.remove(one)
      }
      _ = try? schedule.store.retryDeadLetters(of: chance(2, &random) ? "hub" : nil)
      upstream?.resume()
    }
  }

  private mutating func goBack() throws {
    let before = schedule.goneBack
    try schedule.goBack()
    if schedule.goneBack > before { kills += 1 }
  }

  // MARK: Evaluation

  private mutating func end(_ tally: inout Tally) throws {
    let hub = schedule.hub
    hub.mend()
    schedule.upstream?.setPaused(false)
    schedule.upstream?.resume()
    // The gateway notices a restored hub only when it has something to send.
    schedule.append(.message)
    if !schedule.pass(untilDelivered: 86_400) {
      // A refused event without a later one waits for another event, which shows that the server accepts any.
      schedule.append(.message)
      if !schedule.pass(untilDelivered: 40 * 86_400) { fault("\(schedule.pending) pending") }
    }
    let buried = try schedule.deadLetters()
    letters.formUnion(buried)
    let events = try schedule.journal()
    judge(events, buried)
    let innocent = buried.subtracting(hub.refused).subtracting(hub.deadly)
    if !innocent.isEmpty, hub.deadly.isEmpty, isQuiet {
      fault("dead letters that nobody refused: \(innocent.sorted())")
    }
    tally.buried += buried.count
    tally.innocent += innocent.count
    (tally.refused, tally.deadly) = (tally.refused + hub.refused.count, tally.deadly + hub.deadly.count)
    // Then the server accepts them after all.
    (hub.refused, hub.deadly) = ([], [])
    if !buried.isEmpty {
      _ = try schedule.store.retryDeadLetters(of: "hub")
      schedule.upstream?.resume()
      for _ in 0..<200 where try !schedule.deadLetters().isEmpty { schedule.pass(600) }
      let rest = try schedule.deadLetters()
      if !rest.isEmpty || !buried.isSubset(of: hub.contents.identities) { fault("dead letters stay: \(rest.sorted())") }
    }
    count(events, &tally)
  }

  private mutating func fault(_ words: String) {
    let kind = schedule.kind
    faults.append(
      "seed \(seed), \(kind.server)\(kind.knowsLanes ? "" : " of version 1")\(kind.folds ? ", folding" : ""): \(words)")
  }

  private mutating func judge(_ events: [JournalEvent], _ buried: Set<Int64>) {
    let hub = schedule.hub
    let (here, known) = (hub.contents.identities, hub.contents)
    for complaint in Set(hub.complaints) { fault(complaint) }
    // The events of each state, in order: an event may be missing if a newer one arrived or was refused.
    var states: [ScheduledEvent.State: [Int64]] = [:]
    for event in events {
      if let state = ScheduledEvent.State(event) {
        states[state, default: []].append(ScheduledEvent.identity(of: event))
      }
    }
    var foldable: Set<Int64> = []
    if schedule.kind.folds {
      for identities in states.values {
        guard let newest = identities.lastIndex(where: { here.contains($0) || buried.contains($0) }) else { continue }
        foldable.formUnion(identities[..<newest])
      }
    }
    let missing = events.filter { event in
      let identity = ScheduledEvent.identity(of: event)
      // A hub that is an older copy of itself lacks a dead letter that it accepted later, and does not know this.
      if restores > 0, letters.contains(identity) { return false }
      return !here.contains(identity) && !buried.contains(identity)
    }
    let lost = missing.filter { !foldable.contains(ScheduledEvent.identity(of: $0)) }
    if !lost.isEmpty { fault("lost: \(lost.map { "\($0.seq) \($0.kind)" }.prefix(10)) of \(events.count)") }
    if !hub.hasOvertaken { judgeOrder(events) }
    judgeStates(states, Set(missing.map { ScheduledEvent.identity(of: $0) }), buried)
    let isDisturbed =
      schedule.restarts > 0 || restores > 0 || schedule.goneBack > 0 || !letters.isEmpty || losses > 0 || upgrades > 0
    // With a used-up allowance the gateway does not wait for answers.
    if isQuiet, !isDisturbed, hub.deadly.isEmpty, hub.refused.isEmpty, schedule.kind.dailyBytes == nil,
      hub.sent != here.count
    {
      fault("\(hub.sent) events were sent for \(here.count)")
    }
    // An allowance may stop lower lanes on purpose, and refused events have used up their lane's share.
    if isQuiet, schedule.kind.dailyBytes == nil, known.journals.count == 1, hub.knowsLanes, letters.isEmpty {
      for lane in Lane.allCases where hub.longestSince[lane] > Self.longestSince[lane] {
        fault("\(lane) waited for \(hub.longestSince[lane]) bytes of others")
      }
    }
  }

  private mutating func judgeOrder(_ events: [JournalEvent]) {
    let refused = letters.union(schedule.hub.wasRefused)
    let exempt = Set(events.filter { refused.contains(ScheduledEvent.identity(of: $0)) }.map(\.seq))
    for lane in Lane.allCases {
      let row = schedule.hub.seqs[lane].filter { !exempt.contains($0) }
      if let place = row.indices.dropFirst().first(where: { row[$0] <= row[$0 - 1] }) {
        fault("\(lane) not in order: \(row[max(0, place - 2)...place])")
      }
    }
  }

  /// The state that arrived last must be the newest one, with the number of states that it replaces.
  private mutating func judgeStates(
    _ states: [ScheduledEvent.State: [Int64]], _ missing: Set<Int64>, _ buried: Set<Int64>
  ) {
    let contents = schedule.hub.contents
    // A server that breaks down or refuses, and a used-up allowance, void the batches under way; when they are sent again, another state may be the
    // newest.
    let isDisturbed =
      schedule.restarts > 0 || restores > 0 || !letters.isEmpty || upgrades > 0 || schedule.kind.dailyBytes != nil
      || !schedule.hub.deadly.isEmpty || !schedule.hub.refused.isEmpty
    let isExact = isQuiet && !isDisturbed && buried.isEmpty && schedule.hub.knowsLanes
    for (state, identities) in states where schedule.goneBack == 0 {
      if letters.isDisjoint(with: identities), contents.states[state] != identities.last {
        fault("\(state.kind): \(contents.states[state] ?? 0) came last, \(identities.last ?? 0) is the newest")
      }
      let told = identities.reduce(0) { $0 + (contents.folded[$1] ?? 0) }
      // The next state also counts those that were under way at a cut, although they arrived.
      let most = Int64(identities.count { missing.contains($0) || letters.contains($0) })
      let isRight = isExact ? told == most : told < max(1, identities.count) || !isHub || !letters.isEmpty
      if !isRight { fault("\(state.kind): \(told) of \(most) reported") }
    }
  }

  private func count(_ events: [JournalEvent], _ tally: inout Tally) {
    tally.schedules += 1
    tally.events += events.count
    tally.sent += schedule.hub.sent
    tally.folded += events.count { !schedule.hub.contents.identities.contains(ScheduledEvent.identity(of: $0)) }
    tally.cuts += losses
    tally.restarts += schedule.restarts - kills
    tally.kills += kills
    tally.restores += restores
    tally.goneBack += schedule.goneBack
    tally.upgraded += upgrades
    tally.stopped += events.count { $0.kind == EventKind.allowance.rawValue }
    for lane in Lane.allCases where isQuiet && schedule.kind.dailyBytes == nil && schedule.hub.knowsLanes {
      tally.longestSince[lane] = max(tally.longestSince[lane], schedule.hub.longestSince[lane])
    }
  }
}

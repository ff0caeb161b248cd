// SPDX-License-Identifier: MIT

/// The tables with rows that are deleted by age.
public enum PurgedTable: String, CaseIterable, Sendable {
  /// Events of gateways' journals.
  case events
  /// Messages, each once, with their hearers.
  case messages
  /// Gateways' reports of messages that are gone.
  case reports
  /// The newest state of each node.
  case contacts
  /// Commands that have ended.
  case commands
}

/// The rows to delete. Ages are in milliseconds; `nil` keeps all rows.
///
/// Never deleted: gateways' positions, so that they send nothing again; documents; queued commands.
public struct PurgePlan: Sendable {
  /// Only rows of this gateway.
  public var gateway: String?
  /// Age limit of events by their kind; `nil`: no limit.
  public var age: @Sendable (String) -> Int64?
  public var messages: Int64?
  public var contacts: Int64?
  public var commands: Int64?
  /// It deletes no younger rows than this, for any age limit.
  var bound: @Sendable (Purge.Part) -> Int64 = { _ in .max }

  public init(
    gateway: String? = nil, age: @escaping @Sendable (String) -> Int64?, messages: Int64? = nil,
    contacts: Int64? = nil, commands: Int64? = nil
  ) {
    (self.gateway, self.age, self.messages) = (gateway, age, messages)
    (self.contacts, self.commands) = (contacts, commands)
  }
}

/// Deletes old rows, a few at a time: a serving hub works between two steps.
///
/// It goes through the rows in the order of arrival, and stops at the first younger row: so a temporarily wrong clock makes no later row old. It
/// deletes a row without a date together with the next dated row.
public struct Purge: Sendable {
  static let step = 250

  /// Numbers of rows by table, and of events by kind.
  public struct Count: Sendable, Equatable {
    public var tables: [PurgedTable: Int] = [:]
    public var kinds: [String: Int] = [:]
    /// The dates of the rows, milliseconds since 1970; `nil`: none has a date.
    public var dates: ClosedRange<Int64>?

    var rows: Int { tables.values.reduce(0, +) }
    public var isEmpty: Bool { tables.values.allSatisfy { $0 == 0 } }
    public var message: String {
      PurgedTable.allCases.compactMap { table in tables[table].map { "\($0) \(table.rawValue)" } }
        .joined(separator: ", ")
    }
  }

  /// A part with its own age limit.
  enum Part: Hashable, Sendable {
    case messages
    case events(kind: String)

    private static let prefix = "events/"

    init(name: String) {
      self = name.begins(with: Self.prefix) ? .events(kind: String(name.dropFirst(Self.prefix.count))) : .messages
    }

    /// Whether gateways of this version have it.
    var isKnown: Bool {
      switch self {
      case .messages: true
      case .events(let kind): KnownKinds.all.contains(kind)
      }
    }

    var name: String {
      switch self {
      case .messages: "messages"
      case .events(let kind): Self.prefix + kind
      }
    }
  }

  private let store: HubStore
  private let plan: PurgePlan
  /// Milliseconds since 1970; `latest`: no event can be later.
  private let now: Int64
  private let latest: Int64
  private let deletes: Bool
  private let most: Int
  private let looksForReports: Bool
  private let paused: @Sendable (Duration) async throws -> Void

  /// `at`: time that has surely passed; `clock`: the machine's clock. `deletes`: `false` only counts. `most`: it stops soon after this many rows.
  /// `looksForReports`: with messages also reports of messages that are gone, which goes through all reports. It calls `paused` between steps, with the
  /// duration of the last step; an error from there stops it.
  public init(
    _ store: HubStore, _ plan: PurgePlan, at now: Int64, clock: Int64, deletes: Bool, most: Int = .max,
    looksForReports: Bool = true, paused: @escaping @Sendable (Duration) async throws -> Void
  ) {
    (self.store, self.plan, self.now, latest) = (store, plan, now, max(now, clock))
    (self.deletes, self.most, self.looksForReports, self.paused) = (deletes, most, looksForReports, paused)
  }

  /// `told` gets the number of rows after each step that found any.
  public func run(_ told: @Sendable (PurgedTable, Int) -> Void = { _, _ in }) async throws -> Count {
    var count = Count()
    if plan.messages != nil, looksForReports { try await lonelyReports(&count, told) }
    if let cutoff = cutoff(plan.messages, .messages) {
      try await steps(.messages, &count, told) { (after) in
        try await store.oldMessages(after: after, before: cutoff, latest: latest, limit: Self.step)
      }
    }
    var gateway = try await store.gateway(after: "", only: plan.gateway)
    while let id = gateway, count.rows < most {
      var kind = try await store.kind(of: id, after: "")
      while let name = kind {
        if let cutoff = cutoff(plan.age(name), .events(kind: name)) {
          let before = count.rows
          try await steps(.events, &count, told) { (after) in
            try await store.oldEvents(
              of: id, name, after: after, before: cutoff, latest: latest, limit: Self.step)
          }
          count.kinds[name, default: 0] += count.rows - before
        }
        kind = try await store.kind(of: id, after: name)
      }
      if let age = plan.contacts { try await contacts(of: id, before: now - age, &count, told) }
      if let age = plan.commands {
        let rows = try await timed { try await store.oldCommands(of: id, before: now - age, deletes: deletes) }
        Self.add(rows, of: .commands, &count, told)
      }
      gateway = plan.gateway == nil ? try await store.gateway(after: id, only: nil) : nil
    }
    return count
  }

  private func cutoff(_ age: Int64?, _ part: Part) -> Int64? { age.map { min(now - $0, plan.bound(part)) } }

  private static func add(
    _ rows: Int, of table: PurgedTable, _ count: inout Count, _ told: (PurgedTable, Int) -> Void
  ) {
    guard rows > 0 else { return }
    count.tables[table, default: 0] += rows
    told(table, rows)
  }

  private func timed<Value>(_ work: () async throws -> Value) async throws -> Value {
    let begun = ContinuousClock.now
    let value = try await work()
    try await paused(.now - begun)
    return value
  }

  /// `find` returns the old rows behind a row.
  private func steps(
    _ table: PurgedTable, _ count: inout Count, _ told: (PurgedTable, Int) -> Void,
    _ find: (_ after: Int64) async throws -> ExpiredRows
  ) async throws {
    var last: Int64 = 0
    while count.rows < most {
      let old = try await timed {
        let found = try await find(last)
        if deletes { try await delete(table, found.ids) }
        return found
      }
      Self.add(old.ids.count, of: table, &count, told)
      if let dates = old.dates { count.dates = dates.upperBound.within(dates.lowerBound.within(count.dates)) }
      guard !old.isLast, let reached = old.ids.last else { return }
      last = reached
    }
  }

  /// Again if batches under way take long.
  private func delete(_ table: PurgedTable, _ ids: [Int64]) async throws {
    for attempt in 1... {
      let begun = ContinuousClock.now
      do {
        return try await store.delete(table, ids)
      } catch {
        guard error.cause == .heldLock, attempt < HubStore.mostAttempts else { throw error }
      }
      try await paused(.now - begun)
    }
  }

  /// Deletes or counts the reports of messages that are gone, and nothing else.
  func reports(_ told: (PurgedTable, Int) -> Void) async throws -> Count {
    var count = Count()
    try await lonelyReports(&count, told)
    return count
  }

  private func lonelyReports(_ count: inout Count, _ told: (PurgedTable, Int) -> Void) async throws {
    var next: Int64? = 0
    while let last = next {
      let page = try await timed {
        let page = try await store.lonelyReports(after: last, limit: Self.step)
        if deletes { try await store.delete(.reports, page.messages) }
        return page
      }
      Self.add(page.reports, of: .reports, &count, told)
      next = page.next
    }
  }

  private func contacts(
    of gateway: String, before cutoff: Int64, _ count: inout Count, _ told: (PurgedTable, Int) -> Void
  ) async throws {
    var last = ""
    while true {
      let page = try await timed {
        let page = try await store.oldContacts(of: gateway, after: last, before: cutoff, limit: Self.step)
        if deletes { try await store.deleteContacts(of: gateway, page.keys, before: cutoff) }
        return page
      }
      Self.add(page.keys.count, of: .contacts, &count, told)
      guard let next = page.next else { return }
      last = next
    }
  }
}

/// The part of the existing rows that a purge takes.
public struct PurgeShare: Sendable, Equatable {
  let name: String
  let rows: Int
  let all: Int

  public var isMost: Bool { rows > all / 2 }
  /// `advert: 12 of 200 (6 %)`
  public var message: String { "\(name): \(rows) of \(all) (\(rows * 100 / max(all, 1)) %)" }
}

extension HubStore {
  /// The shares by kind of events, and of joined messages, in the order of their names. `gateway`: only its events.
  public func shares(of count: Purge.Count, gateway: String?) throws(HubDatabaseError) -> [PurgeShare] {
    var shares: [PurgeShare] = []
    for (kind, rows) in count.kinds.sorted(by: { $0.key < $1.key }) where rows > 0 {
      shares.append(PurgeShare(name: kind, rows: rows, all: try eventRows(of: gateway, kind)))
    }
    if let rows = count.tables[.messages] {
      shares.append(PurgeShare(name: "joined messages", rows: rows, all: try joinedRows()))
    }
    return shares
  }
}

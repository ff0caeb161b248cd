// SPDX-License-Identifier: MIT

/// What may be deleted by its age.
public enum PurgedTable: String, CaseIterable, Sendable {
  /// Events of gateways' journals.
  case events
  /// Joined messages, with who heard them.
  case messages
  /// The newest state of each node.
  case contacts
  /// Commands that have ended.
  case commands
}

/// What is to be deleted. Ages are in milliseconds; `nil` keeps all of it.
///
/// Never deleted: how far gateways have been acknowledged, so that nothing is sent again; documents; commands that wait.
public struct PurgePlan: Sendable {
  /// Only rows of this gateway.
  public var gateway: String?
  /// Age limit of events by their kind; `nil`: no limit.
  public var age: @Sendable (String) -> Int64?
  public var messages: Int64?
  public var contacts: Int64?
  public var commands: Int64?

  public init(
    gateway: String? = nil, age: @escaping @Sendable (String) -> Int64?, messages: Int64? = nil,
    contacts: Int64? = nil, commands: Int64? = nil
  ) {
    (self.gateway, self.age, self.messages) = (gateway, age, messages)
    (self.contacts, self.commands) = (contacts, commands)
  }
}

/// Deletes what is old, a little at a time: between two steps a hub that serves goes on.
///
/// It walks in the order in which things came, from the oldest, and stops at the first that is younger: a clock that was wrong for a
/// while makes nothing old that came after it. What has no time to go by goes with the next one behind it that has.
public struct Purge: Sendable {
  /// Rows of one transaction.
  static let step = 250

  /// How many rows, by table; events also by their kind.
  public struct Count: Sendable, Equatable {
    public var tables: [PurgedTable: Int] = [:]
    public var kinds: [String: Int] = [:]

    public var isEmpty: Bool { tables.values.allSatisfy { $0 == 0 } }
    public var message: String {
      PurgedTable.allCases.compactMap { table in tables[table].map { "\($0) \(table.rawValue)" } }
        .joined(separator: ", ")
    }
  }

  private let store: HubStore
  private let plan: PurgePlan
  /// Milliseconds since 1970.
  private let now: Int64
  private let deletes: Bool
  private let paused: @Sendable (Duration) async throws -> Void

  /// `deletes`: false only counts. `paused` is called between steps, with how long the last one took; it throws to stop.
  public init(
    _ store: HubStore, _ plan: PurgePlan, at now: Int64, deletes: Bool,
    paused: @escaping @Sendable (Duration) async throws -> Void
  ) {
    (self.store, self.plan, self.now, self.deletes, self.paused) = (store, plan, now, deletes, paused)
  }

  /// `told`: rows that a step has deleted.
  public func run(_ told: @Sendable (PurgedTable, Int) -> Void = { _, _ in }) async throws -> Count {
    var count = Count()
    func add(_ table: PurgedTable, _ rows: Int) {
      guard rows > 0 else { return }
      count.tables[table, default: 0] += rows
      told(table, rows)
    }
    if let age = plan.messages { try await messages(before: now - age) { add(.messages, $0) } }
    var gateway = try await store.gateway(after: "", only: plan.gateway)
    while let id = gateway {
      var kind = try await store.kind(of: id, after: "")
      while let name = kind {
        if let age = plan.age(name) {
          try await events(of: id, name, before: now - age) { rows in
            count.kinds[name, default: 0] += rows
            add(.events, rows)
          }
        }
        kind = try await store.kind(of: id, after: name)
      }
      if let age = plan.contacts { try await contacts(of: id, before: now - age) { add(.contacts, $0) } }
      if let age = plan.commands {
        add(.commands, try await timed { try await store.oldCommands(of: id, before: now - age, deletes: deletes) })
      }
      gateway = plan.gateway == nil ? try await store.gateway(after: id, only: nil) : nil
    }
    return count
  }

  private func timed<Value>(_ work: () async throws -> Value) async throws -> Value {
    let begun = ContinuousClock.now
    let value = try await work()
    try await paused(.now - begun)
    return value
  }

  private func events(
    of gateway: String, _ kind: String, before cutoff: Int64, _ told: (Int) -> Void
  ) async throws {
    var last: Int64 = 0
    while true {
      let old = try await timed {
        let found = try await store.oldEvents(
          of: gateway, kind, after: last, before: cutoff, now: now, limit: Self.step)
        if deletes { try await store.delete(.events, found.ids) }
        return found
      }
      told(old.ids.count)
      guard !old.isLast, let reached = old.ids.last else { return }
      last = reached
    }
  }

  private func messages(before cutoff: Int64, _ told: (Int) -> Void) async throws {
    var last: Int64 = 0
    while true {
      let old = try await timed {
        let found = try await store.oldMessages(after: last, before: cutoff, now: now, limit: Self.step)
        if deletes { try await store.delete(.messages, found.ids) }
        return found
      }
      told(old.ids.count)
      guard !old.isLast, let reached = old.ids.last else { return }
      last = reached
    }
  }

  private func contacts(of gateway: String, before cutoff: Int64, _ told: (Int) -> Void) async throws {
    var last = ""
    while true {
      let page = try await timed {
        let page = try await store.oldContacts(of: gateway, after: last, before: cutoff, limit: Self.step)
        if deletes { try await store.deleteContacts(of: gateway, page.keys, before: cutoff) }
        return page
      }
      told(page.keys.count)
      guard let next = page.next else { return }
      last = next
    }
  }
}

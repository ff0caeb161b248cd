// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc
import Hub

struct PurgeOld: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "purge", abstract: "Delete old data while the hub runs.",
    discussion: """
      Deletes events, oldest first, a few at a time, after it has said how many, from when to when, and which share that is. How far \
      gateways have been acknowledged stays: nothing is sent again. The database's file does not get smaller; its space is used again.
      """)

  @OptionGroup var hub: HubOptions
  @Option(help: "How old: \(Age.allowed).") var olderThan: String?
  @Flag(
    help:
      "In place of --older-than: what `[retention]` of the configuration no longer keeps, also what waits for your confirmation."
  )
  var retention = false
  @Option(help: "Only this gateway's events.") var gateway: String?
  @Option(help: "Only events of this kind; may be given several times.") var kind: [String] = []
  @Flag(help: "Also delete joined messages.") var messages = false
  @Flag(help: "Also delete contacts that have not changed since then.") var contacts = false
  @Flag(help: "Also delete commands that ended before then.") var commands = false
  @Flag(
    help: """
      This machine's clock is right, although the hub has not seen so much time pass: after it was off for more than a \
      week, or was moved.
      """)
  var trustClock = false
  @Flag(help: "Only show what would be deleted.") var dryRun = false
  @Flag(help: "Delete it without a question, if it is not more than half.") var yes = false
  @Flag(help: "Delete it without a question, also if it is more than half.") var moreThanHalf = false

  func validate() throws {
    guard (olderThan != nil) != retention else { throw ValidationError("expected either --older-than or --retention") }
    guard olderThan.map({ Age($0) != nil }) ?? true else { throw ValidationError("--older-than: \(Age.allowed)") }
    guard !dryRun || !(yes || moreThanHalf) else { throw ValidationError("expected either --dry-run or --yes") }
    guard dryRun || yes || moreThanHalf || Self.isTerminal else {
      throw ValidationError("expected --dry-run or --yes: there is nobody to ask")
    }
    guard gateway == nil || !messages else {
      throw ValidationError("--messages and --gateway cannot be combined: messages are joined across gateways")
    }
    guard !retention || (gateway == nil && kind.isEmpty && !messages && !contacts && !commands) else {
      throw ValidationError("--retention alone decides what is deleted")
    }
  }

  func run() async throws {
    let configuration = try hub.configuration()
    guard !retention || !configuration.retention.isEmpty else {
      throw failure("the configuration has no [retention]", 78)  // EX_CONFIG
    }
    let plan = plan(configuration)
    try await hub.store(configuration, writes: !dryRun) { store in
      if let gateway, try await store.gateways(gateway).isEmpty, try await store.commands(of: gateway, limit: 1).isEmpty
      {
        throw failure("no gateway \(gateway) was ever here", 67)  // EX_NOUSER
      }
      if let wrong = try await store.unknown(kind).first {
        throw failure("--kind: \"\(wrong)\" is not a kind of event: expected \(KnownKinds.allowed)", 64)  // EX_USAGE
      }
      let clock = HubClock.now
      let now = try await store.surelyPassed(at: clock, trusts: trustClock, keeps: !dryRun)
      if let words = HubStore.clockTrouble(clock, surely: now) { Console.error("note: \(words)") }
      let found = try await Hub.Purge(store, plan, at: now, clock: clock, deletes: false) { _ in }.run()
      let shares = try await store.shares(of: found, gateway: gateway)
      for share in shares { Console.line(text: share.message) }
      if let dates = found.dates {
        print("from \(HeldRetention.day(dates.lowerBound)) to \(HeldRetention.day(dates.upperBound))")
      }
      if dryRun { return print("would delete \(found.isEmpty ? "nothing" : found.message)") }
      if !found.isEmpty { try confirm(found, isMost: shares.contains { $0.isMost }) }
      let count = try await Hub.Purge(store, plan, at: now, clock: clock, deletes: true) { took in
        // The hub works for as long as the step took.
        try await Task.sleep(for: max(took, .milliseconds(10)))
      }.run()
      if retention { try await store.retentionIsDone(configuration.retention, at: now) }
      print("deleted \(count.isEmpty ? "nothing" : count.message)")
    }
  }

  private func plan(_ configuration: HubConfiguration) -> PurgePlan {
    guard let age = olderThan.flatMap(Age.init)?.milliseconds else { return configuration.retention.plan }
    let kinds = Set(kind)
    return PurgePlan(
      gateway: gateway, age: { kinds.isEmpty || kinds.contains($0) ? age : nil }, messages: messages ? age : nil,
      contacts: contacts ? age : nil, commands: commands ? age : nil)
  }

  private static var isTerminal: Bool { isatty(0) != 0 }

  /// Returns if the options or the user confirm the deletion.
  private func confirm(_ found: Hub.Purge.Count, isMost: Bool) throws {
    if moreThanHalf || (yes && !isMost) { return }
    guard Self.isTerminal else {
      throw failure("that is more than half of it: if it is meant, add --more-than-half", 64)  // EX_USAGE
    }
    try ask("Delete \(found.message)\(isMost ? ", which is more than half" : "")?")
  }
}

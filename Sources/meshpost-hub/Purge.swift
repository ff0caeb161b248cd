// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Foundation
import Hub

/// What commands beside the hub have in common.
struct Beside: ParsableArguments {
  @Option(help: "The configuration file.") var config = "/etc/meshpost-hub/hub.toml"

  func configuration() throws -> HubConfiguration {
    do {
      return try HubConfiguration(file: config, for: .beside)
    } catch {
      Console.error("error: \(error)")
      throw ExitCode(78)  // EX_CONFIG
    }
  }

  /// `work` on the hub's database; its errors end the program.
  func store<Value>(
    _ configuration: HubConfiguration, writes: Bool, _ work: (HubStore) async throws -> Value
  ) async throws -> Value {
    do {
      return try await work(try HubStore.beside(configuration, writes: writes))
    } catch let code as ExitCode {
      throw code
    } catch {
      Console.error("error: \(configuration.location): \(error)")
      throw ExitCode(74)  // EX_IOERR
    }
  }

  /// Milliseconds since 1970.
  static var now: Int64 { Int64(Date().timeIntervalSince1970 * 1000) }
}

struct PurgeOld: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "purge", abstract: "Delete old data while the hub runs.",
    discussion: """
      Deletes events, oldest first, a few at a time. How far gateways have been acknowledged stays: nothing is sent again. \
      The database's file does not get smaller; its space is used again.
      """)

  @OptionGroup var beside: Beside
  @Option(help: "How old: \(Age.allowed).") var olderThan: String
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
  @Flag(help: "Delete it.") var yes = false

  func validate() throws {
    guard Age(olderThan) != nil else { throw ValidationError("--older-than: \(Age.allowed)") }
    guard dryRun != yes else { throw ValidationError("expected either --dry-run or --yes") }
    guard gateway == nil || !messages else {
      throw ValidationError("--messages and --gateway cannot be combined: messages are joined across gateways")
    }
  }

  func run() async throws {
    guard let age = Age(olderThan)?.milliseconds else { return }
    let configuration = try beside.configuration()
    let kinds = Set(kind)
    let plan = PurgePlan(
      gateway: gateway, age: { kinds.isEmpty || kinds.contains($0) ? age : nil }, messages: messages ? age : nil,
      contacts: contacts ? age : nil, commands: commands ? age : nil)
    let count = try await beside.store(configuration, writes: yes) { [yes, trustClock] store in
      let clock = Beside.now
      let now = try await store.surelyPassed(at: clock, trusts: trustClock, keeps: yes)
      if let words = HubStore.clockTrouble(clock, surely: now) { Console.error("note: \(words)") }
      let purge = Hub.Purge(store, plan, at: now, deletes: yes) { [yes] took in
        // As long as it took, the others have their turn.
        if yes { try await Task.sleep(for: max(took, .milliseconds(10))) }
      }
      return try await purge.run()
    }
    let kindsOfEvents = count.kinds.filter { $0.value > 0 }.sorted { $0.key < $1.key }
    for (kind, rows) in kindsOfEvents { print("\(kind): \(rows)") }
    print("\(yes ? "deleted" : "would delete") \(count.isEmpty ? "nothing" : count.message)")
  }
}

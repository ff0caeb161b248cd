// SPDX-License-Identifier: MIT

import Glibc
import Relay
import TOML

/// `[[hook]]`: programs to run for events.
enum HookConfiguration {
  /// Each hook may run one program; together they must leave resources for the rest of a small machine.
  private static let maxHooks = 16

  static func read(_ root: inout TOMLReader, socket: String) -> [UpstreamSettings] {
    var all: [UpstreamSettings] = []
    for var table in root.tables("hook") {
      if let hook = read(&table, socket: socket) {
        if all.contains(where: { $0.name == hook.name }) { table.note("name", "\"\(hook.name)\" is used twice") }
        if all.count == maxHooks { table.note("name", "more than \(maxHooks) hooks") }
        all.append(hook)
      }
      table.finish()
      root.note(from: table)
    }
    return all
  }

  private static func read(_ table: inout TOMLReader, socket: String) -> UpstreamSettings? {
    let name = table.string("name")
    if !(name.map { (1...48).contains($0.utf8.count) } ?? false) {
      table.note("name", "a name of 1 to 48 bytes is required")
    }
    let run = table.strings("run")
    checkProgram(run, &table)
    let user = table.string("user")
    var filter = UpstreamConfiguration.filter(&table, wantsWholeKeys: true)
    if filter.kinds.isEmpty { table.note("kinds", "list the kinds of events, such as [\"message\"]") }
    filter.onlyConcerning = true
    let seconds = table.integer("timeout_s", in: 1...600, default: 10)
    let memory = table.size("memory", in: (8 << 20)...(4 << 30), default: 256 << 20)
    let oldest = table.integer("max_age_s", in: 0...31_536_000, default: 300)
    let replies = table.bool("reply", default: false)
    filter.age = AgeLimit(
      oldest: oldest == 0 ? nil : oldest, takesWaited: table.bool("waited", default: !replies), isStrict: replies)
    let perMinute = table.integer("replies_per_minute", in: 1...60, default: 6)
    let perHour = table.integer("replies_per_hour", in: 1...3600, default: 60)
    let fromStart = table.choice("from", of: ["now", "start"], default: "now") == "start"
    guard let name, let program = run.first else { return nil }
    var hook = UpstreamSettings(
      .hook(
        .init(
          run: run, user: user, timeout: .seconds(seconds), memory: memory, replies: replies, socket: socket)),
      name: UpstreamSettings.hookPrefix + name, url: program)
    (hook.journal.batchEvents, hook.journal.filter, hook.journal.fromStart) = (1, filter, fromStart)
    hook.journal.allowed = replies ? ["send"] : []
    (hook.journal.commandsPerMinute, hook.journal.commandsPerHour) = (Int(perMinute), Int(perHour))
    for trouble in hook.fileTroubles(isDaemon: false) { table.lack(trouble.key, trouble.reason) }
    return hook
  }

  private static func checkProgram(_ run: [String], _ table: inout TOMLReader) {
    guard let program = run.first else {
      return table.note("run", "a program and its arguments are required, such as [\"/usr/local/bin/bot\"]")
    }
    if run.contains(where: { $0.utf8.contains(0) }) { table.note("run", "an argument cannot have a U+0000") }
    if !program.hasPrefix("/") { table.note("run", "\"\(program)\" is not an absolute path") }
  }
}

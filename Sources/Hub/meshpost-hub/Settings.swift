// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Hub

/// Shows in which settings the nodes of the fleet differ.
struct Settings: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Show in which settings nodes differ, by the newest snapshot of each.",
    discussion: "A gateway takes a snapshot by `meshpost node snapshot`.")

  @OptionGroup var hub: HubOptions
  @Argument(help: "Only this setting, also if all nodes agree.") var setting: String?
  @Flag(help: "All settings, also those in which all nodes agree.") var all = false
  @Flag(help: "As JSON: all settings.") var json = false

  func run() async throws {
    let configuration = try hub.configuration()
    var found = try await hub.store(configuration, writes: false) { store in
      try await store.fleetSettings(now: HubClock.now)
    }
    if let setting { found.settings.removeAll { !$0.name.utf8.elementsEqual(setting.utf8) } }
    if json { return Console.json(String(decoding: found.json, as: UTF8.self)) }
    let shown = setting == nil && !all ? found.differing : found.settings
    for one in shown {
      print(one.name)
      for value in one.values { print("  \(value.value)  \(value.nodes.joined(separator: ", "))") }
    }
    let nodes = "\(found.nodes) node\(found.nodes == 1 ? "" : "s")"
    if shown.isEmpty {
      print(
        found.nodes == 0
          ? "no snapshot is stored"
          : setting == nil ? "\(nodes), and no difference" : "\(nodes), and none tells this setting")
    }
    if found.leftOut > 0 {
      print(
        "left out: \(found.leftOut) snapshot\(found.leftOut == 1 ? "" : "s") that are too large, or of too many nodes")
    }
  }
}

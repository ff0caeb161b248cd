// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import FoundationEssentials
import Glibc
import Hub

struct Stats: AsyncParsableCommand {
  static let configuration = CommandConfiguration(abstract: "Show statistics of the database.")

  @OptionGroup var hub: HubOptions
  @Flag(
    help:
      "Count and measure tables, and count the events of the last days, also in a database of more than 2 GiB, all of which it then reads."
  ) var full = false
  @Option(help: "Number of gateways to list, those with the most events first.") var top = 10
  @Flag(help: "As JSON.") var json = false

  func validate() throws {
    guard (0...1000).contains(top) else { throw ValidationError("--top: 0 to 1000") }
  }

  func run() async throws {
    let configuration = try hub.configuration()
    let found = try await hub.store(configuration, writes: false) { store in
      try await store.statistics(isServer: configuration.isServer, isFull: full, top: top, now: HubClock.now)
    }
    if json { return Console.json(String(decoding: found.json, as: UTF8.self)) }
    let free = found.freeBytes.map { ", of which \(Self.size($0)) are free" } ?? ""
    print(
      "database  \(configuration.isServer ? "PostgreSQL" : configuration.location), \(Self.size(found.bytes))\(free)")
    print("gateways  \(found.gateways)")
    print("events    \(found.eventsTaken) taken since the beginning")
    if let oldest = found.oldest, let newest = found.newest {
      let last = "the last of \(Self.date(newest)), by their gateways' clocks"
      print("          the one that arrived first is of \(Self.date(oldest)), \(last)")
    }
    print("commands  \(found.waitingCommands) wait")
    for table in found.tables {
      let rows = table.rows.map { "\(configuration.isServer ? "about " : "")\($0) rows" } ?? "not counted"
      print("table     \(table.name): \(rows)\(table.bytes.map { ", \(Self.size($0))" } ?? "")")
    }
    for day in found.days ?? [] { print("day       \(day.name): \(Self.events(day.events))") }
    if found.days == nil { print("day       not counted") }
    for gateway in found.top {
      let seen = Date(timeIntervalSince1970: Double(gateway.lastSeen) / 1000).formatted(.iso8601)
      print("gateway   \(gateway.id): \(Self.events(gateway.events)), last seen \(seen)")
    }
  }

  private static func events(_ count: Int64) -> String { count == 1 ? "1 event" : "\(count) events" }

  private static func date(_ moment: HubStatistics.Moment) -> String {
    let date = Date(timeIntervalSince1970: Double(moment.at) / 1000).formatted(.iso8601)
    return moment.isTrusted ? date : "\(date) by a clock that was not set"
  }

  private static func size(_ bytes: Int64) -> String {
    bytes < 10 << 20 ? "\(bytes / 1024) KiB" : bytes < 10 << 30 ? "\(bytes >> 20) MiB" : "\(bytes >> 30) GiB"
  }
}

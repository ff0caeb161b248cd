// SPDX-License-Identifier: MIT

import Foundation
import Testing

/// Worlds of gateways, radios, a hub, a broker and a webhook, with faults that seeds choose. They run in a program of its own.
@Suite(.serialized) struct SeedsTests {
  /// $MESHPOST_SEEDS: how many.
  private static let seeds = ProcessInfo.processInfo.environment["MESHPOST_SEEDS"] ?? "500"
  private static let checkout = URL(filePath: #filePath).appending(path: "../../..").standardized
  private static let kept = checkout.appending(path: "Tests/WorldTests/Kept")

  private func start(_ arguments: [String]) throws -> (process: Process, output: FileHandle) {
    let process = Process()
    process.executableURL = Self.checkout.appending(path: ".build/debug/meshpost-simulate")
    process.arguments = arguments
    let pipe = Pipe()
    process.standardOutput = pipe
    try process.run()
    return (process, pipe.fileHandleForReading)
  }

  private func simulate(_ arguments: String...) throws -> (code: Int32, output: String) {
    let (process, file) = try start(arguments)
    let output = file.readDataToEndOfFile()
    process.waitUntilExit()
    return (process.terminationStatus, String(decoding: output, as: UTF8.self))
  }

  @Test func `in each seed's day of faults the laws hold`() throws {
    // No world begins after 100 seconds: beside much other work some of the last are left out.
    let (code, output) = try simulate("1", Self.seeds, "--days", "1", "--for", "100", "--shrink")
    print(output)
    let count = output.firstMatch(of: /(\d+) seeds of 1 days, 0 failed/).flatMap { Int($0.1) } ?? 0
    #expect(code == 0 && count >= min(20, Int(Self.seeds) ?? 20), "\(output)")
  }

  @Test func `in each seed's three hours of faults the laws hold`() throws {
    let (code, output) = try simulate("1001", "40", "--hours", "3", "--shrink")
    #expect(code == 0 && output.contains("40 seeds of 3 hours, 0 failed"), "\(output)")
  }

  @Test func `a run with a limit of time, or one that is interrupted, tells how far it has come`() throws {
    let summary = /(\d+) seeds of 1 days, 0 failed, in \d+ s, \d+ s of processor; the next is (\d+)\n/
    let (code, output) = try simulate("1", "1000000", "--days", "1", "--for", "1")
    let limited = try #require(output.firstMatch(of: summary), "\(output)")
    #expect(code == 0 && Int(limited.2) == (Int(limited.1) ?? 0) + 1, "those that ran have ended")

    let (process, file) = try start(["1", "1000000", "--days", "1", "--story"])
    // The story of a world that has ended.
    #expect(!file.availableData.isEmpty)
    process.interrupt()
    let rest = String(decoding: file.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    let interrupted = try #require(rest.firstMatch(of: summary), "\(rest.suffix(400))")
    #expect(process.terminationStatus == 128 + SIGINT && Int(interrupted.1) ?? 0 > 0)
  }

  @Test func `worlds that once broke a law hold it`() throws {
    let plans = try FileManager.default.contentsOfDirectory(atPath: Self.kept.path).sorted()
    #expect(plans.count >= 10)
    for plan in plans {
      let (code, output) = try simulate("--plan", Self.kept.appending(path: plan).path)
      #expect(code == 0, "meshpost-simulate --story --plan Tests/WorldTests/Kept/\(plan): \(output)")
    }
  }

  @Test func `a world repeats, step by step`() throws {
    for seed in ["3", "17"] {
      let first = try simulate(seed, "1", "--days", "1", "--story")
      let second = try simulate(seed, "1", "--days", "1", "--story")
      #expect(first.output.split(separator: "\n").dropLast() == second.output.split(separator: "\n").dropLast())
      #expect(first.output.contains("everything is well from here on"))
    }
  }
  /// docs/endurance.md has eight weeks at ten times as much.
  @Test func `in an everyday week all arrives, and no descriptor or thread is left over`() throws {
    let (code, output) = try simulate("1", "--weeks", "1", "--times", "1")
    #expect(code == 0)
    let lines = output.split(separator: "\n").map { $0.split(separator: ",").map(String.init) }
    let names = try #require(lines.first)
    func column(_ name: String) throws -> [Int] {
      let place = try #require(names.firstIndex(of: name))
      return lines.dropFirst().compactMap { Int($0[place]) }
    }
    #expect(lines.count == 44)
    for name in ["descriptors", "threads"] {
      // The second row is of after the start; at most one connection is just being made.
      let values = try column(name)
      #expect(values.suffix(4).max() ?? .max <= values[1] + 1, "\(name): \(values)")
    }
    let (journal, messages) = try (column("journal_bytes"), column("stored_messages"))
    #expect(journal.max() ?? .max <= 4 << 20, "\(journal)")
    // 5,000, up to 256 that are deleted together, and those of the hour.
    #expect(messages.max() ?? .max <= 5300, "\(messages)")
  }
}

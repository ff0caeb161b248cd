// SPDX-License-Identifier: MIT

import ArgumentParser
import Foundation
import World

/// Prints at once, also into a file: a world that ends the program has told what it was.
private func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

/// Runs invented weeks of gateways, radios and servers, each chosen by a seed.
struct Simulate: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "meshpost-simulate", abstract: "Worlds of gateways, radios and servers with faults, by seeds.")

  @Argument(help: "The first seed.") var seed: UInt64 = 1
  @Argument(help: "The number of seeds.") var count: UInt64 = 1
  @Option(help: "The days of each world.") var days = 7
  @Flag(help: "Narrow a failure down.") var shrink = false
  @Flag(help: "Print the whole story.") var story = false

  func run() throws {
    var failures = 0
    let began = Date()
    for seed in seed..<(seed + count) {
      var outcome = Trial.run(seed: seed, days: days)
      if outcome.problems.isEmpty {
        if story { say(outcome.story.joined(separator: "\n")) }
        continue
      }
      failures += 1
      if shrink { outcome = Trial.shrink(seed: seed, days: days) }
      say("seed \(seed) fails (make simulate SEED=\(seed)):")
      for problem in outcome.problems.prefix(6) { say("  \(problem)") }
      if shrink || story {
        say(" what happened:")
        for line in outcome.happenings { say("  \(line)") }
        say(" story:")
        for line in outcome.story.suffix(story ? 4000 : 30) { say("  \(line)") }
      }
    }
    say("\(count) seeds of \(days) days, \(failures) failed, in \(Int(Date().timeIntervalSince(began) * 1000)) ms")
    if failures > 0 { throw ExitCode(1) }
  }
}

Simulate.main()

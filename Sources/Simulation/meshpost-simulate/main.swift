// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import EventLoop
import Glibc
import Timing
import World

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
    // Dictionaries have their order from a random number of the process, unless this is set before it starts.
    let variable = "SWIFT_DETERMINISTIC_HASHING"
    if getenv(variable) == nil {
      setenv(variable, "1", 1)
      var arguments = CommandLine.arguments.map { strdup($0) } + [nil]
      execv("/proc/self/exe", &arguments)
    }
    var failures = 0
    let loop = EventLoop()
    let began = loop.now
    for seed in seed..<(seed + count) {
      var outcome = Trial.run(seed: seed, days: days)
      if outcome.problems.isEmpty {
        if story { for line in outcome.story { Console.line(text: line) } }
        continue
      }
      failures += 1
      if shrink { outcome = Trial.shrink(seed: seed, days: days) }
      Console.line(text: "seed \(seed) fails (make simulate SEED=\(seed)):")
      for problem in outcome.problems.prefix(6) { Console.line(text: "  \(problem)") }
      if shrink || story {
        Console.line(text: " what happened:")
        for line in outcome.happenings { Console.line(text: "  \(line)") }
        Console.line(text: " story:")
        for line in outcome.story.suffix(story ? 4000 : 30) { Console.line(text: "  \(line)") }
      }
    }
    Console.line(text: "\(count) seeds of \(days) days, \(failures) failed, in \(Int((loop.now - began).inSeconds)) s")
    if failures > 0 { throw ExitCode(1) }
  }
}

Simulate.main()

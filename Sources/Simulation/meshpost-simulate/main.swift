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

  /// A world that takes longer than this for each of its days does not end.
  private static let secondsADay: UInt32 = 300

  @Argument(help: "The first seed.") var seed: UInt64 = 1
  @Argument(help: "The number of seeds.") var count: UInt64 = 1
  @Option(help: "The days of each world.") var days = 7
  @Option(help: "The hours of each world, less than a day, in place of days.") var hours: Int?
  @Option(name: .customLong("for"), help: "Start no world after so many seconds.") var limit: Int?
  /// One more than processors: a world with TCP waits for the kernel now and then.
  @Option(help: "The worlds that run at a time.") var jobs = 1 + max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN)))
  @Flag(help: "Narrow failures down.") var shrink = false
  @Flag(help: "Print the whole story.") var story = false
  @Option(help: "Run the world of a kept plan, in JSON, in place of those of seeds.") var plan: String?
  @Option(help: "Everyday weeks of one gateway without such faults, in place of worlds: prints what grows, as CSV.")
  var weeks: Int?
  @Option(help: "With --weeks: how many times a busy mesh.") var times = 10
  @Flag(help: ArgumentHelp("Run one world in this process, and print its outcome as JSON.", visibility: .hidden))
  var alone = false
  @Option(help: ArgumentHelp("The happenings to leave out, by their places.", visibility: .hidden))
  var without = ""

  func validate() throws {
    guard (1...366).contains(days) else { throw ValidationError("--days is 1 to 366.") }
    guard (1...23).contains(hours ?? 1) else { throw ValidationError("--hours is 1 to 23.") }
    guard (1...1_000_000).contains(limit ?? 1) else { throw ValidationError("--for is 1 to 1000000.") }
    guard (1...52).contains(weeks ?? 1), (1...100).contains(times) else {
      throw ValidationError("--weeks is 1 to 52, and --times 1 to 100.")
    }
    guard (1...64).contains(jobs) else { throw ValidationError("--jobs is 1 to 64.") }
    guard count >= 1, seed <= UInt64.max - count else { throw ValidationError("There are no such seeds.") }
  }

  func run() throws {
    if alone {
      let places = Set(without.split(separator: ",").compactMap { Int($0) })
      alarm(UInt32(hours == nil ? days : 1) * Self.secondsADay)
      let outcome = Trial.run(seed: seed, hours: hours ?? days * 24, without: places, tellsStory: story)
      return Console.json(outcome.json)
    }
    if let plan { return try run(keptIn: plan) }
    if let weeks { return try endure(weeks) }
    try runSeeds()
  }

  private func runSeeds() throws {
    let loop = EventLoop()
    let began = loop.now
    Interruption.begin()
    let trials = Trials(options: options, jobs: jobs) {
      Interruption.signal != nil || limit.map { loop.now - began >= .seconds($0) } ?? false
    }
    var (ended, failures) = (0, 0)
    let next = trials.run(seed..<(seed + count)) { seed, outcome in
      ended += 1
      if outcome.problems.isEmpty {
        if story { for line in outcome.story { Console.line(text: line) } }
        return
      }
      failures += 1
      report(seed, shrink ? trials.shrink(seed, outcome) : outcome)
    }
    let (time, work) = (Int((loop.now - began).inSeconds), Int(Trial.processorSeconds.rounded()))
    let rest = next < seed + count ? "; the next is \(next)" : ""
    Console.line(
      text: "\(ended) seeds of \(hours ?? days) \(hours == nil ? "days" : "hours"), \(failures) failed, in \(time) s,"
        + " \(work) s of processor\(rest)")
    if failures > 0 { throw ExitCode(1) }
    // As a shell tells of a program that a signal has ended.
    if let signal = Interruption.signal { throw ExitCode(128 + signal) }
  }

  /// How long a world is, and whether it tells its story.
  private var options: [String] {
    (hours.map { ["--hours", "\($0)"] } ?? ["--days", "\(days)"]) + (story ? ["--story"] : [])
  }

  private func run(keptIn file: String) throws {
    Trials.repeats()
    guard let outcome = Trial.run(planIn: file, tellsStory: story) else {
      Console.error("meshpost-simulate: \(file) is no plan that can be read")
      throw ExitCode(EX_NOINPUT)
    }
    if story { for line in outcome.story { Console.line(text: line) } }
    for problem in outcome.problems { Console.line(text: problem) }
    if !outcome.problems.isEmpty { throw ExitCode(1) }
  }

  private func endure(_ weeks: Int) throws {
    Trials.repeats()
    var settings = Weeks.Settings()
    (settings.weeks, settings.times, settings.seed) = (weeks, times, seed)
    let problems = try Weeks.run(
      settings, row: { Console.line(text: $0) }, tell: { Console.error($0) })
    for problem in problems { Console.error("wrong: \(problem)") }
    if !problems.isEmpty { throw ExitCode(1) }
  }

  private func report(_ seed: UInt64, _ outcome: Trial.Outcome) {
    let howLong = hours.map { "HOURS=\($0)" } ?? "DAYS=\(days)"
    Console.line(text: "seed \(seed) fails (make simulate SEED=\(seed) N=1 \(howLong)):")
    for problem in outcome.problems.prefix(6) { Console.line(text: "  \(problem)") }
    guard shrink || story else { return }
    Console.line(text: " what happened:")
    for line in outcome.happenings { Console.line(text: "  \(line)") }
    Console.line(text: " story:")
    for line in outcome.story { Console.line(text: "  \(line)") }
    Console.line(text: " its plan, for --plan: \(outcome.plan)")
  }
}

Simulate.main()

// SPDX-License-Identifier: MIT

import CSeededRandom
import FoundationEssentials
import Glibc

/// Runs the world of a seed.
public enum Trial {
  /// What a world's run has shown.
  public struct Outcome: Codable, Sendable {
    /// The laws that did not hold, in words; empty: all held.
    public var problems: [String]
    /// The last lines of the story: as many as were asked for, and some if a law did not hold.
    public var story: [String] = []
    /// The happenings of the plan.
    public var happenings: [String] = []
    /// The plan as JSON, if a law did not hold: `run(planIn:)` repeats the world.
    public var plan = ""

    public init(problems: [String]) { self.problems = problems }

    /// The law that did not hold, without names and numbers; `nil`: all held.
    public var kind: String? {
      problems.first.map { words in
        String(words.prefix(60).filter { !$0.isNumber }.split(separator: "[").first ?? "")
      }
    }
  }

  /// Runs the world of a seed for some hours, without the happenings at these places of its plan. Once in a process: a second world differs in what
  /// libraries keep of the first. The process ignores SIGPIPE from then on, as the programs do.
  public static func run(seed: UInt64, hours: Int, without: Set<Int> = [], tellsStory: Bool = false) -> Outcome {
    var plan = Plan(seed: seed, hours: hours)
    plan.entries = plan.entries.enumerated().filter { !without.contains($0.offset) }.map(\.element)
    return run(plan, tellsStory: tellsStory)
  }

  /// Runs the world of a plan that is kept in a file, as `run(seed:hours:without:tellsStory:)`; `nil`: there is none.
  public static func run(planIn file: String, tellsStory: Bool = false) -> Outcome? {
    FileManager.default.contents(atPath: file).flatMap { Plan(json: $0) }.map { run($0, tellsStory: tellsStory) }
  }

  private static func folder(of process: pid_t, seed: UInt64) -> String { "/dev/shm/world-\(process)-\(seed)" }

  /// Removes what the world of a process that has ended early has left in memory.
  public static func clear(behind process: Int32, seed: UInt64) {
    // `try?`: mostly there is none.
    try? FileManager.default.removeItem(atPath: folder(of: process, seed: seed))
  }

  /// Seconds of processor that the ended worlds of this process's children have used.
  public static var processorSeconds: Double { ProcessFigures.processorSeconds(of: RUSAGE_CHILDREN.rawValue) }

  /// Lines of the story with a failure.
  private static let lastLines = 30

  private static func run(_ plan: Plan, tellsStory: Bool) -> Outcome {
    signal(SIGPIPE, SIG_IGN)
    let root = folder(of: getpid(), seed: plan.seed)
    let files = FileManager.default
    try? files.removeItem(atPath: root)  // `try?`: mostly there is none
    defer { try? files.removeItem(atPath: root) }  // `try?`: only the space matters
    var outcome = Outcome(problems: [])
    outcome.happenings = plan.entries.map { entry in "\(entry.at / 1000) s: \(entry.happening)" }
    do {
      try files.createDirectory(atPath: root, withIntermediateDirectories: true)
      seeded_random_begin(plan.seed)
      let world = try World(plan, in: root)
      var allHeld = false
      defer {
        // Also of a world that does not work: it has no problems yet.
        let lines = tellsStory ? world.story.count : allHeld ? 0 : lastLines
        outcome.story = Array(world.story.suffix(lines))
      }
      outcome.problems = try world.run()
      allHeld = outcome.problems.isEmpty
    } catch {
      outcome.problems = ["the world does not work: \(error)"]
    }
    if !outcome.problems.isEmpty { outcome.plan = plan.json }
    return outcome
  }
}

extension Trial.Outcome {
  /// As JSON, on one line.
  public var json: String {
    // `try!`: texts and lists of them can be written.
    String(decoding: try! JSONEncoder().encode(self), as: UTF8.self)
  }

  /// `nil`: this is not what `json` makes.
  public init?(json: [UInt8]) {
    // `try?`: then it is not what `json` makes.
    guard let outcome = try? JSONDecoder().decode(Self.self, from: Data(json)) else { return nil }
    self = outcome
  }
}

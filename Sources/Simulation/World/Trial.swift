// SPDX-License-Identifier: MIT

import CSeededRandom
import FoundationEssentials
import Glibc
import Timing

/// Runs the worlds of seeds, and narrows failures down.
public enum Trial {
  /// What a world's run has shown.
  public struct Outcome: Sendable {
    /// The laws that did not hold, in words; empty: all held.
    public var problems: [String]
    /// The last lines of the story.
    public var story: [String]
    /// The happenings of the plan.
    public var happenings: [String]
  }

  /// Runs the world of a seed for some days. The process ignores SIGPIPE from then on, as the programs do.
  public static func run(seed: UInt64, days: Int) -> Outcome { run(Plan(seed: seed, days: days)) }

  private static func run(_ plan: Plan) -> Outcome {
    signal(SIGPIPE, SIG_IGN)
    let root = "/dev/shm/world-\(getpid())-\(plan.seed)"
    let files = FileManager.default
    try? files.removeItem(atPath: root)  // `try?`: mostly there is none
    defer { try? files.removeItem(atPath: root) }  // `try?`: only the space matters
    let happenings = plan.entries.map { entry in "\(entry.at / 1000) s: \(entry.happening)" }
    do {
      try files.createDirectory(atPath: root, withIntermediateDirectories: true)
      seeded_random_begin(plan.seed)
      let world = try World(plan, in: root)
      let problems = try world.run()
      return Outcome(problems: problems, story: world.story, happenings: happenings)
    } catch {
      return Outcome(problems: ["the world does not work: \(error)"], story: [], happenings: happenings)
    }
  }

  /// The shortest plan that still fails: without each happening that is not needed. `most`: runs at most.
  public static func shrink(seed: UInt64, days: Int, most: Int = 120) -> Outcome {
    var plan = Plan(seed: seed, days: days)
    var best = run(plan)
    guard !best.problems.isEmpty else { return best }
    let kind = Self.kind(best)
    var (runs, size) = (0, max(1, plan.entries.count / 2))
    while size >= 1, runs < most {
      var (start, hasShrunk) = (0, false)
      while start < plan.entries.count, runs < most {
        var shorter = plan
        shorter.entries.removeSubrange(start..<min(start + size, shorter.entries.count))
        runs += 1
        let outcome = run(shorter)
        if Self.kind(outcome) == kind {
          (plan, best, hasShrunk) = (shorter, outcome, true)
        } else {
          start += size
        }
      }
      if size == 1, !hasShrunk { break }
      size = size == 1 ? 1 : size / 2
    }
    return best
  }

  /// The law that did not hold, without names and numbers.
  private static func kind(_ outcome: Outcome) -> String? {
    outcome.problems.first.map { words in
      String(words.prefix(60).filter { !$0.isNumber }.split(separator: "[").first ?? "")
    }
  }
}

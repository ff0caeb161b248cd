// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import Synchronization

/// Decides when a wait is in vain: when nothing moves any more, not after a fixed time.
///
/// On a machine that also builds other programs, tests are slow, but not wrong. So a wait continues as long as this process and its programs work: as
/// long as they have computed for more than a twentieth of the last minute and a half. A program that waits for another, a hanging server or a lost message
/// compute nothing. Programs that a test starts repeatedly to check something do not count: only programs that live through all of it do. New
/// log lines count as movement, too, even of a program that only waits for others. A program that spins for ever ends a wait after some twenty
/// minutes.
public struct Patience {
  /// Seconds of stillness after which a wait is in vain; $MESHPOST_TEST_PATIENCE for slow emulators. More than the minute for which a gateway may gather
  /// what only informs before it writes it.
  public static let stillness = ProcessInfo.processInfo.environment["MESHPOST_TEST_PATIENCE"].flatMap(Double.init) ?? 90
  /// The share of a processor that counts as movement. Idle programs, and a test that checks twice a second, stay well below.
  static let share = 0.05
  /// Seconds after which any wait is in vain.
  static let longest = 15 * stillness

  private let began: Double
  private var windowBegan: Double
  private var workBefore: Work?
  private var saidBefore = 0

  public init(now: Double = Self.now) { (began, windowBegan) = (now, now) }

  /// Seconds of the monotonic clock.
  public static var now: Double { ProcessInfo.processInfo.systemUptime }

  /// Seconds since the wait began.
  public func waited(now: Double = Self.now) -> Double { now - began }

  /// The seconds to the next check: short at first, later long enough that checking does not count as work.
  public func pause(now: Double = Self.now) -> Double { min(max(waited(now: now) / 20, 0.02), 0.5) }

  /// Whether nothing has moved for long. `said`: the lines so far of the awaited program; `work`: the processor time so far of all processes that may
  /// move, in seconds.
  public mutating func isOver(now: Double = Self.now, said: Int = 0, work: () -> Work = Work.done) -> Bool {
    guard waited(now: now) < Self.longest else { return true }
    guard let before = workBefore else {
      // Most waits end before a measurement is needed.
      if now - windowBegan >= 1 { (windowBegan, workBefore, saidBefore) = (now, work(), said) }
      return false
    }
    guard now - windowBegan >= Self.stillness else { return false }
    let done = work()
    let isStill = said == saidBefore && done.since(before) < Self.share * (now - windowBegan)
    (windowBegan, workBefore, saidBefore) = (now, done, said)
    return isStill
  }
}

/// The processor time of this process and of each of its programs, in seconds so far.
public struct Work {
  public var own: Double
  /// Including their ended children.
  public var programs: [Int32: Double]

  public init(own: Double, programs: [Int32: Double] = [:]) {
    self.own = own
    self.programs = programs
  }

  private static let leftOut = Mutex(Set<Int32>())
  private static let ticks = Double(sysconf(Int32(_SC_CLK_TCK)))

  /// The work between two measurements, of processes that exist in both.
  public func since(_ before: Work) -> Double {
    programs.reduce(own - before.own) { sum, program in
      sum + (before.programs[program.key].map { max(0, program.value - $0) } ?? 0)
    }
  }

  /// Excludes a program and its children, for which other tests must not wait: an emulator that runs for many minutes at the same time.
  public static func leaveOut(_ process: Int32) { leftOut.withLock { _ = $0.insert(process) } }

  public static func done() -> Work {
    var children: [Int32: [(process: Int32, seconds: Double)]] = [:]
    var work = Work(own: 0)
    // `try?`: the file of a process that has just ended is gone.
    for name in (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? [] {
      guard let process = Int32(name), let text = try? String(contentsOfFile: "/proc/\(name)/stat", encoding: .utf8),
        // The program's name in parentheses may contain blanks.
        let end = text.lastIndex(of: ")")
      else { continue }
      let fields = text[end...].dropFirst(2).split(separator: " ")
      guard fields.count > 14, let parent = Int32(fields[1]) else { continue }
      let used = fields[11...14].compactMap { Double($0) }
      if process == getpid() {
        work.own = used.prefix(2).reduce(0, +) / ticks
      } else {
        children[parent, default: []].append((process, used.reduce(0, +) / ticks))
      }
    }
    let ignored = leftOut.withLock { $0 }
    var next = [getpid()]
    while let parent = next.popLast() {
      for child in children[parent] ?? [] where !ignored.contains(child.process) {
        work.programs[child.process] = child.seconds
        next.append(child.process)
      }
    }
    return work
  }
}

/// Turns the loop until `condition` is true. False: nothing moves any more.
public func turn(_ loop: EventLoop, until condition: () throws -> Bool) rethrows -> Bool {
  var patience = Patience()
  while try !condition() {
    if patience.isOver() { return false }
    // The loop must turn even without events: the condition may depend on time.
    let timer = loop.schedule(after: .milliseconds(20)) {}
    loop.turn(wait: true)
    timer.cancel()
  }
  return true
}

// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import Synchronization

/// Decides when a wait is in vain: when nothing moves any more, and not when a time is over.
///
/// A machine that builds something else beside the tests makes them slow, not wrong. So a wait goes on as long as this
/// process and the programs that it started get on with something: they have computed for more than a twentieth of the last
/// minute. A program that waits for another one, a server that hangs, a message that is lost: they compute nothing. What a test
/// starts only to look, and asks again and again, is no movement: programs count that live through the whole minute. A program that says
/// how far it is moves, too, even if it only waits for others. What spins for ever ends a wait after a quarter of an hour.
public struct Patience {
  /// Seconds of stillness after which a wait is in vain; $MESHPOST_TEST_PATIENCE for slow emulators.
  public static let stillness = ProcessInfo.processInfo.environment["MESHPOST_TEST_PATIENCE"].flatMap(Double.init) ?? 60
  /// Of a processor, while something moves. Programs that idle and a test that looks twice a second stay well below.
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

  /// Seconds to the next look: soon at first; later not so often that looking would pass for work.
  public func pause(now: Double = Self.now) -> Double { min(max(waited(now: now) / 20, 0.02), 0.5) }

  /// Whether nothing has moved for long. `said`: lines so far of who is waited for; `work`: seconds of processor time so far, of all that may
  /// move.
  public mutating func isOver(now: Double = Self.now, said: Int = 0, work: () -> Work = Work.done) -> Bool {
    guard waited(now: now) < Self.longest else { return true }
    guard let before = workBefore else {
      // Most waits are over before anything need be measured.
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

/// Processor time of this process and of each that it has started, in seconds so far.
public struct Work {
  public var own: Double
  /// With their children that have ended.
  public var programs: [Int32: Double]

  public init(own: Double, programs: [Int32: Double] = [:]) {
    self.own = own
    self.programs = programs
  }

  private static let leftOut = Mutex(Set<Int32>())
  private static let ticks = Double(sysconf(Int32(_SC_CLK_TCK)))

  /// What was done between two looks, by those that were there at both.
  public func since(_ before: Work) -> Double {
    programs.reduce(own - before.own) { sum, program in
      sum + (before.programs[program.key].map { max(0, program.value - $0) } ?? 0)
    }
  }

  /// A program, with what it starts, that others are not to wait for: an emulator that runs beside them for many minutes.
  public static func leaveOut(_ process: Int32) { leftOut.withLock { _ = $0.insert(process) } }

  public static func done() -> Work {
    var children: [Int32: [(process: Int32, seconds: Double)]] = [:]
    var work = Work(own: 0)
    // `try?`: a process that ends meanwhile has no file any more.
    for name in (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? [] {
      guard let process = Int32(name), let text = try? String(contentsOfFile: "/proc/\(name)/stat", encoding: .utf8),
        // The program's name, in parentheses, may hold blanks.
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

/// Turns the loop until `condition` holds; false when nothing moves any more and it does not.
public func turn(_ loop: EventLoop, until condition: () throws -> Bool) rethrows -> Bool {
  var patience = Patience()
  while try !condition() {
    if patience.isOver() { return false }
    // The loop must turn, even if nothing happens: the condition may be about time.
    let timer = loop.schedule(after: .milliseconds(20)) {}
    loop.turn(wait: true)
    timer.cancel()
  }
  return true
}

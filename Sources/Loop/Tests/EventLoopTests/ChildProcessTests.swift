// SPDX-License-Identifier: MIT

import Glibc
import LoopTestSupport
import Testing

@testable import EventLoop

@Suite struct ChildProcessTests {
  private final class Outcome {
    var exit: ChildProcess.Exit?
    var error: (any Error)?
    var isOver: Bool { exit != nil || error != nil }
  }

  private let loop = EventLoop()

  private func begin(
    _ script: String, input: [UInt8] = [], limit: Duration = .seconds(60), maxOutput: Int = 1000
  ) -> (outcome: Outcome, task: LoopTask) {
    let outcome = Outcome()
    let task = loop.begin { [loop] in
      do {
        outcome.exit = try await ChildProcess.run(
          ["/bin/sh", "-c", script], environment: [:], input: input, limit: limit, maxOutput: maxOutput, on: loop)
      } catch {
        outcome.error = error
      }
    }
    return (outcome, task)
  }

  private func run(_ script: String, input: [UInt8] = [], limit: Duration = .seconds(60)) -> ChildProcess.Exit? {
    let outcome = begin(script, input: input, limit: limit).outcome
    #expect(turn(loop) { outcome.isOver })
    return outcome.exit
  }

  @Test func `the output of a program is cut at its limit, and its end is noticed`() throws {
    let exit = run("head -c 1000000 /dev/zero; echo done >&2")
    #expect(exit?.code == 0 && exit?.output.count == 1000 && exit?.errors == Array("done\n".utf8))
    #expect(exit?.saidTooMuch == false)
  }

  @Test(arguments: ["", " >&2", " & yes >&2"])
  func `a program that prints without end is killed with its children, and leaves nothing behind`(_ ways: String) {
    let exit = run("sleep 1000 & echo $!; yes\(ways)", limit: .seconds(600))
    #expect(exit?.saidTooMuch == true && exit?.tookTooLong == false && exit?.signal == SIGKILL)
    #expect((exit?.output.count ?? 0) + (exit?.errors.count ?? 0) <= 2000)
    expectGone(exit?.output.split(separator: 10).first.map(Array.init) ?? [])
    #expect(loop.watchCount == 0 && loop.waitingTimers == 0)
  }

  @Test func `a program that prints more than the limit and then ends is reported as having printed too much`() {
    #expect(run("head -c 1048577 /dev/zero")?.saidTooMuch == true)
  }

  @Test func `a program gets its input, and its exit code or signal is reported`() {
    #expect(run("cat; exit 3", input: Array("hello".utf8))?.output == Array("hello".utf8))
    #expect(run("exit 3")?.code == 3)
    let killed = run("kill -TERM $$")
    #expect(killed?.code == nil && killed?.signal == SIGTERM && killed?.tookTooLong == false)
    #expect(loop.watchCount == 0 && loop.waitingTimers == 0)
  }

  @Test func `a program that exceeds its time limit is killed with its children`() {
    let exit = run("sleep 1000 & echo $!; wait", limit: .milliseconds(200))
    #expect(exit?.tookTooLong == true && exit?.signal == SIGKILL)
    expectGone(exit?.output ?? [])
    #expect(loop.watchCount == 0 && loop.waitingTimers == 0)
  }

  /// Expects that the processes in the output have ended.
  private func expectGone(_ output: [UInt8]) {
    let processes = String(decoding: output, as: UTF8.self).split(whereSeparator: \.isWhitespace).compactMap {
      Int32($0)
    }
    #expect(!processes.isEmpty, "the program has said nothing")
    // A child of the program is a zombie until init reaps it.
    for process in processes { #expect(turn(loop) { kill(process, 0) != 0 || isZombie(process) }) }
  }

  private func isZombie(_ process: Int32) -> Bool {
    String(decoding: contents(of: "/proc/\(process)/stat"), as: UTF8.self).contains(") Z ")
  }

  private func contents(of location: String) -> [UInt8] {
    let file = open(location, O_RDONLY)
    guard file >= 0 else { return [] }
    defer { close(file) }
    guard case .bytes(let bytes) = Descriptor.read(file) else { return [] }
    return bytes
  }

  @Test func `a program that cannot be started is reported as an error`() {
    let outcome = Outcome()
    _ = loop.begin { [loop] in
      do {
        _ = try await ChildProcess.run(
          ["/nowhere"], environment: [:], input: [], limit: .seconds(1), maxOutput: 1, on: loop)
      } catch {
        outcome.error = error
      }
    }
    loop.turn(wait: false)
    #expect(outcome.error as? SystemError == SystemError("/nowhere", code: ENOENT))
  }

  @Test func `a hundred cancelled programs are gone, and leave nothing behind`() {
    _ = run("true")
    let (scratch, descriptors) = (Scratch(), openDescriptors())
    for round in 0..<100 {
      unlink(scratch.location("pids"))
      // Cancelled before it begins, as it begins, and while it runs.
      let isToRun = round % 10 == 5
      let child = begin("sleep 1000 & echo $$ $! > \(scratch.location("pids")); wait")
      if round % 3 > 0 || isToRun { loop.turn(wait: false) }
      let written = { contents(of: scratch.location("pids")) }
      if isToRun { #expect(turn(loop) { written().last == 10 }) }
      child.task.cancel()
      loop.turn(wait: false)
      #expect(child.outcome.error is CancellationError)
      if isToRun { expectGone(written()) }
    }
    #expect(loop.watchCount == 0 && loop.waitingTimers == 0)
    #expect(openDescriptors() - descriptors < 50)
  }
}

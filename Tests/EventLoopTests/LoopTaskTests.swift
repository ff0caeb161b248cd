// SPDX-License-Identifier: MIT

@testable import EventLoop
import Testing
import Timing

/// Tasks whose executor is a loop that the test turns by hand.
@Suite struct LoopTaskTests {
  private final class Notes {
    var lines: [String] = []
  }

  @Test func `a task runs in the turns of its loop, and sleeps there`() {
    let (loop, notes) = (EventLoop(), Notes())
    let began = loop.now
    loop.begin {
      notes.lines.append("began")
      do {
        try await loop.sleep(for: .milliseconds(20))
        notes.lines.append("slept")
      } catch {
        notes.lines.append("cancelled")
      }
    }
    #expect(notes.lines.isEmpty, "not before the loop turns")
    loop.turn(wait: false)
    #expect(notes.lines == ["began"])
    while notes.lines.count < 2 { loop.turn(wait: true) }
    #expect(notes.lines == ["began", "slept"] && loop.now - began >= .milliseconds(20))
  }

  @Test func `a wait ends when its task is cancelled, before or while it waits`() {
    let (loop, notes) = (EventLoop(), Notes())
    for wait in [true, false] {
      let task = loop.begin {
        do {
          try await loop.sleep(for: .seconds(3600))
          notes.lines.append("slept")
        } catch {
          notes.lines.append("cancelled")
        }
      }
      if wait { loop.turn(wait: false) }
      task.cancel()
      loop.turn(wait: false)
    }
    #expect(notes.lines == ["cancelled", "cancelled"])
  }

  @Test func `what is resumed before it waits does not wait`() {
    let (loop, notes, waiter) = (EventLoop(), Notes(), Waiter())
    waiter.resume()
    waiter.resume()
    loop.begin {
      for number in 1...2 {
        do { try await waiter.wait() } catch { return notes.lines.append("cancelled") }
        notes.lines.append("\(number)")
      }
    }
    loop.turn(wait: false)
    #expect(notes.lines == ["1"], "twice resumed is once")
    waiter.resume()
    loop.turn(wait: false)
    #expect(notes.lines == ["1", "2"])
  }

  /// A commit at the end of a turn serves all that happened in it: tasks that go on because of one another do so in the same turn.
  @Test func `tasks that wake one another are done before the turn ends`() {
    let (loop, notes, waiter) = (EventLoop(), Notes(), Waiter())
    loop.afterTurn { notes.lines.append("commit") }
    loop.begin {
      do { try await waiter.wait() } catch { return }
      notes.lines.append("second")
    }
    loop.begin {
      notes.lines.append("first")
      waiter.resume()
    }
    loop.turn(wait: false)
    #expect(notes.lines == ["first", "second", "commit"])
  }

  /// Without a pool: the runtime starts threads for whatever has no executor.
  @Test func `ten thousand tasks that sleep and end leave nothing behind`() {
    let (loop, notes) = (EventLoop(), Notes())
    var tasks: [LoopTask] = []
    for number in 0..<10_000 {
      tasks.append(
        loop.begin {
          do { try await loop.sleep(for: .seconds(number % 2 == 0 ? 3600 : 0)) } catch {
            return notes.lines.append("c")
          }
          notes.lines.append("s")
        })
    }
    loop.turn(wait: false)
    for task in tasks { task.cancel() }
    while notes.lines.count < 10_000 { loop.turn(wait: false) }
    #expect(loop.waitingTimers == 0)
  }
}

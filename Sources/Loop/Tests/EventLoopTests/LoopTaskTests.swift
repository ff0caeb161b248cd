// SPDX-License-Identifier: MIT

@testable import EventLoop
import Glibc
import LoopTestSupport
import Testing
import Timing

/// Tasks whose executor is a loop that the test turns by hand.
@Suite struct LoopTaskTests {
  private final class Notes {
    var lines: [String] = []
  }

  @Test func `a task runs in the turns of its loop, and sleeps without blocking it`() {
    let (loop, notes) = (EventLoop(), Notes())
    let began = loop.now
    _ = loop.begin {
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

  @Test func `a waiter that was resumed in advance does not wait`() {
    let (loop, notes, waiter) = (EventLoop(), Notes(), Waiter())
    waiter.resume()
    waiter.resume()
    _ = loop.begin {
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

  /// A commit at the end of a turn serves the whole turn: tasks that resume each other do so in the same turn.
  @Test func `tasks that wake one another are done before the turn ends`() {
    let (loop, notes, waiter) = (EventLoop(), Notes(), Waiter())
    loop.afterTurn { notes.lines.append("commit") }
    _ = loop.begin {
      do { try await waiter.wait() } catch { return }
      notes.lines.append("second")
    }
    _ = loop.begin {
      notes.lines.append("first")
      waiter.resume()
    }
    loop.turn(wait: false)
    #expect(notes.lines == ["first", "second", "commit"])
  }

  /// There is no pool of threads: the runtime starts threads for tasks without an executor.
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

/// Tasks with an owner.
@Suite struct LoopTasksTests {
  @Test func `each task is kept until it ends, and the end of the owner cancels the remaining tasks`() {
    let loop = EventLoop(on: InventedMachine())
    var tasks: LoopTasks? = LoopTasks(on: loop)
    var ends: [String] = []
    for seconds in [1, 3600] {
      tasks?.begin {
        do throws(CancellationError) {
          try await loop.sleep(for: .seconds(seconds))
          ends.append("slept \(seconds)")
        } catch {
          ends.append("cancelled \(seconds)")
        }
      }
    }
    #expect(tasks?.count == 2)
    while ends.isEmpty { loop.turn(wait: true) }
    #expect(ends == ["slept 1"] && tasks?.count == 1)
    tasks?.cancel()
    loop.turn(wait: false)
    #expect(ends == ["slept 1", "cancelled 3600"] && tasks?.count == 0)
    // `try?`: this is the tested behaviour.
    tasks?.begin { ends.append((try? await loop.sleep(for: .seconds(60))) == nil ? "cancelled" : "slept") }
    loop.turn(wait: false)
    tasks = nil
    loop.turn(wait: false)
    #expect(ends.last == "cancelled" && loop.taskCount == 0 && loop.waitingTimers == 0)
  }
}

/// Waits of tasks for other things than time.
@Suite struct LoopWaitTests {
  private final class Notes {
    var lines: [String] = []
  }
  private struct Broken: Error {}

  private func turn(_ loop: EventLoop, until done: () -> Bool) {
    for _ in 0..<10_000 where !done() { loop.turn(wait: true) }
  }

  @Test func `a promise is kept once, whether its reader waits before or after that`() {
    let (loop, notes) = (EventLoop(), Notes())
    let (early, late, never) = (Promise<Int>(), Promise<Int>(), Promise<Int>())
    early.keep(1)
    early.keep(2)
    _ = loop.begin {
      do {
        notes.lines.append("\(try await early.value())")
        notes.lines.append("\(try await late.value())")
        notes.lines.append("\(try await never.value(within: .milliseconds(5), on: loop) ?? -1)")
      } catch {
        notes.lines.append("cancelled")
      }
    }
    loop.turn(wait: false)
    late.keep(3)
    turn(loop) { notes.lines.count == 3 }
    #expect(notes.lines == ["1", "3", "-1"])
    #expect(loop.waitingTimers == 0)
  }

  @Test func `a mailbox is bounded, in order, and ends`() {
    let (loop, notes, mailbox) = (EventLoop(), Notes(), Mailbox<Int>(bound: 2))
    #expect(mailbox.put(1) && mailbox.put(2) && !mailbox.put(3))
    _ = loop.begin {
      do {
        while let next = try await mailbox.next() { notes.lines.append("\(next)") }
        notes.lines.append("end")
      } catch {
        notes.lines.append("cancelled")
      }
    }
    loop.turn(wait: false)
    #expect(mailbox.put(4))
    mailbox.finish()
    #expect(!mailbox.put(5))
    loop.turn(wait: false)
    #expect(notes.lines == ["1", "2", "4", "end"])
  }

  @Test func `a semaphore admits the most urgent task first, and forgets cancelled tasks`() {
    let (loop, notes, semaphore) = (EventLoop(), Notes(), LoopSemaphore<Int>(bound: 3))
    let ends = (0..<5).map { _ in Promise<Void>() }
    func enter(_ number: Int, _ priority: Int) -> LoopTask {
      loop.begin {
        do {
          try await semaphore.with(priority) {
            notes.lines.append("\(number)")
            try await ends[number].value()
          }
        } catch {
          notes.lines.append("\(number) \(error is CancellationError ? "cancelled" : "full")")
        }
      }
    }
    _ = enter(0, 5)
    loop.turn(wait: false)
    let gone = enter(1, 5)
    _ = enter(2, 5)
    _ = enter(3, 1)
    _ = enter(4, 1)
    loop.turn(wait: false)
    #expect(notes.lines == ["0", "4 full"])
    gone.cancel()
    loop.turn(wait: false)
    for end in ends { end.keep(()) }
    loop.turn(wait: false)
    loop.turn(wait: false)
    #expect(notes.lines == ["0", "4 full", "1 cancelled", "3", "2"])
    #expect(!semaphore.isTaken && semaphore.waiting == 0)
  }

  /// A task is cancelled in the turn in which it enters: its place goes to the next.
  @Test func `a task that is cancelled on its admission does not block the other tasks`() {
    let (loop, notes, semaphore) = (EventLoop(), Notes(), LoopSemaphore<Int>(bound: 3))
    let end = Promise<Void>()
    _ = loop.begin { try? await semaphore.with(0) { try await end.value() } }  // `try?`: it is never cancelled
    loop.turn(wait: false)
    // `try?`: this is the tested behaviour.
    let gone = loop.begin { try? await semaphore.with(0) { notes.lines.append("gone") } }
    _ = loop.begin { try? await semaphore.with(0) { notes.lines.append("next") } }  // `try?`: it is never cancelled
    loop.turn(wait: false)
    semaphore.leave()
    gone.cancel()
    loop.turn(wait: false)
    #expect(notes.lines == ["next"])
  }

  @Test func `the first task that ends a race ends the others, and none outlives the race`() {
    let (loop, notes) = (EventLoop(), Notes())
    _ = loop.begin {
      do {
        try await loop.race(
          {
            defer { notes.lines.append("first ended") }
            try await loop.sleep(for: .seconds(3600))
          },
          {
            try await loop.sleep(for: .milliseconds(1))
            throw Broken()
          })
      } catch {
        notes.lines.append("\(error)")
      }
    }
    turn(loop) { notes.lines.count == 2 }
    #expect(notes.lines == ["first ended", "Broken()"] && loop.waitingTimers == 0)
  }

  @Test func `work that exceeds its time limit is cancelled, and has ended when the error is thrown`() {
    let (loop, notes) = (EventLoop(), Notes())
    _ = loop.begin {
      do {
        notes.lines.append("\(try await loop.withTimeout(.seconds(60)) { 7 })")
        try await loop.withTimeout(.milliseconds(1)) {
          defer { notes.lines.append("ended") }
          try await loop.sleep(for: .seconds(3600))
        }
      } catch {
        notes.lines.append("\(error)")
      }
    }
    turn(loop) { notes.lines.count == 3 }
    #expect(notes.lines == ["7", "ended", "TimedOut()"] && loop.waitingTimers == 0)
  }
}

/// Time is the machine's, and may be invented.
@Suite struct InventedTimeTests {
  @Test func `a day passes at once on a machine with invented time`() {
    let machine = InventedMachine()
    let loop = EventLoop(on: machine)
    let (began, wall) = (loop.now, loop.wallClock.milliseconds)
    var hours = 0
    _ = loop.begin {
      // `try?`: this task is never cancelled.
      while hours < 24, (try? await loop.sleep(for: .seconds(3600))) != nil { hours += 1 }
      loop.stop()
    }
    loop.run()
    #expect(hours == 24 && loop.now - began >= .seconds(86_400) && loop.now - began < .seconds(86_401))
    #expect(loop.wallClock.milliseconds - wall >= 86_400_000)
    machine.wallOffset = -86_400_000
    #expect(loop.wallClock.milliseconds - wall < 1000, "its clock steps, its time does not")
  }

  /// The kernel sends the second of two small segments when the first is acknowledged: with both ends talking, after 40 ms.
  @Test func `no time passes while bytes wait in the kernel for an acknowledgement`() throws {
    let loop = EventLoop(on: InventedMachine())
    let (listener, port) = try LoopbackSocket.listen(on: 0)
    defer { close(listener) }
    var client: Int32 = -1
    _ = loop.begin {
      // `try?`: without a connection the test waits in vain.
      client = (try? await loop.connect(host: "127.0.0.1", port: port, timeout: .seconds(10))) ?? -1
    }
    let isConnected = turn(loop) { client >= 0 }
    try #require(isConnected)
    let server = accept(listener, nil, nil)
    defer { for end in [client, server] { close(end) } }
    var received = 0
    loop.watch(client, for: .readable) { _ in
      if case .bytes(let bytes) = Descriptor.read(client) { received += bytes.count }
    }
    loop.watch(server, for: .readable) { _ in
      guard case .bytes = Descriptor.read(server) else { return }
      for byte: UInt8 in [1, 2] { _ = Descriptor.write(server, [byte]) }
    }
    let began = loop.now
    for round in 1...4 {
      let timer = loop.schedule(after: .seconds(5)) {}
      _ = Descriptor.write(client, [0])
      while received < 2 * round, loop.now == began { loop.turn(wait: true) }
      timer.cancel()
      #expect(received == 2 * round && loop.now == began, "round \(round)")
    }
  }
}

@Suite struct SharedWaiterTests {
  /// A cancellation must resume its own task, and no other's.
  @Test func `several tasks at one waiter are resumed or cancelled separately`() {
    let (loop, waiter) = (EventLoop(), Waiter())
    var ends: [String] = []
    let tasks = (0..<3).map { number in
      loop.begin {
        do throws(CancellationError) {
          try await waiter.wait()
          ends.append("\(number) resumed")
        } catch {
          ends.append("\(number) cancelled")
        }
      }
    }
    loop.turn(wait: false)
    tasks[1].cancel()
    loop.turn(wait: false)
    #expect(ends == ["1 cancelled"])
    waiter.resume()
    loop.turn(wait: false)
    #expect(ends == ["1 cancelled", "0 resumed", "2 resumed"] && loop.taskCount == 0)
  }
}

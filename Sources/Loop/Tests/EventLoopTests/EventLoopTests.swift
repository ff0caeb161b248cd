// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Sockets
import Testing
import Timing

@testable import EventLoop

@Suite struct EventLoopTests {
  private func pair() throws -> (Int32, Int32) {
    var ends: [Int32] = [-1, -1]
    guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0 else { throw SystemError("socketpair") }
    for end in ends { Descriptor.setNonBlocking(end) }
    return (ends[0], ends[1])
  }

  @Test func `an event of a closed descriptor does not reach the next descriptor with its number`() throws {
    let loop = EventLoop()
    let pairs = [try pair(), try pair()]
    var successor: Int32 = -1
    var told = 0
    for (index, ends) in pairs.enumerated() {
      _ = Descriptor.write(ends.1, [1][...])
      loop.watch(ends.0, for: .readable) { _ in
        // Both are ready: the first one closes the other, whose descriptor goes to a silent connection.
        let other = pairs[1 - index].0
        loop.unwatch(other)
        close(other)
        var fresh: [Int32] = [-1, -1]
        socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &fresh)
        successor = dup2(fresh[0], other)
        #expect(successor == other)
        loop.watch(successor, for: .readable) { _ in told += 1 }
        loop.unwatch(ends.0)
      }
    }
    loop.turn(wait: true)
    #expect(successor >= 0 && told == 0)
  }

  @Test func `a peer that never stops sending does not delay timers and other sources`() throws {
    let loop = EventLoop()
    let (ours, theirs) = try pair()
    let stream = SocketStream(ours, on: loop)
    var bytes = 0
    _ = loop.begin {
      // The stream is closed at the end.
      while let piece = try? await stream.read() {
        bytes += piece.count
        // Writes as fast as the loop reads: there is always more.
        while case .wrote = Descriptor.write(theirs, [UInt8](repeating: 0, count: 4096)[...]) {}
      }
    }
    while case .wrote = Descriptor.write(theirs, [UInt8](repeating: 0, count: 4096)[...]) {}
    var timers = 0
    for turn in 1...10 {
      loop.schedule(after: .zero) { timers += 1 }
      loop.turn(wait: true)
      #expect(timers == turn)
      #expect(bytes <= turn * Descriptor.readsPerTurn * Descriptor.chunk)
    }
    #expect(bytes > 0)
    stream.close()
    close(theirs)
  }

  @Test func `work that defers itself, and timers that set themselves, do not prolong the turn`() {
    let loop = EventLoop()
    var (deferred, timers, next) = (0, 0, 0)
    func again() {
      deferred += 1
      loop.later(again)
    }
    func tick() {
      timers += 1
      loop.schedule(at: MonotonicTime(seconds: 0), tick)
    }
    func nextTurn() {
      next += 1
      loop.nextTurn(nextTurn)
    }
    loop.later(again)
    loop.schedule(at: MonotonicTime(seconds: 0), tick)
    loop.nextTurn(nextTurn)
    for _ in 0..<3 { loop.turn(wait: true) }
    #expect(timers == 3 && next == 3)
    #expect((3...300).contains(deferred))
  }

  @Test func `work that an event schedules for the next turn runs in the next turn`() throws {
    let loop = EventLoop()
    let (ours, theirs) = try pair()
    var (turn, came) = (0, 0)
    loop.watch(ours, for: .readable) { _ in
      loop.unwatch(ours)
      loop.nextTurn { came = turn }
    }
    _ = Descriptor.write(theirs, [1][...])
    while turn < 2 {
      turn += 1
      loop.turn(wait: false)
    }
    #expect(came == 2)
    close(ours)
    close(theirs)
  }

  @Test func `a stream without a reader leaves received data in the kernel, and notices the peer's end`() throws {
    let loop = EventLoop()
    let (ours, theirs) = try pair()
    let stream = SocketStream(ours, on: loop)
    var (bytes, isGone) = (0, false)
    let mayRead = Waiter()
    _ = loop.begin {
      do throws(StreamEnd) {
        bytes += try await stream.read().count
        // `try?`: this task is never cancelled.
        try? await mayRead.wait()
        bytes += try await stream.read().count
        while true { _ = try await stream.hasChanged() }
      } catch {
        isGone = error == .closed
      }
    }
    loop.turn(wait: false)
    _ = Descriptor.write(theirs, [1, 2, 3][...])
    loop.turn(wait: false)
    #expect(bytes == 3)
    _ = Descriptor.write(theirs, [4][...])
    loop.turn(wait: false)
    #expect(bytes == 3 && !stream.isQuiet)
    mayRead.resume()
    loop.turn(wait: false)
    #expect(bytes == 4 && stream.isQuiet && !isGone)
    close(theirs)
    loop.turn(wait: false)
    loop.turn(wait: false)
    #expect(isGone)
  }

  @Test func `cancelled timers leave the queue, and the others stay`() {
    var queue = TimerQueue()
    let kept = (0..<100).map { (second: Int) in queue.add(at: MonotonicTime(seconds: Double(second))) {} }
    for second in 0..<10_000 { queue.add(at: MonotonicTime(seconds: Double(second)), {}).cancel() }
    #expect(queue.count <= 2 * kept.count + 1)
    var due = 0
    while queue.due(now: MonotonicTime(seconds: 100_000)) != nil { due += 1 }
    #expect(due == 100)
  }
}

// SPDX-License-Identifier: MIT

import Companion
import TestSupport
import Testing
import Timing

@testable import EventLoop
@testable import RadioSharing

/// Clients connect and disconnect at any moment: before their first command, in the middle of a frame, during a request to the radio, beside a
/// reload.
extension ClientSessionTests {
  private struct Held: Equatable {
    let descriptors: Int
    let watches: Int
    let tasks: Int

    init(_ loop: EventLoop) { (descriptors, watches, tasks) = (openDescriptors(), loop.watchCount, loop.taskCount) }
  }

  private static func speak(_ client: TestClient, _ random: inout SeededRandom) {
    let node = Array(repeating: UInt8(7), count: 32)
    let commands: [[UInt8]] = [
      battery, nextMessage, [4], [1, 3, 32, 32, 32, 32, 32, 32, 65], [22, 3], [27] + node, [39, 0, 0, 0] + node, [5],
      [3, 0, 0, 0, 0, 0, 106, 104, 105], [54, 0] + Array(repeating: 1, count: 16), [200], [33], [26] + node + [1],
    ]
    for _ in 0..<Int.random(in: 0..<4, using: &random) {
      let frame = SerialFraming.wrap(commands[Int.random(in: 0..<commands.count, using: &random)], .toRadio)
      let isWhole = Int.random(in: 0..<4, using: &random) > 0
      client.send(raw: isWhole ? frame : Array(frame.prefix(Int.random(in: 1..<frame.count, using: &random))))
    }
  }

  @Test func `a thousand clients leave no task, descriptor, timer or turn`() throws {
    let bench = try Bench()
    let loop = bench.loop
    var random = SeededRandom(seed: 7)
    for _ in 0..<3 { loop.turn(wait: false) }
    let before = Held(loop)
    let timers = loop.waitingTimers
    var clients: [TestClient] = []
    for round in 0..<1000 {
      let client = try TestClient(bench.port, on: loop)
      clients.append(client)
      Self.speak(client, &random)
      for _ in 0..<Int.random(in: 0..<4, using: &random) { loop.turn(wait: false) }
      if Bool.random(using: &random) { Self.speak(client, &random) }
      if round % 100 == 50 { bench.listen(6 + round / 100) }
      if round % 100 == 75 { bench.proxy.radioReplaced() }
      while clients.count > Int.random(in: 0..<8, using: &random) {
        clients.remove(at: Int.random(in: 0..<clients.count, using: &random)).close()
      }
    }
    clients = []
    let isQuiet = turn(loop) {
      bench.clients == 0 && Held(loop) == before && loop.waitingTimers <= timers
    }
    #expect(isQuiet, "\(Held(loop)), \(loop.waitingTimers) timers; before \(before), \(timers)")
    // No client keeps the turn of a question to another node.
    let client = try bench.client()
    client.send(Self.battery)
    #expect(try client.frames(1)[0][0] == 12)
    bench.proxy.stop()
    // Clients are children of the listening task, which cannot end before them.
    #expect(turn(loop) { loop.taskCount == before.tasks - 1 }, "\(loop.taskCount) tasks, before \(before.tasks)")
  }
}

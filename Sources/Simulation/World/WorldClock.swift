// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import LoopTestSupport
import Timing

/// The invented time of a world. It passes when no loop has work, and stands still while any has.
final class WorldClock {
  fileprivate(set) var now = MonotonicTime(seconds: 1000)
  private var machines: [WorldMachine] = []
  /// Reports which machines' descriptors are ready, by their places, for all machines with one call of the kernel.
  private let readiness = LinuxMachine()
  /// The machines that are ready, a bit for each, if none has had a turn since the kernel was asked.
  private var ready: UInt64?
  fileprivate var loopback = Loopback()
  /// What listens, by its port; `nil`: connections are TCP, which costs more of this machine's time.
  var listeners: [UInt16: (_ socket: Int32) -> Void]?
  private var lastPort: UInt16 = 1000

  /// The day in 2026 on which a world begins, milliseconds since 1970.
  static let beginning: Int64 = 1_795_237_200_000

  /// Milliseconds since the world's beginning.
  var elapsed: Int64 { now.nanoseconds / 1_000_000 - 1_000_000 }

  func begin() -> (WorldMachine, EventLoop) {
    let machine = WorldMachine(self)
    let loop = EventLoop(on: machine)
    machine.loop = loop
    _ = readiness.watch(machine.poll, for: .readable, tag: UInt64(machines.count))
    machines.append(machine)
    return (machine, loop)
  }

  func freePort() -> UInt16 {
    lastPort += 1
    return lastPort
  }

  /// Lets all loops work until time `end` has come, or `isDone`.
  func pass(until end: MonotonicTime, _ isDone: () -> Bool = { false }) {
    while true {
      settle()
      if isDone() || now >= end { return }
      var next = end
      for machine in machines where !machine.isStopped { next = min(next, machine.deadline ?? end) }
      now = next
    }
  }

  /// Lets all loops do the work of this moment.
  private func settle() {
    var looks = 0
    ready = nil
    while true {
      var isBusy = false
      for (place, machine) in machines.enumerated() where !machine.isStopped && machine.hasWork(place) {
        machine.turn()
        ready = nil
        isBusy = isBusy || machine.isBusy
      }
      if isBusy { continue }
      // On a busy machine, bytes arrive a moment after a socket has sent them: time does not pass meanwhile.
      guard looks < 5000, loopback.hasBytesOnTheWay() else { return }
      looks += 1
      machines.first?.rest()
      ready = nil
    }
  }

  /// Whether a descriptor of the machine at this place is ready.
  fileprivate func isReady(_ place: Int) -> Bool {
    if let ready { return ready >> place & 1 == 1 }
    var found: UInt64 = 0
    readiness.wait(milliseconds: 0) { tag, _ in found |= 1 << tag }
    ready = found
    return found >> place & 1 == 1
  }
}

/// The time that a hub's thread may read while the world waits for it.
final class InventedNow: @unchecked Sendable {
  private let clock: WorldClock
  init(_ clock: WorldClock) { self.clock = clock }
  var milliseconds: Int64 { WorldClock.beginning + clock.elapsed }
}

/// One machine of a world, with its clock: a gateway's, or that of everything else.
final class WorldMachine: Machine {
  private let world: WorldClock
  private let descriptors = LinuxMachine()
  fileprivate weak var loop: EventLoop?
  /// The milliseconds by which its clock is wrong.
  var wallOffset: Int64 = 0
  var isWallSynchronised = true
  /// The number of its boots, and when it booted.
  private(set) var boots = 1
  private var booted: MonotonicTime
  /// Time that passes for this machine alone: its program ends, and nobody hears of it.
  private var alone: Duration?
  fileprivate private(set) var isBusy = false
  /// Its program does nothing; time passes.
  var isStopped = false
  /// Its next timer; `nil`: none.
  fileprivate private(set) var deadline: MonotonicTime?
  /// Runs programs in its place; `nil`: there are none.
  var programs: ((ChildProcess.Program, EventLoop) async throws -> ChildProcess.Exit)?
  /// The turns of its loop that had work: the measure of its wake-ups.
  private(set) var turns = 0

  init(_ world: WorldClock) {
    self.world = world
    booted = world.now
  }

  var now: MonotonicTime { alone.map { world.now + $0 } ?? world.now }
  var sinceBoot: Int64 { (now.nanoseconds - booted.nanoseconds) / 1_000_000 + 60_000 }
  var boot: String { "boot \(boots)" }
  var wallMilliseconds: Int64 { WorldClock.beginning + wallOffset + world.elapsed }

  func restart() { (boots, booted) = (boots + 1, world.now) }

  func isAlone(_ isAlone: Bool) { alone = isAlone ? .zero : nil }

  var poll: Int32 { descriptors.poll }

  /// A loop that sleeps has no turn: so its program does what it would do at the end of one only when something has happened.
  fileprivate func hasWork(_ place: Int) -> Bool {
    guard let loop else { return false }
    let rest = loop.rest
    deadline = rest < 0 ? nil : now + .milliseconds(Int64(rest))
    isBusy = false
    return rest == 0 || world.isReady(place)
  }

  fileprivate func turn() { loop?.turn(wait: true) }

  fileprivate func rest() { descriptors.wait(milliseconds: 1) { _, _ in } }

  func watch(_ descriptor: Int32, for interest: EventLoop.Readiness, tag: UInt64) -> Bool {
    if world.listeners == nil { world.loopback.insert(descriptor) }
    return descriptors.watch(descriptor, for: interest, tag: tag)
  }

  func change(_ descriptor: Int32, to interest: EventLoop.Readiness, tag: UInt64) {
    descriptors.change(descriptor, to: interest, tag: tag)
  }

  func unwatch(_ descriptor: Int32) { descriptors.unwatch(descriptor) }

  func connect(_ address: NetworkAddress) throws(SystemError) -> (socket: Int32, isConnected: Bool) {
    guard let listeners = world.listeners else { return try descriptors.connect(address) }
    guard let listener = listeners[address.port] else { throw SystemError("connect", code: ECONNREFUSED) }
    var ends: [Int32] = [-1, -1]
    let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
    guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw SystemError("socketpair") }
    listener(ends[1])
    return (ends[0], true)
  }

  /// Of a pair the kernel says what was not read, and with what it costs; of TCP, what has not arrived.
  func unacknowledged(_ socket: Int32) -> Int { world.listeners == nil ? descriptors.unacknowledged(socket) : 0 }

  func run(_ program: ChildProcess.Program, on loop: EventLoop) async throws -> ChildProcess.Exit {
    guard let programs else { throw SystemError(program.arguments.first ?? "", code: ENOENT) }
    return try await programs(program, loop)
  }

  func wait(milliseconds: Int32, _ ready: (_ tag: UInt64, EventLoop.Readiness) -> Void) {
    var isReady = false
    descriptors.wait(milliseconds: 0) { tag, readiness in
      isReady = true
      ready(tag, readiness)
    }
    isBusy = isReady || milliseconds == 0
    deadline = milliseconds < 0 ? nil : now + .milliseconds(Int64(milliseconds))
    if isBusy { turns += 1 }
    guard !isBusy, let passed = alone else { return }
    alone = passed + .milliseconds(Int64(max(1, milliseconds)))
  }
}

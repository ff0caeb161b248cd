// SPDX-License-Identifier: MIT

import Timing

/// One thread that sleeps until a file descriptor, a timer or a signal wakes it.
///
/// Everything in the gateway runs on it, so nothing needs locks; other threads may touch only `Wakeup`. It is not
/// `Sendable` on purpose. `afterTurn` completes the work of a turn: there the store commits once for everything that
/// came in together.
public final class EventLoop {
  /// The events that a descriptor reports.
  public struct Readiness: OptionSet, Sendable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }
    public static let readable = Readiness(rawValue: 1)
    public static let writable = Readiness(rawValue: 4)
    /// An exceptional condition (EPOLLPRI), such as a change of a kernel file.
    public static let urgent = Readiness(rawValue: 2)
    /// The peer of a socket will send no more, although it may still read (EPOLLRDHUP).
    public static let ended = Readiness(rawValue: 0x2000)
    /// Error or hang-up; always reported, even if nobody asked.
    public static let closed = Readiness(rawValue: 8 | 16)
  }

  private final class Watch {
    let handler: (Readiness) -> Void
    var interest: Readiness
    /// The kernel reuses descriptor numbers at once, and an event of a closed descriptor must not reach its successor.
    /// So events carry the watch's own number, too.
    let number: UInt32

    init(_ interest: Readiness, _ number: UInt32, _ handler: @escaping (Readiness) -> Void) {
      self.interest = interest
      self.number = number
      self.handler = handler
    }

    func tag(_ descriptor: Int32) -> UInt64 { UInt64(number) << 32 | UInt64(UInt32(bitPattern: descriptor)) }
  }

  /// Rounds of deferred work within a turn; after these, timers and descriptors get their turn.
  private static let maxRounds = 64

  let machine: any Machine
  private var watches: [Int32: Watch] = [:]
  private var lastNumber: UInt32 = 0
  private var timers = TimerQueue()
  private var deferred: [() -> Void] = []
  private var nextTurns: [() -> Void] = []
  private var turnEnds: [() -> Void] = []
  /// Tasks that are ready to continue.
  private var jobs: [UnownedJob] = []
  /// Runs the tasks on this loop.
  private(set) lazy var executor = LoopExecutor(self)
  /// The events of this turn, by the tags of their watches.
  private var ready: [(tag: UInt64, readiness: Readiness)] = []
  private var isStopped = false
  /// How often the loop has woken up: the measure of idleness.
  public private(set) var wakeups: UInt64 = 0
  /// Addresses to which connections of this loop have succeeded.
  var goodAddresses = GoodAddresses()
  /// Connections that are being opened. Each removes itself.
  var connecting: [ObjectIdentifier: Connector] = [:]

  /// Tasks of this loop that have not ended, without their children.
  var taskCount = 0
  var watchCount: Int { watches.count }
  var waitingTimers: Int { timers.waiting }

  public init(on machine: any Machine = LinuxMachine()) { self.machine = machine }

  /// Resumes a task in this turn.
  func enqueue(_ job: UnownedJob) { jobs.append(job) }

  /// The machine's monotonic clock.
  public var now: MonotonicTime { machine.now }
  /// All of the machine's clocks.
  public var clocks: any Clocks { machine }
  public var wallClock: WallClock { WallClock(machine) }

  /// See `Descriptor.unacknowledged`.
  public func unacknowledged(_ socket: Int32) -> Int { machine.unacknowledged(socket) }

  /// Calls `handler` whenever `descriptor` is ready. The loop does not own the descriptor: call `unwatch` before
  /// closing it. Returns false if the kernel refuses (a regular file, no memory).
  @discardableResult
  public func watch(
    _ descriptor: Int32, for interest: Readiness, _ handler: @escaping (Readiness) -> Void
  ) -> Bool {
    lastNumber &+= 1
    let watch = Watch(interest, lastNumber, handler)
    guard machine.watch(descriptor, for: interest, tag: watch.tag(descriptor)) else { return false }
    watches[descriptor] = watch
    return true
  }

  public func changeInterest(_ descriptor: Int32, to interest: Readiness) {
    guard let watch = watches[descriptor], watch.interest != interest else { return }
    watch.interest = interest
    machine.change(descriptor, to: interest, tag: watch.tag(descriptor))
  }

  public func unwatch(_ descriptor: Int32) {
    guard watches.removeValue(forKey: descriptor) != nil else { return }
    machine.unwatch(descriptor)
  }

  /// Calls `action` once at `time`, unless the timer is cancelled before.
  @discardableResult
  public func schedule(at time: MonotonicTime, _ action: @escaping () -> Void) -> LoopTimer {
    timers.add(at: time, action)
  }

  @discardableResult
  public func schedule(after delay: Duration, _ action: @escaping () -> Void) -> LoopTimer {
    schedule(at: now + delay, action)
  }

  /// Runs `action` later in this turn, after the present callback.
  public func later(_ action: @escaping () -> Void) { deferred.append(action) }

  /// Runs `action` in the next turn, which follows at once: so long work shares the loop.
  public func nextTurn(_ action: @escaping () -> Void) { nextTurns.append(action) }

  /// Runs `action` at the end of every turn in which something happened.
  public func afterTurn(_ action: @escaping () -> Void) { turnEnds.append(action) }

  public func stop() { isStopped = true }

  /// Runs until `stop` is called.
  public func run() {
    isStopped = false
    endTurn()
    while !isStopped { turn(wait: true) }
  }

  /// How long the loop has nothing to do unless a descriptor is ready: milliseconds, 0: it has work now, -1: there is no timer.
  public var rest: Int32 { hasWork || !nextTurns.isEmpty ? 0 : millisecondsToNextTimer() }

  /// Runs one turn: waits for events (or not) and handles all of them. A handler does a limited amount of work at a
  /// time (`Descriptor.readsPerTurn`): the rest is reported again in the next turn, after timers and other descriptors.
  public func turn(wait: Bool) {
    let timeout = wait ? rest : 0
    // Taken before the events are handled: actions that a handler adds belong to the next turn.
    let continued = nextTurns
    nextTurns.removeAll()
    ready.removeAll(keepingCapacity: true)
    machine.wait(milliseconds: timeout) { ready.append(($0, $1)) }
    wakeups &+= 1
    for (tag, readiness) in ready { handle(tag, readiness) }
    runTimers()
    for action in continued { action() }
    endTurn()
  }

  private func handle(_ tag: UInt64, _ readiness: Readiness) {
    let descriptor = Int32(truncatingIfNeeded: tag)
    let number = UInt32(truncatingIfNeeded: tag >> 32)
    guard let watch = watches[descriptor], watch.number == number else { return }
    watch.handler(readiness)
  }

  /// Runs the timers that are due; a timer that an action sets for now runs in the next turn.
  private func runTimers() {
    let time = now
    for _ in 0..<timers.count {
      guard let action = timers.due(now: time) else { return }
      action()
    }
  }

  /// Deferred work, tasks and the turn's end actions may add more work. Nearly always all of it is done in this turn,
  /// so that everything that came in together shares one commit.
  private func endTurn() {
    var rounds = 0
    repeat {
      while hasWork, rounds < Self.maxRounds {
        let batch = deferred
        deferred.removeAll()
        for action in batch { action() }
        let ready = jobs
        jobs.removeAll()
        for job in ready { job.runSynchronously(on: executor.asUnownedTaskExecutor()) }
        rounds += 1
      }
      for action in turnEnds { action() }
    } while hasWork && !isStopped && rounds < Self.maxRounds
  }

  private var hasWork: Bool { !deferred.isEmpty || !jobs.isEmpty }

  private func millisecondsToNextTimer() -> Int32 {
    guard let next = timers.next else { return -1 }
    let nanoseconds = (next - now).wholeNanoseconds
    guard nanoseconds > 0 else { return 0 }
    // Rounded up: a wake-up before the deadline would spin.
    return Int32(min((nanoseconds - 1) / 1_000_000 + 1, 3_600_000))
  }
}

// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Timing

/// Runs another program once: gives it its input, reads its output, and kills it with all its descendants when it takes
/// too long or prints too much.
///
/// Everything is bounded. Only `maxOutput` bytes of each stream are kept; more is read and dropped, so that the program
/// does not block. A program that prints without end is killed, because it would keep two processors busy until the
/// time limit.
public enum ChildProcess {
  public struct Exit: Equatable, Sendable {
    /// The exit code; `nil`: a signal ended the program.
    public var code: Int32?
    public var signal: Int32
    public var tookTooLong: Bool
    /// The program was killed because it printed more than may be read.
    public var saidTooMuch: Bool
    public var output: [UInt8]
    public var errors: [UInt8]

    public init(
      code: Int32?, signal: Int32 = 0, tookTooLong: Bool = false, saidTooMuch: Bool = false, output: [UInt8] = [],
      errors: [UInt8] = []
    ) {
      (self.code, self.signal) = (code, signal)
      (self.tookTooLong, self.saidTooMuch) = (tookTooLong, saidTooMuch)
      (self.output, self.errors) = (output, errors)
    }
  }

  /// What to run, and its bounds.
  public struct Program: Sendable {
    public let arguments: [String]
    public let environment: [String: String]
    public let input: [UInt8]
    public let limit: Duration
    /// Bytes of each stream that are kept.
    public let maxOutput: Int
  }

  /// Bytes of output and errors together that are read at most, or twice `maxOutput` if that is more.
  public static let mostRead = 1 << 20

  /// Runs a program in its own process group and returns how it ended. When cancelled, the group is killed and the
  /// program has ended before this throws, unless it cannot be killed. Throws `SystemError` if the program cannot be
  /// started.
  public static func run(
    _ arguments: [String], environment: [String: String], input: [UInt8], limit: Duration, maxOutput: Int,
    on loop: EventLoop
  ) async throws -> Exit {
    let program = Program(
      arguments: arguments, environment: environment, input: input, limit: limit, maxOutput: maxOutput)
    return try await loop.machine.run(program, on: loop)
  }

  /// As `run`, on the machine on which this program runs.
  static func runHere(_ program: Program, on loop: EventLoop) async throws -> Exit {
    let child = try RunningChild(program, on: loop)
    defer { child.end() }
    return try await child.exit(within: program.limit)
  }
}

/// A program from its start until it is reaped.
private final class RunningChild {
  /// Reads that empty a pipe, which holds 64 KiB.
  private static let pipeReads = 65536 / Descriptor.chunk
  /// How often the program is polled if the kernel cannot report its exit.
  private static let lookInterval: Duration = .milliseconds(50)

  private let loop: EventLoop
  private let maxOutput: Int
  /// Bytes that may still be read; negative: the program was killed for printing more.
  private var left: Int
  private var process: pid_t = 0
  /// The descriptor that reports the program's exit (pidfd); negative: the kernel has none.
  private var exit: Int32 = -1
  private var input: Int32 = -1
  private var pending: ArraySlice<UInt8>
  private var streams: [Int32: [UInt8]] = [:]
  private var (output, errors): (Int32, Int32) = (-1, -1)
  private let ended = Waiter()

  init(_ program: ChildProcess.Program, on loop: EventLoop) throws(SystemError) {
    self.loop = loop
    maxOutput = program.maxOutput
    left = max(2 * program.maxOutput, ChildProcess.mostRead)
    pending = program.input[...]
    try start(program.arguments, program.environment)
    watch()
    write()
  }

  deinit { end() }

  /// Waits until the program exits; kills it after `limit`.
  func exit(within limit: Duration) async throws(CancellationError) -> ChildProcess.Exit {
    let deadline = loop.now + limit
    var tookTooLong = false
    while true {
      if let status = reap() { return read(status, tookTooLong: tookTooLong) }
      if !tookTooLong, loop.now >= deadline {
        tookTooLong = true
        kill()
      }
      try await wait(until: tookTooLong ? nil : deadline)
    }
  }

  /// Kills the program and its descendants.
  func kill() { if process > 0 { Glibc.kill(-process, SIGKILL) } }

  /// Releases everything: kills and reaps a program that still runs.
  func end() {
    closeAll()
    guard process > 0 else { return }
    kill()
    // A killed process ends a moment later, one of another user or in the kernel perhaps never.
    for _ in 0..<Self.mostTries {
      if Self.isReaped(process) {
        process = 0
        return
      }
      usleep(1000)
    }
    Self.reapLater(process, on: loop)
    process = 0
  }

  private static let mostTries = 100

  /// The process is reaped, or is not there.
  private static func isReaped(_ process: pid_t) -> Bool {
    var status: Int32 = 0
    let result = waitpid(process, &status, WNOHANG)
    return result == process || result < 0 && errno != EINTR
  }

  private static func reapLater(_ process: pid_t, on loop: EventLoop) {
    loop.schedule(after: .seconds(1)) { if !isReaped(process) { reapLater(process, on: loop) } }
  }

  // MARK: Start

  private func start(_ arguments: [String], _ environment: [String: String]) throws(SystemError) {
    var (stdin, stdout, stderr): ([Int32], [Int32], [Int32]) = ([-1, -1], [-1, -1], [-1, -1])
    guard meshpost_pipe(&stdin) == 0, meshpost_pipe(&stdout) == 0, meshpost_pipe(&stderr) == 0 else {
      let error = SystemError("pipe")
      for end in stdin + stdout + stderr where end >= 0 { close(end) }
      throw error
    }
    let code = Self.spawn(&process, arguments, environment, stdin[0], stdout[1], stderr[1])
    for end in [stdin[0], stdout[1], stderr[1]] { close(end) }
    (input, output, errors) = (stdin[1], stdout[0], stderr[0])
    guard code == 0 else {
      process = 0
      closeAll()
      throw SystemError(arguments.first ?? "", code: code)
    }
  }

  private static func spawn(
    _ process: inout pid_t, _ arguments: [String], _ environment: [String: String], _ stdin: Int32, _ stdout: Int32,
    _ stderr: Int32
  ) -> Int32 {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for (from, to) in [(stdin, 0), (stdout, 1), (stderr, 2)] {
      posix_spawn_file_actions_adddup2(&actions, from, Int32(to))
    }
    // The program begins with default signal handling, whatever the daemon does with its own.
    var (attributes, none, all) = (posix_spawnattr_t(), sigset_t(), sigset_t())
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    sigemptyset(&none)
    sigfillset(&all)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setsigdefault(&attributes, &all)
    posix_spawnattr_setpgroup(&attributes, 0)
    posix_spawnattr_setflags(
      &attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP))
    var argv = arguments.map { strdup($0) } + [nil]
    var variables = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
    defer { for pointer in argv + variables { free(pointer) } }
    return posix_spawn(&process, arguments.first ?? "", &actions, &attributes, &argv, &variables)
  }

  // MARK: Input and output

  private func watch() {
    for descriptor in [input, output, errors] { Descriptor.setNonBlocking(descriptor) }
    loop.watch(input, for: .writable) { [unowned self] _ in write() }
    for descriptor in [output, errors] {
      streams[descriptor] = []
      loop.watch(descriptor, for: .readable) { [unowned self] _ in read(descriptor) }
    }
    exit = meshpost_pidfd_open(process)
    if exit >= 0 { loop.watch(exit, for: .readable) { [ended] _ in ended.resume() } }
  }

  private func write() {
    while input >= 0 {
      guard !pending.isEmpty else { return closeInput() }
      switch Descriptor.write(input, pending) {
      case .wrote(let count): pending = pending.dropFirst(count)
      case .wouldBlock: return
      case .failed: return closeInput()  // the program does not want all of its input
      }
    }
  }

  private func closeInput() {
    guard input >= 0 else { return }
    loop.unwatch(input)
    close(input)
    input = -1
  }

  private func read(_ descriptor: Int32, most: Int = Descriptor.readsPerTurn) {
    for _ in 0..<most {
      guard let kept = streams[descriptor]?.count else { return }
      switch Descriptor.read(descriptor) {
      case .bytes(let bytes):
        streams[descriptor]?.append(contentsOf: bytes.prefix(max(0, maxOutput - kept)))
        left -= bytes.count
        guard left >= 0 else { return stopReading() }
      case .wouldBlock: return
      case .end, .failed: return loop.unwatch(descriptor)
      }
    }
  }

  /// Kills the program and reads no more of its output; `reap` follows.
  private func stopReading() {
    kill()
    for descriptor in [output, errors] { loop.unwatch(descriptor) }
  }

  private func closeAll() {
    closeInput()
    for descriptor in [output, errors, exit] where descriptor >= 0 {
      loop.unwatch(descriptor)
      close(descriptor)
    }
    (output, errors, exit) = (-1, -1, -1)
  }

  // MARK: The exit

  /// Returns when the program may have ended, or at the deadline.
  private func wait(until deadline: MonotonicTime?) async throws(CancellationError) {
    var next = deadline
    // A kernel without pidfd: the program is polled.
    if exit < 0 { next = min(deadline ?? .never, loop.now + Self.lookInterval) }
    try await ended.wait(until: next, on: loop)
  }

  /// The exit status, once the program has ended.
  private func reap() -> Int32? {
    var status: Int32 = 0
    guard process > 0, waitpid(process, &status, WNOHANG) == process else { return nil }
    // Kills descendants that the program has left behind.
    Glibc.kill(-process, SIGKILL)
    process = 0
    return status
  }

  private func read(_ status: Int32, tookTooLong: Bool) -> ChildProcess.Exit {
    // The program's last output fits into a pipe; anything written now comes from another process.
    for descriptor in [output, errors] where left >= 0 { read(descriptor, most: Self.pipeReads) }
    let code = meshpost_exit_status(status)
    return ChildProcess.Exit(
      code: code < 0 ? nil : code, signal: meshpost_term_signal(status), tookTooLong: tookTooLong,
      saidTooMuch: left < 0, output: streams[output] ?? [], errors: streams[errors] ?? [])
  }
}

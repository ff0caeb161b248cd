// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Timing

/// Another program, run once: gets its input, is heard to its end, and is ended with all it started when it takes too long.
///
/// Everything is bounded: of what it says only so much is kept, the rest is read and dropped, so that it never blocks.
public final class ChildProcess {
  public struct Ended: Equatable, Sendable {
    /// Its exit code; `nil`: a signal ended it.
    public var code: Int32?
    public var signal: Int32
    public var tookTooLong: Bool
    public var output: [UInt8]
    public var errors: [UInt8]
  }

  /// Reads that empty a pipe, which holds 64 KiB.
  private static let pipeReads = 65536 / Descriptor.chunk

  private let loop: EventLoop
  private let maxOutput: Int
  private var process: pid_t = 0
  private var exit: Int32 = -1
  private var input: Int32 = -1
  private var pending: ArraySlice<UInt8>
  private var streams: [Int32: [UInt8]] = [:]
  private var (output, errors): (Int32, Int32) = (-1, -1)
  private var timer: LoopTimer?
  private var tookTooLong = false
  private let done: (Ended) -> Void

  /// Starts it, in a process group of its own. `done` hears exactly once.
  public init(
    _ arguments: [String], environment: [String: String], input: [UInt8], limit: Duration, maxOutput: Int,
    on loop: EventLoop, _ done: @escaping (Ended) -> Void
  ) throws(SystemError) {
    self.loop = loop
    self.maxOutput = maxOutput
    pending = input[...]
    self.done = done
    try start(arguments, environment)
    timer = loop.schedule(after: limit) { [weak self] in
      self?.tookTooLong = true
      self?.kill()
    }
    write()
  }

  /// Ends it, and what it started.
  public func kill() { if process > 0 { Glibc.kill(-process, SIGKILL) } }

  deinit {
    guard process > 0 else { return }
    kill()
    closeAll()
    var status: Int32 = 0
    waitpid(process, &status, 0)
  }

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
      for end in [input, output, errors] { close(end) }
      throw SystemError(arguments.first ?? "", code: code)
    }
    watch()
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
    // Signals as a program expects them, whatever the daemon does with its own.
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

  private func watch() {
    for descriptor in [input, output, errors] { Descriptor.setNonBlocking(descriptor) }
    loop.watch(input, for: .writable) { [weak self] _ in self?.write() }
    for descriptor in [output, errors] {
      streams[descriptor] = []
      loop.watch(descriptor, for: .readable) { [weak self] _ in self?.read(descriptor) }
    }
    exit = meshpost_pidfd_open(process)
    guard exit >= 0 else { return poll() }
    loop.watch(exit, for: .readable) { [weak self] _ in self?.reap() }
  }

  /// A kernel without process descriptors: looked at now and then.
  private func poll() {
    loop.schedule(after: .milliseconds(50)) { [weak self] in
      guard let self, self.process > 0 else { return }
      self.reap()
      if self.process > 0 { self.poll() }
    }
  }

  private func write() {
    while input >= 0 {
      guard !pending.isEmpty else { return closeInput() }
      switch Descriptor.write(input, pending) {
      case .wrote(let count): pending = pending.dropFirst(count)
      case .wouldBlock: return
      case .failed: return closeInput()  // it does not want to read all of it
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
      case .bytes(let bytes): streams[descriptor]?.append(contentsOf: bytes.prefix(max(0, maxOutput - kept)))
      case .wouldBlock: return
      case .end, .failed: return loop.unwatch(descriptor)
      }
    }
  }

  private func reap() {
    var status: Int32 = 0
    guard process > 0, waitpid(process, &status, WNOHANG) == process else { return }
    // What it started and left behind is ended, too.
    Glibc.kill(-process, SIGKILL)
    process = 0
    timer?.cancel()
    // What it has said at the end fits into a pipe; who still writes into it now is not it.
    for descriptor in [output, errors] { read(descriptor, most: Self.pipeReads) }
    let code = meshpost_exit_status(status)
    let ended = Ended(
      code: code < 0 ? nil : code, signal: meshpost_term_signal(status), tookTooLong: tookTooLong,
      output: streams[output] ?? [], errors: streams[errors] ?? [])
    closeAll()
    done(ended)
  }

  private func closeAll() {
    closeInput()
    for descriptor in [output, errors, exit] where descriptor >= 0 {
      loop.unwatch(descriptor)
      close(descriptor)
    }
    (output, errors, exit) = (-1, -1, -1)
  }
}

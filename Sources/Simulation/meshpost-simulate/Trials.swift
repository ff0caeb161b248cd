// SPDX-License-Identifier: MIT

import Console
import Glibc
import Synchronization
import World

/// Runs each world in a process of its own: what a program keeps between two worlds, such as the state of a library's random numbers, would
/// make the second one another world than that of its seed.
struct Trials {
  /// How long each world is, and whether it tells its story.
  let options: [String]
  let jobs: Int
  /// No further world is to be started.
  let isOver: () -> Bool

  /// Dictionaries have their order from a random number of the process, unless this is set before it starts.
  private static let hashing = "SWIFT_DETERMINISTIC_HASHING"

  /// The C library's allocator keeps what is freed: a program in the field gives it back, to be small, and a world would ask the kernel for it
  /// thousands of times. It costs a tenth of the processor's time (`man 7 ld.so`, `glibc.malloc`).
  private static let allocator =
    "glibc.malloc.tcache_count=127:glibc.malloc.trim_threshold=67108864"
    + ":glibc.malloc.mmap_threshold=16777216:glibc.malloc.top_pad=4194304"

  /// What a process of a world finds in its environment.
  private static func prepare() {
    setenv(hashing, "1", 1)
    setenv("GLIBC_TUNABLES", allocator, 0)
  }

  /// The process begins again if its world would not repeat.
  static func repeats() {
    guard getenv(hashing) == nil else { return }
    prepare()
    var arguments = CommandLine.arguments.map { strdup($0) } + [nil]
    execv("/proc/self/exe", &arguments)
  }

  private func start(_ seed: UInt64, without: Set<Int> = []) -> RunningWorld {
    var name = Array("/dev/shm/outcome-XXXXXX".utf8CString)
    let output = mkstemp(&name)
    unlink(name)
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, output, 1)
    Self.prepare()
    var words = ["meshpost-simulate", "\(seed)"] + options + ["--alone"]
    if !without.isEmpty { words += ["--without", without.sorted().map(String.init).joined(separator: ",")] }
    var arguments = words.map { strdup($0) } + [nil]
    defer { for argument in arguments { free(argument) } }
    var process: pid_t = 0
    let failure = posix_spawn(&process, "/proc/self/exe", &actions, nil, &arguments, environ)
    guard failure == 0 else {
      Console.error("meshpost-simulate: no process can be started: \(String(cString: strerror(failure)))")
      exit(EX_OSERR)
    }
    return RunningWorld(seed: seed, process: process, output: output)
  }

  /// Runs the worlds of seeds, some at a time, and tells of each when it ends; those that an interruption ends are not told of. Returns the first seed
  /// that is left, or the end of the range.
  func run(_ seeds: Range<UInt64>, _ tell: (UInt64, Trial.Outcome) throws -> Void) rethrows -> UInt64 {
    var (next, cut) = (seeds.lowerBound, seeds.upperBound)
    var running: [pid_t: RunningWorld] = [:]
    func begin() {
      guard next < seeds.upperBound, !isOver() else { return }
      let world = start(next)
      running[world.process] = world
      next += 1
    }
    for _ in 0..<jobs { begin() }
    while !running.isEmpty {
      var status: Int32 = 0
      if let world = running.removeValue(forKey: waitpid(-1, &status, 0)) {
        let outcome = world.outcome(status)
        if Interruption.hasEnded(status) {
          cut = min(cut, world.seed)
        } else {
          begin()
          try tell(world.seed, outcome)
        }
      }
      if Interruption.signal != nil { for process in running.keys { kill(process, SIGKILL) } }
    }
    return min(next, cut)
  }

  /// The shortest plan that breaks the same law: without each happening that is not needed. At the run's end: the shortest that was found by then.
  func shrink(_ seed: UInt64, _ outcome: Trial.Outcome) -> Trial.Outcome {
    guard let kind = outcome.kind else { return outcome }
    let all = Set(0..<outcome.happenings.count)
    var (best, kept) = (outcome, all.sorted())
    var size = max(1, kept.count / 2)
    while true {
      var (place, hasShrunk) = (0, false)
      while place < kept.count {
        var fewer = kept
        fewer.removeSubrange(place..<min(place + size, fewer.count))
        guard !isOver() else { return best }
        let result = start(seed, without: all.subtracting(fewer)).wait()
        guard Interruption.signal == nil else { return best }
        if result.kind == kind { (best, kept, hasShrunk) = (result, fewer, true) } else { place += size }
      }
      if size == 1, !hasShrunk { return best }
      size = max(1, size / 2)
    }
  }
}

/// A process with a world.
private struct RunningWorld {
  let seed: UInt64
  let process: pid_t
  /// The file that gets its outcome.
  let output: Int32

  /// Waits for its end; an interruption ends it.
  func wait() -> Trial.Outcome {
    var status: Int32 = 0
    while waitpid(process, &status, 0) < 0, errno == EINTR {
      if Interruption.signal != nil { kill(process, SIGKILL) }
    }
    return outcome(status)
  }

  func outcome(_ status: Int32) -> Trial.Outcome {
    defer { close(output) }
    var text = [UInt8](repeating: 0, count: max(0, Int(lseek(output, 0, SEEK_END))))
    let count = pread(output, &text, text.count, 0)
    if status == 0, count == text.count, let outcome = Trial.Outcome(json: text) { return outcome }
    Trial.clear(behind: process, seed: seed)
    let signal = status & 0x7F
    let words = signal == SIGALRM ? "it does not end" : signal == 0 ? "exit code \(status >> 8)" : "signal \(signal)"
    return Trial.Outcome(problems: ["the process of this world has failed: \(words)"])
  }
}

/// SIGINT and SIGTERM end a run, which then tells how far it has come. A terminal sends them to the worlds, too.
enum Interruption {
  private static let signals = [SIGINT, SIGTERM]
  /// The signal that came; 0: none.
  private static let caught = Atomic<Int32>(0)

  static var signal: Int32? {
    let number = caught.load(ordering: .relaxed)
    return number == 0 ? nil : number
  }

  static func begin() {
    // A program that starts this one may have blocked them.
    var blocked = sigset_t()
    sigemptyset(&blocked)
    for number in signals {
      sigaddset(&blocked, number)
      var action = sigaction()
      // Without SA_RESTART, so that a wait for a world ends.
      action.__sigaction_handler.sa_handler = { Interruption.caught.store($0, ordering: .relaxed) }
      sigaction(number, &action, nil)
    }
    sigprocmask(SIG_UNBLOCK, &blocked, nil)
  }

  /// Whether a process with this status was ended by it.
  static func hasEnded(_ status: Int32) -> Bool {
    signal != nil && (signals + [SIGKILL]).contains(status & 0x7F)
  }
}

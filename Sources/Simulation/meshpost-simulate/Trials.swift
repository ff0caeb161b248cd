// SPDX-License-Identifier: MIT

import Console
import Glibc
import World

/// Runs each world in a process of its own: what a program keeps between two worlds, such as the state of a library's random numbers, would
/// make the second one another world than that of its seed.
struct Trials {
  let days: Int
  let jobs: Int

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

  private func start(_ seed: UInt64, without: Set<Int> = []) -> (process: pid_t, output: Int32) {
    var name = Array("/dev/shm/outcome-XXXXXX".utf8CString)
    let output = mkstemp(&name)
    unlink(name)
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, output, 1)
    Self.prepare()
    var words = ["meshpost-simulate", "\(seed)", "--days", "\(days)", "--alone"]
    if !without.isEmpty { words += ["--without", without.sorted().map(String.init).joined(separator: ",")] }
    var arguments = words.map { strdup($0) } + [nil]
    defer { for argument in arguments { free(argument) } }
    var process: pid_t = 0
    let failure = posix_spawn(&process, "/proc/self/exe", &actions, nil, &arguments, environ)
    guard failure == 0 else {
      Console.error("meshpost-simulate: no process can be started: \(String(cString: strerror(failure)))")
      exit(EX_OSERR)
    }
    return (process, output)
  }

  /// Runs the worlds of seeds, some at a time, and tells of each when it ends.
  func run(_ seeds: Range<UInt64>, _ tell: (UInt64, Trial.Outcome) throws -> Void) rethrows {
    var waiting = seeds.makeIterator()
    var running: [pid_t: (seed: UInt64, output: Int32)] = [:]
    func begin() {
      guard let seed = waiting.next() else { return }
      let (process, output) = start(seed)
      running[process] = (seed, output)
    }
    for _ in 0..<jobs { begin() }
    while !running.isEmpty {
      var status: Int32 = 0
      guard let (seed, output) = running.removeValue(forKey: waitpid(-1, &status, 0)) else { continue }
      begin()
      try tell(seed, Self.outcome(of: output, status: status))
    }
  }

  private static func outcome(of output: Int32, status: Int32) -> Trial.Outcome {
    defer { close(output) }
    var text = [UInt8](repeating: 0, count: max(0, Int(lseek(output, 0, SEEK_END))))
    let count = pread(output, &text, text.count, 0)
    if status == 0, count == text.count, let outcome = Trial.Outcome(json: text) { return outcome }
    let signal = status & 0x7F
    let words = signal == SIGALRM ? "it does not end" : signal == 0 ? "exit code \(status >> 8)" : "signal \(signal)"
    return Trial.Outcome(problems: ["the process of this world has failed: \(words)"])
  }

  /// The shortest plan that breaks the same law: without each happening that is not needed.
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
        let (process, output) = start(seed, without: all.subtracting(fewer))
        var status: Int32 = 0
        waitpid(process, &status, 0)
        let result = Self.outcome(of: output, status: status)
        if result.kind == kind { (best, kept, hasShrunk) = (result, fewer, true) } else { place += size }
      }
      if size == 1, !hasShrunk { return best }
      size = max(1, size / 2)
    }
  }
}

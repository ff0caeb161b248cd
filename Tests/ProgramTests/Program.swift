// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import Synchronization
import TestSupport

/// A started program. Tests can wait for its lines and write to it; it ends with the object.
final class Program: Sendable {
  struct Waited: Error, CustomStringConvertible {
    let description: String
  }

  private struct State {
    var lines: [String] = []
    var partial = ""
    var exitCode: Int32?
    var isAtEnd = false
  }

  let name: String
  let processID: Int32
  private let input: Int32
  private let state = Mutex(State())

  /// $MESHPOST_PROGRAMS: programs in place of the debug builds, such as those of another machine in an emulator.
  static let programs =
    ProcessInfo.processInfo.environment["MESHPOST_PROGRAMS"].map { URL(filePath: $0) }
    ?? Checkout.folder.appending(path: ".build/debug")
  /// Python: prints a whole line at once. With `print`, lines of two threads would be mixed.
  static let say = """
    import sys
    def say(line): sys.stdout.write(line + "\\n"); sys.stdout.flush()
    """
  static let python = Checkout.folder.appending(path: ".build/python/bin/python").path()

  /// Starts one of the project's programs. `network`: the file of another network namespace.
  static func own(_ name: String, _ arguments: [String], in network: String? = nil) throws -> Program {
    try start(programs.appending(path: name).path(), arguments, in: network)
  }

  /// `nsenter` is replaced by the program, so it ends like any other.
  static func start(_ executable: String, _ arguments: [String], in network: String?) throws -> Program {
    guard let network else { return try Program(executable, arguments) }
    return try Program("/usr/bin/nsenter", ["--net=\(network)", executable] + arguments)
  }

  /// Only one program is started at a time: otherwise a program that another thread starts could inherit a pipe before it is marked, and the pipe
  /// would not end before that program.
  private static let starting = NSLock()

  init(_ executable: String, _ arguments: [String], folder: URL? = nil, environment: [String: String] = [:]) throws {
    name = URL(filePath: executable).lastPathComponent
    Self.starting.lock()
    defer { Self.starting.unlock() }
    let (output, input) = (try Self.makePipe(), try Self.makePipe())
    defer {
      close(output.write)
      close(input.read)
    }
    self.input = input.write
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, input.read, 0)
    posix_spawn_file_actions_adddup2(&actions, output.write, 1)
    posix_spawn_file_actions_adddup2(&actions, output.write, 2)
    // `env --chdir`, because not every libc header has the file action.
    let place = (folder ?? Checkout.folder).path()
    let variables = environment.map { "\($0)=\($1)" }
    // If the test's user is behind a proxy, the servers of the tests are not.
    let proxies = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"].flatMap { ["-u", $0, "-u", $0.uppercased()] }
    let command = ["/usr/bin/env", "--chdir=\(place)"] + proxies + variables + [executable] + arguments
    var argv = command.map { strdup($0) } + [nil]
    defer { for pointer in argv { free(pointer) } }
    var pid: Int32 = 0
    // Threads of the test runner block signals, and children inherit that.
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    // A disconnected peer ends no test; programs start with the usual handlers.
    signal(SIGPIPE, SIG_IGN)
    var usual = sigset_t()
    sigemptyset(&usual)
    // A shell that starts the tests in the background makes them ignore Ctrl-C's signal, and their children would inherit that.
    for number in [SIGPIPE, SIGINT, SIGQUIT] { sigaddset(&usual, number) }
    posix_spawnattr_setsigdefault(&attributes, &usual)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))
    let code = posix_spawn(&pid, "/usr/bin/env", &actions, &attributes, &argv, environ)
    guard code == 0 else { throw Waited(description: "\(executable): \(String(cString: strerror(code)))") }
    processID = pid
    let source = output.read
    Thread.detachNewThread { [weak self] in
      var buffer = [UInt8](repeating: 0, count: 4096)
      while true {
        let count = read(source, &buffer, buffer.count)
        guard count > 0 else { break }
        self?.take(String(decoding: buffer.prefix(count), as: UTF8.self))
      }
      close(source)
      self?.state.withLock { $0.isAtEnd = true }
    }
  }

  deinit {
    kill9()
    close(input)
  }

  private static func makePipe() throws -> (read: Int32, write: Int32) {
    var ends: [Int32] = [0, 0]
    guard pipe(&ends) == 0 else { throw Waited(description: "pipe: \(String(cString: strerror(errno)))") }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    return (ends[0], ends[1])
  }

  private func take(_ text: String) {
    state.withLock { state in
      // Swift treats CR LF as one character, which would end no line.
      state.partial.unicodeScalars.append(contentsOf: text.unicodeScalars.filter { $0 != "\r" })
      while let end = state.partial.firstIndex(of: "\n") {
        state.lines.append(String(state.partial[..<end]))
        state.partial = String(state.partial[state.partial.index(after: end)...])
      }
    }
  }

  var lines: [String] { state.withLock { $0.lines } }

  /// The exit code (128 + signal if killed); `nil`: it still runs.
  var exitCode: Int32? {
    state.withLock { state in
      if let code = state.exitCode { return code }
      var status: Int32 = 0
      guard waitpid(processID, &status, WNOHANG) == processID else { return nil }
      state.exitCode = status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + (status & 0x7F)
      return state.exitCode
    }
  }

  func write(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    _ = Glibc.write(input, bytes, bytes.count)
  }

  /// Ends its standard input.
  func endInput() { _ = dup2(Self.nowhere, input) }

  private static let nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC)

  func send(_ signal: Int32) { if exitCode == nil { kill(processID, signal) } }

  func kill9() {
    send(SIGKILL)
    while exitCode == nil { usleep(1000) }
  }

  /// The first line (from `from` on) that contains `text`.
  @discardableResult
  func line(with text: String, from: Int = 0) throws -> String {
    try wait(for: "\(name) to print \(text)") { lines.dropFirst(from).first { $0.contains(text) } }
  }

  /// Waits for the end without blocking one of the test runner's few threads: for programs that run for many minutes at the same time as other tests,
  /// and have their own time limits. No other test waits for their effects.
  func ends() async -> Int32 {
    Work.leaveOut(processID)
    return await withCheckedContinuation { continuation in
      Thread.detachNewThread {
        while true {
          if self.state.withLock({ $0.isAtEnd }), let code = self.exitCode {
            return continuation.resume(returning: code)
          }
          usleep(200_000)
        }
      }
    }
  }

  /// Waits for the end and for all output; returns the exit code.
  func ended() throws -> Int32 {
    try wait(for: "\(name) to end", said: { lines.count }) { state.withLock { $0.isAtEnd } ? exitCode : nil }
  }

  private func wait<Value>(for what: String, said: () -> Int = { 0 }, _ look: () -> Value?) throws -> Value {
    do {
      return try until(what, said: said, look)
    } catch {
      throw Waited(description: "\(error); it printed:\n\(lines.suffix(30).joined(separator: "\n"))")
    }
  }
}

/// Repeats the check until it has a value. If nothing moves any more, throws an error with `what`, which is evaluated then, so that it describes the
/// final state. `said`: the number of lines so far of the awaited program.
func until<Value>(
  _ what: @autoclosure () throws -> String, said: () -> Int = { 0 }, _ look: () throws -> Value?
) throws -> Value {
  var patience = Patience()
  while true {
    if let value = try look() { return value }
    guard !patience.isOver(said: said()) else {
      // `try?`: the stuck program may be the one that `what` asks.
      let end = (try? what()) ?? "a program that no longer answers"
      throw Program.Waited(description: "waited \(Int(patience.waited())) s for \(end); nothing moves any more")
    }
    usleep(UInt32(patience.pause() * 1_000_000))
  }
}

func untilTrue(_ what: @autoclosure () throws -> String, _ look: () throws -> Bool) throws {
  _ = try until(try what()) { try look() ? true : nil }
}

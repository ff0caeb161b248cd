// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Another program on our terminal, with our input and output.
struct ChildProgram {
  let process: pid_t

  /// The daemon in the folder of this program, or the installed one.
  static var daemon: String {
    let beside = Folder.of(Folder.resolved("/proc/self/exe")) + "/meshpostd"
    return access(beside, X_OK) == 0 ? beside : "/usr/bin/meshpostd"
  }

  /// `arguments`: the first one is the program, by its location or as the PATH finds it. `files`: descriptors of the child, and ours that they become.
  /// `remedy`: for a program that cannot be started.
  init(_ arguments: [String], files: [(child: Int32, ours: Int32)] = [], remedy: String = "") throws {
    var argv = arguments.map { strdup($0) } + [nil]
    defer { for pointer in argv { free(pointer) } }
    // The child does not inherit our blocked signals.
    var (attributes, none) = (posix_spawnattr_t(), sigset_t())
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for file in files { posix_spawn_file_actions_adddup2(&actions, file.ours, file.child) }
    var process: pid_t = 0
    let program = arguments.first ?? ""
    let code = posix_spawnp(&process, program, &actions, &attributes, &argv, environ)
    guard code == 0 else {
      throw Failure.say("\(program): \(String(cString: strerror(code)))\(remedy)", EX_UNAVAILABLE)
    }
    self.process = process
  }

  /// Its exit code; after a signal, the code of shells.
  func wait() -> Int32 {
    var status: Int32 = 0
    while waitpid(process, &status, 0) < 0, errno == EINTR {}
    return Self.code(status)
  }

  func send(_ signal: Int32) { kill(process, signal) }

  /// Waits for its end like `wait`, and forwards our `signals` to it meanwhile.
  func wait(handing signals: [Int32]) -> Int32 {
    var mask = sigset_t()
    sigemptyset(&mask)
    for number in signals + [SIGCHLD] { sigaddset(&mask, number) }
    pthread_sigmask(SIG_BLOCK, &mask, nil)
    while true {
      var status: Int32 = 0
      // It may have ended before this line.
      if waitpid(process, &status, WNOHANG) == process { return Self.code(status) }
      var number: Int32 = 0
      if sigwait(&mask, &number) == 0, number != SIGCHLD { send(number) }
    }
  }

  private static func code(_ status: Int32) -> Int32 {
    let code = meshpost_exit_status(status)
    return code < 0 ? 128 + meshpost_term_signal(status) : code
  }
}

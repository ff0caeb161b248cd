// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc

/// What is said before the program ends, and how it ends.
enum Failure {
  /// Says so on standard error; throw what comes back.
  static func say(_ words: String, _ code: Int32) -> any Error {
    Console.error("meshpost: \(words)")
    return ExitCode(code)
  }

  /// It was said already, by the far end.
  static let saidAlready: any Error = ExitCode(EX_UNAVAILABLE)

  /// The control socket cannot be used: why, and what to do. `nil` when nothing is wrong with the socket itself.
  static func socket(_ location: String) -> (any Error)? {
    if access(location, F_OK) != 0, errno != EACCES {
      return say(
        "there is no control socket at \(location): meshpostd does not run (`systemctl status meshpost`), or has another "
          + "(--socket)", EX_UNAVAILABLE)
    }
    guard access(location, R_OK | W_OK) != 0, errno == EACCES else { return nil }
    return say("permission denied: \(location). \(remedyOfPermission(location))", EX_NOPERM)
  }

  /// Who may use the control socket: the members of its group. A group that gives more than that is advised to nobody.
  static func remedyOfPermission(_ location: String) -> String {
    var file = stat()
    guard stat(location, &file) == 0, file.st_gid != 0, file.st_mode & 0o060 == 0o060,
      let group = getgrgid(file.st_gid).map({ String(cString: $0.pointee.gr_name) })
    else { return "Run it with sudo." }
    let user = getpwuid(getuid()).map { String(cString: $0.pointee.pw_name) } ?? "$USER"
    return "Join its group: `sudo adduser \(user) \(group)`, then log out and in again. Until then: sudo."
  }

  /// A file cannot be written; `errno` says why.
  static func file(_ location: String) -> any Error {
    say("\(location): \(String(cString: strerror(errno)))", EX_IOERR)
  }
}

// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc

/// Error messages with their exit codes.
enum Failure {
  /// Prints the message on standard error. The caller throws the result.
  static func say(_ message: String, _ code: Int32) -> any Error {
    Console.error("meshpost: \(message)")
    return ExitCode(code)
  }

  /// The remote end has printed the error.
  static let saidAlready: any Error = ExitCode(EX_UNAVAILABLE)

  /// The reason why the control socket is not usable, and the remedy; `nil`: the socket itself is fine.
  static func socket(_ location: String) -> (any Error)? {
    if access(location, F_OK) != 0, errno != EACCES {
      return say(
        "no control socket at \(location): meshpostd is not running (`systemctl status meshpost`), or uses another "
          + "socket (--socket)", EX_UNAVAILABLE)
    }
    guard access(location, R_OK | W_OK) != 0, errno == EACCES else { return nil }
    return say("permission denied: \(location). \(remedyOfPermission(location))", EX_NOPERM)
  }

  /// The control socket is for the members of its group. The advice is never to join group root.
  static func remedyOfPermission(_ location: String) -> String {
    var file = stat()
    guard stat(location, &file) == 0, file.st_gid != 0, file.st_mode & 0o060 == 0o060,
      let group = getgrgid(file.st_gid).map({ String(cString: $0.pointee.gr_name) })
    else { return "Use sudo." }
    let user = getpwuid(getuid()).map { String(cString: $0.pointee.pw_name) } ?? "$USER"
    return "Join its group: `sudo adduser \(user) \(group)`, then log out and in again. Until then: sudo."
  }

  /// An error of reading or writing a file, with the reason in `errno`.
  static func file(_ location: String) -> any Error {
    guard !location.isEmpty else { return say("the name of the file is empty", EX_USAGE) }
    return say("\(location): \(String(cString: strerror(errno)))", EX_IOERR)
  }
}

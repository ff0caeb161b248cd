// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import PageServer

/// Compares a password with its hash in a process of its own: that takes 16 MiB and, on a small machine, most of a
/// second, which the daemon's one thread cannot spare.
public enum PasswordCheck {
  /// The daemon's argument for this process.
  public static let argument = "--check-password"
  private static let limit: Duration = .seconds(30)

  static func isRight(
    _ password: String, _ hash: String, on loop: EventLoop
  ) async throws(WebGuard.Refusal) -> Bool {
    let exit: ChildProcess.Exit
    do {
      exit = try await ChildProcess.run(
        ["/proc/self/exe", argument], environment: ["LANG": "C.UTF-8"], input: Array("\(hash)\n\(password)".utf8),
        limit: limit, maxOutput: 0, on: loop)
    } catch {
      throw WebGuard.Refusal(status: 503, message: "the password cannot be checked: \(error)")
    }
    switch exit.code {
    case 0: return true
    case EX_NOPERM: return false
    default:
      let message = exit.tookTooLong ? "it took too long" : "exit code \(exit.code ?? -exit.signal)"
      throw WebGuard.Refusal(status: 503, message: "the password cannot be checked: \(message)")
    }
  }

  /// Runs in that process: reads the hash and the password, a line each, from standard input. Returns the exit code.
  public static func run() -> Int32 {
    var bytes: [UInt8] = []
    while bytes.count < 1 << 16, case .bytes(let more) = Descriptor.read(STDIN_FILENO) { bytes += more }
    guard let end = bytes.firstIndex(of: 10), let hash = String(validating: bytes[..<end], as: UTF8.self) else {
      return EX_DATAERR
    }
    let password = String(decoding: bytes[(end + 1)...], as: UTF8.self)
    return PasswordHash.isRight(password, hash) ? 0 : EX_NOPERM
  }
}

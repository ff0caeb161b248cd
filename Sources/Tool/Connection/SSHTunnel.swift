// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import UntrustedText

/// `ssh://[USER@]HOST[:PORT][/SOCKET]`: the address of a gateway behind the system's own `ssh`.
struct SSHAddress {
  let user: String?
  let host: String
  let port: UInt16?
  /// The remote control socket; `nil`: the default one of that machine.
  let socket: String?

  init?(_ text: String) {
    guard text.hasPrefix("ssh://") else { return nil }
    let rest = text.dropFirst(6)
    let authority = rest.prefix { $0 != "/" }
    let path = rest.dropFirst(authority.count)
    var place = authority[...]
    if let at = place.lastIndex(of: "@") {
      user = String(place[..<at])
      place = place[place.index(after: at)...]
    } else {
      user = nil
    }
    if let colon = place.lastIndex(of: ":"), !place.hasSuffix("]") {
      guard let number = UInt16(place[place.index(after: colon)...]), number > 0 else { return nil }
      port = number
      place = place[..<colon]
    } else {
      port = nil
    }
    host = String(place.hasPrefix("[") && place.hasSuffix("]") ? place.dropFirst().dropLast() : place)
    socket = path.count > 1 ? String(path) : nil
    // Neither `ssh` nor a shell may misread a part as an option or as syntax.
    let signs = Array("._-:%/@+".utf8)
    let harmless = { (text: String) in
      text.utf8.first.map { $0 != UInt8(ascii: "-") } ?? false
        && text.utf8.allSatisfy { $0.isLetterOrDigit || signs.contains($0) }
    }
    guard harmless(host), user.map(harmless) ?? true, socket.map(harmless) ?? true else { return nil }
  }

  /// The command line of `ssh`. $MESHPOST_SSH names another `ssh`, with its options; $MESHPOST_REMOTE the remote program.
  ///
  /// `ssh` shares a connection for a minute, so that the next command connects quickly, and detects a dead link within 45 s.
  var arguments: [String] {
    let ssh = Self.variable("MESHPOST_SSH")?.split(separator: " ").map(String.init) ?? ["ssh"]
    let folder = Self.variable("XDG_RUNTIME_DIR") ?? "~/.ssh"
    var arguments =
      ssh + [
        "-T", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3", "-o", "ControlMaster=auto", "-o",
        "ControlPath=\(folder)/meshpost-%C", "-o", "ControlPersist=60",
      ]
    if let user { arguments += ["-l", user] }
    if let port { arguments += ["-p", "\(port)"] }
    let remote = Self.variable("MESHPOST_REMOTE") ?? "meshpost"
    return arguments + ["--", host, "\(remote) connect\(socket.map { " --socket \($0)" } ?? "")"]
  }

  /// A command with which the user can test `ssh`.
  var plainCommand: String {
    let ssh = Self.variable("MESHPOST_SSH") ?? "ssh"
    return "\(ssh)\(port.map { " -p \($0)" } ?? "") \(user.map { "\($0)@" } ?? "")\(host) true"
  }

  private static func variable(_ name: String) -> String? {
    getenv(name).map { String(cString: $0) }.flatMap { $0.isEmpty ? nil : $0 }
  }
}

/// A running `ssh`, connected with the control socket of another machine. It asks for passwords itself. `RemoteWords` passes on its messages.
final class SSHTunnel {
  let socket: Int32
  private let address: SSHAddress
  private let program: ChildProgram
  private let words: RemoteWords

  init(_ address: SSHAddress) throws {
    self.address = address
    var ends: [Int32] = [-1, -1]
    guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
      throw Failure.say("socketpair: \(String(cString: strerror(errno)))", EX_OSERR)
    }
    defer { close(ends[1]) }
    socket = ends[0]
    let words = try RemoteWords()
    self.words = words
    defer { words.begin() }
    Descriptor.setNonBlocking(socket)
    program = try ChildProgram(
      address.arguments, files: [(0, ends[1]), (1, ends[1]), (2, words.end)],
      remedy: ". Is OpenSSH's client installed?")
  }

  /// Ends `ssh`, without a wait.
  func end() {
    program.send(SIGTERM)
    Self.ended.append(program.process)
    Self.reap()
  }

  /// Ended processes, and processes that end soon. `nonisolated(unsafe)`: the command line has one thread.
  private nonisolated(unsafe) static var ended: [pid_t] = []

  private static func reap() { ended.removeAll { waitpid($0, nil, WNOHANG) != 0 } }

  /// The error of a tunnel that has ended before the answer. `doubt`: what is not known if the request was sent.
  func failure(_ words: String, doubt: String?) -> any Error {
    let code = program.wait()
    self.words.finish()
    let host = address.host
    switch code {
    // `ssh` and the remote program have printed the reason.
    case 255:
      let lost = doubt.map { ", and then \($0)" } ?? ""
      return Failure.say("ssh does not get to \(host), or lost it\(lost). Try: \(address.plainCommand)", EX_NOHOST)
    case 126, 127: return Failure.say("there is no meshpost on \(host), or it is not in the PATH there", EX_UNAVAILABLE)
    case EX_UNAVAILABLE: return Failure.saidAlready
    default:
      let words = doubt.map { "\(words): \($0)" } ?? words
      return Failure.say("the connection to \(host) ended: \(words)", EX_UNAVAILABLE)
    }
  }
}

// SPDX-License-Identifier: MIT

import ArgumentParser
import EventLoop
import Glibc
import HTTP

/// The remote end of `--host ssh://…`: it connects standard input and output with the control socket.
struct ConnectCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "connect", abstract: "Join standard input and output to the control socket.",
    discussion: """
      What `meshpost --host ssh://…` runs on the gateway. A key that may do nothing else: in authorized_keys \
      restrict,command="meshpost connect" ssh-ed25519 …
      """)
  @OptionGroup var connection: Connection

  func run() throws {
    let socket = try Self.open(connection.socket)
    defer { close(socket) }
    // Otherwise `ssh` would report the end by a signal as its own failure.
    signal(SIGPIPE, SIG_IGN)
    var polled = [
      pollfd(fd: 0, events: Int16(POLLIN), revents: 0), pollfd(fd: socket, events: Int16(POLLIN), revents: 0),
    ]
    while true {
      guard poll(&polled, 2, -1) >= 0 else {
        // Nothing is known of the descriptors then: a read could wait for ever.
        if errno == EINTR { continue }
        throw Failure.file("poll")
      }
      if polled[0].revents != 0, !Self.pass(from: 0, to: socket) {
        shutdown(socket, Int32(SHUT_WR))
        polled[0].fd = -1
      }
      if polled[1].revents != 0, !Self.pass(from: socket, to: 1) { return }
    }
  }

  private static func open(_ location: String) throws -> Int32 {
    var pauses = Int(UnixSocket.patience / UnixSocket.pause)
    while true {
      do throws(SystemError) {
        let socket = try UnixSocket.connect(location)
        // Reads and writes wait.
        _ = fcntl(socket, F_SETFL, 0)
        return socket
      } catch {
        guard error.code == EAGAIN, pauses > 0 else {
          let words = error.code == EAGAIN ? "meshpostd does not take connections" : "meshpostd is not running"
          throw Failure.socket(location) ?? Failure.say("\(location): \(error.message): \(words)", EX_UNAVAILABLE)
        }
      }
      pauses -= 1
      usleep(50_000)
    }
  }

  /// False: the end of the data.
  private static func pass(from source: Int32, to target: Int32) -> Bool {
    var buffer = [UInt8](repeating: 0, count: 16384)
    let count = read(source, &buffer, buffer.count)
    guard count > 0 else { return count < 0 && errno == EINTR }
    var rest = buffer[..<count]
    while !rest.isEmpty {
      let written = rest.withUnsafeBytes { write(target, $0.baseAddress, $0.count) }
      if written < 0, errno == EINTR { continue }
      guard written > 0 else { return false }
      rest = rest.dropFirst(written)
    }
    return true
  }
}

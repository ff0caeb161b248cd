// SPDX-License-Identifier: MIT

import Glibc
import TestSupport

/// A real broker as a program. It keeps its port and its files across restarts.
final class TestBroker {
  static let anonymous = "allow_anonymous true"

  let port: Int
  private let rig: Rig
  private let command: [String]
  /// The line that shows that it is ready.
  private let isReady: String
  private(set) var program: Program?

  /// mosquitto, which keeps sessions on its disk and logs everything, behind the rig's line if there is one. `extra`: lines of its configuration; a
  /// listener in them is an additional one.
  convenience init(_ rig: Rig, extra: String = anonymous) throws {
    let host = rig.line == nil ? "127.0.0.1" : "0.0.0.0"
    try self.init("/usr/sbin/mosquitto", ["-v"], isReady: " running", in: rig) { port, folder in
      """
      listener \(port) \(host)
      persistence true
      persistence_location \(folder)/
      max_queued_messages 0
      user root
      \(extra)

      """
    }
  }

  /// Any broker that gets its configuration file by `-c`.
  init(
    _ executable: String, _ arguments: [String] = [], isReady: String, in rig: Rig,
    configuration: (_ port: Int, _ folder: String) -> String
  ) throws {
    let (descriptor, port) = try LoopbackPort.take()
    close(descriptor)
    (self.port, self.rig, self.isReady) = (Int(port), rig, isReady)
    let file = rig.scratch.write("broker-\(port).conf", configuration(Int(port), rig.scratch.folder.path()))
    command = [executable] + arguments + ["-c", file]
    try start()
  }

  func start() throws {
    program = try Program.start(command[0], Array(command.dropFirst()), in: rig.line?.far)
    try program?.line(with: isReady)
  }

  /// Ends it regularly: acknowledged publications are on its disk.
  func stop() throws {
    program?.send(SIGTERM)
    _ = try program?.ended()
  }

  func kill() { program?.kill9() }

  /// A subscriber whose session mosquitto keeps under `client`; returns after its subscription.
  func subscriber(_ client: String, _ arguments: [String]) throws -> Program {
    let words = ["-h", "127.0.0.1", "-p", "\(port)", "-i", client, "-c", "-q", "1"]
    let subscriber = try Program.start("/usr/bin/mosquitto_sub", words + arguments, in: rig.line?.far)
    try program?.line(with: "Sending SUBACK to \(client)")
    return subscriber
  }
}

/// Certificates of the test's own authority (openssl), in a rig's folder: `ca.pem`, and `NAME.pem` with `NAME.key` for each name.
struct TestAuthority {
  let folder: String

  init(_ rig: Rig, names: [String]) throws {
    folder = rig.scratch.folder.path()
    let script = """
      set -e
      openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=test-authority 2>/dev/null
      for name in \(names.joined(separator: " ")); do
        openssl req -newkey rsa:2048 -nodes -keyout $name.key -out $name.csr -subj /CN=$name 2>/dev/null
        echo "subjectAltName=DNS:$name" > ext
        openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out $name.pem -days 2 -extfile ext 2>/dev/null
      done
      """
    let made = try Program("/bin/bash", ["-c", script], folder: rig.scratch.folder)
    guard try made.ended() == 0 else { throw Program.Waited(description: "openssl: \(made.lines)") }
  }

  /// mosquitto's configuration lines for the certificate of `name`.
  func broker(_ name: String) -> String {
    "cafile \(folder)/ca.pem\ncertfile \(folder)/\(name).pem\nkeyfile \(folder)/\(name).key"
  }
}

// SPDX-License-Identifier: MIT

import Foundation
import Glibc

/// Our own bus: Debian's dbus-daemon, in a scratch folder.
public final class MessageBus {
  private let scratch = Scratch()
  private let location: String
  private var process: Process?

  public init() throws {
    location = scratch.location("bus")
    try start()
  }

  deinit { stop() }

  public var address: String { "unix:path=\(location)" }

  public func start() throws {
    let configuration = scratch.write(
      "bus.conf",
      """
      <busconfig><type>session</type><listen>unix:path=\(location)</listen><limit name="max_replies_per_connection">50000</limit><auth>EXTERNAL</auth>
      <policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
      </policy></busconfig>
      """)
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/dbus-daemon")
    process.arguments = ["--config-file=\(configuration)", "--nofork", "--nopidfile"]
    process.standardError = FileHandle.nullDevice
    try process.run()
    self.process = process
    var patience = Patience()
    // The socket's file exists before the daemon listens.
    while !isListening, !patience.isOver() { usleep(10_000) }
  }

  private var isListening: Bool {
    let socket = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(socket) }
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: location.utf8.prefix($0.count - 1)) }
    return withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(socket, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0
      }
    }
  }

  public func stop() {
    guard let process else { return }
    kill(process.processIdentifier, SIGKILL)  // SIGTERM is blocked in children of test threads
    process.waitUntilExit()
    self.process = nil
    unlink(location)
  }
}

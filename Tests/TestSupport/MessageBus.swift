// SPDX-License-Identifier: MIT

import Foundation

/// A bus of our own: Debian's dbus-daemon, in a scratch folder.
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
    while !FileManager.default.fileExists(atPath: location), !patience.isOver() { usleep(10_000) }
  }

  public func stop() {
    guard let process else { return }
    kill(process.processIdentifier, SIGKILL)  // SIGTERM is blocked in children of test threads
    process.waitUntilExit()
    self.process = nil
    unlink(location)
  }
}

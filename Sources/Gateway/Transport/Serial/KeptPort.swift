// SPDX-License-Identifier: MIT

import EventLoop
import ServiceManager

/// A serial port that outlives this process: a service manager keeps it open, together with data that the radio sent
/// meanwhile and data that was read but not stored.
final class KeptPort {
  private enum Name {
    static let port = "radio"
    static let spool = "radio-spool"
  }

  private let manager: ServiceManager
  private var inherited: Int32?
  /// `nil`: unavailable; bytes are read directly from the port.
  private(set) var spool: ReceiveSpool?
  private var hasLeftOvers: Bool
  private let log: Log
  private var hasSaidFull = false

  init(_ manager: ServiceManager, log: Log) {
    self.manager = manager
    self.log = log
    let ports = manager.take(Name.port)
    inherited = ports.last
    for extra in ports.dropLast() { Descriptor.close(extra) }
    spool = ReceiveSpool(inherited: manager.take(Name.spool))
    hasLeftOvers = spool?.isInherited == true
    if !hasLeftOvers, let spool {
      manager.forget(Name.spool)
      manager.keep(spool.ends, as: Name.spool)
    }
  }

  /// The location of the inherited port.
  var inheritedDevice: String? {
    guard let inherited else { return nil }
    let target = PortHolder.target("/proc/self/fd/\(inherited)")
    return target.hasPrefix("/dev/") ? target : nil
  }

  /// The port that the previous process had open; returned once.
  func takeInherited() -> Int32? {
    defer { inherited = nil }
    return inherited
  }

  func opened(_ port: SerialPort) {
    guard !port.isInherited else { return }
    manager.forget(Name.port)
    manager.keep([port.descriptor], as: Name.port)
  }

  /// The device is gone, or not a radio: nothing is worth keeping.
  func closed() { manager.forget(Name.port) }

  /// Bytes that the previous process had read but not stored; returned once.
  func takeLeftOvers() -> [UInt8] {
    defer { hasLeftOvers = false }
    return hasLeftOvers ? spool?.leftOver() ?? [] : []
  }

  private func giveSpoolUp() { spool = nil }

  /// Reads from the port, through the spool where possible.
  func read(from port: Int32) -> ReadResult {
    guard let spool else { return Descriptor.read(port) }
    guard let result = spool.read(from: port) else {
      giveSpoolUp()
      return Descriptor.read(port)
    }
    if spool.wasEmptied != hasSaidFull {
      hasSaidFull = spool.wasEmptied
      if hasSaidFull {
        log.warning(
          "more data waits for the disk than systemd keeps for the gateway: until it is written, a crash could lose some of it"
        )
      }
    }
    return result
  }
}

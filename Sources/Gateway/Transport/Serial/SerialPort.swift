// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc

/// Properties of a board, by the kind of its device.
///
/// Boards with native USB (`ttyACM*`) send nothing while DTR is low; boards behind a UART bridge (`ttyUSB*`) may be reset
/// by it. No setting suits all (docs/protocol/companion.md § 1.1).
enum BoardKind: Equatable {
  case nativeUSB
  case bridge
  /// A pseudo-terminal, an on-board UART.
  case unknown

  init(device: String) {
    let name = device.split(separator: "/").last ?? ""
    self = name.hasPrefix("ttyACM") ? .nativeUSB : name.hasPrefix("ttyUSB") ? .bridge : .unknown
  }

  var raisesDTR: Bool { self != .bridge }
}

/// An open serial device: raw, exclusive, closed with the object.
final class SerialPort {
  let descriptor: Int32
  /// The resolved location.
  let device: String
  private(set) var isDTRHigh: Bool
  /// Inherited from the previous process.
  let isInherited: Bool
  private let before: termios

  /// `dtr`: `nil` for the board's usual setting. `inherited`: the previous process's descriptor; used if it is this device and
  /// still connected, otherwise closed.
  init(location: String, baud: UInt32, dtr: Bool?, inherited: Int32? = nil) throws(LinkError) {
    let device = Self.resolve(location)
    self.device = device
    isDTRHigh = dtr ?? BoardKind(device: device).raisesDTR
    let kept = inherited.flatMap { Self.isAlive($0, device: device) ? $0 : nil }
    if kept == nil, let inherited { Glibc.close(inherited) }
    isInherited = kept != nil
    let opened = kept ?? open(device, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
    guard opened >= 0 else { throw Self.failure(location, device: device, errno) }
    guard flock(opened, LOCK_EX | LOCK_NB) == 0, meshpost_tty_exclusive(opened) == 0 || errno == ENOTTY else {
      Glibc.close(opened)
      throw .inUse(location, by: PortHolder.name(of: device) ?? "another program")
    }
    var line = termios()
    guard tcgetattr(opened, &line) == 0 else {
      Glibc.close(opened)
      throw .system("\(location) is not a serial device")
    }
    descriptor = opened
    before = line
    cfmakeraw(&line)
    line.c_cflag |= tcflag_t(CLOCAL | CREAD)
    line.c_cflag &= ~tcflag_t(CSTOPB | PARENB)
    line.c_cflag &= ~tcflag_t(HUPCL)  // closing must not reset the board
    let speed = SerialRate.speed(baud)
    cfsetispeed(&line, speed)
    cfsetospeed(&line, speed)
    guard tcsetattr(descriptor, TCSANOW, &line) == 0 else {
      throw .system("\(location): \(SystemError("tcsetattr"))")
    }
    applyLines()
    // Data that arrived earlier is kept: it may be a message that a killed process had requested.
    tcflush(descriptor, TCOFLUSH)
  }

  deinit {
    _ = meshpost_tty_shared(descriptor)
    // A child that has not reached exec still holds the descriptor, and with it the lock.
    flock(descriptor, LOCK_UN)
    Glibc.close(descriptor)
  }

  /// Restores the settings that the line had before.
  func restore() {
    var line = before
    line.c_cflag &= ~tcflag_t(HUPCL)  // closing must not reset the device
    tcsetattr(descriptor, TCSANOW, &line)
  }

  func invertDTR() -> Bool {
    isDTRHigh.toggle()
    return applyLines()
  }

  /// False if the device has no modem lines: pseudo-terminals answer ENOTTY or EINVAL.
  @discardableResult
  private func applyLines() -> Bool {
    // Both together: RTS alone resets boards with the usual two-transistor circuit.
    if !isDTRHigh { return meshpost_tty_line(descriptor, meshpost_tty_dtr() | meshpost_tty_rts(), 0) == 0 }
    let dtr = meshpost_tty_line(descriptor, meshpost_tty_dtr(), isDTRHigh ? 1 : 0)
    let rts = meshpost_tty_line(descriptor, meshpost_tty_rts(), 0)
    return dtr == 0 && rts == 0
  }

  /// The descriptor is still this device, and connected: another device may have got the name.
  private static func isAlive(_ descriptor: Int32, device: String) -> Bool {
    var (ours, named) = (stat(), stat())
    guard fstat(descriptor, &ours) == 0, stat(device, &named) == 0 else { return false }
    guard ours.st_rdev == named.st_rdev, ours.st_ino == named.st_ino, ours.st_dev == named.st_dev else { return false }
    var look = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    return poll(&look, 1, 0) >= 0 && look.revents & Int16(POLLHUP | POLLERR | POLLNVAL) == 0
  }

  private static func resolve(_ location: String) -> String {
    guard let real = realpath(location, nil) else { return location }
    defer { free(real) }
    return String(cString: real)
  }

  private static func failure(_ location: String, device: String, _ code: Int32) -> LinkError {
    switch code {
    case ENOENT, ENXIO, ENODEV: return .noSuchDevice(location)
    case EPERM: return .kindNotAllowed(location)
    case EACCES:
      var status = stat()
      let group = stat(device, &status) == 0 ? getgrgid(status.st_gid).map { String(cString: $0.pointee.gr_name) } : nil
      return .notPermitted(location, group: group)
    case EBUSY: return .inUse(location, by: PortHolder.name(of: device) ?? "another program")
    default: return .system("\(location): \(SystemError("open", code: code).message)")
    }
  }
}

/// Processes that have a device open, as far as this user can see.
enum PortHolder {
  static func name(of device: String) -> String? {
    for process in Files.names(in: "/proc") where process.allSatisfy(\.isNumber) && Int32(process) != getpid() {
      for descriptor in Files.names(in: "/proc/\(process)/fd") {
        let link = "/proc/\(process)/fd/\(descriptor)"
        guard target(link) == device, isSame(link, device) else { continue }
        return "\(command(process)) (process \(process))"
      }
    }
    return nil
  }

  /// In another mount namespace, another terminal can have this name. If that is unknown, they count as the same.
  private static func isSame(_ link: String, _ device: String) -> Bool {
    var (theirs, ours) = (stat(), stat())
    guard stat(link, &theirs) == 0, stat(device, &ours) == 0 else { return true }
    return theirs.st_rdev == ours.st_rdev && (theirs.st_dev == ours.st_dev || !device.hasPrefix("/dev/pts/"))
  }

  static func target(_ link: String) -> String {
    var buffer = [CChar](repeating: 0, count: 4096)
    let count = readlink(link, &buffer, buffer.count)
    return String(decoding: buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  private static func command(_ process: String) -> String {
    guard let bytes = Files.read("/proc/\(process)/comm") else { return "a program" }
    return String(decoding: bytes.filter { $0 > 0x20 }, as: UTF8.self)
  }
}

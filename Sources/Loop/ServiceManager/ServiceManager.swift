// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Timing
import UntrustedText

/// The service's interface to systemd: readiness, watchdog, and stored descriptors.
///
/// Source: sd_notify(3), sd_listen_fds(3), file-descriptor store (systemd's FILE_DESCRIPTOR_STORE). Datagrams of lines
/// `NAME=VALUE` to the socket in `NOTIFY_SOCKET`. Sending never blocks: a manager that does not read must not delay
/// the service.
public final class ServiceManager {
  /// Descriptors received from the store, by name. Owned by this process.
  public private(set) var inherited: [String: [Int32]]
  /// The watchdog's timeout; `nil` without a watchdog.
  public let watchdog: Duration?

  private let socket: Int32
  private var address = sockaddr_un()
  private var addressLength: socklen_t = 0

  /// The service manager that started this process; `nil` if none. Removes its variables from the environment, so that
  /// child processes do not inherit them.
  public static func ofThisProcess() -> ServiceManager? {
    defer {
      for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
        unsetenv(name)
      }
    }
    guard let location = variable("NOTIFY_SOCKET") else { return nil }
    return ServiceManager(
      location: location, watchdog: Environment.watchdog(variable("WATCHDOG_USEC"), process: variable("WATCHDOG_PID")),
      inherited: Environment.inherited(
        count: variable("LISTEN_FDS"), names: variable("LISTEN_FDNAMES"), process: variable("LISTEN_PID")))
  }

  private static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }

  /// `location`: a path, or `@` and an abstract name.
  init?(location: String, watchdog: Duration?, inherited: [String: [Int32]]) {
    self.watchdog = watchdog
    self.inherited = inherited
    let bytes = Array(location.utf8)
    guard bytes.count > 1, bytes.count < MemoryLayout.size(ofValue: address.sun_path),
      bytes[0] == UInt8(ascii: "/") || bytes[0] == UInt8(ascii: "@")
    else { return nil }
    socket = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard socket >= 0 else { return nil }
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { path in
      path.copyBytes(from: bytes)
      if bytes[0] == UInt8(ascii: "@") { path[0] = 0 }
    }
    let before = MemoryLayout.offset(of: \sockaddr_un.sun_path) ?? 2
    addressLength = socklen_t(before + bytes.count)
    for descriptor in inherited.values.joined() { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
  }

  deinit { close(socket) }

  /// Hands the descriptors of a name to the caller, who owns them then.
  public func take(_ name: String) -> [Int32] { inherited.removeValue(forKey: name) ?? [] }

  /// Closes descriptors that were not used, and removes them from the store.
  public func dropInherited() {
    for (name, descriptors) in inherited {
      for descriptor in descriptors { close(descriptor) }
      forget(name)
    }
    inherited = [:]
  }

  // MARK: Notifications

  public func ready(_ status: String) { tell("READY=1\nSTATUS=\(Visible.line(status))") }
  public func status(_ status: String) { tell("STATUS=\(Visible.line(status))") }
  public func stopping() { tell("STOPPING=1") }
  public func lives() { tell("WATCHDOG=1") }
  /// From now on the watchdog waits so long for a sign of life.
  public func setWatchdog(_ timeout: Duration) { tell("WATCHDOG_USEC=\(timeout.wholeNanoseconds / 1000)") }

  /// A reload is in progress; `ready` ends it.
  public func reloading(now: MonotonicTime) {
    tell("RELOADING=1\nMONOTONIC_USEC=\(now.nanoseconds / 1000)")
  }

  /// Stores a copy of descriptors with systemd for the next process. False: systemd does not store it.
  @discardableResult
  public func keep(_ descriptors: [Int32], as name: String) -> Bool {
    tell("FDSTORE=1\nFDNAME=\(name)", descriptors)
  }

  /// Removes the descriptor stored under a name.
  public func forget(_ name: String) { tell("FDSTOREREMOVE=1\nFDNAME=\(name)") }

  @discardableResult
  private func tell(_ text: String, _ descriptors: [Int32] = []) -> Bool {
    let bytes = Array(text.utf8)
    return withUnsafePointer(to: address) {
      meshpost_send_descriptors(socket, $0, addressLength, bytes, bytes.count, descriptors, Int32(descriptors.count))
    } == 0
  }
}

/// The service manager's environment variables. Total: invalid values are ignored.
enum Environment {
  /// Descriptors begin here (sd_listen_fds(3)).
  static let first: Int32 = 3
  static let most: Int32 = 64

  static func watchdog(_ microseconds: String?, process: String?) -> Duration? {
    guard isMeant(process), let value = microseconds.flatMap({ Int64($0) }), value > 0 else { return nil }
    return .microseconds(value)
  }

  /// By name; without names, under `unknown`, as in sd_listen_fds(3).
  static func inherited(count: String?, names: String?, process: String?) -> [String: [Int32]] {
    guard process != nil, isMeant(process), let count = count.flatMap({ Int32($0) }), (1...most).contains(count) else {
      return [:]
    }
    let names = names.map { $0.split(separator: ":", omittingEmptySubsequences: false).map(String.init) } ?? []
    var found: [String: [Int32]] = [:]
    for place in 0..<count {
      let name = Int(place) < names.count ? names[Int(place)] : "unknown"
      found[name, default: []].append(first + place)
    }
    return found
  }

  private static func isMeant(_ process: String?) -> Bool {
    process == nil || process.flatMap { Int32($0) } == getpid()
  }
}

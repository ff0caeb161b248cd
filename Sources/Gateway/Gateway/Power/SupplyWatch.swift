// SPDX-License-Identifier: MIT

import EventLoop
import Glibc

/// Whether this machine's supply holds its voltage, where the machine can tell: a Raspberry Pi (`rpi_volt`, kernel 4.20 and later).
///
/// The kernel wakes us when it changes (sysfs_notify): nothing is polled.
final class SupplyWatch {
  private let loop: EventLoop
  private var file: Int32 = -1
  private(set) var isLow: Bool?
  private let changed = Waiter()

  /// `root`: in front of the kernel's locations; empty but in tests.
  init(on loop: EventLoop, root: String = "") {
    self.loop = loop
    guard let location = Self.alarm(root) else { return }
    file = open(location, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return }
    isLow = read()
    // A file of a test cannot be watched; `look` serves it.
    loop.watch(file, for: .urgent) { [weak self] _ in self?.look() }
  }

  deinit {
    guard file >= 0 else { return }
    loop.unwatch(file)
    close(file)
  }

  /// Looks now.
  func look() {
    guard let now = read(), now != isLow else { return }
    isLow = now
    changed.resume()
  }

  /// Returns when it is something else than it was, and what; `nil`: this machine cannot tell.
  func change(from wasLow: Bool) async throws(CancellationError) -> Bool? {
    guard file >= 0 else { return nil }
    while true {
      if let isLow, isLow != wasLow { return isLow }
      try await changed.wait()
    }
  }

  private func read() -> Bool? {
    guard file >= 0 else { return nil }
    lseek(file, 0, SEEK_SET)
    guard case .bytes(let bytes) = Descriptor.read(file, most: 16), let first = bytes.first else { return nil }
    return first == UInt8(ascii: "1")
  }

  private static func alarm(_ root: String) -> String? {
    for number in 0..<32 {
      let device = "\(root)/sys/class/hwmon/hwmon\(number)"
      if Files.read("\(device)/name")?.starts(with: "rpi_volt".utf8) == true { return "\(device)/in0_lcrit_alarm" }
    }
    return nil
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import Glibc

/// Watches the supply's voltage, if the machine has a sensor: a Raspberry Pi (`rpi_volt`, kernel 4.20 and later).
///
/// The kernel reports changes (sysfs_notify): nothing is polled.
final class SupplyWatch {
  private let loop: EventLoop
  private var file: Int32 = -1
  private(set) var isLow: Bool?
  private let changed = Waiter()

  /// `root`: precedes the kernel's paths; empty except in tests.
  init(on loop: EventLoop, root: String = "") {
    self.loop = loop
    guard let location = Self.alarm(root) else { return }
    file = open(location, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return }
    isLow = read()
    // A test's file cannot be watched; tests call `look`.
    loop.watch(file, for: .urgent) { [weak self] _ in self?.look() }
  }

  deinit {
    guard file >= 0 else { return }
    loop.unwatch(file)
    close(file)
  }

  /// Reads the sensor now.
  func look() {
    guard let now = read(), now != isLow else { return }
    isLow = now
    changed.resume()
  }

  /// Returns the new value when it changes; `nil`: this machine has no sensor.
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

// SPDX-License-Identifier: MIT

import EventLoop
import Glibc

/// The kernel's radio switches. Source: Linux, `include/uapi/linux/rfkill.h`, `Documentation/ABI/stable/sysfs-class-rfkill`.
public enum Rfkill {
  public struct Block: Equatable, Sendable {
    public let name: String
    /// Blocked by software: `rfkill unblock bluetooth` unblocks it.
    public let isSoft: Bool
    /// Blocked by a hardware switch.
    public let isHard: Bool
  }

  /// The Bluetooth switches of this machine.
  public static func bluetooth(root: String = "/sys/class/rfkill") -> [Block] {
    var found: [Block] = []
    for name in Files.names(in: root) {
      let place = "\(root)/\(name)"
      guard name.hasPrefix("rfkill"), SmallFile.read("\(place)/type") == "bluetooth" else { continue }
      found.append(
        Block(
          name: SmallFile.read("\(place)/name") ?? name, isSoft: SmallFile.read("\(place)/soft") == "1",
          isHard: SmallFile.read("\(place)/hard") == "1"))
    }
    return found
  }

  /// Removes the software block of all Bluetooth adapters; false if the kernel refuses (no access to /dev/rfkill).
  public static func unblockBluetooth(device: String = "/dev/rfkill") -> Bool {
    let descriptor = open(device, O_WRONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return false }
    defer { close(descriptor) }
    // struct rfkill_event: idx u32, type u8 (2: Bluetooth), op u8 (3: change all), soft u8, hard u8.
    let event: [UInt8] = [0, 0, 0, 0, 2, 3, 0, 0]
    return write(descriptor, event, event.count) == event.count
  }
}

/// One-line files, as sysfs has them.
enum SmallFile {
  static func read(_ location: String) -> String? {
    Files.read(location).map { String(decoding: $0.prefix { $0 != 10 }, as: UTF8.self) }
  }
}

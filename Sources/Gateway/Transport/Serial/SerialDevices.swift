// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import UntrustedText

/// Serial devices that may be radios.
public enum SerialDevices {
  /// Native USB with a vendor id that MeshCore boards use.
  static func isKnownBoard(_ device: String) -> Bool {
    guard device.mentions("/dev/meshpost/"), let real = realpath(device, nil) else { return false }
    defer { free(real) }
    return BoardKind(device: String(cString: real)) == .nativeUSB
  }

  /// The first group that is not empty: names of known MeshCore boards (udev/70-meshpost.rules), udev's other stable
  /// names, the kernel's names. `root` precedes each path; empty except in tests.
  public static func all(root: String = "") -> [String] {
    for folder in ["/dev/meshpost", "/dev/serial/by-id"] {
      let names = Files.names(in: root + folder)
      if !names.isEmpty { return names.map { "\(root)\(folder)/\($0)" } }
    }
    let names = Files.names(in: root + "/dev").filter { $0.hasPrefix("ttyACM") || $0.hasPrefix("ttyUSB") }
    return names.map { "\(root)/dev/\($0)" }
  }
}

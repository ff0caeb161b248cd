// SPDX-License-Identifier: MIT

/// Serial devices that could be radios.
public enum SerialDevices {
  static func isKnownBoard(_ device: String) -> Bool { device.contains("/dev/meshpost/") }

  /// The first of these that has any: names of boards that are known to run MeshCore (udev/70-meshpost.rules), udev's other stable
  /// names, the kernel's. `root` is in front of all of them; empty but in tests.
  public static func all(root: String = "") -> [String] {
    for folder in ["/dev/meshpost", "/dev/serial/by-id"] {
      let names = PortHolder.entries(root + folder).filter { !$0.hasPrefix(".") }
      if !names.isEmpty { return names.map { "\(root)\(folder)/\($0)" } }
    }
    let names = PortHolder.entries(root + "/dev").filter { $0.hasPrefix("ttyACM") || $0.hasPrefix("ttyUSB") }
    return names.map { "\(root)/dev/\($0)" }
  }
}

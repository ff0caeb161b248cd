// SPDX-License-Identifier: MIT

/// Serial devices that could be radios.
public enum SerialDevices {
  /// udev's stable names where there are any, else the kernel's.
  public static func all() -> [String] {
    let byID = PortHolder.entries("/dev/serial/by-id").map { "/dev/serial/by-id/\($0)" }
    if !byID.isEmpty { return byID }
    return PortHolder.entries("/dev").filter { $0.hasPrefix("ttyACM") || $0.hasPrefix("ttyUSB") }.map { "/dev/\($0)" }
  }

  /// The only one.
  static func only() throws(LinkError) -> String {
    let devices = all()
    guard let first = devices.first else { throw .noDeviceFound }
    guard devices.count == 1 else { throw .severalDevices(devices) }
    return first
  }
}

// SPDX-License-Identifier: MIT

import Glibc

/// Baud rates that termios supports.
enum SerialRate {
  private static let speeds: [(rate: UInt32, speed: Int32)] = [
    (9_600, B9600), (19_200, B19200), (38_400, B38400), (57_600, B57600), (115_200, B115200), (230_400, B230400),
    (460_800, B460800), (921_600, B921600),
  ]

  static var allowed: String { speeds.map { String($0.rate) }.joined(separator: ", ") }
  static func isKnown(_ rate: UInt32) -> Bool { speeds.contains { $0.rate == rate } }
  static func speed(_ rate: UInt32) -> speed_t {
    speed_t(truncatingIfNeeded: speeds.first { $0.rate == rate }?.speed ?? B115200)
  }
}

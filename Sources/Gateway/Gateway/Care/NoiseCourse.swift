// SPDX-License-Identifier: MIT

import Alerts

/// A node's noise floor. Pure.
struct NoiseCourse: Equatable {
  /// Below the limit by so many dB, the noise is over.
  static let recovery: Int16 = 4
  /// A single report may fall into a transmission of others.
  private static let enough = 3

  var loudReports = 0

  /// `dbm` 0: not measured yet.
  mutating func took(_ dbm: Int16, _ settings: CareSettings) -> AlertReading {
    guard dbm != 0 else { return .between }
    guard dbm > settings.noise else {
      loudReports = 0
      return Int(dbm) <= Int(settings.noise) - Int(Self.recovery) ? .well : .between
    }
    loudReports = min(loudReports + 1, Self.enough)
    guard loudReports == Self.enough else { return .between }
    return .bad(text: "it hears much noise: \(dbm) dBm", value: Double(dbm))
  }
}

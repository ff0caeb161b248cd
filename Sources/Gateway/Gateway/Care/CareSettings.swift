// SPDX-License-Identifier: MIT

/// Whose reports are judged, and by which limits. `[alerts]`; see docs/alerts.md.
public struct CareSettings: Equatable, Sendable {
  /// `own`: nodes that are polled, watched or favourites, or whose password is stored. `all`: every repeater, room and sensor that is heard.
  public enum Scope: String, Sendable, CaseIterable { case own, all }

  public var scope = Scope.own
  /// Millivolts below which a battery is low.
  public var batteryLow: UInt16 = 3400
  /// The days in a row on which a battery's highest voltage falls, and the millivolts by which it falls on them together.
  public var fallDays = 4
  public var fall: UInt16 = 100
  /// dBm above which the noise is too loud.
  public var noise: Int16 = -90
  /// Seconds by which a clock is wrong.
  public var clock: Int64 = 600
  /// Polls in a row without an answer.
  public var unanswered = 3

  public init() {}
}

// SPDX-License-Identifier: MIT

/// What a machine knows of time. Pure code takes what clocks show as arguments; whoever reads clocks is given these, so that a test can put
/// invented ones in their place.
public protocol Clocks: AnyObject {
  /// Runs on, whatever becomes of the clock.
  var now: MonotonicTime { get }
  /// Milliseconds since the machine's boot, sleep included.
  var sinceBoot: Int64 { get }
  /// Which boot that is: another text for each. Empty: nobody can tell.
  var boot: String { get }
  /// The clock: milliseconds since 1970 UTC.
  var wallMilliseconds: Int64 { get }
  /// Whether the clock is known to be right.
  var isWallSynchronised: Bool { get }
}

/// The wall clock among a machine's clocks.
public struct WallClock {
  private let clocks: any Clocks

  public init(_ clocks: any Clocks) { self.clocks = clocks }

  /// Milliseconds since 1970 UTC.
  public var milliseconds: Int64 { clocks.wallMilliseconds }
  public var seconds: Int64 { milliseconds / 1000 }
  /// Whether the machine counts the clock as synchronised.
  public var isSynchronised: Bool { clocks.isWallSynchronised }
}

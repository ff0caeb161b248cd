// SPDX-License-Identifier: MIT

/// The clocks of a machine. Pure code takes times as arguments; other code gets these clocks, so that a test can invent
/// them.
public protocol Clocks: AnyObject {
  /// Never jumps, even if the wall clock is set.
  var now: MonotonicTime { get }
  /// Milliseconds since the machine's boot, sleep included.
  var sinceBoot: Int64 { get }
  /// An identifier of this boot, different for each boot. Empty: unknown.
  var boot: String { get }
  /// The wall clock: milliseconds since 1970 UTC.
  var wallMilliseconds: Int64 { get }
  /// Whether the wall clock is known to be right.
  var isWallSynchronised: Bool { get }
}

/// The wall clock among a machine's clocks.
public struct WallClock {
  private let clocks: any Clocks

  public init(_ clocks: any Clocks) { self.clocks = clocks }

  /// Milliseconds since 1970 UTC.
  public var milliseconds: Int64 { clocks.wallMilliseconds }
  public var seconds: Int64 { milliseconds / 1000 }
  /// Whether the kernel considers the clock synchronised.
  public var isSynchronised: Bool { clocks.isWallSynchronised }
}

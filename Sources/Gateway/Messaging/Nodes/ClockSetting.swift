// SPDX-License-Identifier: MIT

/// A node's clock, compared with this machine's: seconds that it is ahead, at least and at most. The answer takes a while, and the node reads its
/// clock at an unknown moment of it.
public struct ClockDifference: Equatable, Sendable {
  public let least: Int64
  public let most: Int64

  /// `asked`, `answered`: milliseconds since 1970, by this machine's synchronised clock. `time`: the node's, in whole seconds.
  public init(time: UInt32, asked: Int64, answered: Int64) {
    least = Int64(time) - answered / 1000 - 1
    most = Int64(time) + 1 - asked / 1000
  }

  /// The middle.
  public var seconds: Int64 { least + (most - least) / 2 }
  public var within: Int64 { (most - least + 1) / 2 }
  /// A clock that was just set is behind by the way of the command; MeshCore needs no better one.
  public var mayBeRight: Bool { least <= 5 && most >= -15 }
}

/// Sets the clock of a node by `time EPOCH`, never ahead of true time. Pure.
///
/// The seconds of the command are those of a second before it is written, rounded down: whenever the node carries it out, even late or twice, they are
/// past, and this machine's clock may be a second ahead. Firmware sets its clock forwards only. `clkreboot` begins it anew in May 2024, and is only used if it was asked for.
///
///     begin ─▶ read ─▶ right: done
///                ├──▶ behind: set ─▶ read … (three times at most)
///                └──▶ ahead:  refused, or reboot ─▶ wait ─▶ read
///
/// `clock sync` is never used: it passes the companion's clock on, which may lie.
public struct ClockSetting: Sendable {
  /// What follows from the clock that was read. After `set` and `reboot` it is read again: replies get lost, and only the clock says what was done.
  public enum Action: Equatable, Sendable {
    /// `time EPOCH`, by `command` at the moment of sending.
    case set
    /// `clkreboot`; read again after `ClockSetting.start`.
    case reboot
    case done(ClockDifference)
    /// Nothing was changed: it is ahead, and nobody allowed it to be started anew.
    case ahead(ClockDifference)
    /// The clock is still wrong.
    case failed(ClockDifference)
  }

  /// A node starts within seconds; one on a slow card takes longer.
  public static let start: Duration = .seconds(30)
  private static let mostSets = 3
  /// 15 May 2024, the time with which `clkreboot` begins; an earlier one is no time.
  private static let earliest: Int64 = 1_715_770_351

  private let mayReboot: Bool
  private var sets = 0
  private var wasRebooted = false

  public init(mayReboot: Bool) { self.mayReboot = mayReboot }

  /// The command that sets the clock; `nil`: this machine does not know the time. `milliseconds`: since 1970.
  public static func command(at milliseconds: Int64, isSynchronised: Bool) -> String? {
    let seconds = milliseconds / 1000
    guard isSynchronised, seconds - 1 > earliest, seconds <= Int64(UInt32.max) else { return nil }
    return "time \(seconds - 1)"
  }

  public mutating func read(_ found: ClockDifference) -> Action {
    if found.mayBeRight { return .done(found) }
    if found.most < -15 {
      guard sets < Self.mostSets else { return .failed(found) }
      sets += 1
      return .set
    }
    guard mayReboot else { return .ahead(found) }
    guard !wasRebooted else { return .failed(found) }
    wasRebooted = true
    return .reboot
  }
}

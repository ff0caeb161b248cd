// SPDX-License-Identifier: MIT

/// Keeps a state that changes all day from filling the log: a number of lines an hour, then one line that counts the
/// rest.
public struct FlapLimit: Sendable, Equatable {
  /// Changes in an hour that are logged one by one.
  public static let most = 20
  private static let window: Duration = .seconds(3600)

  private var since: MonotonicTime?
  private var told = 0
  private var untold = 0

  public init() {}

  /// Whether further changes are only counted now.
  public var isQuiet: Bool { told >= Self.most }

  /// A change has happened. `tell`: log it. `missed`: the number of changes that were not logged in the window that has
  /// just ended; log that number.
  public mutating func changed(now: MonotonicTime) -> (tell: Bool, missed: Int) {
    var missed = 0
    if let begin = since, now - begin >= Self.window {
      missed = untold
      (since, told, untold) = (nil, 0, 0)
    }
    since = since ?? now
    guard told < Self.most else {
      untold += 1
      return (false, missed)
    }
    told += 1
    return (true, missed)
  }
}

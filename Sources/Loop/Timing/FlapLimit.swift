// SPDX-License-Identifier: MIT

/// Keeps a thing that comes and goes all day from filling the log: so many lines an hour, then one that counts the rest.
public struct FlapLimit: Sendable, Equatable {
  /// Lines an hour that are told one by one.
  public static let most = 20
  private static let window: Duration = .seconds(3600)

  private var since: MonotonicTime?
  private var told = 0
  private var untold = 0

  public init() {}

  /// Whether changes are too many just now to be told one by one.
  public var isQuiet: Bool { told >= Self.most }

  /// A change happened. `tell`: it is worth its line. `missed`: so many were not told in the window that has ended; say so.
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

// SPDX-License-Identifier: MIT

/// How regularly a node is heard, and whether it has been silent for too long. Pure.
///
/// All times are of the time in which the gateway listened (`ListeningTime`), in milliseconds: a gateway that is off, or whose radio is away, hears
/// nobody, and that is nobody's silence.
struct HeardCourse: Equatable {
  /// Signs within so much of each other are one: a conversation says nothing about how often a node is heard.
  private static let step: Int64 = 600_000
  /// A node is heard regularly after so many pauses, within at least so much time.
  private static let pauses = 10
  private static let leastTime: Int64 = 2 * 86_400_000
  /// A silence is so many times the longest pause: every third advert may be lost.
  private static let factor: Int64 = 4
  /// A node with longer pauses is not heard regularly.
  private static let longestLimit: Int64 = 14 * 86_400_000

  var first: Int64?
  var last: Int64 = 0
  /// From when on its silence counts, if that is later.
  var counted: Int64 = 0
  var count = 0
  /// The longest pause, which each further one makes shorter by a fiftieth.
  var longest: Int64 = 0

  mutating func heard(at time: Int64, wasSilent: Bool) {
    guard first != nil else { return (first, last) = (time, time) }
    let pause = time - last
    guard pause >= Self.step else { return }
    last = time
    // A silence that was told is none of its usual pauses.
    guard !wasSilent else { return }
    count = min(count + 1, 1_000_000)
    longest = max(pause, longest / 50 * 49)
  }

  /// The silence after which the node is missed; `nil`: it is not heard regularly.
  func limit(atLeast least: Int64) -> Int64? {
    guard let first, count >= Self.pauses, last - first >= Self.leastTime else { return nil }
    let limit = max(least, longest * Self.factor)
    return limit <= Self.longestLimit ? limit : nil
  }

  func isSilent(at time: Int64, atLeast least: Int64) -> Bool {
    limit(atLeast: least).map { time - max(last, counted) >= $0 } ?? false
  }

  /// The gateway did not listen for a while: a sign may have been missed, so there is time for another.
  mutating func listenedAnew(at time: Int64, atLeast least: Int64) {
    guard let limit = limit(atLeast: least) else { return }
    counted = max(counted, time - limit + min(limit, 2 * longest))
  }
}

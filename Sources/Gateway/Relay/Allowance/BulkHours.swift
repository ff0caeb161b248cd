// SPDX-License-Identifier: MIT

/// The hours of a day in which all lanes are sent, as `22:00-06:00`: from the first time until the second, over midnight if the first is later. Pure.
public struct BulkHours: Equatable, Sendable {
  static let secondsOfDay: Int64 = 86_400

  /// Seconds of the day.
  let from: Int64
  let to: Int64

  public struct Failure: Error, Equatable, Sendable, CustomStringConvertible {
    public let description: String
  }

  /// `HH:MM-HH:MM`; 24:00 is the end of the day.
  public init(parsing text: String) throws(Failure) {
    let sides = text.utf8.split(separator: UInt8(ascii: "-"), omittingEmptySubsequences: false)
    guard sides.count == 2, let from = Self.second(sides[0]), let to = Self.second(sides[1]), from < Self.secondsOfDay
    else {
      throw Failure(description: "expected two times of day as \"22:00-06:00\", from 00:00 to 24:00")
    }
    guard from != to % Self.secondsOfDay else {
      throw Failure(description: "the two times are the same: leave the key out to send at any hour")
    }
    (self.from, self.to) = (from, to % Self.secondsOfDay)
  }

  private static func second(_ text: some Collection<UInt8>) -> Int64? {
    let text = Array(text)
    let digits = [0, 1, 3, 4].map { text.indices.contains($0) ? Int64(text[$0]) - 48 : -1 }
    guard text.count == 5, text[2] == UInt8(ascii: ":"), digits.allSatisfy({ (0...9).contains($0) }) else { return nil }
    let (hour, minute) = (digits[0] * 10 + digits[1], digits[2] * 10 + digits[3])
    guard minute < 60, hour < 24 || (hour == 24 && minute == 0) else { return nil }
    return hour * 3600 + minute * 60
  }

  /// `second`: of the day.
  func contains(_ second: Int64) -> Bool {
    from < to ? (from..<to).contains(second) : second >= from || second < to
  }

  /// Seconds until they begin; a whole day if they begin now.
  func secondsUntilBeginning(_ second: Int64) -> Int64 {
    from > second ? from - second : from - second + Self.secondsOfDay
  }
}

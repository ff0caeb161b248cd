// SPDX-License-Identifier: MIT

/// A firmware version, parsed from a text such as `v1.17.1` or `1.15.0-d9296435`.
public struct FirmwareVersion: Comparable, Sendable {
  public let major: Int
  public let minor: Int

  /// A text without a version becomes 0.0, older than any other.
  public init(_ text: String) {
    let numbers = text.drop { !$0.isNumber }.split(separator: ".", maxSplits: 2, omittingEmptySubsequences: false)
    func number(_ place: Int) -> Int {
      guard place < numbers.count else { return 0 }
      return Int(numbers[place].prefix { ("0"..."9").contains($0) }.prefix(6)) ?? 0
    }
    (major, minor) = (number(0), number(1))
  }

  public init(_ major: Int, _ minor: Int) { (self.major, self.minor) = (major, minor) }

  public static func < (left: Self, right: Self) -> Bool {
    (left.major, left.minor) < (right.major, right.minor)
  }
}

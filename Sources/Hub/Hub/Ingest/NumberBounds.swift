// SPDX-License-Identifier: MIT

import JSON

/// Bounds of the numbers in gateways' events. It removes a field with an impossible number: no gateway sends one, and a page would show all of its
/// digits.
enum NumberBounds {
  /// The ranges of the radio's frames. Coordinates are checked where they are shown: a node may send any.
  private static let ranges: [String: ClosedRange<Double>] = [
    "snr": -32...31.75, "rssi": -128...127, "hops": 0...63, "battery_mv": 0...65_535, "waited_s": 0...longestAge,
    "age_s": 0...longestAge,
  ]
  /// Seconds in about a hundred years.
  private static let longestAge = 3_200_000_000.0
  private static let others = Double(JSONValue.wholeNumbers.lowerBound)...Double(JSONValue.wholeNumbers.upperBound)

  static func bounded(_ body: JSONValue) -> JSONValue {
    guard let fields = body.fields, !fields.allSatisfy(isPossible) else { return body }
    return .object(fields.filter(isPossible))
  }

  private static func isPossible(_ name: String, _ value: JSONValue) -> Bool {
    value.number.map { (ranges[name] ?? others).contains($0) } ?? isPossible(value)
  }

  private static func isPossible(_ value: JSONValue) -> Bool {
    switch value {
    case .number(let number): others.contains(number)
    case .array(let values): values.allSatisfy(isPossible)
    case .object(let fields): fields.allSatisfy { isPossible($0.1) }
    case .null, .bool, .integer, .string: true
    }
  }
}

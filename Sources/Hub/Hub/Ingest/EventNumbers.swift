// SPDX-License-Identifier: MIT

import JSON

/// Numbers of what gateways tell. A field with one that cannot be, which no gateway sends, is left out: it would be shown with all its digits.
enum EventNumbers {
  /// By what the radio's frames have room for. Where a node is, is looked at where it is shown: a node may say anything of that.
  private static let ranges: [String: ClosedRange<Double>] = [
    "snr": -32...31.75, "rssi": -128...127, "hops": 0...63, "battery_mv": 0...65_535, "waited_s": 0...longestAge,
    "age_s": 0...longestAge,
  ]
  /// A hundred years are for ever: seconds.
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

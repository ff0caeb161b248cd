// SPDX-License-Identifier: MIT

/// Metrics as Prometheus reads them: text format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats).
public struct PrometheusText {
  public enum Kind: String, Sendable { case gauge, counter, histogram }

  public private(set) var bytes: [UInt8] = []

  public init() {}

  /// Adds one metric; `samples` writes its values, each with its labels.
  public mutating func metric(
    _ name: String, _ kind: Kind, _ help: String, _ samples: (inout Samples) -> Void
  ) {
    var written = Samples(name: name)
    samples(&written)
    guard !written.bytes.isEmpty else { return }
    bytes += Array("# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n".utf8) + written.bytes
  }

  /// Adds one metric with one value; nothing if the value is `nil`.
  public mutating func gauge(_ name: String, _ help: String, _ value: (some BinaryInteger)?) {
    metric(name, .gauge, help) { $0.add(value.map { Double(Int64(clamping: $0)) }) }
  }

  public mutating func counter(_ name: String, _ help: String, _ value: some BinaryInteger) {
    metric(name, .counter, help) { $0.add(Double(UInt64(clamping: value))) }
  }

  public struct Samples {
    let name: String
    fileprivate(set) var bytes: [UInt8] = []

    fileprivate init(name: String) { self.name = name }

    public mutating func add(_ value: Double?, _ labels: (String, String)...) { add(value, labels) }

    /// Adds a histogram. `bounds` increase; each of `counts` is the number of values up to that bound and above the
    /// previous one, the last of those above all bounds.
    public mutating func add(
      bounds: [Double], counts: [Int], sum: Double, _ labels: (String, String)...
    ) {
      var total = 0
      for (index, count) in counts.enumerated() {
        total += count
        let bound = index < bounds.count ? Self.number(bounds[index]) : "+Inf"
        add(Double(total), labels + [("le", bound)], suffix: "_bucket")
      }
      add(sum, labels, suffix: "_sum")
      add(Double(total), labels, suffix: "_count")
    }

    private static func number(_ value: Double) -> String {
      value == value.rounded() && abs(value) < 1e15 ? "\(Int64(value))" : "\(value)"
    }

    private mutating func add(_ value: Double?, _ labels: [(String, String)], suffix: String = "") {
      guard let value else { return }
      let written = labels.map { "\($0.0)=\"\(Self.escape($0.1))\"" }.joined(separator: ",")
      bytes += Array("\(name)\(suffix)\(written.isEmpty ? "" : "{\(written)}") \(Self.number(value))\n".utf8)
    }

    /// Escapes a label's value: names come over the air.
    private static func escape(_ text: String) -> String {
      var escaped = ""
      for scalar in text.unicodeScalars {
        switch scalar {
        case "\\": escaped += "\\\\"
        case "\"": escaped += "\\\""
        case "\n": escaped += "\\n"
        default: escaped.unicodeScalars.append(scalar)
        }
      }
      return escaped
    }
  }
}

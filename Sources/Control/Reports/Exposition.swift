// SPDX-License-Identifier: MIT

/// Metrics as Prometheus reads them: text format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats).
struct Exposition {
  enum Kind: String { case gauge, counter }

  private(set) var bytes: [UInt8] = []

  /// One metric; `samples` writes its values, each with its labels.
  mutating func metric(
    _ name: String, _ kind: Kind, _ help: String, _ samples: (inout Samples) -> Void
  ) {
    var written = Samples(name: name)
    samples(&written)
    guard !written.bytes.isEmpty else { return }
    bytes += Array("# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n".utf8) + written.bytes
  }

  /// One metric with one value, or none.
  mutating func gauge(_ name: String, _ help: String, _ value: (some BinaryInteger)?) {
    metric(name, .gauge, help) { $0.add(value.map { Double(Int64(clamping: $0)) }) }
  }

  mutating func counter(_ name: String, _ help: String, _ value: some BinaryInteger) {
    metric(name, .counter, help) { $0.add(Double(UInt64(clamping: value))) }
  }

  struct Samples {
    let name: String
    fileprivate(set) var bytes: [UInt8] = []

    fileprivate init(name: String) { self.name = name }

    mutating func add(_ value: Double?, _ labels: (String, String)...) {
      guard let value else { return }
      let written = labels.map { "\($0.0)=\"\(Self.escape($0.1))\"" }.joined(separator: ",")
      let number = value == value.rounded() && abs(value) < 1e15 ? "\(Int64(value))" : "\(value)"
      bytes += Array("\(name)\(written.isEmpty ? "" : "{\(written)}") \(number)\n".utf8)
    }

    /// Names come over the air.
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

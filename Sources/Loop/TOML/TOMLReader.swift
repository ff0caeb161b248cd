// SPDX-License-Identifier: MIT

import UntrustedText

/// Reads typed values from a table and collects mistakes, with line and allowed values. Keys that were not read are unknown
/// keys.
public struct TOMLReader {
  private let table: TOMLTable
  private let name: String
  private var taken: Set<String> = []
  public private(set) var errors: [TOMLError] = []
  /// Warnings about accepted values.
  public private(set) var warnings: [TOMLError] = []
  /// Valid values that cannot be used now, such as a missing file.
  public private(set) var lacks: [TOMLError] = []

  /// `name`: the table's name in messages, empty for the document itself.
  public init(_ table: TOMLTable, name: String = "") {
    self.table = table
    self.name = name
  }

  /// The keys, for a table whose keys are free names.
  public var keys: [String] { table.entries.map(\.key) }

  /// Whether the key exists, with any value.
  public func has(_ key: String) -> Bool { table[key] != nil }

  private func full(_ key: String) -> String { name.isEmpty ? key : "\(name).\(key)" }

  public mutating func note(_ key: String, _ reason: String) {
    errors.append(TOMLError(line: table[key]?.line ?? table.line, reason: "\(full(key)): \(reason)"))
  }

  public mutating func lack(_ key: String, _ reason: String) {
    lacks.append(TOMLError(line: table[key]?.line ?? table.line, reason: "\(full(key)): \(reason)"))
  }

  /// Takes over the errors and warnings of an inner table.
  public mutating func note(from inner: TOMLReader) {
    errors += inner.errors
    lacks += inner.lacks
    warnings += inner.warnings
  }

  public mutating func note(_ more: [TOMLError]) { errors += more }

  public mutating func warn(_ key: String, _ reason: String) {
    warnings.append(TOMLError(line: table[key]?.line ?? table.line, reason: "\(full(key)): \(reason)"))
  }

  /// The key counts as read: what there is to say about it was said.
  public mutating func forget(_ key: String) { taken.insert(key) }

  private mutating func take(_ key: String) -> TOMLValue? {
    taken.insert(key)
    return table[key]
  }

  public mutating func string(_ key: String) -> String? {
    guard let value = take(key) else { return nil }
    if case .string(let string) = value.kind { return string }
    note(key, "expected a string, found \(value.kindName)")
    return nil
  }

  public mutating func bool(_ key: String, default fallback: Bool) -> Bool {
    guard let value = take(key) else { return fallback }
    if case .bool(let bool) = value.kind { return bool }
    note(key, "expected true or false, found \(value.kindName)")
    return fallback
  }

  public mutating func integer(_ key: String, in range: ClosedRange<Int64>, default fallback: Int64) -> Int64 {
    guard let value = take(key) else { return fallback }
    guard case .integer(let integer) = value.kind else {
      note(key, "expected a whole number, found \(value.kindName)")
      return fallback
    }
    guard range.contains(integer) else {
      note(key, "\(integer) is not allowed: \(range.lowerBound) to \(range.upperBound)")
      return fallback
    }
    return integer
  }

  /// A whole number whose key was renamed. The former key still works, with a warning; the present one wins.
  public mutating func integer(
    _ key: String, formerly former: String, in range: ClosedRange<Int64>, default fallback: Int64
  ) -> Int64 {
    guard has(former) else { return integer(key, in: range, default: fallback) }
    warn(former, "this key is called \(key) now; both names are read")
    let value = integer(former, in: range, default: fallback)
    return integer(key, in: range, default: value)
  }

  /// A list of strings; empty when it is missing.
  public mutating func strings(_ key: String) -> [String] { optionalStrings(key) ?? [] }

  /// A list of strings, which may be empty on purpose; `nil` when it is missing.
  public mutating func optionalStrings(_ key: String) -> [String]? {
    guard let value = take(key) else { return nil }
    guard case .array(let elements) = value.kind else {
      note(key, "expected a list of strings, found \(value.kindName)")
      return []
    }
    var strings: [String] = []
    for element in elements {
      if case .string(let string) = element.kind {
        strings.append(string)
      } else {
        errors.append(
          TOMLError(line: element.line, reason: "\(full(key)): expected a string, found \(element.kindName)"))
      }
    }
    return strings
  }

  /// One of a few words.
  public mutating func choice(_ key: String, of allowed: [String], default fallback: String) -> String {
    guard let value = take(key) else { return fallback }
    let text: String
    switch value.kind {
    case .string(let string): text = string
    // A word such as "5", without its quotation marks.
    case .integer(let integer): text = "\(integer)"
    default:
      note(key, "expected one of \(allowed.joined(separator: ", ")), found \(value.kindName)")
      return fallback
    }
    guard allowed.contains(text) else {
      note(key, "\"\(text)\" is not allowed: \(allowed.joined(separator: ", "))")
      return fallback
    }
    return text
  }

  /// A number of bytes: a whole number, or a string such as `256 MiB`.
  public mutating func size(_ key: String, in range: ClosedRange<Int64>, default fallback: Int64) -> Int64 {
    guard let value = take(key) else { return fallback }
    var bytes: Int64?
    switch value.kind {
    case .integer(let integer): bytes = integer
    case .string(let text): bytes = Self.size(text)
    default: break
    }
    guard let bytes else {
      note(key, "expected a size, such as \"256 MiB\" (KiB, MiB, GiB), or a number of bytes")
      return fallback
    }
    guard range.contains(bytes) else {
      note(key, "\(bytes) bytes are not allowed: \(range.lowerBound) to \(range.upperBound)")
      return fallback
    }
    return bytes
  }

  private static func size(_ text: String) -> Int64? {
    let digits = text.prefix { $0.isNumber }
    let units: [String: Int64] = ["": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30]
    guard let number = Int64(digits), let unit = units[String(text.dropFirst(digits.count).drop { $0 == " " })] else {
      return nil
    }
    let (bytes, overflow) = number.multipliedReportingOverflow(by: unit)
    return overflow ? nil : bytes
  }

  /// A table; an empty one if it is missing.
  public mutating func table(_ key: String) -> TOMLReader {
    guard let value = take(key) else { return TOMLReader(TOMLTable(line: table.line), name: full(key)) }
    if case .table(let inner) = value.kind { return TOMLReader(inner, name: full(key)) }
    note(key, "expected a table [\(full(key))], found \(value.kindName)")
    return TOMLReader(TOMLTable(line: value.line), name: full(key))
  }

  /// A table; `nil` if it is missing.
  public mutating func optionalTable(_ key: String) -> TOMLReader? { take(key) == nil ? nil : table(key) }

  /// A list of tables: `[[key]]`.
  public mutating func tables(_ key: String) -> [TOMLReader] {
    guard let value = take(key) else { return [] }
    guard case .array(let elements) = value.kind else {
      note(key, "expected tables [[\(full(key))]], found \(value.kindName)")
      return []
    }
    var readers: [TOMLReader] = []
    for element in elements {
      if case .table(let inner) = element.kind {
        readers.append(TOMLReader(inner, name: full(key)))
      } else {
        errors.append(
          TOMLError(line: element.line, reason: "\(full(key)): expected a table, found \(element.kindName)"))
      }
    }
    return readers
  }

  /// Reports unknown keys. Call it after all known keys were read.
  public mutating func finish() {
    let known = taken.sorted()
    // Compared by bytes, as the table does: a key that only looks like a known one is unknown.
    for entry in table.entries where !taken.contains(where: { $0.utf8.elementsEqual(entry.key.utf8) }) {
      let near = NearWords.near(entry.key, among: known)
      let guess = near.isEmpty ? "" : " (did you mean \(near.joined(separator: " or "))?)"
      let allowed = known.joined(separator: ", ")
      let reason = "\(full(entry.key)) is not a known key\(guess); expected one of: \(allowed)"
      errors.append(TOMLError(line: entry.value.line, reason: reason))
    }
  }
}

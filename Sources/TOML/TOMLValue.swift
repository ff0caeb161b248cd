// SPDX-License-Identifier: MIT

/// A value of a TOML document, with the line it stands on: configuration errors say where.
public struct TOMLValue: Equatable, Sendable {
  public enum Kind: Equatable, Sendable {
    case string(String)
    case integer(Int64)
    case number(Double)
    case bool(Bool)
    case array([TOMLValue])
    case table(TOMLTable)
  }

  public var kind: Kind
  public var line: Int

  /// The kind's name, for error messages.
  public var kindName: String {
    switch kind {
    case .string: "a string"
    case .integer: "a whole number"
    case .number: "a number"
    case .bool: "true or false"
    case .array: "a list"
    case .table: "a table"
    }
  }
}

/// A table: keys in order of their appearance.
public struct TOMLTable: Equatable, Sendable {
  public struct Entry: Equatable, Sendable {
    public var key: String
    public var value: TOMLValue
  }

  public internal(set) var entries: [Entry] = []
  public internal(set) var line: Int
  /// Made by a `[header]` or inline: may not be opened again.
  var isClosed = false

  init(line: Int) { self.line = line }

  public subscript(key: String) -> TOMLValue? { entries.first { $0.key == key }?.value }
}

/// Why a document is no TOML that we take.
public struct TOMLError: Error, Equatable, Sendable, CustomStringConvertible {
  public let line: Int
  public let reason: String

  public init(line: Int, reason: String) {
    self.line = line
    self.reason = reason
  }

  public var description: String { "line \(line): \(reason)" }
}

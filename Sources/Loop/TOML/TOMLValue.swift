// SPDX-License-Identifier: MIT

import UntrustedText

/// A value of a TOML document with its line, for configuration errors.
public struct TOMLValue: Equatable, Sendable {
  public enum Kind: Equatable, Sendable {
    case string(String)
    case integer(Int64)
    /// `inf` and `nan` too.
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

/// Why a document is not accepted.
public struct TOMLError: Error, Equatable, Sendable, CustomStringConvertible {
  public let line: Int
  public let reason: String

  public init(line: Int, reason: String) {
    self.line = line
    self.reason = reason
  }

  /// One line: a mistake quotes its value, and a line break there would look like another mistake.
  public var description: String { "line \(line): \(Visible.line(reason))" }
}

// SPDX-License-Identifier: MIT

/// A line for people: pieces of text, each with a style.
///
/// Styles are values, never escape sequences within a text. So all texts can be cleaned of escape sequences when they
/// are written.
///
///     let line: Styled = "radio  \(state, .good), \(name)"
public struct Styled: ExpressibleByStringLiteral, ExpressibleByStringInterpolation, CustomStringConvertible, Sendable {
  /// The style of a piece: its code in ECMA-48.
  public enum Style: String, Sendable {
    case plain = "0", bold = "1", faint = "2", good = "32", bad = "31", warning = "33", accent = "36"
  }

  public private(set) var pieces: [(style: Style, text: String)] = []

  public init(_ text: String, _ style: Style = .plain) { pieces = [(style, text)] }
  public init(stringLiteral value: String) { self.init(value) }
  public init(stringInterpolation: Interpolation) { pieces = stringInterpolation.pieces }

  /// The text without styles.
  public var text: String { pieces.map(\.text).joined() }
  public var description: String { text }

  public struct Interpolation: StringInterpolationProtocol {
    fileprivate var pieces: [(style: Style, text: String)] = []

    public init(literalCapacity: Int, interpolationCount: Int) {}
    public mutating func appendLiteral(_ literal: String) { pieces.append((.plain, literal)) }
    public mutating func appendInterpolation(_ value: some CustomStringConvertible) {
      pieces.append((.plain, value.description))
    }
    public mutating func appendInterpolation(_ text: String, _ style: Style) { pieces.append((style, text)) }
    public mutating func appendInterpolation(_ line: Styled) { pieces += line.pieces }
  }
}

extension Styled: Equatable {
  public static func == (left: Styled, right: Styled) -> Bool {
    left.pieces.elementsEqual(right.pieces) { $0.style == $1.style && $0.text == $1.text }
  }
}

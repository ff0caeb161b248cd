// SPDX-License-Identifier: MIT

/// The JSON objects of the control socket, each declared once: for the gateway, which writes them, for the command line, which reads
/// them, and for the manual. A shape is a type, and its fields are its stored properties, in the manual's order.
///
/// Times are milliseconds since 1970 unless noted otherwise. Readers ignore unknown names.
///
/// A description is in a program only if something reads it: initialisers are inlined, and unused fields disappear.
public enum Shape {}

/// A field of a shape. `Value` is `String`, `Int64`, `Double`, `Bool`, `JSONValue` (anything) or another shape, or an array of these; if
/// it is optional, the field may be missing.
public struct Field<Value>: Sendable {
  public let name: StaticString
  public let summary: StaticString

  @inlinable @inline(__always)
  public init(_ name: StaticString, _ summary: StaticString = "") { (self.name, self.summary) = (name, summary) }
}

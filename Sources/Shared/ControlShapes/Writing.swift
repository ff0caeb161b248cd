// SPDX-License-Identifier: MIT

// swift-format-ignore-file
// One line for each type of field, as in a table.

import JSON

/// Writes fields of shapes. The compiler accepts a value that may be `nil` only for a field that may be missing, and leaves it out.
extension JSONWriter {
  @inlinable public mutating func field(_ field: Field<String>, _ it: String) { key(field.name); value(it) }
  @inlinable public mutating func field(_ field: Field<Int64>, _ it: some BinaryInteger) { key(field.name); value(it) }
  @inlinable public mutating func field(_ field: Field<Double>, _ it: Double) { key(field.name); value(it) }
  @inlinable public mutating func field(_ field: Field<Bool>, _ it: Bool) { key(field.name); value(it) }
  @inlinable public mutating func field(_ field: Field<String?>, _ it: String?) { if let it { key(field.name); value(it) } }
  @inlinable public mutating func field(_ field: Field<Int64?>, _ it: (some BinaryInteger)?) { if let it { key(field.name); value(it) } }
  @inlinable public mutating func field(_ field: Field<Double?>, _ it: Double?) { if let it { key(field.name); value(it) } }
  @inlinable public mutating func field(_ field: Field<Bool?>, _ it: Bool?) { if let it { key(field.name); value(it) } }

  /// Writes a field whose value is JSON already.
  @inlinable public mutating func field<Value>(_ field: Field<Value>, json: [UInt8]) { key(field.name); raw(json) }

  @inlinable public mutating func field(_ field: Field<[String]>, _ texts: some Sequence<String>) {
    array(field) { json in for text in texts { json.value(text) } }
  }

  /// Left out if there are no texts.
  @inlinable public mutating func field(_ field: Field<[String]?>, _ texts: some Collection<String>) {
    if !texts.isEmpty { array(field) { json in for text in texts { json.value(text) } } }
  }

  @inlinable
  public mutating func object<V, Failure>(_ field: Field<V>, _ body: (inout JSONWriter) throws(Failure) -> Void) throws(Failure) {
    key(field.name)
    try object(body)
  }

  @inlinable
  public mutating func array<V, Failure>(_ field: Field<V>, _ body: (inout JSONWriter) throws(Failure) -> Void) throws(Failure) {
    key(field.name)
    try array(body)
  }

  /// `write` fills each object.
  @inlinable public mutating func objects<V, Row, Failure>(
    _ field: Field<V>, _ rows: some Sequence<Row>, _ write: (Row, inout JSONWriter) throws(Failure) -> Void
  ) throws(Failure) {
    try array(field) { (json) throws(Failure) in
      for row in rows { try json.object { (json) throws(Failure) in try write(row, &json) } }
    }
  }
}

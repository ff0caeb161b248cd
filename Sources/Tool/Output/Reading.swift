// SPDX-License-Identifier: MIT

import ControlShapes
import JSON

/// Reads fields of shapes. A field that is missing, or has another type, is `nil`; an array of objects is empty then.
extension JSONValue {
  subscript(field: Field<String>) -> String? { member(field)?.string }
  subscript(field: Field<String?>) -> String? { member(field)?.string }
  subscript(field: Field<Int64>) -> Int64? { member(field)?.integer }
  subscript(field: Field<Int64?>) -> Int64? { member(field)?.integer }
  subscript(field: Field<Double>) -> Double? { member(field)?.number }
  subscript(field: Field<Double?>) -> Double? { member(field)?.number }
  subscript(field: Field<Bool>) -> Bool? { member(field)?.bool }
  subscript(field: Field<Bool?>) -> Bool? { member(field)?.bool }
  subscript(field: Field<[String]>) -> [String] { strings(field) }
  subscript(field: Field<[String]?>) -> [String] { strings(field) }
  subscript<Value>(field: Field<[Value]>) -> [JSONValue] { member(field)?.array ?? [] }
  subscript<Value>(field: Field<[Value]?>) -> [JSONValue] { member(field)?.array ?? [] }
  subscript<Value>(field: Field<Value>) -> JSONValue? { member(field) }

  private func member<Value>(_ field: Field<Value>) -> JSONValue? { self[field.name.description] }
  private func strings<Value>(_ field: Field<Value>) -> [String] { member(field)?.array?.compactMap(\.string) ?? [] }
}

// SPDX-License-Identifier: MIT

import JSON

/// A value of a JSON object.
protocol JSONEncodable: Sendable {
  func write(to json: inout JSONWriter)
}

/// A JSON object with its fields in order; it leaves out fields without a value.
struct JSONObject: JSONEncodable, ExpressibleByDictionaryLiteral {
  private var fields: [(String, (any JSONEncodable)?)]

  init(_ fields: some Sequence<(String, (any JSONEncodable)?)>) { self.fields = Array(fields) }
  init<Value: JSONEncodable>(_ fields: some Sequence<(String, Value)>) { self.fields = fields.map { ($0, $1) } }
  init(dictionaryLiteral fields: (String, (any JSONEncodable)?)...) { self.fields = fields }

  /// The fields of all these objects.
  init(joining objects: JSONObject...) { fields = objects.flatMap(\.fields) }

  func write(to json: inout JSONWriter) {
    json.object { json in
      for case (let name, let value?) in fields {
        json.key(name)
        value.write(to: &json)
      }
    }
  }
}

/// A value that is JSON already.
struct RawJSON: JSONEncodable {
  let bytes: [UInt8]

  init(_ bytes: [UInt8]) { self.bytes = bytes }
  init(_ text: String) { bytes = Array(text.utf8) }

  func write(to json: inout JSONWriter) { json.raw(bytes) }
}

extension JSONWriter {
  static func object(_ object: JSONObject) -> [UInt8] {
    var writer = JSONWriter(reserving: 256)
    object.write(to: &writer)
    return writer.bytes
  }

  static func text(_ object: JSONObject) -> String { String(decoding: Self.object(object), as: UTF8.self) }
}

extension Bool: JSONEncodable { func write(to json: inout JSONWriter) { json.value(self) } }
extension Int: JSONEncodable { func write(to json: inout JSONWriter) { json.value(self) } }
extension Int64: JSONEncodable { func write(to json: inout JSONWriter) { json.value(self) } }
extension Double: JSONEncodable { func write(to json: inout JSONWriter) { json.value(self) } }
extension String: JSONEncodable { func write(to json: inout JSONWriter) { json.value(self) } }
extension JSONValue: JSONEncodable { func write(to json: inout JSONWriter) { json.value(self) } }

extension Array: JSONEncodable where Element: JSONEncodable {
  func write(to json: inout JSONWriter) {
    json.array { json in for element in self { element.write(to: &json) } }
  }
}

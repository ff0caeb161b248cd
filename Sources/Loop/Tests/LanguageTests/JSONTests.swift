// SPDX-License-Identifier: MIT

import JSON
import Testing

@Suite struct JSONTests {
  @Test func `written JSON reads back as the same value`() throws {
    let bytes = JSONWriter.object {
      $0.field("text", "a \"b\" \\ \n\u{1} ☕")
      $0.field("number", -7)
      $0.field("ratio", 9.75)
      $0.field("missing", nil as Int?)
      $0.field("no", Double.nan)
      $0.arrayField("list") {
        $0.value(1)
        $0.object { $0.field("x", true) }
      }
    }
    let value = try JSONValue(parsing: bytes)
    #expect(value["text"]?.string == "a \"b\" \\ \n\u{1} ☕")
    #expect(value["number"]?.integer == -7)
    #expect(value["ratio"]?.number == 9.75)
    #expect(value["missing"] == nil)
    #expect(value["no"] == .null)
    #expect(value["list"]?.array?.count == 2)
    var again = JSONWriter()
    again.value(value)
    #expect(try JSONValue(parsing: again.bytes) == value)
  }

  @Test(arguments: [
    "", "{", "[1,]", "{\"a\":1,}", "01", "1.", "-", "\"\\ud800\"", "\"a", "tru", "nul", "1 2", "{\"a\" 1}",
    "\"\u{1}\"", "[\"\\x\"]", "1e999", "{1:2}",
  ]) func `invalid JSON is refused`(_ text: String) {
    #expect(throws: JSONError.self) { try JSONValue(parsing: text) }
  }

  @Test func `a name that is there twice is found at any depth, by its bytes`() throws {
    for (text, name) in [
      (#"{"a":1,"a":1}"#, "a"), (#"[{"b":[{"c":1,"x":2,"c":3}]}]"#, "c"), (#"{"a":1,"\u0061":2}"#, "a"),
      (#"{"a":1,"b":{"a":2}}"#, nil), (#"{"\u00e9":1,"e\u0301":2}"#, nil), (#"[1,1]"#, nil),
    ] as [(String, String?)] {
      #expect(try JSONValue(parsing: text).repeatedName == name, "\(text)")
    }
  }

  @Test func `escapes and surrogates are read as the standard says`() throws {
    #expect(try JSONValue(parsing: #""\u00e9\ud83c\udf32\/\b""#).string == "é🌲/\u{8}")
    #expect(try JSONValue(parsing: "9223372036854775808").number == 9223372036854775808)
  }

  @Test func `only whole numbers up to 2^53 count as integers`() throws {
    let most: Int64 = 1 << 53
    #expect(try JSONValue(parsing: "9007199254740992").integer == most)
    #expect(try JSONValue(parsing: "-9007199254740992").integer == -most)
    #expect(try JSONValue(parsing: "0").count == 0)
    #expect(try JSONValue(parsing: "9007199254740992").count == most)
    for text in [
      "9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808", "1e308", "0.5",
    ] {
      #expect(try JSONValue(parsing: text).integer == nil, "\(text)")
      #expect(try JSONValue(parsing: text).count == nil, "\(text)")
      #expect(try JSONValue(parsing: text).number != nil, "\(text)")
    }
    #expect(try JSONValue(parsing: "-1").count == nil)
    #expect(JSONValue.integer(.max).count == nil, "one that was not read is not believed either")
  }

  @Test func `each integer is written as its digits`() {
    var numbers: [Int64] = [0, .max, .min, .max - 1, .min + 1]
    var power: Int64 = 1
    for _ in 0..<19 {
      numbers += [power, power - 1, power + 1, -power, 1 - power]
      power = power.multipliedReportingOverflow(by: 10).partialValue
    }
    for number in numbers {
      var json = JSONWriter()
      json.value(number)
      #expect(json.string == String(number))
    }
    var json = JSONWriter()
    json.array {
      $0.value(UInt64.max)
      $0.value(UInt8(200))
    }
    #expect(json.string == "[18446744073709551615,200]")
  }

  @Test func `only characters that a JSON text must not contain are escaped`() {
    for byte in 0..<128 as Range<UInt8> {
      var json = JSONWriter()
      json.value("é" + String(UnicodeScalar(byte)) + "😀")
      let isEscaped = byte < 32 || byte == 127 || byte == 34 || byte == 92
      #expect(json.bytes.contains(where: { $0 < 32 || $0 == 127 }) == false, "\(byte)")
      #expect((json.bytes.count > 9) == isEscaped, "\(byte)")
      // `try?`: a text that does not parse is different.
      #expect((try? JSONValue(parsing: json.bytes))?.string == "é" + String(UnicodeScalar(byte)) + "😀", "\(byte)")
    }
  }

  @Test func `a conversion of a number saturates at the limits of the type`() {
    #expect(Int(saturating: 1e308) == .max && Int64(saturating: -1e308) == .min)
    #expect(Int8(saturating: 128) == 127 && Int8(saturating: -128.9) == -128 && UInt8(saturating: -0.5) == 0)
    #expect(Int(saturating: .nan) == 0 && Int32(saturating: .infinity) == .max)
    #expect(Int64(saturating: 0x1p63) == .max && Int(saturating: -7.9) == -7)
  }

  @Test func `the depth of nesting is limited, which bounds the stack`() {
    let deep = String(repeating: "[", count: 100_000)
    #expect(throws: JSONError.self) { try JSONValue(parsing: deep) }
    #expect(throws: JSONError.self) { try JSONValue(parsing: [0x22, 0xFF, 0x22]) }
  }
}

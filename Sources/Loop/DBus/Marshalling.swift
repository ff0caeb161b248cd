// SPDX-License-Identifier: MIT

import CDBus
import Glibc

/// Converts between libdbus messages and values. C pointers stay in this module.
enum Marshalling {
  // MARK: Out

  /// A libdbus message to send; the caller unrefs it.
  static func encode(_ message: BusMessage) throws(BusError) -> OpaquePointer {
    let made = try header(message)
    var iterator = DBusMessageIter()
    dbus_message_iter_init_append(made, &iterator)
    do {
      for value in message.body { try append(value, &iterator) }
    } catch {
      dbus_message_unref(made)
      throw error
    }
    return made
  }

  private static func header(_ message: BusMessage) throws(BusError) -> OpaquePointer {
    // libdbus aborts the process on an invalid name, so names are checked first.
    try check(message.destination, dbus_validate_bus_name, "bus name")
    try check(message.path, dbus_validate_path, "object path")
    try check(message.interface, dbus_validate_interface, "interface")
    try check(message.member, dbus_validate_member, "member")
    let type: Int32
    var errorName: String?
    var replyTo: UInt32 = 0
    switch message.kind {
    case .call: type = 1
    case .reply(let to): (type, replyTo) = (2, to)
    case .error(let to, let name): (type, replyTo, errorName) = (3, to, name)
    case .signal: type = 4
    }
    try check(errorName, dbus_validate_error_name, "error name")
    guard let made = dbus_message_new(type) else { throw .invalid("no memory") }
    dbus_message_set_destination(made, message.destination)
    dbus_message_set_path(made, message.path)
    dbus_message_set_interface(made, message.interface)
    dbus_message_set_member(made, message.member)
    if let errorName { dbus_message_set_error_name(made, errorName) }
    if replyTo != 0 { dbus_message_set_reply_serial(made, replyTo) }
    if type != 1 { dbus_message_set_no_reply(made, 1) }
    return made
  }

  private static func check(
    _ text: String?, _ validate: (UnsafePointer<CChar>?, UnsafeMutablePointer<DBusError>?) -> dbus_bool_t,
    _ what: String
  ) throws(BusError) {
    guard let text else { return }
    guard !text.utf8.contains(0), validate(text, nil) != 0 else { throw .invalid("\"\(text)\" is no \(what)") }
  }

  private static func append(_ value: BusValue, _ iterator: inout DBusMessageIter) throws(BusError) {
    switch value {
    case .byte(let number): try basic(number, "y", &iterator)
    case .bool(let flag): try basic(UInt32(flag ? 1 : 0), "b", &iterator)
    case .int16(let number): try basic(number, "n", &iterator)
    case .uint16(let number): try basic(number, "q", &iterator)
    case .int32(let number): try basic(number, "i", &iterator)
    case .uint32(let number): try basic(number, "u", &iterator)
    case .int64(let number): try basic(number, "x", &iterator)
    case .uint64(let number): try basic(number, "t", &iterator)
    case .double(let number): try basic(number, "d", &iterator)
    case .string(let text): try self.text(text, "s", &iterator)
    case .objectPath(let text):
      try check(text, dbus_validate_path, "object path")
      try self.text(text, "o", &iterator)
    case .signature(let text):
      try check(text, dbus_signature_validate, "signature")
      try self.text(text, "g", &iterator)
    case .descriptor(let descriptor):
      let copy = descriptor.duplicate()
      guard copy >= 0 else { throw .invalid("the descriptor is not open") }
      defer { close(copy) }
      try basic(copy, "h", &iterator)
    case .bytes(let bytes):
      try container("a", "y", &iterator) { (inner) throws(BusError) in
        for byte in bytes { try basic(byte, "y", &inner) }
      }
    case .array(let element, let values):
      try check(element, dbus_signature_validate_single_element, "element signature")
      try container("a", element, &iterator) { (inner) throws(BusError) in
        for value in values {
          guard value.signature == element else { throw .invalid("\(value.signature) in an array of \(element)") }
          try append(value, &inner)
        }
      }
    case .structure(let fields):
      guard !fields.isEmpty else { throw .invalid("a structure without fields") }
      try container("r", nil, &iterator) { (inner) throws(BusError) in for field in fields { try append(field, &inner) }
      }
    case .entry(let key, let value):
      try container("e", nil, &iterator) { (inner) throws(BusError) in
        try append(key, &inner)
        try append(value, &inner)
      }
    case .variant(let value):
      try container("v", value.signature, &iterator) { (inner) throws(BusError) in try append(value, &inner) }
    }
  }

  /// A signature of exactly one type that an array can have; a dictionary entry is valid only there.
  private static func dbus_signature_validate_single_element(
    _ text: UnsafePointer<CChar>?, _ error: UnsafeMutablePointer<DBusError>?
  ) -> dbus_bool_t {
    guard let text else { return 0 }
    return dbus_signature_validate_single("a" + String(cString: text), error)
  }

  private static func code(_ type: Character) -> Int32 { Int32(type.asciiValue ?? 0) }

  private static func basic<Value: BitwiseCopyable>(
    _ value: Value, _ type: Character, _ iterator: inout DBusMessageIter
  ) throws(BusError) {
    var value = value
    guard dbus_message_iter_append_basic(&iterator, code(type), &value) != 0 else { throw .invalid("no memory") }
  }

  private static func text(_ text: String, _ type: Character, _ iterator: inout DBusMessageIter) throws(BusError) {
    guard !text.utf8.contains(0) else { throw .invalid("a text with a zero byte") }
    let isAppended = text.withCString { pointer in
      var pointer: UnsafePointer<CChar>? = pointer
      return dbus_message_iter_append_basic(&iterator, code(type), &pointer) != 0
    }
    guard isAppended else { throw .invalid("no memory") }
  }

  private static func container(
    _ type: Character, _ signature: String?, _ iterator: inout DBusMessageIter,
    _ fill: (inout DBusMessageIter) throws(BusError) -> Void
  ) throws(BusError) {
    var inner = DBusMessageIter()
    guard dbus_message_iter_open_container(&iterator, code(type), signature, &inner) != 0 else {
      throw .invalid("no memory")
    }
    do {
      try fill(&inner)
    } catch {
      dbus_message_iter_abandon_container(&iterator, &inner)
      throw error
    }
    guard dbus_message_iter_close_container(&iterator, &inner) != 0 else { throw .invalid("no memory") }
  }

  // MARK: In

  /// libdbus has validated the message; types that are unknown here are an error nevertheless.
  static func decode(_ message: OpaquePointer) throws(BusError) -> BusMessage {
    let kind: BusMessage.Kind
    let replyTo = dbus_message_get_reply_serial(message)
    switch dbus_message_get_type(message) {
    case 1: kind = .call
    case 2: kind = .reply(to: replyTo)
    case 3: kind = .error(to: replyTo, name: text(dbus_message_get_error_name(message)) ?? "")
    case 4: kind = .signal
    case let other: throw .malformed("message type \(other)")
    }
    var decoded = BusMessage(
      kind, destination: text(dbus_message_get_destination(message)), path: text(dbus_message_get_path(message)),
      interface: text(dbus_message_get_interface(message)), member: text(dbus_message_get_member(message)))
    decoded.serial = dbus_message_get_serial(message)
    decoded.sender = text(dbus_message_get_sender(message))
    var iterator = DBusMessageIter()
    if dbus_message_iter_init(message, &iterator) != 0 { decoded.body = try values(&iterator) }
    return decoded
  }

  private static func text(_ pointer: UnsafePointer<CChar>?) -> String? { pointer.map { String(cString: $0) } }

  private static func values(_ iterator: inout DBusMessageIter) throws(BusError) -> [BusValue] {
    var values: [BusValue] = []
    while dbus_message_iter_get_arg_type(&iterator) != 0 {
      values.append(try value(&iterator))
      dbus_message_iter_next(&iterator)
    }
    return values
  }

  private static func inside(_ iterator: inout DBusMessageIter) throws(BusError) -> [BusValue] {
    var inner = DBusMessageIter()
    dbus_message_iter_recurse(&iterator, &inner)
    return try values(&inner)
  }

  private static func value(_ iterator: inout DBusMessageIter) throws(BusError) -> BusValue {
    switch Character(Unicode.Scalar(UInt8(truncatingIfNeeded: dbus_message_iter_get_arg_type(&iterator)))) {
    case "y": return .byte(get(&iterator, 0))
    case "b": return .bool(get(&iterator, UInt32(0)) != 0)
    case "n": return .int16(get(&iterator, 0))
    case "q": return .uint16(get(&iterator, 0))
    case "i": return .int32(get(&iterator, 0))
    case "u": return .uint32(get(&iterator, 0))
    case "x": return .int64(get(&iterator, 0))
    case "t": return .uint64(get(&iterator, 0))
    case "d": return .double(get(&iterator, 0))
    case "s": return .string(getText(&iterator))
    case "o": return .objectPath(getText(&iterator))
    case "g": return .signature(getText(&iterator))
    case "h": return .descriptor(BusDescriptor(owning: get(&iterator, Int32(-1))))
    case "a": return try array(&iterator)
    case "r": return .structure(try inside(&iterator))
    case "e": return try entry(&iterator)
    case "v":
      guard let value = try inside(&iterator).first else { throw .malformed("an empty variant") }
      return .variant(value)
    case let other: throw .malformed("type \(other)")
    }
  }

  private static func array(_ iterator: inout DBusMessageIter) throws(BusError) -> BusValue {
    if dbus_message_iter_get_element_type(&iterator) == code("y") {
      var inner = DBusMessageIter()
      dbus_message_iter_recurse(&iterator, &inner)
      var pointer: UnsafePointer<UInt8>?
      var count: Int32 = 0
      dbus_message_iter_get_fixed_array(&inner, &pointer, &count)
      return .bytes(pointer.map { Array(UnsafeBufferPointer(start: $0, count: Int(max(0, count)))) } ?? [])
    }
    guard let own = dbus_message_iter_get_signature(&iterator) else { throw .malformed("no memory") }
    defer { dbus_free(own) }
    return .array(element: String(String(cString: own).dropFirst()), try inside(&iterator))
  }

  private static func entry(_ iterator: inout DBusMessageIter) throws(BusError) -> BusValue {
    let parts = try inside(&iterator)
    guard parts.count == 2 else { throw .malformed("a dictionary entry of \(parts.count)") }
    return .entry(parts[0], parts[1])
  }

  private static func get<Value: BitwiseCopyable>(_ iterator: inout DBusMessageIter, _ initial: Value) -> Value {
    var value = initial
    dbus_message_iter_get_basic(&iterator, &value)
    return value
  }

  private static func getText(_ iterator: inout DBusMessageIter) -> String {
    var pointer: UnsafePointer<CChar>?
    dbus_message_iter_get_basic(&iterator, &pointer)
    return pointer.map { String(cString: $0) } ?? ""
  }
}

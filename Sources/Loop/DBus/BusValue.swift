// SPDX-License-Identifier: MIT

import Glibc

/// A value of D-Bus's type system, with its exact type. Source: the D-Bus specification, "Type system".
public indirect enum BusValue: Equatable, Sendable {
  case byte(UInt8)
  case bool(Bool)
  case int16(Int16)
  case uint16(UInt16)
  case int32(Int32)
  case uint32(UInt32)
  case int64(Int64)
  case uint64(UInt64)
  case double(Double)
  case string(String)
  case objectPath(String)
  case signature(String)
  case descriptor(BusDescriptor)
  /// `ay`, as bytes.
  case bytes([UInt8])
  /// `element` is the signature of the elements, and is there even if the array is empty.
  case array(element: String, [BusValue])
  case structure([BusValue])
  /// An entry of a dictionary: only within an array.
  case entry(BusValue, BusValue)
  case variant(BusValue)

  /// The type as D-Bus writes it.
  public var signature: String {
    switch self {
    case .byte: "y"
    case .bool: "b"
    case .int16: "n"
    case .uint16: "q"
    case .int32: "i"
    case .uint32: "u"
    case .int64: "x"
    case .uint64: "t"
    case .double: "d"
    case .string: "s"
    case .objectPath: "o"
    case .signature: "g"
    case .descriptor: "h"
    case .bytes: "ay"
    case .array(let element, _): "a\(element)"
    case .structure(let fields): "(\(fields.map(\.signature).joined()))"
    case .entry(let key, let value): "{\(key.signature)\(value.signature)}"
    case .variant: "v"
    }
  }

  /// An `a{sv}`.
  public static func options(_ values: [(String, BusValue)] = []) -> BusValue {
    .array(element: "{sv}", values.map { .entry(.string($0.0), .variant($0.1)) })
  }

  public var string: String? {
    switch self {
    case .string(let text), .objectPath(let text), .signature(let text): text
    default: nil
    }
  }

  public var bool: Bool? { if case .bool(let value) = self { value } else { nil } }

  /// The value of any integer type. `nil`: not an integer, or a 64-bit one beyond ±2⁵³.
  public var integer: Int64? {
    switch self {
    case .byte(let value): Int64(value)
    case .int16(let value): Int64(value)
    case .uint16(let value): Int64(value)
    case .int32(let value): Int64(value)
    case .uint32(let value): Int64(value)
    // No value of the bus is used for counting; sums with the remaining ones cannot overflow.
    case .int64(let value): (-(1 << 53)...(1 << 53)).contains(value) ? value : nil
    case .uint64(let value): value <= 1 << 53 ? Int64(value) : nil
    default: nil
    }
  }

  public var elements: [BusValue]? { if case .array(_, let values) = self { values } else { nil } }

  /// The value of a key of a dictionary with text keys, without its variant. `nil`: missing, or not such a dictionary.
  public subscript(key: String) -> BusValue? {
    for case .entry(let name, let value) in elements ?? [] where name.string == key { return value.unwrapped }
    return nil
  }

  /// The entries of a dictionary with text (or object path) keys.
  public var entries: [(key: String, value: BusValue)] {
    (elements ?? []).compactMap { element in
      guard case .entry(let key, let value) = element, let name = key.string else { return nil }
      return (name, value.unwrapped)
    }
  }

  /// The content of a variant, otherwise the value itself.
  public var unwrapped: BusValue { if case .variant(let value) = self { value } else { self } }
}

/// A received file descriptor: closed with its last reference, unless it was taken.
public final class BusDescriptor: Sendable, Equatable {
  private let number: Int32

  public init(owning number: Int32) { self.number = number }

  deinit { if number >= 0 { close(number) } }

  /// A duplicate that the caller owns; negative if none is available.
  public func duplicate() -> Int32 { fcntl(number, F_DUPFD_CLOEXEC, 0) }

  public static func == (left: BusDescriptor, right: BusDescriptor) -> Bool { left === right }
}

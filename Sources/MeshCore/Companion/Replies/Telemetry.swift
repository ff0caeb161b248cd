// SPDX-License-Identifier: MIT

// Cayenne LPP as MeshCore uses it: channel u8, type u8, value **big-endian**. It ends with the data or at channel 0.
// Values have no lengths, so an unknown type ends the decoding. Source: docs/protocol/telemetry.md § 1.

/// The type of a reading.
public struct SensorType: Hashable, Sendable, RawRepresentable {
  public let rawValue: UInt8
  public init(rawValue: UInt8) { self.rawValue = rawValue }

  public static let voltage = SensorType(rawValue: 116)
  public static let temperature = SensorType(rawValue: 103)
  public static let gps = SensorType(rawValue: 136)

  /// The layout of the values of this type; `nil` for an unknown type.
  struct Layout {
    var name: String
    /// The number of values, and the bytes of each.
    var count: Int
    var size: Int
    /// The integer is divided by this.
    var divisor: Double
    var signed: Bool
  }

  var layout: Layout? { Self.layouts[rawValue] }

  /// The type's usual name; `type-` and the number if it is unknown.
  public var name: String { layout?.name ?? "type-\(rawValue)" }

  private static func one(_ name: String, _ size: Int, _ divisor: Double, signed: Bool = false) -> Layout {
    Layout(name: name, count: 1, size: size, divisor: divisor, signed: signed)
  }

  private static let layouts: [UInt8: Layout] = [
    0: one("digital_input", 1, 1), 1: one("digital_output", 1, 1),
    2: one("analog_input", 2, 100, signed: true), 3: one("analog_output", 2, 100, signed: true),
    100: one("generic", 4, 1), 101: one("luminosity", 2, 1), 102: one("presence", 1, 1),
    103: one("temperature", 2, 10, signed: true), 104: one("humidity", 1, 2),
    113: Layout(name: "accelerometer", count: 3, size: 2, divisor: 1000, signed: true),
    115: one("pressure", 2, 10), 116: one("voltage", 2, 100, signed: true),
    117: one("current", 2, 1000, signed: true), 118: one("frequency", 4, 1), 120: one("percentage", 1, 1),
    121: one("altitude", 2, 1, signed: true), 122: one("load", 3, 1000, signed: true),
    125: one("concentration", 2, 1), 128: one("power", 2, 1), 130: one("distance", 4, 1000),
    131: one("energy", 4, 1000), 132: one("direction", 2, 1), 133: one("time", 4, 1),
    134: Layout(name: "gyrometer", count: 3, size: 2, divisor: 100, signed: true),
    135: Layout(name: "colour", count: 3, size: 1, divisor: 1, signed: false),
    136: Layout(name: "gps", count: 3, size: 3, divisor: 10_000, signed: true),
    142: one("switch", 1, 1),
  ]
}

/// One reading. A channel can have several of one type: identify them by (channel, type, occurrence).
public struct Reading: Equatable, Sendable {
  public var channel: UInt8
  public var type: SensorType
  /// One number; three for accelerometer, gyrometer, colour, and GPS (degrees, degrees, metres).
  public var values: [Double]

  public init(channel: UInt8, type: SensorType, values: [Double]) {
    self.channel = channel
    self.type = type
    self.values = values
  }
}

/// A node's readings.
public struct Telemetry: Equatable, Sendable {
  public var readings: [Reading]
  /// The undecoded rest: it begins with an unknown type, or with a value that was cut off.
  public var rest: [UInt8]

  public init(readings: [Reading], rest: [UInt8] = []) {
    self.readings = readings
    self.rest = rest
  }

  /// Decodes as much as possible; never fails.
  public init(decoding data: [UInt8]) {
    readings = []
    rest = []
    var position = 0
    while position < data.count, data[position] != 0 {
      guard position + 1 < data.count, let layout = SensorType(rawValue: data[position + 1]).layout,
        position + 2 + layout.count * layout.size <= data.count
      else {
        rest = Array(data[position...])
        return
      }
      let type = SensorType(rawValue: data[position + 1])
      var values: [Double] = []
      for index in 0..<layout.count {
        let start = position + 2 + index * layout.size
        let integer = Self.integer(data[start..<start + layout.size], signed: layout.signed)
        values.append(Double(integer) / (type == .gps && index == 2 ? 100 : layout.divisor))
      }
      readings.append(Reading(channel: data[position], type: type, values: values))
      position += 2 + layout.count * layout.size
    }
  }

  /// Encodes the readings, truncating as the firmware's library does. Unknown types are left out.
  public func encode() -> [UInt8] {
    var writer = FrameWriter()
    for reading in readings {
      guard let layout = reading.type.layout, reading.values.count == layout.count else { continue }
      writer.raw([reading.channel, reading.type.rawValue])
      for (index, value) in reading.values.enumerated() {
        let divisor = reading.type == .gps && index == 2 ? 100 : layout.divisor
        writer.big(UInt64(bitPattern: Self.truncated(value * divisor)), layout.size)
      }
    }
    return writer.bytes
  }

  /// Rounds toward zero, with a tolerance for 37.7749 × 10⁴ = 377748.99….
  private static func truncated(_ value: Double) -> Int64 {
    let nudged = value + (value < 0 ? -1e-6 : 1e-6)
    return abs(nudged) < 9e15 ? Int64(nudged) : 0
  }

  private static func integer(_ bytes: ArraySlice<UInt8>, signed: Bool) -> Int64 {
    var value: Int64 = 0
    for byte in bytes.prefix(7) { value = value << 8 | Int64(byte) }
    let bits = Int64(min(bytes.count, 7) * 8)
    if signed, bits > 0, value >> (bits - 1) & 1 == 1 { value -= 1 << bits }
    return value
  }
}

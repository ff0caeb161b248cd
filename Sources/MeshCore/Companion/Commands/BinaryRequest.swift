// SPDX-License-Identifier: MIT

// Binary requests to other nodes and their answers. Source: docs/protocol/telemetry.md § 4.

/// The request that follows the key in SEND_BINARY_REQ (50).
public struct BinaryRequest: Equatable, Sendable {
  public var type: UInt8
  public var parameters: [UInt8]

  public init(type: UInt8, parameters: [UInt8]) {
    self.type = type
    self.parameters = parameters
  }

  init(reading reader: inout FrameReader) throws(FrameError) {
    type = try reader.u8("request_type")
    parameters = reader.rest()
  }

  public static func neighbours(_ query: NeighbourQuery) -> BinaryRequest {
    BinaryRequest(type: 6, parameters: query.encode())
  }
}

/// The parameters of binary request 6 to a repeater.
public struct NeighbourQuery: Equatable, Sendable {
  public enum Order: UInt8, Sendable { case newest, oldest, strongest, weakest }

  public var version: UInt8 = 0
  /// The maximum number of entries, and the index of the first.
  public var count: UInt8
  public var first: UInt16
  public var order: UInt8
  /// Bytes of each key in the answer, 1…32.
  public var keyBytes: UInt8
  public var salt: [UInt8]

  public init(count: UInt8, first: UInt16, order: Order, keyBytes: UInt8, salt: UInt32) {
    self.count = count
    self.first = first
    self.order = order.rawValue
    self.keyBytes = keyBytes
    self.salt = AckCode(value: salt).bytes
  }

  public init(decoding parameters: [UInt8]) throws(FrameError) {
    var reader = FrameReader(parameters)
    version = try reader.u8("version")
    count = try reader.u8("count")
    first = try reader.u16("first")
    order = try reader.u8("order")
    keyBytes = try reader.u8("key_bytes")
    salt = reader.rest()
  }

  public func encode() -> [UInt8] {
    var writer = FrameWriter()
    writer.raw([version, count])
    writer.u16(first)
    writer.raw([order, keyBytes] + salt)
    return writer.bytes
  }
}

/// The answer to a `NeighbourQuery`: repeaters heard directly.
public struct Neighbours: Equatable, Sendable {
  public struct Entry: Equatable, Sendable {
    public var key: [UInt8]
    /// Seconds; huge if the repeater's clock was set in between.
    public var heardAgo: UInt32
    public var snr: SNR
  }

  public var total: Int16
  public var entries: [Entry]

  /// `keyBytes`: as in the query. Stops after the announced number of entries: padding follows.
  public init(decoding data: [UInt8], keyBytes: Int) throws(FrameError) {
    var reader = FrameReader(data)
    total = try reader.i16("total")
    let count = try reader.i16("count")
    entries = []
    for _ in 0..<max(0, count) where reader.remaining >= keyBytes + 5 {
      entries.append(
        Entry(
          key: try reader.bytes(keyBytes, "key"), heardAgo: try reader.u32("seconds_ago"), snr: try reader.snr()))
    }
  }
}

/// An entry of a server's access list: the answer to binary request 5.
public struct AccessEntry: Equatable, Sendable {
  public var prefix: KeyPrefix
  public var permissions: UInt8

  /// All whole entries; entries of zeros are padding.
  public static func list(decoding data: [UInt8]) -> [AccessEntry] {
    var reader = FrameReader(data)
    var entries: [AccessEntry] = []
    while reader.remaining >= 7, let prefix = try? reader.prefix(), let permissions = try? reader.u8("permissions") {
      // `try?`: the length was checked, so neither call can throw.
      if !(prefix.isZero && permissions == 0) { entries.append(AccessEntry(prefix: prefix, permissions: permissions)) }
    }
    return entries
  }
}

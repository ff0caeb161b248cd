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

  /// Asks a repeater for the nodes that it has heard, the newest first: at most `count`, from the index `first` on, with so many bytes of each key, 1…32.
  public static func neighbours(count: UInt8, first: UInt16, keyBytes: UInt8, salt: UInt32) -> BinaryRequest {
    var writer = FrameWriter()
    let (version, newestFirst): (UInt8, UInt8) = (0, 0)
    writer.raw([version, count])
    writer.u16(first)
    writer.raw([newestFirst, keyBytes])
    writer.u32(salt)
    return BinaryRequest(type: 6, parameters: writer.bytes)
  }
}

/// The answer to binary request 6: repeaters heard directly.
public struct Neighbours: Equatable, Sendable {
  public struct Entry: Equatable, Sendable {
    public var key: [UInt8]
    /// Seconds; huge if the repeater's clock was set in between.
    public var heardAgo: UInt32
    public var snr: SNR
  }

  public var total: Int16
  public var entries: [Entry]

  /// `keyBytes`: as in the request. Stops after the announced number of entries: padding follows.
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

// SPDX-License-Identifier: MIT

/// The content of CONTROL packets: node discovery, zero-hop and unencrypted. Source: docs/protocol/companion.md § 9.10.
public enum ControlPayload: Equatable, Sendable {
  /// `typeFilter`: bit *t* is set for each wanted node type *t*; `since` may be left out.
  case discoverRequest(prefixOnly: Bool, typeFilter: UInt8, tag: UInt32, since: UInt32?)
  /// `snr`: of our request at the responder. The key may be only its first 8 bytes.
  case discoverResponse(type: NodeType, snr: SNR, tag: UInt32, key: [UInt8])
  case unknown([UInt8])

  public init(decoding payload: [UInt8]) throws(FrameError) {
    var reader = FrameReader(payload)
    let first = try reader.u8("subtype")
    switch first >> 4 {
    case 8:
      let (filter, tag) = (try reader.u8("type_filter"), try reader.u32("tag"))
      self = .discoverRequest(
        prefixOnly: first & 1 != 0, typeFilter: filter, tag: tag,
        since: reader.remaining >= 4 ? try reader.u32("since") : nil)
    case 9:
      let (snr, tag) = (try reader.snr(), try reader.u32("tag"))
      let key = try reader.rest("key", least: 8)
      self = .discoverResponse(type: NodeType(rawValue: first & 15), snr: snr, tag: tag, key: Array(key.prefix(32)))
    default: self = .unknown(payload)
    }
  }

  public func encode() -> [UInt8] {
    var writer = FrameWriter()
    switch self {
    case .discoverRequest(let prefixOnly, let filter, let tag, let since):
      writer.raw([prefixOnly ? 0x81 : 0x80, filter])
      writer.u32(tag)
      if let since { writer.u32(since) }
    case .discoverResponse(let type, let snr, let tag, let key):
      writer.u8(0x90 | type.rawValue & 15)
      writer.i8(snr.quarters)
      writer.u32(tag)
      writer.raw(key)
    case .unknown(let payload): writer.raw(payload)
    }
    return writer.bytes
  }
}

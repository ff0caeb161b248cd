// SPDX-License-Identifier: MIT

// Unsolicited frames of the radio. Source: docs/protocol/companion.md § 7; firmware `MyMesh.cpp`, `PUSH_CODE_*`.

/// The first byte of a push, always 0x80 or more.
public enum PushCode: UInt8, CaseIterable, Sendable {
  case advert = 0x80, pathUpdated = 0x81, sendConfirmed = 0x82, messageWaiting = 0x83, rawData = 0x84
  case loginSuccess = 0x85, loginFail = 0x86, statusResponse = 0x87, logRxData = 0x88, traceData = 0x89
  case newAdvert = 0x8A, telemetryResponse = 0x8B, binaryResponse = 0x8C, pathDiscoveryResponse = 0x8D
  case controlData = 0x8E, contactDeleted = 0x8F, contactsFull = 0x90
}

/// LOGIN_SUCCESS (0x85).
public struct LoginSuccess: Equatable, Sendable {
  /// Legacy: 1 admin, 0 not, 2 a room's guest. Not a bit field.
  public var permissions: UInt8
  public var prefix: KeyPrefix
  /// The server's clock; only from newer servers.
  public var serverTime: UInt32?
  /// Bits 0–1 the role: 0 guest, 1 read-only, 2 read-write, 3 admin.
  public var acl: UInt8?
  public var firmwareLevel: UInt8?

  /// A room allows reading and ignores posts. Rooms that anyone may read give the same answer to a wrong password.
  public var isReadOnly: Bool { permissions == 2 }
  public var isAdmin: Bool { permissions == 1 || acl.map { $0 & 3 == 3 } ?? false }
  /// Not an admin, for certain: of servers that do not tell the role nobody knows.
  public var isGuest: Bool { !isAdmin && (isReadOnly || acl != nil) }

  public init(
    permissions: UInt8, prefix: KeyPrefix, serverTime: UInt32? = nil, acl: UInt8? = nil, firmwareLevel: UInt8? = nil
  ) {
    self.permissions = permissions
    self.prefix = prefix
    self.serverTime = serverTime
    self.acl = acl
    self.firmwareLevel = firmwareLevel
  }

  init(reading reader: inout FrameReader) throws(FrameError) {
    permissions = try reader.u8("permissions")
    prefix = try reader.prefix()
    if reader.remaining >= 4 { serverTime = try reader.u32("server_time") }
    if reader.remaining >= 1 { acl = try reader.u8("acl") }
    if reader.remaining >= 1 { firmwareLevel = try reader.u8("firmware_level") }
  }

  func write(to writer: inout FrameWriter) {
    writer.u8(permissions)
    writer.prefix(prefix)
    if let serverTime { writer.u32(serverTime) }
    if let acl { writer.u8(acl) }
    if let firmwareLevel { writer.u8(firmwareLevel) }
  }
}

/// TRACE_DATA (0x89): the SNR at each hop of a traced route.
public struct TraceData: Equatable, Sendable {
  /// Bits 0–1: bytes per hop as 1 << n.
  public var flags: UInt8
  public var tag: UInt32
  public var auth: UInt32
  public var hashes: [UInt8]
  /// SNR at each hop.
  public var hopSNRs: [SNR]
  /// SNR of the last hop at this radio.
  public var finalSNR: SNR

  public init(flags: UInt8, tag: UInt32, auth: UInt32, hashes: [UInt8], hopSNRs: [SNR], finalSNR: SNR) {
    self.flags = flags
    self.tag = tag
    self.auth = auth
    self.hashes = hashes
    self.hopSNRs = hopSNRs
    self.finalSNR = finalSNR
  }

  public var hashSize: Int { 1 << Int(flags & 3) }

  init(reading reader: inout FrameReader) throws(FrameError) {
    _ = try reader.u8("reserved")
    let count = Int(try reader.u8("path_len"))
    flags = try reader.u8("flags")
    tag = try reader.u32("tag")
    auth = try reader.u32("auth")
    hashes = try reader.bytes(count, "path_hashes")
    let snrs = try reader.bytes(count >> Int(flags & 3), "path_snrs")
    hopSNRs = snrs.map { SNR(quarters: Int8(bitPattern: $0)) }
    finalSNR = try reader.snr("final_snr")
  }

  func write(to writer: inout FrameWriter) {
    writer.raw([0, UInt8(truncatingIfNeeded: hashes.count), flags])
    writer.u32(tag)
    writer.u32(auth)
    writer.raw(hashes)
    for snr in hopSNRs { writer.i8(snr.quarters) }
    writer.i8(finalSNR.quarters)
  }
}

/// PATH_DISCOVERY_RESPONSE (0x8D): the paths to and from a node. The radio does **not** store the path.
public struct DiscoveredPath: Equatable, Sendable {
  public var prefix: KeyPrefix
  /// From us to the node; `in` is the opposite direction.
  public var out: Path
  public var `in`: Path

  init(reading reader: inout FrameReader) throws(FrameError) {
    _ = try reader.u8("reserved")
    prefix = try reader.prefix()
    let outLength = PathLength(raw: try reader.u8("out_path_len"))
    out = try Path(reading: &reader, length: outLength, field: "out_path")
    let inLength = PathLength(raw: try reader.u8("in_path_len"))
    `in` = try Path(reading: &reader, length: inLength, field: "in_path")
  }

  func write(to writer: inout FrameWriter) {
    writer.u8(0)
    writer.prefix(prefix)
    for path in [out, self.in] {
      writer.u8(path.length.raw)
      writer.raw(path.bytes)
    }
  }
}

/// A push: an event that no command has asked for.
public enum Push: Equatable, Sendable {
  /// A contact of the table was heard, **or the radio has just added it**.
  case advert(PublicKey)
  case pathUpdated(PublicKey)
  /// Milliseconds from sending to acknowledgement.
  case sendConfirmed(ack: AckCode, tripTime: UInt32)
  case messageWaiting
  case rawData(snr: SNR, rssi: Int8, payload: [UInt8])
  case loginSuccess(LoginSuccess)
  case loginFail(KeyPrefix)
  /// The status structure, zero-padded; `NodeStatus` reads it once the node's type is known.
  case statusResponse(KeyPrefix, data: [UInt8])
  /// Every packet that the radio demodulates, before any check.
  case logRxData(snr: SNR, rssi: Int8, packet: [UInt8])
  case traceData(TraceData)
  /// A node was heard that is **not** in the table and was not added.
  case newAdvert(Contact)
  /// Cayenne LPP; `Telemetry` reads it.
  case telemetryResponse(KeyPrefix, data: [UInt8])
  /// Zero-padded to blocks of 16 bytes.
  case binaryResponse(tag: AckCode, data: [UInt8])
  case pathDiscoveryResponse(DiscoveredPath)
  case controlData(snr: SNR, rssi: Int8, pathLength: UInt8, payload: [UInt8])
  /// The radio has overwritten this contact to make room.
  case contactDeleted(PublicKey)
  case contactsFull
  /// An unknown code with its payload, unchanged.
  case unknown(code: UInt8, payload: [UInt8])
}

extension Push {
  /// Decodes a push. Throws if a mandatory field is missing; longer frames are accepted.
  public init(decoding frame: [UInt8]) throws(FrameError) {
    guard let first = frame.first else { throw .empty }
    var reader = FrameReader(frame, from: 1)
    guard let code = PushCode(rawValue: first) else {
      self = .unknown(code: first, payload: reader.rest())
      return
    }
    if let event = try Self.event(code, &reader) {
      self = event
    } else {
      self = try Self.answer(code, &reader)
    }
  }

  private static func event(_ code: PushCode, _ reader: inout FrameReader) throws(FrameError) -> Push? {
    switch code {
    case .advert: return .advert(try reader.key())
    case .pathUpdated: return .pathUpdated(try reader.key())
    case .sendConfirmed:
      return .sendConfirmed(
        ack: AckCode(value: UInt32(try reader.big(4, "ack"))), tripTime: try reader.u32("trip_ms"))
    case .messageWaiting: return .messageWaiting
    case .rawData:
      let (snr, rssi) = (try reader.snr(), try reader.i8("rssi"))
      _ = try reader.u8("reserved")
      return .rawData(snr: snr, rssi: rssi, payload: reader.rest())
    case .logRxData:
      return .logRxData(snr: try reader.snr(), rssi: try reader.i8("rssi"), packet: reader.rest())
    case .newAdvert: return .newAdvert(try Contact(reading: &reader, whole: true))
    case .controlData:
      return .controlData(
        snr: try reader.snr(), rssi: try reader.i8("rssi"), pathLength: try reader.u8("path_len"),
        payload: reader.rest())
    case .contactDeleted: return .contactDeleted(try reader.key())
    case .contactsFull: return .contactsFull
    default: return nil
    }
  }

  private static func answer(_ code: PushCode, _ reader: inout FrameReader) throws(FrameError) -> Push {
    switch code {
    case .loginSuccess: return .loginSuccess(try LoginSuccess(reading: &reader))
    case .traceData: return .traceData(try TraceData(reading: &reader))
    case .pathDiscoveryResponse: return .pathDiscoveryResponse(try DiscoveredPath(reading: &reader))
    default: break
    }
    _ = try reader.u8("reserved")
    switch code {
    case .loginFail: return .loginFail(try reader.prefix())
    case .statusResponse: return .statusResponse(try reader.prefix(), data: reader.rest())
    case .telemetryResponse: return .telemetryResponse(try reader.prefix(), data: reader.rest())
    default:
      return .binaryResponse(tag: AckCode(value: UInt32(try reader.big(4, "tag"))), data: reader.rest())
    }
  }

  /// The frame without marker and length.
  public func encode() -> [UInt8] {
    switch self {
    case .advert(let key): Self.frame(.advert) { $0.key(key) }
    case .pathUpdated(let key): Self.frame(.pathUpdated) { $0.key(key) }
    case .sendConfirmed(let ack, let tripTime):
      Self.frame(.sendConfirmed) {
        $0.raw(ack.bytes)
        $0.u32(tripTime)
      }
    case .messageWaiting: Self.frame(.messageWaiting) { _ in }
    case .rawData(let snr, let rssi, let payload): Self.frame(.rawData, snr, rssi, [0xFF] + payload)
    case .loginSuccess(let login): Self.frame(.loginSuccess) { login.write(to: &$0) }
    case .loginFail(let prefix): Self.frame(.loginFail, prefix, [])
    case .statusResponse(let prefix, let data): Self.frame(.statusResponse, prefix, data)
    case .logRxData(let snr, let rssi, let packet): Self.frame(.logRxData, snr, rssi, packet)
    case .traceData(let trace): Self.frame(.traceData) { trace.write(to: &$0) }
    case .newAdvert(let contact): Self.frame(.newAdvert) { contact.write(to: &$0) }
    case .telemetryResponse(let prefix, let data): Self.frame(.telemetryResponse, prefix, data)
    case .binaryResponse(let tag, let data): Self.frame(.binaryResponse) { $0.raw([0] + tag.bytes + data) }
    case .pathDiscoveryResponse(let discovered): Self.frame(.pathDiscoveryResponse) { discovered.write(to: &$0) }
    case .controlData(let snr, let rssi, let pathLength, let payload):
      Self.frame(.controlData, snr, rssi, [pathLength] + payload)
    case .contactDeleted(let key): Self.frame(.contactDeleted) { $0.key(key) }
    case .contactsFull: Self.frame(.contactsFull) { _ in }
    case .unknown(let code, let payload): [code] + payload
    }
  }

  private static func frame(_ code: PushCode, _ write: (inout FrameWriter) -> Void) -> [UInt8] {
    FrameWriter.frame(code, write)
  }

  private static func frame(_ code: PushCode, _ prefix: KeyPrefix, _ data: [UInt8]) -> [UInt8] {
    frame(code) { $0.raw([0] + prefix.bytes + data) }
  }

  private static func frame(_ code: PushCode, _ snr: SNR, _ rssi: Int8, _ rest: [UInt8]) -> [UInt8] {
    frame(code) { $0.raw([snr.quarters, rssi].map { UInt8(bitPattern: $0) } + rest) }
  }
}

/// A frame from the radio: codes from 0x80 on are pushes, the others replies.
public enum RadioFrame: Equatable, Sendable {
  case reply(Reply)
  case push(Push)

  public init(decoding frame: [UInt8]) throws(FrameError) {
    guard let code = frame.first else { throw .empty }
    self = code >= 0x80 ? .push(try Push(decoding: frame)) : .reply(try Reply(decoding: frame))
  }

  public func encode() -> [UInt8] {
    switch self {
    case .reply(let reply): reply.encode()
    case .push(let push): push.encode()
    }
  }
}

// SPDX-License-Identifier: MIT

/// Permissions for this radio's telemetry: two bits each for base, location, environment.
public struct TelemetryModes: Hashable, Sendable {
  public var raw: UInt8
  public init(raw: UInt8) { self.raw = raw }
  public init(base: UInt8, location: UInt8, environment: UInt8) {
    raw = base & 3 | (location & 3) << 2 | (environment & 3) << 4
  }

  /// 0: deny; 1: by the contact's flags; 2: everybody.
  public var base: UInt8 { raw & 3 }
  public var location: UInt8 { raw >> 2 & 3 }
  public var environment: UInt8 { raw >> 4 & 3 }
}

/// Radio parameters. Frequency in kHz, bandwidth in Hz.
///
/// Radios truncate floats: compare frequencies and bandwidths with a tolerance of 1.
public struct RadioParameters: Equatable, Sendable {
  public var frequency: UInt32
  public var bandwidth: UInt32
  public var spreadingFactor: UInt8
  public var codingRate: UInt8

  public init(frequency: UInt32, bandwidth: UInt32, spreadingFactor: UInt8, codingRate: UInt8) {
    self.frequency = frequency
    self.bandwidth = bandwidth
    self.spreadingFactor = spreadingFactor
    self.codingRate = codingRate
  }

  init(reading reader: inout FrameReader) throws(FrameError) {
    frequency = try reader.u32("frequency")
    bandwidth = try reader.u32("bandwidth")
    spreadingFactor = try reader.u8("sf")
    codingRate = try reader.u8("cr")
  }

  func write(to writer: inout FrameWriter) {
    writer.u32(frequency)
    writer.u32(bandwidth)
    writer.u8(spreadingFactor)
    writer.u8(codingRate)
  }
}

/// SELF_INFO (5): the radio's identity and settings; the answer to APP_START. 58 bytes and the name.
///
///     0  1     2      3      4      36   40   44      45      46     47          48         56 57 58
///     5  type  tx dBm max    key32  lat  lon  multi   policy  modes  manual_add  freq, bw   SF CR name
///
/// Source: docs/protocol/companion.md § 6; firmware `MyMesh.cpp`, `CMD_APP_START`.
public struct SelfInfo: Equatable, Sendable {
  public var advertType: UInt8
  /// dBm, signed.
  public var txPower: Int8
  public var maxTxPower: Int8
  public var key: PublicKey
  public var latitude: Int32
  public var longitude: Int32
  public var multiAcks: UInt8
  public var locationPolicy: UInt8
  public var telemetryModes: TelemetryModes
  /// Bit 0: the radio does not add contacts by itself.
  public var manualAddContacts: UInt8
  public var radio: RadioParameters
  public var name: Text

  public init(
    advertType: UInt8 = 1, txPower: Int8, maxTxPower: Int8, key: PublicKey, latitude: Int32, longitude: Int32,
    multiAcks: UInt8, locationPolicy: UInt8, telemetryModes: TelemetryModes, manualAddContacts: UInt8,
    radio: RadioParameters, name: Text
  ) {
    self.advertType = advertType
    self.txPower = txPower
    self.maxTxPower = maxTxPower
    self.key = key
    self.latitude = latitude
    self.longitude = longitude
    self.multiAcks = multiAcks
    self.locationPolicy = locationPolicy
    self.telemetryModes = telemetryModes
    self.manualAddContacts = manualAddContacts
    self.radio = radio
    self.name = name
  }

  init(reading reader: inout FrameReader) throws(FrameError) {
    advertType = try reader.u8("adv_type")
    txPower = try reader.i8("tx_power")
    maxTxPower = try reader.i8("max_tx_power")
    key = try reader.key()
    latitude = try reader.i32("lat")
    longitude = try reader.i32("lon")
    multiAcks = try reader.u8("multi_acks")
    locationPolicy = try reader.u8("location_policy")
    telemetryModes = TelemetryModes(raw: try reader.u8("telemetry_modes"))
    manualAddContacts = try reader.u8("manual_add_contacts")
    radio = try RadioParameters(reading: &reader)
    name = reader.text().beforeNul
  }

  func write(to writer: inout FrameWriter) {
    writer.u8(advertType)
    writer.i8(txPower)
    writer.i8(maxTxPower)
    writer.key(key)
    writer.i32(latitude)
    writer.i32(longitude)
    writer.u8(multiAcks)
    writer.u8(locationPolicy)
    writer.u8(telemetryModes.raw)
    writer.u8(manualAddContacts)
    radio.write(to: &writer)
    writer.raw(name.bytes)
  }
}

/// DEVICE_INFO (13): firmware and capacity; the answer to DEVICE_QUERY.
///
///     0   1        2         3         4    8         20        60          80      81
///     13  version  max / 2   channels  PIN  build 12  model 40  version 20  repeat  hash mode
///
/// Versions 1 and 2 promise only the version byte. Source: docs/protocol/companion.md § 6; firmware `CMD_DEVICE_QUERY`.
public struct DeviceInfo: Equatable, Sendable {
  /// Fields of version 3 and later.
  public struct Details: Equatable, Sendable {
    /// Half of the contact table's size, as transmitted.
    public var halfMaxContacts: UInt8
    public var channelSlots: UInt8
    /// The configured PIN; 0: the default. **Secret.**
    public var pin: UInt32
    public var build: Text
    public var model: Text
    public var version: Text

    public init(
      halfMaxContacts: UInt8, channelSlots: UInt8, pin: UInt32, build: Text, model: Text, version: Text
    ) {
      self.halfMaxContacts = halfMaxContacts
      self.channelSlots = channelSlots
      self.pin = pin
      self.build = build
      self.model = model
      self.version = version
    }
  }

  public var protocolVersion: UInt8
  public var details: Details?
  /// Client repeat, from version 9.
  public var clientRepeat: UInt8?
  /// Bytes per hop in this radio's floods, minus one; from version 10.
  public var pathHashMode: UInt8?

  public init(protocolVersion: UInt8, details: Details?, clientRepeat: UInt8? = nil, pathHashMode: UInt8? = nil) {
    self.protocolVersion = protocolVersion
    self.details = details
    self.clientRepeat = clientRepeat
    self.pathHashMode = pathHashMode
  }

  public var maxContacts: Int? { details.map { Int($0.halfMaxContacts) * 2 } }

  init(reading reader: inout FrameReader) throws(FrameError) {
    protocolVersion = try reader.u8("protocol_version")
    guard protocolVersion >= 3 else { return }
    details = Details(
      halfMaxContacts: try reader.u8("max_contacts"), channelSlots: try reader.u8("channels"),
      pin: try reader.u32("pin"), build: try reader.fixedText(12, "build"),
      model: try reader.fixedText(40, "model"), version: try reader.fixedText(20, "version"))
    if reader.remaining >= 1 { clientRepeat = try reader.u8("repeat") }
    if reader.remaining >= 1 { pathHashMode = try reader.u8("path_hash_mode") }
  }

  func write(to writer: inout FrameWriter) {
    writer.u8(protocolVersion)
    guard let details else { return }
    writer.u8(details.halfMaxContacts)
    writer.u8(details.channelSlots)
    writer.u32(details.pin)
    writer.fixedText(details.build, 12)
    writer.fixedText(details.model, 40)
    writer.fixedText(details.version, 20)
    if let clientRepeat { writer.u8(clientRepeat) }
    if let pathHashMode { writer.u8(pathHashMode) }
  }
}

/// AUTOADD_CONFIG (25), SET_AUTOADD_CONFIG (58).
public struct AutoAdd: Equatable, Sendable {
  /// 1: overwrite the oldest contact when the table is full. With manual add: 2 chat, 4 repeater, 8 room, 16 sensor.
  public var flags: UInt8
  /// 0: no limit; 1: only direct; N: up to N − 1 hops; `nil` if absent.
  public var maxHops: UInt8?

  public init(flags: UInt8, maxHops: UInt8?) {
    self.flags = flags
    self.maxHops = maxHops
  }

  init(reading reader: inout FrameReader) throws(FrameError) {
    flags = try reader.u8("flags")
    if reader.remaining >= 1 { maxHops = try reader.u8("max_hops") }
  }

  func write(to writer: inout FrameWriter) {
    writer.u8(flags)
    if let maxHops { writer.u8(maxHops) }
  }
}

/// TUNING_PARAMS (23), SET_TUNING_PARAMS (21): both × 1000.
public struct Tuning: Equatable, Sendable {
  public var rxDelayBase: UInt32
  public var airtimeFactor: UInt32

  public init(rxDelayBase: UInt32, airtimeFactor: UInt32) {
    self.rxDelayBase = rxDelayBase
    self.airtimeFactor = airtimeFactor
  }

  init(reading reader: inout FrameReader) throws(FrameError) {
    rxDelayBase = try reader.u32("rx_delay_base")
    airtimeFactor = try reader.u32("airtime_factor")
  }

  func write(to writer: inout FrameWriter) {
    writer.u32(rxDelayBase)
    writer.u32(airtimeFactor)
  }
}

/// A named flood scope: DEFAULT_FLOOD_SCOPE (28), SET_DEFAULT_FLOOD_SCOPE (63).
public struct FloodScope: Equatable, Sendable {
  public var name: Text
  /// 16 bytes; public for named regions.
  public var key: ChannelSecret

  public init(name: Text, key: ChannelSecret) {
    self.name = name
    self.key = key
  }

  /// `nil` if there are fewer than 47 bytes: no scope is set, or it is cleared.
  static func read(_ reader: inout FrameReader) throws(FrameError) -> FloodScope? {
    guard reader.remaining >= 47 else {
      _ = reader.rest()
      return nil
    }
    let name = try reader.fixedText(31, "scope")
    guard let key = ChannelSecret(bytes: try reader.bytes(16, "scope_key")) else { return nil }
    return FloodScope(name: name, key: key)
  }

  func write(to writer: inout FrameWriter) {
    writer.fixedText(name, 31)
    writer.raw(key.bytes)
  }
}

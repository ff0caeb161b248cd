// SPDX-License-Identifier: MIT

extension Command {
  /// Decodes a command, as the radio does.
  ///
  /// Throws `FrameError.missing` if the frame is shorter than the shortest full form. (The firmware accepts some
  /// shorter frames and fills them with bytes of an earlier frame; here those are errors.)
  public init(decoding frame: [UInt8]) throws(FrameError) {
    guard let first = frame.first else { throw .empty }
    var reader = FrameReader(frame, from: 1)
    guard let code = CommandCode(rawValue: first) else {
      self = .unknown(code: first, payload: reader.rest())
      return
    }
    if let plain = Self.withoutFields[code] {
      self = plain
    } else if let keyed = try Self.withKey(code, &reader) {
      self = keyed
    } else if let setting = try Self.setting(code, &reader) {
      self = setting
    } else {
      self = try Self.request(code, &reader)
    }
  }

  static let withoutFields: [CommandCode: Command] = [
    .getDeviceTime: .getDeviceTime, .syncNextMessage: .syncNextMessage, .getBattery: .getBattery,
    .exportPrivateKey: .exportPrivateKey, .signStart: .signStart, .signFinish: .signFinish,
    .getCustomVariables: .getCustomVariables, .getTuning: .getTuning, .getAutoAdd: .getAutoAdd,
    .getAllowedRepeatFrequencies: .getAllowedRepeatFrequencies, .getDefaultFloodScope: .getDefaultFloodScope,
  ]

  /// Commands whose first field, after reserved bytes, is a key.
  private static func withKey(_ code: CommandCode, _ reader: inout FrameReader) throws(FrameError) -> Command? {
    switch code {
    case .resetPath: return .resetPath(try reader.key())
    case .removeContact: return .removeContact(try reader.key())
    case .shareContact: return .shareContact(try reader.key())
    case .exportContact: return .exportContact(reader.isAtEnd ? nil : try reader.key())
    case .sendStatusRequest: return .sendStatusRequest(try reader.key())
    case .hasConnection: return .hasConnection(try reader.key())
    case .logout: return .logout(try reader.key())
    case .getContactByKey: return .getContactByKey(try reader.key())
    case .sendLogin: return .sendLogin(try reader.key(), password: reader.text())
    case .getAdvertPath:
      _ = try reader.u8("reserved")
      return .getAdvertPath(try reader.key())
    case .sendPathDiscovery:
      _ = try reader.u8("reserved")
      return .sendPathDiscovery(try reader.key())
    case .sendTelemetryRequest:
      _ = try reader.bytes(3, "reserved")
      return .sendTelemetryRequest(reader.isAtEnd ? nil : try reader.key())
    case .sendBinaryRequest:
      return .sendBinaryRequest(try reader.key(), try BinaryRequest(reading: &reader))
    case .sendAnonymousRequest:
      return .sendAnonymousRequest(
        try reader.key(), type: try reader.u8("request_type"), parameters: reader.rest())
    default: return nil
    }
  }

  private static func setting(_ code: CommandCode, _ reader: inout FrameReader) throws(FrameError) -> Command? {
    switch code {
    case .setDeviceTime: return .setDeviceTime(try reader.u32("time"))
    case .setAdvertName: return .setAdvertName(Text(bytes: try reader.rest("name", least: 1)))
    case .addUpdateContact: return .addUpdateContact(try Contact(reading: &reader, whole: false))
    case .setRadioParameters:
      let parameters = try RadioParameters(reading: &reader)
      return .setRadioParameters(parameters, clientRepeat: reader.isAtEnd ? nil : try reader.u8("repeat"))
    case .setTxPower: return .setTxPower(try reader.i8("dbm"))
    case .setAdvertPosition:
      let (latitude, longitude) = (try reader.i32("lat"), try reader.i32("lon"))
      let altitude = reader.remaining >= 4 ? try reader.i32("altitude") : nil
      return .setAdvertPosition(latitude: latitude, longitude: longitude, altitude: altitude)
    case .setTuning: return .setTuning(try Tuning(reading: &reader))
    case .importPrivateKey: return .importPrivateKey(try reader.bytes(64, "private_key"))
    case .setChannel: return try channel(&reader)
    case .setDevicePIN: return .setDevicePIN(try reader.u32("pin"))
    case .setOtherParameters:
      var other = OtherParameters(manualAddContacts: try reader.u8("manual_add"))
      if !reader.isAtEnd { other.telemetryModes = TelemetryModes(raw: try reader.u8("telemetry_modes")) }
      if !reader.isAtEnd { other.locationPolicy = try reader.u8("location_policy") }
      if !reader.isAtEnd { other.multiAcks = try reader.u8("multi_acks") }
      return .setOtherParameters(other)
    case .setCustomVariable: return .setCustomVariable(Text(bytes: try reader.rest("name:value", least: 3)))
    case .setFloodScopeKey: return .setFloodScopeKey(try scopeOverride(&reader))
    case .setAutoAdd: return .setAutoAdd(try AutoAdd(reading: &reader))
    case .setPathHashMode:
      let reserved = try reader.u8("reserved")
      guard reserved == 0 else { throw .invalid(field: "reserved", reason: "expected 0, found \(reserved)") }
      return .setPathHashMode(try reader.u8("mode"))
    case .setDefaultFloodScope: return .setDefaultFloodScope(try FloodScope.read(&reader))
    default: return nil
    }
  }

  private static func channel(_ reader: inout FrameReader) throws(FrameError) -> Command {
    guard reader.remaining >= 65 else { return .setChannel(try Channel(reading: &reader)) }
    return .setChannelLongSecret(
      slot: try reader.u8("slot"), name: try reader.fixedText(32, "name"), secret: reader.rest())
  }

  private static func scopeOverride(_ reader: inout FrameReader) throws(FrameError) -> FloodScopeOverride {
    let mode = try reader.u8("mode")
    let rest = reader.rest()
    switch (mode, rest.count) {
    case (0, 0...15): return .useDefault
    case (0, _): return .key(ChannelSecret(bytes: Array(rest.prefix(16))) ?? .zero)
    case (1, _): return .unscoped
    default: return .unknown(mode: mode, rest: rest)
    }
  }

  private static func request(_ code: CommandCode, _ reader: inout FrameReader) throws(FrameError) -> Command {
    switch code {
    case .appStart: return .appStart(try AppStart(reading: &reader))
    case .deviceQuery: return .deviceQuery(clientVersion: try reader.u8("client_version"))
    case .sendText: return .sendText(try text(&reader))
    case .sendChannelText:
      return .sendChannelText(
        type: TextType(rawValue: try reader.u8("text_type")), slot: try reader.u8("channel"),
        time: try reader.u32("time"), text: reader.text())
    case .getContacts: return .getContacts(since: reader.remaining < 4 ? nil : try reader.u32("since"))
    case .sendSelfAdvert: return .sendSelfAdvert(flood: reader.isAtEnd ? nil : try reader.u8("flood") == 1)
    case .importContact: return .importContact(card: try reader.rest("card", least: 98))
    case .reboot:
      return try word("reboot", &reader, means: .reboot)
    case .factoryReset:
      return try word("reset", &reader, means: .factoryReset)
    case .sendRawData: return try rawData(&reader)
    case .getChannel: return .getChannel(slot: try reader.u8("slot"))
    case .signData: return .signData(try reader.rest("data", least: 1))
    case .sendTracePath:
      let (tag, auth, flags) = (try reader.u32("tag"), try reader.u32("auth"), try reader.u8("flags"))
      let path = try reader.rest("path", least: 1)
      return .sendTracePath(TraceRequest(tag: tag, auth: auth, flags: flags, path: path))
    case .sendControlData: return .sendControlData(try reader.rest("control payload", least: 1))
    case .getStats: return .getStats(try reader.u8("stats"))
    case .sendChannelData: return .sendChannelData(try datagram(&reader))
    case .sendRawPacket:
      return .sendRawPacket(priority: try reader.u8("priority"), packet: try reader.rest("packet", least: 2))
    default: return .unknown(code: code.rawValue, payload: reader.rest())
    }
  }

  private static func text(_ reader: inout FrameReader) throws(FrameError) -> OutgoingText {
    let (type, attempt) = (TextType(rawValue: try reader.u8("text_type")), try reader.u8("attempt"))
    let (time, recipient) = (try reader.u32("time"), try reader.prefix("recipient_prefix"))
    let body = Text(bytes: try reader.rest("text", least: 1))
    return OutgoingText(type: type, attempt: attempt, time: time, recipient: recipient, text: body)
  }

  private static func rawData(_ reader: inout FrameReader) throws(FrameError) -> Command {
    let count = try reader.i8("path_len")
    guard count >= 0 else { throw .invalid(field: "path_len", reason: "\(count) is negative") }
    let path = try reader.bytes(Int(count), "path")
    return .sendRawData(path: path, payload: try reader.rest("payload", least: 4))
  }

  private static func datagram(_ reader: inout FrameReader) throws(FrameError) -> OutgoingDatagram {
    let slot = try reader.u8("channel")
    let length = try reader.u8("path_len")
    let path = length == 0xFF ? nil : try Path(reading: &reader, length: PathLength(raw: length))
    return OutgoingDatagram(slot: slot, path: path, dataType: try reader.u16("data_type"), data: reader.rest())
  }

  private static func word(
    _ word: String, _ reader: inout FrameReader, means command: Command
  ) throws(FrameError) -> Command {
    let bytes = try reader.bytes(word.utf8.count, word)
    guard bytes == Array(word.utf8) else { throw .invalid(field: word, reason: "wrong confirmation word") }
    return command
  }
}

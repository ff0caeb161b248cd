// SPDX-License-Identifier: MIT

extension Command {
  /// The frame without marker and length, always in its full form.
  public func encode() -> [UInt8] {
    if let bytes = encodeKeyed() ?? encodeSetting() ?? encodeSending() { return bytes }
    if case .unknown(let code, let payload) = self { return [code] + payload }
    return Self.withoutFields.first { $0.value == self }.map { [$0.key.rawValue] } ?? []
  }

  private static func frame(_ code: CommandCode, _ write: (inout FrameWriter) -> Void) -> [UInt8] {
    FrameWriter.frame(code, write)
  }

  private static func frame(_ code: CommandCode, zeros: Int = 0, _ key: PublicKey?) -> [UInt8] {
    frame(code) {
      $0.zeros(zeros)
      if let key { $0.key(key) }
    }
  }

  private func encodeKeyed() -> [UInt8]? {
    switch self {
    case .resetPath(let key): return Self.frame(.resetPath, key)
    case .removeContact(let key): return Self.frame(.removeContact, key)
    case .shareContact(let key): return Self.frame(.shareContact, key)
    case .exportContact(let key): return Self.frame(.exportContact, key)
    case .sendStatusRequest(let key): return Self.frame(.sendStatusRequest, key)
    case .hasConnection(let key): return Self.frame(.hasConnection, key)
    case .logout(let key): return Self.frame(.logout, key)
    case .getContactByKey(let key): return Self.frame(.getContactByKey, key)
    case .getAdvertPath(let key): return Self.frame(.getAdvertPath, zeros: 1, key)
    case .sendPathDiscovery(let key): return Self.frame(.sendPathDiscovery, zeros: 1, key)
    case .sendTelemetryRequest(let key): return Self.frame(.sendTelemetryRequest, zeros: 3, key)
    case .sendLogin(let key, let password): return Self.frame(.sendLogin, key) + password.bytes
    case .sendBinaryRequest(let key, let request):
      return Self.frame(.sendBinaryRequest, key) + [request.type] + request.parameters
    case .sendAnonymousRequest(let key, let type, let parameters):
      return Self.frame(.sendAnonymousRequest, key) + [type] + parameters
    default: return nil
    }
  }

  private func encodeSetting() -> [UInt8]? {
    switch self {
    case .setDeviceTime(let time): return Self.frame(.setDeviceTime) { $0.u32(time) }
    case .setAdvertName(let name): return Self.frame(.setAdvertName) { $0.raw(name.bytes) }
    case .addUpdateContact(let contact): return Self.frame(.addUpdateContact) { contact.write(to: &$0) }
    case .setRadioParameters(let parameters, let clientRepeat):
      return Self.frame(.setRadioParameters) {
        parameters.write(to: &$0)
        if let clientRepeat { $0.u8(clientRepeat) }
      }
    case .setTxPower(let dBm): return Self.frame(.setTxPower) { $0.i8(dBm) }
    case .setAdvertPosition(let latitude, let longitude, let altitude):
      return Self.frame(.setAdvertPosition) {
        $0.i32(latitude)
        $0.i32(longitude)
        if let altitude { $0.i32(altitude) }
      }
    case .setTuning(let tuning): return Self.frame(.setTuning) { tuning.write(to: &$0) }
    case .importPrivateKey(let key): return Self.frame(.importPrivateKey) { $0.fixed(key, 64) }
    case .setChannel(let channel): return Self.frame(.setChannel) { channel.write(to: &$0) }
    case .setChannelLongSecret(let slot, let name, let secret):
      return Self.frame(.setChannel) {
        $0.u8(slot)
        $0.fixedText(name, 32)
        $0.raw(secret)
      }
    case .setDevicePIN(let pin): return Self.frame(.setDevicePIN) { $0.u32(pin) }
    case .setOtherParameters(let other): return Self.encode(other)
    case .setCustomVariable(let pair): return Self.frame(.setCustomVariable) { $0.raw(pair.bytes) }
    case .setFloodScopeKey(let scope): return Self.encode(scope)
    case .setAutoAdd(let autoAdd): return Self.frame(.setAutoAdd) { autoAdd.write(to: &$0) }
    case .setPathHashMode(let mode): return Self.frame(.setPathHashMode) { $0.raw([0, mode]) }
    case .setDefaultFloodScope(let scope): return Self.frame(.setDefaultFloodScope) { scope?.write(to: &$0) }
    default: return nil
    }
  }

  private static func encode(_ other: OtherParameters) -> [UInt8] {
    let fields = [other.manualAddContacts, other.telemetryModes?.raw, other.locationPolicy, other.multiAcks]
    // Only fields at the end can be left out, because the radio goes by the length.
    return [CommandCode.setOtherParameters.rawValue] + fields.prefix { $0 != nil }.compactMap { $0 }
  }

  private static func encode(_ scope: FloodScopeOverride) -> [UInt8] {
    let code = CommandCode.setFloodScopeKey.rawValue
    switch scope {
    case .useDefault: return [code, 0]
    case .key(let key): return [code, 0] + key.bytes
    case .unscoped: return [code, 1]
    case .unknown(let mode, let rest): return [code, mode] + rest
    }
  }

  private func encodeSending() -> [UInt8]? {
    switch self {
    case .appStart(let start): return [CommandCode.appStart.rawValue] + start.reserved + start.client.bytes
    case .deviceQuery(let version): return [CommandCode.deviceQuery.rawValue, version]
    case .sendText(let text):
      return Self.frame(.sendText) {
        $0.raw([text.type.rawValue, text.attempt])
        $0.u32(text.time)
        $0.prefix(text.recipient)
        $0.raw(text.text.bytes)
      }
    case .sendChannelText(let type, let slot, let time, let text):
      return Self.frame(.sendChannelText) {
        $0.raw([type.rawValue, slot])
        $0.u32(time)
        $0.raw(text.bytes)
      }
    case .getContacts(let since): return Self.frame(.getContacts) { if let since { $0.u32(since) } }
    case .sendSelfAdvert(let flood): return Self.frame(.sendSelfAdvert) { if let flood { $0.u8(flood ? 1 : 0) } }
    case .importContact(let card): return Self.frame(.importContact) { $0.raw(card) }
    case .reboot: return Self.frame(.reboot) { $0.raw(Array("reboot".utf8)) }
    case .factoryReset: return Self.frame(.factoryReset) { $0.raw(Array("reset".utf8)) }
    case .sendRawData(let path, let payload):
      return Self.frame(.sendRawData) {
        $0.u8(UInt8(truncatingIfNeeded: path.count))
        $0.raw(path + payload)
      }
    case .getChannel(let slot): return [CommandCode.getChannel.rawValue, slot]
    case .signData(let data): return Self.frame(.signData) { $0.raw(data) }
    case .sendTracePath(let trace):
      return Self.frame(.sendTracePath) {
        $0.u32(trace.tag)
        $0.u32(trace.auth)
        $0.u8(trace.flags)
        $0.raw(trace.path)
      }
    case .sendControlData(let payload): return Self.frame(.sendControlData) { $0.raw(payload) }
    case .getStats(let type): return [CommandCode.getStats.rawValue, type]
    case .sendChannelData(let datagram):
      return Self.frame(.sendChannelData) {
        $0.raw([datagram.slot, datagram.path?.length.raw ?? 0xFF])
        $0.raw(datagram.path?.bytes ?? [])
        $0.u16(datagram.dataType)
        $0.raw(datagram.data)
      }
    case .sendRawPacket(let priority, let packet):
      return Self.frame(.sendRawPacket) { $0.raw([priority] + packet) }
    default: return nil
    }
  }
}

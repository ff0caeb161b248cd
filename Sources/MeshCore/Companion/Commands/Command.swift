// SPDX-License-Identifier: MIT

// Commands to the radio. Source: docs/protocol/companion.md §§ 3 and 5; firmware `MyMesh::handleCmdFrame`.

/// The number a command begins with.
public enum CommandCode: UInt8, CaseIterable, Sendable {
  case appStart = 1
  case sendText = 2, sendChannelText = 3, getContacts = 4
  case getDeviceTime = 5, setDeviceTime = 6, sendSelfAdvert = 7, setAdvertName = 8, addUpdateContact = 9
  case syncNextMessage = 10
  case setRadioParameters = 11, setTxPower = 12, resetPath = 13, setAdvertPosition = 14, removeContact = 15
  case shareContact = 16, exportContact = 17, importContact = 18, reboot = 19, getBattery = 20, setTuning = 21
  case deviceQuery = 22
  case exportPrivateKey = 23, importPrivateKey = 24, sendRawData = 25, sendLogin = 26, sendStatusRequest = 27
  case hasConnection = 28, logout = 29, getContactByKey = 30, getChannel = 31, setChannel = 32
  case signStart = 33, signData = 34, signFinish = 35, sendTracePath = 36, setDevicePIN = 37, setOtherParameters = 38
  case sendTelemetryRequest = 39, getCustomVariables = 40, setCustomVariable = 41, getAdvertPath = 42, getTuning = 43
  case sendBinaryRequest = 50, factoryReset = 51, sendPathDiscovery = 52
  case setFloodScopeKey = 54, sendControlData = 55, getStats = 56, sendAnonymousRequest = 57
  case setAutoAdd = 58, getAutoAdd = 59, getAllowedRepeatFrequencies = 60, setPathHashMode = 61
  case sendChannelData = 62, setDefaultFloodScope = 63, getDefaultFloodScope = 64, sendRawPacket = 65
}

/// APP_START (1). The radio answers with SELF_INFO and ends a contact iteration left running.
public struct AppStart: Equatable, Sendable {
  /// Seven bytes; the firmware ignores them, `pymc_core` reads the client's version from the first.
  public var reserved: [UInt8]
  /// The client's name, which the radio only logs.
  public var client: Text

  public init(client: Text, version: UInt8 = 3) {
    self.client = client
    reserved = [version] + Array(repeating: UInt8(ascii: " "), count: 6)
  }

  init(reading reader: inout FrameReader) throws(FrameError) {
    reserved = try reader.bytes(7, "reserved")
    client = reader.text()
  }
}

/// SEND_TXT_MSG (2): a direct message. Answered by SENT.
public struct OutgoingText: Equatable, Sendable {
  public var type: TextType
  /// 0, 1, 2, …: a retransmission needs a new number and the **same** time.
  public var attempt: UInt8
  public var time: UInt32
  public var recipient: KeyPrefix
  public var text: Text

  public init(type: TextType = .plain, attempt: UInt8, time: UInt32, recipient: KeyPrefix, text: Text) {
    self.type = type
    self.attempt = attempt
    self.time = time
    self.recipient = recipient
    self.text = text
  }
}

/// SEND_CHANNEL_DATA (62): data of a program for programs. Answer: OK.
public struct OutgoingDatagram: Equatable, Sendable {
  /// A packet holds 165 bytes; radios with frames of 172 bytes take no more than this, and do not hand over more.
  public static let mostBytes = 163
  /// The first protocol version with the command (docs/protocol/companion.md § 11).
  public static let firstVersion: UInt8 = 11

  public var slot: UInt8
  /// `nil`: flood.
  public var path: Path?
  /// Not 0, which the radio refuses.
  public var dataType: UInt16
  public var data: [UInt8]

  public init(slot: UInt8, path: Path? = nil, dataType: UInt16, data: [UInt8]) {
    self.slot = slot
    self.path = path
    self.dataType = dataType
    self.data = data
  }
}

/// SEND_TRACE_PATH (36).
public struct TraceRequest: Equatable, Sendable {
  public var tag: UInt32
  public var auth: UInt32
  /// Bits 0–1: bytes per hop as 1 << n.
  public var flags: UInt8
  /// The whole round trip.
  public var path: [UInt8]

  public init(tag: UInt32, auth: UInt32, flags: UInt8, path: [UInt8]) {
    self.tag = tag
    self.auth = auth
    self.flags = flags
    self.path = path
  }
}

/// SET_OTHER_PARAMS (38): fields left out at the end stay as they are.
public struct OtherParameters: Equatable, Sendable {
  public var manualAddContacts: UInt8
  public var telemetryModes: TelemetryModes?
  public var locationPolicy: UInt8?
  public var multiAcks: UInt8?

  public init(
    manualAddContacts: UInt8, telemetryModes: TelemetryModes? = nil, locationPolicy: UInt8? = nil,
    multiAcks: UInt8? = nil
  ) {
    self.manualAddContacts = manualAddContacts
    self.telemetryModes = telemetryModes
    self.locationPolicy = locationPolicy
    self.multiAcks = multiAcks
  }
}

/// The scope of the radio's following floods.
public enum FloodScopeOverride: Equatable, Sendable {
  /// Mode 0 without a key: back to the default scope.
  case useDefault
  case key(ChannelSecret)
  /// Mode 1 (version 12 on): without scope.
  case unscoped
  case unknown(mode: UInt8, rest: [UInt8])
}

/// A command to the radio.
public enum Command: Equatable, Sendable {
  case appStart(AppStart)
  case sendText(OutgoingText)
  /// The radio prepends its name and `": "` and cuts the sum at 160 bytes, silently. Answer: OK.
  case sendChannelText(type: TextType, slot: UInt8, time: UInt32, text: Text)
  /// Contacts whose `lastmod` is greater than `since`; all if `nil`.
  case getContacts(since: UInt32?)
  case getDeviceTime
  case setDeviceTime(UInt32)
  /// `nil`: the byte is left out, which means zero-hop.
  case sendSelfAdvert(flood: Bool?)
  case setAdvertName(Text)
  case addUpdateContact(Contact)
  case syncNextMessage
  /// Leaving out `clientRepeat` switches client repeat **off**.
  case setRadioParameters(RadioParameters, clientRepeat: UInt8?)
  case setTxPower(Int8)
  case resetPath(PublicKey)
  case setAdvertPosition(latitude: Int32, longitude: Int32, altitude: Int32?)
  case removeContact(PublicKey)
  case shareContact(PublicKey)
  /// `nil`: this radio's own card.
  case exportContact(PublicKey?)
  case importContact(card: [UInt8])
  case reboot
  case getBattery
  case setTuning(Tuning)
  case deviceQuery(clientVersion: UInt8)
  case exportPrivateKey
  case importPrivateKey([UInt8])
  case sendRawData(path: [UInt8], payload: [UInt8])
  case sendLogin(PublicKey, password: Text)
  case sendStatusRequest(PublicKey)
  case hasConnection(PublicKey)
  case logout(PublicKey)
  case getContactByKey(PublicKey)
  case getChannel(slot: UInt8)
  case setChannel(Channel)
  /// A 32-byte secret: 1.17.1 refuses it with ERR 1.
  case setChannelLongSecret(slot: UInt8, name: Text, secret: [UInt8])
  case signStart
  case signData([UInt8])
  case signFinish
  case sendTracePath(TraceRequest)
  case setDevicePIN(UInt32)
  case setOtherParameters(OtherParameters)
  /// `nil`: this radio itself, answered at once.
  case sendTelemetryRequest(PublicKey?)
  case getCustomVariables
  case setCustomVariable(Text)
  case getAdvertPath(PublicKey)
  case getTuning
  case sendBinaryRequest(PublicKey, BinaryRequest)
  case factoryReset
  case sendPathDiscovery(PublicKey)
  case setFloodScopeKey(FloodScopeOverride)
  case sendControlData([UInt8])
  case getStats(UInt8)
  case sendAnonymousRequest(PublicKey, type: UInt8, parameters: [UInt8])
  case setAutoAdd(AutoAdd)
  case getAutoAdd
  case getAllowedRepeatFrequencies
  case setPathHashMode(UInt8)
  case sendChannelData(OutgoingDatagram)
  /// `nil`: clear it.
  case setDefaultFloodScope(FloodScope?)
  case getDefaultFloodScope
  case sendRawPacket(priority: UInt8, packet: [UInt8])
  /// An unknown code with its payload, unchanged.
  case unknown(code: UInt8, payload: [UInt8])

  /// APP_START as this project sends it.
  public static func start(client: Text) -> Command { .appStart(AppStart(client: client)) }
}

// SPDX-License-Identifier: MIT

import Companion

/// How a client's command is handled. Pure.
enum ClientRoute: Equatable {
  /// The next message of the gateway's store: only the gateway reads the radio's own queue.
  case nextMessage
  case start(client: Text)
  case query(version: UInt8)
  case contacts(since: UInt32)
  case scope(FloodScopeOverride)
  case signStart, signData([UInt8]), signFinish
  /// Passed to the radio unchanged.
  case radio
  /// Passed to the radio; the answer arrives over the air, and only one such request may be open.
  case request(RemoteAnswer)
  /// The client lacks the permission.
  case danger(SharingSettings.Danger)
  /// The radio would malfunction (docs/protocol/companion.md § 9.6, docs/protocol/observed.md).
  case refused(RadioError)

  /// `now`: seconds since 1970, by the machine's clock if it is trusted, otherwise by the radio's.
  /// `mayCommand`: whether the radio has a contact that may run commands on it already.
  init(
    _ command: Command, allows: Set<SharingSettings.Danger>, now: Int64? = nil,
    mayCommand: (PublicKey) -> Bool = { _ in false }
  ) {
    if Self.isUnknown(command) {
      self = .refused(.unsupported)
    } else if Self.namesNobody(command) {
      self = .refused(.notFound)
    } else if case .addUpdateContact(let contact) = command, contact.mayCommand, !allows.contains(.commands),
      !mayCommand(contact.key)
    {
      self = .danger(.commands)
    } else if let danger = Self.danger(command), !allows.contains(danger), !Self.isRightTime(command, now) {
      self = .danger(danger)
    } else {
      self = Self.local(command) ?? RemoteAnswer(to: command).map { .request($0) } ?? .radio
    }
  }

  private static func local(_ command: Command) -> ClientRoute? {
    switch command {
    case .syncNextMessage: .nextMessage
    case .appStart(let start): .start(client: start.client)
    case .deviceQuery(let version): .query(version: version)
    case .getContacts(let since): .contacts(since: since ?? 0)
    case .setFloodScopeKey(let scope): .scope(scope)
    case .signStart: .signStart
    case .signData(let data): .signData(data)
    case .signFinish: .signFinish
    default: nil
    }
  }

  /// A later version may use unknown codes for anything.
  private static func isUnknown(_ command: Command) -> Bool {
    switch command {
    case .unknown, .setFloodScopeKey(.unknown): true
    default: false
    }
  }

  /// Apps set the clock on every connection. Setting the right time is harmless.
  private static func isRightTime(_ command: Command, _ now: Int64?) -> Bool {
    guard case .setDeviceTime(let time) = command, let now else { return false }
    return (now - rightTime...now + rightTime).contains(Int64(time))
  }

  private static let rightTime: Int64 = 60

  private static func danger(_ command: Command) -> SharingSettings.Danger? {
    switch command {
    case .setDeviceTime: .time
    case .setRadioParameters, .setTxPower, .setTuning: .radio
    case .setAdvertName: .name
    case .setAdvertPosition: .position
    case .sendSelfAdvert, .shareContact: .advert
    case .addUpdateContact, .removeContact, .importContact, .resetPath: .contacts
    case .setChannel, .setChannelLongSecret: .channels
    case .setOtherParameters, .setAutoAdd, .setCustomVariable, .setPathHashMode, .setDefaultFloodScope: .settings
    case .sendRawData, .sendRawPacket: .raw
    case .reboot: .reboot
    case .factoryReset: .factoryReset
    case .exportPrivateKey, .importPrivateKey: .privateKey
    case .setDevicePIN: .pin
    case .signStart, .signData, .signFinish: .sign
    default: nil
    }
  }

  /// From 1.17 on a key of zeros is an empty entry of the radio's table.
  private static func namesNobody(_ command: Command) -> Bool {
    switch command {
    case .sendText(let text): text.recipient.isZero
    case .addUpdateContact(let contact): contact.key.isZero || contact.key.prefix.isZero
    case .resetPath(let key), .removeContact(let key), .shareContact(let key), .sendLogin(let key, _),
      .sendStatusRequest(let key), .hasConnection(let key), .logout(let key), .getContactByKey(let key),
      .getAdvertPath(let key), .sendBinaryRequest(let key, _), .sendPathDiscovery(let key):
      key.isZero
    case .exportContact(let key), .sendTelemetryRequest(let key): key?.isZero ?? false
    default: false
    }
  }
}

/// The push that answers a request to another node (docs/protocol/companion.md § 9.8).
enum RemoteAnswer: Equatable {
  case login(KeyPrefix), status(KeyPrefix), telemetry(KeyPrefix), path(KeyPrefix)
  /// Identified by the tag in SENT.
  case tagged

  init?(to command: Command) {
    switch command {
    case .sendLogin(let key, _): self = .login(key.prefix)
    case .sendStatusRequest(let key): self = .status(key.prefix)
    case .sendTelemetryRequest(let key?): self = .telemetry(key.prefix)
    case .sendPathDiscovery(let key): self = .path(key.prefix)
    case .sendBinaryRequest, .sendAnonymousRequest: self = .tagged
    default: return nil
    }
  }

  func isAnswered(by push: Push, tag: AckCode) -> Bool {
    switch (self, push) {
    case (.login(let prefix), .loginSuccess(let login)): login.prefix == prefix
    case (.login(let prefix), .loginFail(let other)): other == prefix
    case (.status(let prefix), .statusResponse(let other, _)): other == prefix
    case (.telemetry(let prefix), .telemetryResponse(let other, _)): other == prefix
    case (.path(let prefix), .pathDiscoveryResponse(let found)): found.prefix == prefix
    case (.tagged, .binaryResponse(let other, _)): other == tag
    default: false
    }
  }
}

extension Command {
  /// Approximate bytes on the air, without the codes of a region; 0: none.
  var bytesOnAir: Int {
    switch self {
    case .sendText(let text): PacketLength.text(text.text.bytes.count, path: 0)
    case .sendChannelText(_, _, _, let text): PacketLength.channelText(text.bytes.count + 16)
    case .sendChannelData(let datagram): PacketLength.channelData(datagram.data.count)
    case .sendSelfAdvert, .shareContact: 120
    case .sendLogin(_, let password): PacketLength.request(password.bytes.count, path: 0, isLogin: true)
    case .sendRawPacket(_, let packet): packet.count
    case .sendRawData(let path, let payload): 2 + path.count + payload.count
    case .sendTracePath(let trace): 11 + trace.path.count
    case .sendControlData(let payload): 2 + payload.count
    default: RemoteAnswer(to: self) == nil ? 0 : PacketLength.request(9, path: 0)
    }
  }

  /// The channel slot of the message.
  var slotOnAir: UInt8? {
    switch self {
    case .sendChannelText(_, let slot, _, _): slot
    case .sendChannelData(let datagram): datagram.slot
    default: nil
    }
  }

  /// The command changes SELF_INFO or DEVICE_INFO.
  var changesIdentity: Bool {
    switch self {
    case .setAdvertName, .setAdvertPosition, .setRadioParameters, .setTxPower, .setOtherParameters, .setPathHashMode,
      .importPrivateKey:
      true
    default: false
    }
  }
}

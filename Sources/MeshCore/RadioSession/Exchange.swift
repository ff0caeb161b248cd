// SPDX-License-Identifier: MIT

import Companion

/// Matches replies with commands. Replies have no id, so only their kind decides (docs/protocol/companion.md § 2.2).
enum Expectation {
  /// The meaning of a frame for the command in flight.
  enum Match: Equatable {
    /// The frame is its answer.
    case completes
    /// The answer has begun, and more of it follows (the contact list).
    case begins
    /// A late or foreign reply, or unsolicited content.
    case unrelated
  }

  static func match(_ command: Command, _ reply: Reply) -> Match {
    switch reply {
    case .error: return .completes
    case .ok: return answeredByOK(command) ? .completes : .unrelated
    case .disabled:
      switch command {
      case .exportPrivateKey, .importPrivateKey: return .completes
      default: return .unrelated
      }
    case .contactsStart:
      if case .getContacts = command { return .begins }
      return .unrelated
    default: return answers(command, reply) ? .completes : .unrelated
    }
  }

  /// The radio's own telemetry is the only command that a push answers. `own`: the radio; another node's answer can come meanwhile.
  static func match(_ command: Command, _ push: Push, own: KeyPrefix?) -> Match {
    if case .sendTelemetryRequest(nil) = command, case .telemetryResponse(let prefix, _) = push, prefix == own {
      return .completes
    }
    return .unrelated
  }

  /// Commands without a reply.
  static func isUnanswered(_ command: Command) -> Bool {
    switch command {
    case .reboot, .factoryReset: true
    default: false
    }
  }

  private static func answers(_ command: Command, _ reply: Reply) -> Bool {
    switch (command, reply) {
    case (.appStart, .selfInfo), (.deviceQuery, .deviceInfo), (.getDeviceTime, .currentTime),
      (.syncNextMessage, .message), (.syncNextMessage, .noMoreMessages), (.exportContact, .exportContact),
      (.getBattery, .battery), (.exportPrivateKey, .privateKey), (.signStart, .signStart),
      (.signFinish, .signature), (.getCustomVariables, .customVariables), (.getAdvertPath, .advertPath),
      (.getTuning, .tuning), (.getStats, .stats), (.getAutoAdd, .autoAdd),
      (.getAllowedRepeatFrequencies, .allowedRepeatFrequencies), (.getDefaultFloodScope, .defaultFloodScope),
      (.sendText, .sent), (.sendLogin, .sent), (.sendStatusRequest, .sent), (.sendTelemetryRequest(.some), .sent),
      (.sendBinaryRequest, .sent), (.sendPathDiscovery, .sent), (.sendAnonymousRequest, .sent),
      (.sendTracePath, .sent):
      return true
    case (.getContactByKey(let key), .contact(let contact)): return contact.key == key
    case (.getChannel(let slot), .channelInfo(let channel)): return channel.slot == slot
    case (.unknown, .unknown): return true
    default: return false
    }
  }

  private static func answeredByOK(_ command: Command) -> Bool {
    switch command {
    case .sendChannelText, .setDeviceTime, .sendSelfAdvert, .setAdvertName, .addUpdateContact, .setRadioParameters,
      .setTxPower, .resetPath, .setAdvertPosition, .removeContact, .shareContact, .importContact, .setTuning,
      .importPrivateKey, .sendRawData, .hasConnection, .logout, .setChannel, .setChannelLongSecret, .signData,
      .setDevicePIN, .setOtherParameters, .setCustomVariable, .setFloodScopeKey, .sendControlData, .setAutoAdd,
      .setPathHashMode, .sendChannelData, .setDefaultFloodScope, .sendRawPacket, .factoryReset, .unknown:
      return true
    default: return false
    }
  }
}

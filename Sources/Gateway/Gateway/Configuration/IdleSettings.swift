// SPDX-License-Identifier: MIT

import Companion
import Relay
import Store
import TOML
import UntrustedText

/// An ineffective setting: it names a channel that the radio does not have, or needs a hub and there is none.
struct IdleSetting: Equatable {
  /// The setting with its table, as in the file: `relay.channels`.
  let setting: String
  /// The name in the setting; empty: the whole setting is meant.
  let name: String
  let reason: String

  func isAbout(_ other: IdleSetting) -> Bool { setting.isExactly(other.setting) && name.isExactly(other.name) }

  var words: String { name.isEmpty ? "\(setting): \(reason)" : "\(setting) names \"\(name)\", \(reason)" }
}

extension GatewayConfiguration {
  /// Finds ineffective settings; `name`, `channels`: the radio's, if they are known. No other message reports them.
  func idleSettings(_ exchange: ChannelExchange.Settings, _ name: Text?, _ channels: [Channel]?) -> [IdleSetting] {
    var idle: [IdleSetting] = []
    if exchange.isOn, !hasHub {
      idle.append(IdleSetting(setting: "relay.messages_from_hub", name: "", reason: "no upstream is a hub"))
    }
    if exchange.isOn, let name, RelayMark.splits(name: name.bytes) {
      let reason = "the radio's name contains \": \" (meshpost radio set name=…)"
      idle.append(IdleSetting(setting: "relay.messages_from_hub", name: "", reason: reason))
    }
    if exchange.isOn, let name, RelayMark.isIn("", from: name.string) {
      let reason =
        "no gateway passes on what this radio says: its name has \(RelayMark.sign) (meshpost radio set name=…)"
      idle.append(IdleSetting(setting: "relay.messages_from_hub", name: "", reason: reason))
    }
    guard let channels else { return idle }
    var lists = [("relay.channels", exchange.isOn ? exchange.channels.map(ChannelName.init) : [])]
    for upstream in upstreams { lists += upstream.namedChannels }
    for (setting, names) in lists {
      for name in names {
        guard let reason = name.trouble(among: channels) else { continue }
        idle.append(IdleSetting(setting: setting, name: Visible.line(name.text), reason: reason))
      }
    }
    return idle
  }

  /// Warns about settings that are ineffective whatever the radio has.
  func warnIdle(_ relay: inout TOMLReader) {
    if exchange.isOn, !hasHub {
      relay.warn("messages_from_hub", "no upstream is a hub: no messages of other places come")
    }
    // Documents can switch the exchange on if an upstream allows settings.
    if !exchange.isOn, !exchange.channels.isEmpty,
      !upstreams.contains(where: { $0.journal.allowed.contains("settings") })
    {
      relay.warn("channels", "without messages_from_hub = true no messages of other places come")
    }
    for gateway in exchange.gateways where !RelayMark.isGateway(gateway) {
      relay.warn("gateways", "\"\(gateway)\" is no gateway's id: those are 1 to 64 letters, digits, `.`, `_` and `-`")
    }
  }

  /// An upstream whose file cannot be read may be a hub.
  var hasHub: Bool { upstreams.contains { $0.kindName == "hub" || $0.kindName == "unknown" } }
}

extension UpstreamSettings {
  /// Channels by the setting that names them. Notifications can also name nodes, except by `#channel`.
  fileprivate var namedChannels: [(setting: String, names: [ChannelName])] {
    let whose = Self.isHook(name) ? "hook \"\(name.dropFirst(Self.hookPrefix.count))\"" : "upstream \"\(name)\""
    var lists = [("\(whose): channels", journal.filter.channels)]
    if case .mqtt(let mqtt) = kind, mqtt.homeAssistantPrefix != nil {
      let notified = mqtt.homeAssistantNotify.filter { $0.utf8.first == UInt8(ascii: "#") }
      lists.append(("\(whose): home_assistant_notify", notified.map(ChannelName.init)))
    }
    return lists
  }
}

extension ChannelName {
  /// The most channels of the radio to list beside an unknown one.
  private static let mostShown = 8

  /// Why the name matches none of the radio's channels; `nil`: it matches one.
  fileprivate func trouble(among channels: [Channel]) -> String? {
    let named = channels.filter { channel in
      switch self {
      case .digest(let digest): channel.secret.digest == digest
      case .name(let name): channel.name == name
      }
    }
    if named.count == 1 || channels.contains(where: { isHashtag(of: $0.secret.digest) }) { return nil }
    guard named.isEmpty else {
      return "and \(named.count) of the radio's channels are called so: write the digest of one (`meshpost channels`)"
    }
    let names = channels.prefix(Self.mostShown).map { "\"\(Visible.line($0.name.string))\"" }.joined(separator: ", ")
    let more = channels.count > Self.mostShown ? ", and \(channels.count - Self.mostShown) more" : ""
    return "which the radio does not have" + (channels.isEmpty ? ": it has none" : "; it has \(names)\(more)")
  }
}

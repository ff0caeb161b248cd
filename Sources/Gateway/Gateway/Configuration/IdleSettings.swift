// SPDX-License-Identifier: MIT

import Companion
import Relay
import Store
import TOML
import UntrustedText

/// A setting that does nothing as things are: it names a channel that the radio does not have, or wants a hub where there is none.
struct IdleSetting: Equatable {
  /// As in the file, with the name of its table: `relay.channels`.
  let setting: String
  /// What it names; empty: it is meant as a whole.
  let name: String
  let reason: String

  func isAbout(_ other: IdleSetting) -> Bool { setting.isExactly(other.setting) && name.isExactly(other.name) }

  var words: String { name.isEmpty ? "\(setting): \(reason)" : "\(setting) names \"\(name)\", \(reason)" }
}

extension GatewayConfiguration {
  /// With the radio's channels, as far as they are known. Nothing else tells of these: what they name never comes.
  func idleSettings(_ exchange: ChannelExchange.Settings, _ channels: [Channel]?) -> [IdleSetting] {
    var idle: [IdleSetting] = []
    if exchange.isOn, !hasHub {
      idle.append(IdleSetting(setting: "relay.messages_from_hub", name: "", reason: "no upstream is a hub"))
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

  /// What the file alone tells to be without effect.
  func warnIdle(_ relay: inout TOMLReader) {
    if exchange.isOn, !hasHub {
      relay.warn("messages_from_hub", "no upstream is a hub: no messages of other places come")
    }
    // Documents can switch it on where an upstream allows that.
    if !exchange.isOn, !exchange.channels.isEmpty,
      !upstreams.contains(where: { $0.journal.allowed.contains("settings") })
    {
      relay.warn("channels", "without messages_from_hub = true no messages of other places come")
    }
    for gateway in exchange.gateways where !RelayMark.isGateway(gateway) {
      relay.warn("gateways", "\"\(gateway)\" is no gateway's id: those are 1 to 64 letters, digits, `.`, `_` and `-`")
    }
  }

  /// One whose file cannot be read may be one.
  var hasHub: Bool { upstreams.contains { $0.kindName == "hub" || $0.kindName == "unknown" } }
}

extension UpstreamSettings {
  /// Channels by the setting that names them. Who is notified may be a node as well, but for a `#channel`.
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
  /// Channels of the radio that are named beside one that it does not have.
  private static let mostShown = 8

  /// Why it means none of the radio's channels; `nil`: it means one.
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

// SPDX-License-Identifier: MIT

import Control
import Documents
import EventLoop
import JSON
import Messaging
import Relay
import Store
import UntrustedText

/// The settings that can be changed remotely: a document overrides the file's value while an upstream may change
/// settings. Deleting the document restores the file's value.
struct SettingsDocuments {
  private(set) var logLevel: Log.Level
  private(set) var messenger: Messenger.Settings
  private(set) var exchange: ChannelExchange.Settings
  /// The settings that documents override.
  private(set) var overrides: [SettingOverride] = []

  init(_ configuration: GatewayConfiguration, _ store: Store, _ log: Log) {
    logLevel = configuration.logLevel
    messenger = configuration.messaging.messenger
    exchange = configuration.exchange
    guard configuration.upstreams.contains(where: { $0.journal.allowed.contains("settings") }) else { return }
    do throws(StoreError) {
      try store.eachDocument("settings/") { document in
        if let value = document.value { apply(document.key, value) }
        return true
      }
    } catch {
      log.warning("remote settings cannot be read; ignored: \(error)")
    }
  }

  private mutating func apply(_ key: String, _ text: String) {
    // `try?`: stored values were valid JSON when they arrived.
    guard case .setting(let setting)? = DocumentKey(key), let value = try? JSONValue(parsing: text) else { return }
    switch setting {
    case .logLevel:
      guard let level = value.string.flatMap({ Log.Level(name: $0) }) else { return }
      note("log.level", key, level.word, configured: logLevel.word)
      logLevel = level
    case .messagesFromHub:
      guard let isOn = value.bool else { return }
      note("relay.messages_from_hub", key, "\(isOn)", configured: "\(exchange.isOn)")
      exchange.isOn = isOn
    case .airtime:
      guard let seconds = value.integer, (1...3600).contains(seconds) else { return }
      note(
        "messaging.airtime_per_hour_s", key, "\(seconds)",
        configured: "\(messenger.delivery.budget.airtime / 1000)")
      messenger.delivery.budget.airtime = seconds * 1000
    }
  }

  private mutating func note(_ setting: String, _ document: String, _ value: String, configured: String) {
    guard !value.isExactly(configured) else { return }
    overrides.append(
      SettingOverride(setting: setting, value: value, configured: configured, document: document))
  }
}

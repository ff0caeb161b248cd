// SPDX-License-Identifier: MIT

import Documents
import EventLoop
import JSON
import Messaging
import Relay
import Store

/// The settings that can be changed remotely: a document overrides the file's value while an upstream is allowed to edit
/// settings. Deleting the document restores the file's value.
struct SettingsDocuments {
  private(set) var logLevel: Log.Level
  private(set) var messenger: Messenger.Settings
  private(set) var exchange: ChannelExchange.Settings

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
    case .logLevel: if let level = value.string.flatMap({ Log.Level(name: $0) }) { logLevel = level }
    case .messagesFromHub: if let isOn = value.bool { exchange.isOn = isOn }
    case .airtime:
      if let seconds = value.integer, (1...3600).contains(seconds) {
        messenger.delivery.budget.airtime = seconds * 1000
      }
    }
  }
}

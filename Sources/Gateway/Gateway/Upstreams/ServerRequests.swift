// SPDX-License-Identifier: MIT

import Relay

/// Requests and messages of servers.
extension Daemon: RelayHost {
  public func carryOut(_ command: RemoteCommand) async -> CommandAnswer {
    await RemoteCommands(messaging.messenger, synchronizer).carryOut(
      command, status: control?.stateJSON() ?? Array("{}".utf8))
  }

  public var isReadyForCommands: Bool { synchronizer.hasSyncedOnce }

  public var knowsWhatRadioHeard: Bool { synchronizer.isServing && synchronizer.hasReadQueue }
  public func take(_ update: ChannelUpdate) -> ChannelUpdateFate { exchange.take(update) }
  public var exchangedChannels: [String] { exchange.digests() }
  public var takenGateways: [String] { exchange.settings.isOn ? exchange.settings.gateways : [] }

  /// Upstreams may have been rebuilt.
  func settingsChanged() {
    packets.isWanted = relay.wantsPackets
    documentsChanged()
  }

  /// Applies documents, which override the file if an upstream may change settings.
  public func documentsChanged() {
    let settings = SettingsDocuments(configuration, store, log)
    log.level = settings.logLevel
    messaging.messenger.change(settings.messenger)
    exchange.settings = settings.exchange
    relay.channelsChanged()
    alerts.change(configuration.alerts)
    tellIdleSettings()
  }
}

// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Store
import TOML
import UntrustedText

/// SIGHUP, and upstreams that are added or removed at run time.
extension Daemon {
  /// Reads the file again, and reports which of its changes wait for the next start.
  func reload() {
    publisher.notifier?.reloading()
    defer { publisher.notifier?.reloaded() }
    let fresh: GatewayConfiguration
    do {
      fresh = try inUse.read()
    } catch {
      inUse.current.refusal = error.description
      tellRefusal()
      alerts.configuration(configuration.refusal)
      return
    }
    for words in fresh.warnings { log.warning(words) }
    let waiting = inUse.waiting(in: fresh)
    // A configuration with changes for the next start is unproven.
    defer { if waiting.isEmpty { keepConfiguration() } }
    do {
      try change(to: fresh)
      // Stopped upstreams may work now.
      relay.resume()
      proxy.listen(fresh.proxies)
      pages.serve(fresh.web)
      for lack in fresh.lacks { log.warning(lack) }
      alerts.configuration(nil)
      guard !waiting.isEmpty else { return log.notice("configuration reloaded") }
      log.warning(
        "configuration reloaded, except \(waiting.joined(separator: ", ")): these settings take effect at the next start"
      )
    } catch {
      log.error("configuration not reloaded: \(error)")
    }
  }

  /// Logs that the file is refused, and that the gateway keeps its configuration.
  func tellRefusal() {
    for line in configuration.refusal?.lines ?? [] { log.error("refused: \(line)") }
    if configuration.refusal != nil { log.error("running with the last configuration that worked") }
  }

  /// Ineffective settings; with the radio's channels, once they were read.
  var idleSettings: [IdleSetting] {
    let channels = synchronizer.hasSyncedOnce ? store.ifReadable({ try store.channels() }) : nil
    return configuration.idleSettings(exchange.settings, messaging.messenger.ownName, channels)
  }

  /// Logs each ineffective setting once, and again if it returns. Reading the file reports those without a name.
  func tellIdleSettings() {
    guard synchronizer.isServing, synchronizer.state.isSettled else { return }
    for one in inUse.newlyIdle(in: idleSettings.filter { !$0.name.isEmpty }) { log.warning(one.words) }
  }

  func keepConfiguration() {
    do throws(SystemError) { try inUse.keep() } catch {
      log.warning("the configuration was not kept for the next start: \(error)")
    }
  }

  /// Upstreams with unchanged settings keep running. If it throws, nothing has changed.
  func change(to fresh: GatewayConfiguration) throws(StoreError) {
    let added = try relay.change(to: fresh.upstreams)
    inUse.current = fresh
    synchronizer.settings = fresh.sync
    messaging.routine.change(fresh.messaging.routine)
    power.change(limit: fresh.lowBattery)
    messaging.keeper.settings = fresh.messaging.keeper
    settingsChanged()
    publisher.tell(added)
    relay.wake()
  }
}

extension GatewayConfiguration {
  /// Settings that are read only at the start, and differ in `fresh` from this first configuration.
  func waiting(in fresh: GatewayConfiguration) -> [String] {
    var changed: [String] = []
    // `try?`: both were parsed before.
    if fresh.source != source, let now = try? TOMLParser.parse(fresh.source), let then = try? TOMLParser.parse(source) {
      changed = TOMLTable.changes(from: then, to: now).filter { !Self.isReloaded($0) }
    }
    let hasOtherPIN = bluetooth.pin != fresh.bluetooth.pin && !changed.contains { $0.hasPrefix("radio.pin") }
    return changed + (hasOtherPIN ? ["radio.pin_file"] : [])
  }

  private static func isReloaded(_ setting: String) -> Bool {
    guard setting != "messaging.credentials_file" else { return false }
    let whole = [
      "radio.set_time", "radio.advert_when_new", "radio.advert_every_h", "poll", "hook", "proxy", "upstream",
    ]
    let sections = ["log.", "messaging.", "contacts.", "relay.", "power.", "alerts.", "web."]
    return whole.contains(setting) || sections.contains { setting.hasPrefix($0) }
  }
}

// SPDX-License-Identifier: MIT

import Escaping
import EventLoop
import Store

/// SIGHUP, and upstreams that are added or removed while the gateway runs.
extension Daemon {
  /// What can be reloaded: the log's level, upstreams and their credentials, whether the radio's time is set.
  func reload() {
    notifier?.reloading()
    defer { notifier?.reloaded() }
    let fresh: GatewayConfiguration
    do {
      fresh = try GatewayConfiguration(file: file)
    } catch {
      configuration.refusal = error.description
      tellRefusal()
      alerts.configuration(configuration.refusal)
      return
    }
    for words in fresh.warnings { log.warning(words) }
    synchronizer.settings = fresh.sync
    messaging.routine.change(fresh.messaging.routine)
    power.change(limit: fresh.lowBattery)
    messaging.keeper.settings = fresh.messaging.keeper
    let old = configuration
    let keepsRunning = [
      ("radio.link", old.link != fresh.link), ("radio.key", old.radioKey != fresh.radioKey),
      ("Bluetooth", old.bluetooth != fresh.bluetooth),
      ("store", old.store.location != fresh.store.location),
      ("control", old.controlSocket != fresh.controlSocket),
      ("messaging.credentials_file", old.messaging.credentialsFile != fresh.messaging.credentialsFile),
      ("gateway.id", old.store.gatewayID != fresh.store.gatewayID),
    ]
    // What takes effect later may not work.
    defer { if !keepsRunning.contains(where: \.1) { keepConfiguration() } }
    for (name, changed) in keepsRunning where changed {
      log.warning("\(name): the change takes effect at the next start")
    }
    do {
      try change(to: fresh)
      // Waiting and stopped upstreams may have what they need by now.
      relay.resume()
      proxy.listen(fresh.proxies)
      pages.serve(fresh.web)
      for lack in fresh.lacks { log.warning(lack) }
      alerts.configuration(nil)
      log.notice("configuration reloaded")
    } catch {
      log.error("configuration not reloaded: \(error)")
    }
  }

  /// The file is refused, and the gateway runs with what it was before.
  func tellRefusal() {
    for line in configuration.refusal?.lines ?? [] { log.error("refused: \(line)") }
    if configuration.refusal != nil { log.error("running with the last configuration that worked") }
  }

  func keepConfiguration() {
    do throws(SystemError) { try configuration.keep(of: file) } catch {
      log.warning("the configuration was not kept for the next start: \(error)")
    }
  }

  /// Upstreams with unchanged settings keep running. When it throws, nothing has changed.
  func change(to fresh: GatewayConfiguration) throws(StoreError) {
    let added = try relay.change(to: fresh.upstreams)
    configuration = fresh
    settingsChanged()
    // Before the first state there is none to tell.
    if !lastState.isEmpty { for upstream in added { upstream.setState("gateway", lastState) } }
    relay.start()
  }
}

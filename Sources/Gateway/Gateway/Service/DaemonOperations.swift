// SPDX-License-Identifier: MIT

import Control
import JSON
import Messaging
import Store
import UntrustedText

/// Carries out requests at the control socket that concern the daemon.
final class DaemonOperations: GatewayOperations {
  private unowned let daemon: Daemon
  private let maintenance: StoreMaintenance
  private let power: PowerWatch

  init(_ daemon: Daemon, _ maintenance: StoreMaintenance, _ power: PowerWatch) {
    self.daemon = daemon
    self.maintenance = maintenance
    self.power = power
  }

  func addUpstream(_ fields: JSONValue) throws(Refusal) -> [String] { try daemon.addUpstream(fields) }
  func removeUpstream(_ name: String) throws(Refusal) { try daemon.removeUpstream(name) }
  func documentsChanged() { daemon.documentsChanged() }
  func memoryWasUsed() { maintenance.memoryWasUsed() }
  func deletionBegan() { maintenance.deletionBegan() }
  var powerReport: PowerReport { power.report }
  var alertRules: [(name: String, sentence: String)] { daemon.alerts.rules.map { ($0.rule.rawValue, $0.sentence) } }
  var shownBacklog: Int64 { daemon.publisher.backlog.events }
  var configurationRefusal: String? { daemon.configuration.refusal }
  var overrides: [SettingOverride] {
    SettingsDocuments(daemon.configuration, daemon.store, daemon.log).overrides
  }
  var idleSettings: [String] { daemon.idleSettings.map(\.words) }
  var settingsForNextStart: [String] { daemon.inUse.waiting(in: daemon.configuration) }
  var openFiles: [(words: String, remedy: String)] { daemon.configuration.openFiles(of: daemon.inUse.file) }
  var webReport: WebReport? { daemon.pages.report }

  func configurationMistakes() -> [String] {
    do throws(GatewayConfiguration.Failure) {
      // Upstreams and hooks report their own problems.
      return try daemon.inUse.read().lacks.filter { $0.mentions(": radio.") }
    } catch {
      return error.description.lines
    }
  }

  func setWebPassword(_ hash: String?) throws(Refusal) {
    do throws(WebSecrets.Failure) {
      try daemon.pages.setPassword(hash)
    } catch {
      throw .store(.unavailable(error.description))
    }
  }
}

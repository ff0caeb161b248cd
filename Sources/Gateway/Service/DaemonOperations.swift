// SPDX-License-Identifier: MIT

import Control
import JSON
import Messaging

/// What the control socket has the daemon do.
final class DaemonOperations: GatewayOperations {
  private unowned let daemon: Daemon
  private let upkeep: StoreMaintenance
  private let power: PowerWatch

  init(_ daemon: Daemon, _ upkeep: StoreMaintenance, _ power: PowerWatch) {
    self.daemon = daemon
    self.upkeep = upkeep
    self.power = power
  }

  func addUpstream(_ fields: JSONValue) throws(Refusal) -> [String] { try daemon.addUpstream(fields) }
  func removeUpstream(_ name: String) throws(Refusal) { try daemon.removeUpstream(name) }
  func documentsChanged() { daemon.documentsChanged() }
  func memoryWasUsed() { upkeep.memoryWasUsed() }
  var powerReport: PowerReport { power.report }
}

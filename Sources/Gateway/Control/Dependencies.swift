// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Messaging
import RadioSharing
import Relay
import Store
import Sync
import Timing
import Transport

/// What says things on the mesh.
public struct MessagingParts {
  public let messenger: Messenger
  public let nodes: NodeService
  public let table: RadioTable
  public let routine: NodePolling
  public let keeper: ContactEviction

  public init(
    messenger: Messenger, nodes: NodeService, table: RadioTable, routine: NodePolling, keeper: ContactEviction
  ) {
    self.keeper = keeper
    self.messenger = messenger
    self.nodes = nodes
    self.table = table
    self.routine = routine
  }

  /// Another radio is attached: nothing that waits is for it, and no node knows it.
  public func radioReplaced() {
    messenger.radioReplaced()
    nodes.radioReplaced()
    routine.radioReplaced()
  }
}

/// A setting that a document has set, in place of the configuration file.
public struct SettingOverride: Equatable, Sendable {
  /// As in the file: `log.level`.
  public let setting: String
  public let value: String
  public let configured: String
  /// The document's key.
  public let document: String

  public init(setting: String, value: String, configured: String, document: String) {
    (self.setting, self.value, self.configured, self.document) = (setting, value, configured, document)
  }
}

/// What the daemon itself does for an operator.
public protocol GatewayOperations: AnyObject {
  /// Adds an upstream with these fields; the configuration is reloaded. Returns warnings.
  func addUpstream(_ fields: JSONValue) throws(Refusal) -> [String]
  /// Takes away one that was added so.
  func removeUpstream(_ name: String) throws(Refusal)
  /// A document was edited.
  func documentsChanged()
  /// Something was looked for that took memory.
  func memoryWasUsed()
  var powerReport: PowerReport { get }
  /// Rules of alerts that are on, each as a sentence.
  var alertRules: [(name: String, sentence: String)] { get }
  /// Events that wait for the slowest upstream, about (docs/hub-protocol.md, "State").
  var shownBacklog: Int64 { get }
  /// Why the configuration file is not used, where the gateway runs with what it was before.
  var configurationRefusal: String? { get }
  /// Settings that documents have set in place of the file.
  var overrides: [SettingOverride] { get }
  /// Settings that do nothing with these upstreams and the radio's channels, each with why.
  var idleSettings: [String] { get }
  /// Settings that the file has been reread with, and that count from the next start on.
  var settingsForNextStart: [String] { get }
  /// The configuration and files that it names which everybody can change, or read though they are secret.
  var openFiles: [(words: String, remedy: String)] { get }
  /// What is wrong with the configuration file as it stands, one a line.
  func configurationMistakes() -> [String]
  /// The password of the pages has this hash from now on; `nil`: nobody can sign in.
  func setWebPassword(_ hash: String?) throws(Refusal)
  /// `nil`: no pages are served.
  var webReport: WebReport? { get }
}

extension ControlAPI {
  /// What the API shows and steers.
  public final class Dependencies {
    let version: String
    let configurationFile: String
    let loop: EventLoop
    let log: Log
    let startedAt: MonotonicTime
    let store: Store
    let synchronizer: Synchronizer
    let messaging: MessagingParts
    let bluetooth: BluetoothOptions
    let proxy: CompanionProxy
    let relay: Relay
    let taps: TapAPI
    let counts: PacketCounts
    let operations: any GatewayOperations

    var connection: RadioConnection { synchronizer.connection }

    public init(
      version: String, configurationFile: String, loop: EventLoop, log: Log, store: Store, synchronizer: Synchronizer,
      messaging: MessagingParts, bluetooth: BluetoothOptions, proxy: CompanionProxy, relay: Relay, taps: TapAPI,
      counts: PacketCounts, operations: any GatewayOperations
    ) {
      (self.version, self.configurationFile) = (version, configurationFile)
      (self.loop, self.log, startedAt) = (loop, log, loop.now)
      (self.store, self.synchronizer, self.messaging) = (store, synchronizer, messaging)
      (self.bluetooth, self.proxy, self.relay) = (bluetooth, proxy, relay)
      (self.taps, self.counts, self.operations) = (taps, counts, operations)
    }
  }
}

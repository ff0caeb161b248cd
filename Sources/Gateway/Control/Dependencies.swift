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

/// The parts that send messages and requests on the mesh.
public struct MessagingParts {
  public let messenger: Messenger
  public let nodes: NodeService
  public let table: RadioTable
  public let routine: NodePolling
  public let keeper: ContactEviction
  public let knock: Knock
  public let survey: RadioSurvey

  public init(
    messenger: Messenger, nodes: NodeService, table: RadioTable, routine: NodePolling, keeper: ContactEviction,
    knock: Knock
  ) {
    self.knock = knock
    survey = RadioSurvey(messenger)
    self.keeper = keeper
    self.messenger = messenger
    self.nodes = nodes
    self.table = table
    self.routine = routine
  }

  /// Another radio is attached: waiting messages are not for it, and no node knows it.
  public func radioReplaced() {
    messenger.radioReplaced()
    nodes.radioReplaced()
    routine.radioReplaced()
    knock.radioReplaced()
  }
}

/// A setting from a document, which replaces the one in the configuration file.
public struct SettingOverride: Equatable, Sendable {
  /// The key in the file, such as `log.level`.
  public let setting: String
  public let value: String
  public let configured: String
  /// The document's key.
  public let document: String

  public init(setting: String, value: String, configured: String, document: String) {
    (self.setting, self.value, self.configured, self.document) = (setting, value, configured, document)
  }
}

/// Operations of the daemon itself for an operator.
public protocol GatewayOperations: AnyObject {
  /// Adds an upstream with these fields, and reloads the configuration. Returns warnings.
  func addUpstream(_ fields: JSONValue) throws(Refusal) -> [String]
  /// Removes an upstream that `addUpstream` has added.
  func removeUpstream(_ name: String) throws(Refusal)
  func documentsChanged()
  /// A request has used much memory, such as a search.
  func memoryWasUsed()
  /// A conversation is to be deleted, or the rest of messages that were.
  func deletionBegan()
  var powerReport: PowerReport { get }
  /// The active alert rules, each with a sentence.
  var alertRules: [(name: String, sentence: String)] { get }
  /// The approximate number of events that wait for the slowest upstream (docs/hub-protocol.md, "State").
  var shownBacklog: Int64 { get }
  /// Why the configuration file is refused, so that the gateway uses the previous configuration.
  var configurationRefusal: String? { get }
  /// Settings from documents that replace those in the file.
  var overrides: [SettingOverride] { get }
  /// Ineffective settings, each with the reason: a named channel is not in the radio, or there is no hub.
  var idleSettings: [String] { get }
  /// Settings that were changed in a reread file, but take effect at the next start.
  var settingsForNextStart: [String] { get }
  /// Files of the configuration that everybody can change, and secrets that everybody can read, each with its remedy.
  var openFiles: [(words: String, remedy: String)] { get }
  /// The mistakes in the present configuration file, one per line.
  func configurationMistakes() -> [String]
  /// Sets the hash of the pages' password; `nil`: nobody can sign in.
  func setWebPassword(_ hash: String?) throws(Refusal)
  /// `nil`: the gateway serves no pages.
  var webReport: WebReport? { get }
}

extension ControlAPI {
  /// Everything that the API reports and controls.
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
    let operations: any GatewayOperations

    var connection: RadioConnection { synchronizer.connection }

    public init(
      version: String, configurationFile: String, loop: EventLoop, log: Log, store: Store, synchronizer: Synchronizer,
      messaging: MessagingParts, bluetooth: BluetoothOptions, proxy: CompanionProxy, relay: Relay, taps: TapAPI,
      operations: any GatewayOperations
    ) {
      (self.version, self.configurationFile) = (version, configurationFile)
      (self.loop, self.log, startedAt) = (loop, log, loop.now)
      (self.store, self.synchronizer, self.messaging) = (store, synchronizer, messaging)
      (self.bluetooth, self.proxy, self.relay) = (bluetooth, proxy, relay)
      (self.taps, self.operations) = (taps, operations)
    }
  }
}

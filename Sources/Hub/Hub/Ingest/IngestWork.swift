// SPDX-License-Identifier: MIT

/// The keys and the state of one transaction of batches.
extension HubStore {
  /// A contact of a gateway. Keys are compared by their bytes, like in databases.
  struct ContactKey: Hashable {
    let gateway: String
    let key: [UInt8]

    init(_ gateway: String, _ key: String) { (self.gateway, self.key) = (gateway, Array(key.utf8)) }

    var text: String { String(decoding: key, as: UTF8.self) }
  }

  /// A gateway's state of a contact, and its time: by the gateway's clock, and at most the arrival.
  struct StoredContact {
    let body: String
    let at: Int64
    let trusted: Bool

    init(_ body: String, _ event: HubEvent, came: Int64) {
      (self.body, at, trusted) = (body, min(event.at, came), event.trusted)
    }
  }

  /// A message for the other gateways on its channel.
  struct Update {
    let identity: String
    let body: String
    /// The gateway that reported it.
    let source: String
    /// Whether that gateway exceeds its rate limit.
    let isBeyond: Bool
  }

  struct GatewayChannel: Hashable {
    let gateway: String
    let channel: String
  }

  /// Messages of named hearers, for the gateways that take only these.
  struct NamedHearers {
    /// For each named hearer the gateways that take its messages.
    var takers: [String: [String]] = [:]
    /// The channels of these messages that those gateways know.
    var joined: Set<GatewayChannel> = []
    /// The new reports of named hearers.
    var reports: Set<MessageHearer> = []
    /// By message and reading gateway, for messages that a named hearer had reported: the time in the gateway's list.
    var listed: [MessageHearer: ListedTimes] = [:]

    func takers(of gateway: String) -> [String] { takers[gateway] ?? [] }
  }

  struct IngestWork {
    var progress: [GatewayEpoch: Progress] = [:]
    /// For each gateway the epoch that began last.
    var newest: [String: String] = [:]
    var unknown: Set<GatewayEpoch> = []
    /// Gateways that have deleted something.
    var deleters: Set<String> = []
    var accepted: [PreparedBatch] = []
    /// The accepted batches as they are stored: conflicting events of senders that do not handle conflicts are under another epoch.
    var storedBatches: [PreparedBatch] = []
    /// Whether one of their events may empty messages.
    var deletesMessages: Bool {
      storedBatches.contains { batch in
        batch.events.contains {
          switch $0.effect {
          case .deletion, .emptied: true
          default: false
          }
        }
      }
    }
    /// For each accepted batch its index among all batches.
    var indices: [Int] = []
    var answers: [IngestAnswer] = []
    var added: Set<EventKey> = []
    /// Identities of messages that are new or have a better time: the gateways on their channels get updates.
    var updated: Set<String> = []
    var named = NamedHearers()
    /// Messages whose updates exceed a rate limit, by identity.
    var unsettled: [String: ListedTimes] = [:]
    /// The first reports of those messages.
    var firstReports: Set<MessageHearer> = []
    var removed: [ContactKey: String] = [:]
    /// The stored events with which other events conflict.
    var conflicting: [EventKey: StoredEvent] = [:]
    /// The stored events whose conflicting events are not stored, from an earlier attempt of this transaction.
    var refused: [EventKey: StoredEvent] = [:]
    /// The epoch under which each conflicting event is stored, by the key that it would have in a new history.
    var historyEpochs: [EventKey: String] = [:]
    /// Events that are stored under the same number in another epoch.
    var moved: Set<EventKey> = []
    /// Moved events whose other copy is in this transaction.
    var expected: Set<EventKey> = []
  }
}

extension HubStore.IngestWork {
  /// Whether a stored event has the number of this one, and other content.
  func conflicts(_ event: PreparedEvent, of batch: PreparedBatch) -> Bool {
    conflicting[batch.key(event)].map { !$0.isSame(as: event) } ?? false
  }

  /// Whether the event is stored already, or is refused.
  func isLeftOut(_ event: PreparedEvent, of batch: PreparedBatch) -> Bool {
    let key = batch.key(event)
    return moved.contains(key) || batch.handlesConflicts && refused[key].map { !$0.isSame(as: event) } ?? false
  }

  /// Whether its events may be stored under other epochs.
  func mayBeInOtherEpochs(_ batch: PreparedBatch) -> Bool {
    batch.before != nil || newest[batch.gateway].map { $0 != batch.epoch } ?? false
      // A copy of the gateway may have sent them in an epoch that began later.
      || unknown.contains(batch.gatewayEpoch)
  }

  /// The beginning of the names of an epoch's further histories.
  static func historyPrefix(_ batch: PreparedBatch) -> String { "\(batch.epoch.prefix(47))." }

  /// The key of an event that begins a history.
  static func newHistoryKey(_ event: PreparedEvent, of batch: PreparedBatch) -> EventKey {
    let epoch = historyPrefix(batch) + (HubStore.StoredEvent(event).digest ?? "gap")
    return EventKey(gateway: batch.gateway, epoch: epoch, seq: event.event.seq)
  }

  /// The key of a conflicting event in its history.
  func keyInHistory(_ event: PreparedEvent, of batch: PreparedBatch) -> EventKey {
    let own = Self.newHistoryKey(event, of: batch)
    return EventKey(gateway: own.gateway, epoch: historyEpochs[own] ?? own.epoch, seq: own.seq)
  }
}

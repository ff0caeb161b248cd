// SPDX-License-Identifier: MIT

/// What one transaction of batches is about, and has found out so far.
extension HubStore {
  struct Epoch: Hashable {
    let gateway: String
    let name: String
  }

  /// A contact of a gateway. By its key's bytes, as databases compare: texts that look the same are two contacts.
  struct ContactPlace: Hashable {
    let gateway: String
    let key: [UInt8]

    init(_ gateway: String, _ key: String) { (self.gateway, self.key) = (gateway, Array(key.utf8)) }

    var text: String { String(decoding: key, as: UTF8.self) }
  }

  /// What a gateway knows of a contact, and when: by its own clock, but never later than that came.
  struct KeptContact {
    let body: String
    let at: Int64
    let trusted: Bool

    init(_ body: String, _ event: HubEvent, came: Int64) {
      (self.body, at, trusted) = (body, min(event.at, came), event.trusted)
    }
  }

  typealias EventKey = Divergence

  /// A message for the others on its channel.
  struct Update {
    let identity: String
    let body: String
    /// The gateway that told of it.
    let source: String
    /// Whether that one tells more than others take of it.
    let isBeyond: Bool
  }

  /// A channel that a gateway knows.
  struct GatewayChannel: Hashable {
    let gateway: String
    let channel: String
  }

  /// What one transaction has found out so far.
  struct Work {
    var progress: [Epoch: Progress] = [:]
    /// Of each gateway the epoch that began last.
    var newest: [String: String] = [:]
    /// Epochs of which nothing was here.
    var unknown: Set<Epoch> = []
    var accepted: [PreparedBatch] = []
    /// The same as they are stored: events that diverge, of senders that know of no conflicts, under another epoch.
    var kept: [PreparedBatch] = []
    /// Which of the batches the accepted ones are.
    var places: [Int] = []
    var answers: [IngestAnswer] = []
    /// Events that were not here.
    var added: Set<EventKey> = []
    /// Identities of messages that were not here, or of which a gateway tells better when they were sent: for the others on their channels.
    var told: Set<String> = []
    /// Of gateways whose messages others take: those others.
    var wanted: [String: [String]] = [:]
    /// The channels that those others know, of the messages that came.
    var known: Set<GatewayChannel> = []
    /// Messages that such a gateway has not told of before.
    var heardByWanted: Set<HearerOfMessage> = []
    /// Of those that a gateway has, or had, in its list of what wanted ones heard, by that gateway: what it was told.
    var listed: [HearerOfMessage: ToldBefore] = [:]
    /// Identities of messages that are not settled as they were told.
    var unsettled: [String: ToldBefore] = [:]
    /// Who had not reported those before.
    var reportFirst: Set<HearerOfMessage> = []
    var removed: [ContactPlace: String] = [:]
    /// What is here under a number that also came for another event.
    var divergent: [EventKey: StoredEvent] = [:]
    /// That of events that are not taken, as was found out before this transaction was begun once more.
    var refused: [EventKey: StoredEvent] = [:]
    /// Under which epoch each of those events is kept, by the place that it would have alone.
    var beside: [EventKey: String] = [:]
    /// Events that are here under the number that they had in the epoch before.
    var moved: Set<EventKey> = []
    /// Those of them that are in the same transaction.
    var expected: Set<EventKey> = []
  }
}

extension HubStore.Work {
  /// Whether its number stands for another event here.
  func diverges(_ event: PreparedEvent, of batch: PreparedBatch) -> Bool {
    divergent[batch.key(event)].map { !$0.isSame(as: event) } ?? false
  }

  /// Whether what it says is nothing new, or is not taken.
  func isLeftOut(_ event: PreparedEvent, of batch: PreparedBatch) -> Bool {
    let key = batch.key(event)
    return moved.contains(key) || batch.takesConflicts && refused[key].map { !$0.isSame(as: event) } ?? false
  }

  /// Whether its events may be here under other epochs.
  func mayBeElsewhere(_ batch: PreparedBatch) -> Bool {
    batch.before != nil || newest[batch.gateway].map { $0 != batch.epoch } ?? false
      // A copy of the gateway may have brought them in an epoch that began later.
      || unknown.contains(HubStore.Epoch(gateway: batch.gateway, name: batch.epoch))
  }

  /// What the names of an epoch's other histories begin with.
  static func stem(_ batch: PreparedBatch) -> String { "\(batch.epoch.prefix(47))." }

  /// Where it is kept if it begins a history.
  static func ownPlace(_ event: PreparedEvent, of batch: PreparedBatch) -> Divergence {
    let epoch = stem(batch) + (HubStore.StoredEvent(event).digest ?? "gap")
    return Divergence(gateway: batch.gateway, epoch: epoch, seq: event.event.seq)
  }

  /// Where it is kept in place of that.
  func placeBeside(_ event: PreparedEvent, of batch: PreparedBatch) -> Divergence {
    let own = Self.ownPlace(event, of: batch)
    return Divergence(gateway: own.gateway, epoch: beside[own] ?? own.epoch, seq: own.seq)
  }
}

// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import RadioSession
import Store
import Timing

/// Learns what became of messages in an `Inbox`.
protocol InboxOwner: AnyObject {
  func stored(_ message: QueuedMessage, _ arrival: MessageArrival)
  /// Whether the stored channel of a slot may differ from the radio's.
  func doubts(_ slot: UInt8) -> Bool
  /// Called for a message on a channel slot that the radio reports as empty.
  func dropped(_ message: QueuedMessage)
  /// The disk has refused messages; the inbox tries again.
  func refused(_ failure: StoreError)
  /// The inbox may have more room, or be empty.
  func inboxChanged()
}

/// Messages that the radio has forgotten and that are not on disk yet: usually one, during a commit.
///
/// The code that decodes a message puts it in here at once, even if the link has ended or the requesting task is gone,
/// and the inbox writes it at once. It outlives connections and databases. While it is full, the gateway requests no
/// messages, so only unasked ones can accumulate.
final class Inbox {
  /// While the disk refuses writes, messages beyond this number are lost, which is logged.
  private static let bound = 64
  /// If messages may wait for a later commit, this many cause one.
  private static let maxGathered = 32
  private static let retryInterval: Duration = .seconds(2)

  private enum State {
    case new
    /// The radio is asked about its channel before it is kept.
    case asked(LoopTask)
    case written(Commit)
    case refused
  }

  private final class Entry {
    let message: QueuedMessage
    /// The one that handed it over: another may be attached before the disk takes it.
    let radio: Int64
    var state = State.new
    /// What the store has of its channel slot is what the radio has.
    var knowsSlot = true
    var arrival: MessageArrival?

    /// The transaction it is in.
    var commit: Commit? { if case .written(let commit) = state { commit } else { nil } }
    var isRefused: Bool { if case .refused = state { true } else { false } }

    init(_ message: QueuedMessage, _ radio: Int64) {
      self.message = message
      self.radio = radio
    }
  }

  private let connection: RadioConnection
  private let store: Store
  private let loop: EventLoop
  private let log: Log
  private let clock: WallClock
  private var entries: [Entry] = []
  private var writing: LoopTask?
  private var retrying: LoopTask?
  /// What is known of the radio's own queue, and whether the disk has some of that.
  private(set) var queue = RadioQueue()
  private var isQueueKept = false
  /// What it has handed over last.
  private var last: QueuedMessage?
  /// Why the disk does not take what is here; `nil`: it does.
  private(set) var failure: StoreError?
  weak var owner: (any InboxOwner)?

  init(_ connection: RadioConnection, _ store: Store, on loop: EventLoop, log: Log) {
    self.connection = connection
    self.store = store
    self.loop = loop
    clock = loop.wallClock
    self.log = log
  }

  var count: Int { entries.count }
  /// Everything is on disk.
  var isEmpty: Bool { entries.allSatisfy { $0.commit?.state == .durable } }

  /// The radio may be asked for its next message: what came is on disk, or waits for company there.
  var hasRoom: Bool {
    guard !entries.isEmpty, gathers else { return entries.isEmpty }
    return store.transactions.failure == nil && entries.count < Self.maxGathered
      && entries.allSatisfy { $0.commit != nil }
  }

  private var gathers: Bool { store.gathersMessages }

  /// Takes what has just been decoded. On a slot that is in doubt, or (`wasAsked`) empty for all we know, the radio is asked before it is judged.
  func take(_ message: QueuedMessage, wasAsked: Bool) {
    // A line that brings an answer twice brings no message more, nor does a radio that hands one over again: no mesh has the same packet twice.
    if message != last { queue.took(wasAsked: wasAsked) }
    last = message
    // A predecessor's may be many at once.
    if gathers, entries.count >= Self.maxGathered { commit() }
    guard entries.count < Self.bound else {
      return log.error("an unsolicited message was lost: \(entries.count) are already waiting to be written")
    }
    let entry = Entry(message, store.radio)
    entries.append(entry)
    guard let slot = message.slot else { return write(entry) }
    entry.knowsSlot = !isInDoubt(slot)
    guard !entry.knowsSlot || wasAsked && isEmpty(slot) else { return write(entry) }
    entry.state = .asked(loop.begin { await self.decide(entry, slot) })
  }

  private func isInDoubt(_ slot: UInt8) -> Bool { owner?.doubts(slot) ?? false }

  private func isEmpty(_ slot: UInt8) -> Bool {
    // A store that cannot be read fails the write that follows, and the message stays here.
    store.ifReadable { try store.channel(slot: slot) }?.isEmpty ?? true
  }

  /// Ends with the radio's answer, or with the link.
  private func decide(_ entry: Entry, _ slot: UInt8) async {
    let outcome = await connection.ask(.getChannel(slot: slot), .sync)
    guard case .asked = entry.state else { return }
    entry.knowsSlot = !isInDoubt(slot)
    guard case .replied(.channelInfo(let channel)) = outcome, channel.isEmpty else { return write(entry) }
    // Traffic of misconfigured nodes under a key of zeros (docs/protocol/companion.md § 9.6).
    remove(entry)
    owner?.dropped(entry.message)
    owner?.inboxChanged()
  }

  private func write(_ entry: Entry) {
    let moment = Moment(clock)
    let wait = queue.wait(now: loop.now)
    entry.arrival = nil
    keepQueue()
    let commit = store.write(when: .message) { store throws(SQLiteError) in
      entry.arrival = try store.insert(
        entry.message, at: moment, wait: wait, by: entry.radio, knowsSlot: entry.knowsSlot)
    }
    entry.state = .written(commit)
    if writing == nil { writing = loop.begin { await self.awaitDisk() } }
    // After what is dispatched just now: a commit resumes many.
    if gathers, entries.count >= Self.maxGathered { loop.later { [store] in store.commit(everything: true) } }
  }

  /// Until nothing waits for its commit any more.
  private func awaitDisk() async {
    defer { writing = nil }
    while let commit = entries.lazy.compactMap(\.commit).first {
      _ = await commit.failure()
      settle()
    }
  }

  /// What is on disk leaves, in the order in which it came; what the disk refused stays.
  private func settle() {
    for entry in entries {
      switch (entry.commit?.state, entry.arrival) {
      case (nil, _), (.open, _): break
      case (.durable, let arrival?): stored(entry, arrival)
      case (.durable, nil): refused(entry, .other("nothing was written"))
      case (.failed(let failure), _): refused(entry, failure)
      }
    }
  }

  private func stored(_ entry: Entry, _ arrival: MessageArrival) {
    remove(entry)
    if !entries.contains(where: \.isRefused) { failure = nil }
    owner?.stored(entry.message, arrival)
    owner?.inboxChanged()
  }

  // MARK: The radio's queue

  func connected(to radio: PublicKey) {
    // The queue of the one before is still there when that comes back.
    if queue.radio != radio { keepLack() }
    last = nil
    let kept = store.ifReadable { try store.queueCounts(of: radio) }
    queue.connected(to: radio, kept: kept, now: loop.now)
    isQueueKept = kept != nil || queue.counts != QueueCounts()
  }

  func hinted() { queue.hinted(now: loop.now) }
  func radioWasSilent() { if queue.wasSilent() { keepLack() } }
  func radioWasEmptyLate() { queue.answeredLate() }

  /// Returns what it has forgotten.
  func radioWasStarted(at start: MonotonicTime?) -> RadioQueue.Loss? {
    let loss = queue.wasStarted(at: start, now: loop.now)
    // With the event of it, which is told once.
    if loss != nil { keepQueue(isAsked: false) }
    return loss
  }

  /// Returns what was lost before this.
  func radioWasEmpty(askedAt: MonotonicTime) -> RadioQueue.Loss? {
    let loss = queue.wasEmpty(askedAt: askedAt)
    guard isQueueKept, let radio = queue.radio else { return loss }
    isQueueKept = false
    store.keep(queue.counts, ofQueue: radio)
    // It need not be on disk at once, but some time: what it told would be told again.
    store.write(when: .heard) { _ in }
    return loss
  }

  /// What is known to be there, or to be lost, outlives this link and this program.
  private func keepLack() {
    guard queue.radio != nil, !queue.isRead else { return }
    isQueueKept = true
    keepQueue(isAsked: false)
    store.write(when: .heard) { _ in }
  }

  /// With the message that is written just now: whoever starts after a power cut knows how many came before it, and that the next was
  /// asked for.
  private func keepQueue() {
    guard queue.isWorthKeeping else { return }
    isQueueKept = true
    keepQueue(isAsked: queue.mayHaveMore)
  }

  private func keepQueue(isAsked: Bool) {
    guard isQueueKept, let radio = queue.radio else { return }
    var counts = queue.kept
    counts.isAsked = isAsked
    store.keep(counts, ofQueue: radio)
  }

  private func commit() {
    store.commit(everything: true)
    settle()
  }

  private func remove(_ entry: Entry) { entries.removeAll { $0 === entry } }

  // MARK: A disk that refuses

  private func refused(_ entry: Entry, _ failure: StoreError) {
    entry.state = .refused
    self.failure = failure
    if retrying == nil { retrying = loop.begin { await self.retry() } }
    owner?.refused(failure)
  }

  /// Until the disk takes all of them.
  private func retry() async {
    defer { retrying = nil }
    while failure != nil {
      // Cancelled: the daemon ends.
      do { try await loop.sleep(for: Self.retryInterval) } catch { return }
      for entry in entries where entry.isRefused { write(entry) }
      commit()
    }
  }

  /// The daemon ends: what is here is written now or lost. `isAsked`: the radio has not answered the last question. Returns how many are lost.
  func close(isAsked: Bool) -> Int {
    retrying?.cancel()
    for entry in entries where entry.commit == nil {
      if case .asked(let task) = entry.state { task.cancel() }
      write(entry)
    }
    let mayBeLost = isAsked && queue.mayHaveMore
    // A link that was not for long enough to read the queue says that nobody has.
    if mayBeLost || !queue.isRead { isQueueKept = true }
    keepQueue(isAsked: mayBeLost)
    store.settle()
    settle()
    retrying?.cancel()
    return entries.count
  }
}

extension QueuedMessage {
  /// The channel slot it came on; `nil` for direct messages.
  fileprivate var slot: UInt8? {
    switch self {
    case .contact: nil
    case .channel(let message): message.slot
    case .datagram(let datagram): datagram.slot
    }
  }
}

// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import RadioSession
import Store
import Timing

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
  /// Between attempts to write while the disk refuses: it grows, because a disk that is full for hours would wake the gateway every second.
  private static let (firstRetry, longestRetry): (Duration, Duration) = (.seconds(2), .seconds(16))

  private enum State {
    case new
    /// The radio is asked about its channel before the message is written.
    case asked(LoopTask)
    case written(Commit)
    case refused
  }

  private final class Entry {
    /// With the radio that handed it over: another one may be attached before the write succeeds.
    var taken: TakenMessage
    var state = State.new
    /// The database has refused it, maybe in an earlier run.
    var wasRefused = false
    var arrival: MessageArrival?
    /// The number of its copies (`MessageWays`), and how many were written with it.
    var (copies, copiesWritten): (Int?, Int) = (nil, 0)

    /// The transaction that contains it.
    var commit: Commit? { if case .written(let commit) = state { commit } else { nil } }
    var isRefused: Bool { if case .refused = state { true } else { false } }

    init(_ taken: TakenMessage) { self.taken = taken }
  }

  private let connection: RadioConnection
  private let store: Store
  private let ways: MessageWays
  private let loop: EventLoop
  private let log: Log
  private let clock: WallClock
  private var entries: [Entry] = []
  private var writing: LoopTask?
  private var retrying: LoopTask?
  /// The count of waiting and lost messages in the radio, and whether the database has it.
  private(set) var queue = RadioQueue()
  private var isQueueKept = false
  private var starts = RadioStarts()
  /// The radio is to be asked for its start: the link came up, or it may have been restarted since.
  private var lacksStart = false
  /// The refused messages outlive this program.
  private var areHeld = true
  /// The last received message.
  private var last: QueuedMessage?
  /// Why the disk refuses messages; `nil`: it accepts them.
  private(set) var failure: StoreError?
  weak var synchronizer: Synchronizer?

  init(_ connection: RadioConnection, _ store: Store, _ ways: MessageWays, on loop: EventLoop, log: Log) {
    self.connection = connection
    self.store = store
    self.ways = ways
    self.loop = loop
    clock = loop.wallClock
    self.log = log
    for taken in store.heldMessages {
      queue.took(wasAsked: false)
      let entry = Entry(taken)
      entry.wasRefused = true
      entries.append(entry)
      write(entry)
    }
    if !entries.isEmpty { log.info("storing the messages of \(store.reservedLocation): \(entries.count)") }
  }

  var count: Int { entries.count }
  /// Everything is on disk.
  var isEmpty: Bool { entries.allSatisfy { $0.commit?.state == .durable } }

  /// The radio may be asked for its next message: earlier ones are on disk, or in a transaction that gathers several.
  var hasRoom: Bool {
    guard !entries.isEmpty, gathers else { return entries.isEmpty }
    return store.transactions.failure == nil && entries.count < Self.maxGathered
      && entries.allSatisfy { $0.commit != nil }
  }

  private var gathers: Bool { store.gathersMessages }

  /// Takes a message that has just been decoded. If its channel slot is in doubt, or is empty according to the store
  /// (`wasAsked`), the radio is asked about the slot before the message is stored or dropped.
  func take(_ message: QueuedMessage, wasAsked: Bool) {
    if message == last {
      queue.tookAgain(wasAsked: wasAsked, isDirect: message.slot == nil)
    } else {
      queue.took(wasAsked: wasAsked)
    }
    last = message
    if synchronizer?.observer?.takesAnswer(message) ?? false { return }
    if case .channel(let text) = message, isOwn(text) { return }
    // Unasked messages can be many: a commit makes room.
    if gathers, entries.count >= Self.maxGathered { commit() }
    guard entries.count < Self.bound else {
      return log.error("an unsolicited message was lost: \(entries.count) are already waiting to be written")
    }
    let radio = store.radioKey?.prefix ?? KeyPrefix(value: 0)
    let entry = Entry(TakenMessage(message, at: Moment(clock), wait: queue.wait(now: loop.now), by: radio))
    entries.append(entry)
    guard let slot = message.slot else { return write(entry) }
    if synchronizer?.isMixed(slot) ?? false {
      entry.taken.knowsSlot = false
      return write(entry)
    }
    entry.taken.knowsSlot = !isInDoubt(slot)
    guard !entry.taken.knowsSlot || wasAsked && isEmpty(slot) else { return write(entry) }
    entry.state = .asked(loop.begin { await self.decide(entry, slot) })
  }

  /// Whether it is a text of our own that a repeater has passed on. A radio that was restarted meanwhile, or has heard 160 other packets, no longer knows
  /// that it has sent it. A text of somebody else who uses our name has another time, or other words.
  private func isOwn(_ message: ChannelMessage) -> Bool {
    guard let name = connection.identity?.info.name, !isInDoubt(message.slot) else { return false }
    let sender = name.bytes + Array(": ".utf8)
    guard message.text.bytes.starts(with: sender) else { return false }
    let text = Text(bytes: Array(message.text.bytes.dropFirst(sender.count)))
    // If the store cannot be read, it is taken as any other.
    let isSaid: Bool? = store.ifReadable {
      guard let channel = try store.channel(slot: message.slot), !channel.isEmpty else { return false }
      return try store.hasSaid(text, on: channel.secret.digest, senderTime: message.senderTime)
    }
    return isSaid ?? false
  }

  private func isInDoubt(_ slot: UInt8) -> Bool { synchronizer?.doubts(slot) ?? false }

  private func isEmpty(_ slot: UInt8) -> Bool {
    // If the store cannot be read, the write that follows fails, and the message stays here.
    store.ifReadable { try store.channel(slot: slot) }?.isEmpty ?? true
  }

  /// Ends with the radio's answer, or when the link is lost.
  private func decide(_ entry: Entry, _ slot: UInt8) async {
    let outcome = await connection.ask(.getChannel(slot: slot), .sync)
    guard case .asked = entry.state else { return }
    entry.taken.knowsSlot = !isInDoubt(slot)
    guard case .replied(.channelInfo(let channel)) = outcome, channel.isEmpty else { return write(entry) }
    // Traffic of misconfigured nodes under a key of zeros (docs/protocol/companion.md § 9.6).
    remove(entry)
    synchronizer?.droppedMessage()
  }

  private func write(_ entry: Entry) {
    entry.arrival = nil
    entry.copies = entry.copies ?? ways.claim(entry.taken, own: connection.identity?.info.key)
    keepQueue()
    let commit = store.write(when: .message) { store throws(SQLiteError) in
      let taken = entry.taken
      let copies = ways.copies(of: entry.copies)
      entry.arrival = try store.insert(
        taken.message, at: taken.moment, wait: taken.wait, by: store.number(ofRadio: taken.radio),
        knowsSlot: taken.knowsSlot, copies: copies)
      entry.copiesWritten = copies.count
    }
    entry.state = .written(commit)
    if writing == nil { writing = loop.begin { await self.awaitDisk() } }
    // Later in this turn, after the frames that are being dispatched: a commit resumes many tasks.
    if gathers, entries.count >= Self.maxGathered { loop.later { [store] in store.commit(everything: true) } }
  }

  /// Ends when no entry waits for a commit.
  private func awaitDisk() async {
    defer { writing = nil }
    while let commit = entries.lazy.compactMap(\.commit).first {
      _ = await commit.failure()
      settle()
    }
  }

  /// Removes the entries that are on disk, in their order, and keeps those that the disk refused.
  private func settle() {
    for entry in entries {
      switch (entry.commit?.state, entry.arrival) {
      case (nil, _), (.open, _): break
      case (.durable, let arrival?): stored(entry, arrival)
      case (.durable, nil): refused(entry, .other("nothing was written"))
      case (.failed(let failure), _): refused(entry, failure)
      }
    }
    holdRefused()
  }

  private func stored(_ entry: Entry, _ arrival: MessageArrival) {
    remove(entry)
    if !entries.contains(where: \.isRefused) { failure = nil }
    ways.stored(entry.copies, entry.copiesWritten, arrival)
    synchronizer?.stored(entry.taken.message, arrival)
  }

  // MARK: The radio's queue

  func connected(to radio: PublicKey) {
    // The previous radio still has its queue when it comes back.
    if queue.radio != radio { keepLack() }
    last = nil
    if queue.radio != radio { starts.connected(kept: store.ifReadable { try store.start(of: radio) } ?? nil) }
    lacksStart = true
    let kept = store.ifReadable { try store.queueCounts(of: radio) }
    queue.connected(to: radio, kept: kept, now: loop.now)
    isQueueKept = kept != nil || queue.counts != QueueCounts()
  }

  func hinted() { queue.hinted(now: loop.now) }
  func radioWasSilent() { if queue.wasSilent() { keepLack() } }
  func radioWasEmptyLate() { queue.answeredLate() }

  func disconnected(_ end: LinkEnd) { starts.disconnected(end) }

  /// The radio may have been restarted on a line that stayed open: five minutes have passed, or messages are lost.
  func doubtsStart() { lacksStart = true }

  /// Whether the radio can have lost messages by a restart.
  var dependsOnStart: Bool { lacksStart || queue.dependsOnStart }

  /// Returns the messages that the radio lost with its restart.
  func radioWasStarted(at start: MonotonicTime?) -> RadioQueue.Loss? {
    lacksStart = false
    var loss = queue.dependsOnStart ? queue.wasStarted(at: start, now: loop.now) : nil
    if let start, let radio = queue.radio {
      let report = RadioStart(time: start, uptime: loop.now - start)
      let isUnattended = starts.started(report, now: loop.now)
      // Behind a line that stayed open: otherwise the announced ones would be told once more, when the queue is empty.
      if loss == nil, starts.wasRestart, queue.lacksAnnounced { loss = queue.wasStarted(at: start, now: loop.now) }
      if isUnattended, loss == nil, !queue.hasToldLoss(ofStart: start) { loss = .init(waited: 0, start: .unattended) }
      if starts.wasRestart { synchronizer?.radioWasRestarted() }
      let kept = store.ifReadable { try store.start(of: radio) } ?? nil
      if let news = starts.news(after: kept, now: loop.now) {
        store.keep(news, of: radio)
        store.write(when: .soon) { _ in }
      }
    }
    // In the same transaction as the event, so that the loss is reported once.
    if loss != nil { keepQueue(isAsked: false) }
    return loss
  }

  /// Returns the losses before this answer.
  func radioWasEmpty(askedAt: MonotonicTime) -> RadioQueue.Loss? {
    let loss = queue.wasEmpty(askedAt: askedAt)
    if loss != nil { doubtsStart() }
    guard isQueueKept, let radio = queue.radio else { return loss }
    isQueueKept = false
    store.keep(queue.counts, ofQueue: radio)
    // Without this write, the next run would report the same loss again; it need not be committed at once.
    store.write(when: .heard) { _ in }
    return loss
  }

  /// Known waiting or lost messages outlive this link and this program.
  private func keepLack() {
    guard queue.radio != nil, !queue.isRead else { return }
    isQueueKept = true
    keepQueue(isAsked: false)
    store.write(when: .heard) { _ in }
  }

  /// In the transaction of the message: after a power cut, the next run knows how many came before it, and that the
  /// next one was already requested.
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
    (entry.state, entry.wasRefused) = (.refused, true)
    self.failure = failure
    if retrying == nil { retrying = loop.begin { await self.retry() } }
    synchronizer?.refused(failure)
  }

  /// The radio has forgotten these messages: a full disk must not leave them to this process's memory alone.
  private func holdRefused() {
    let refused = entries.filter(\.wasRefused).map(\.taken)
    let couldHold = areHeld
    areHeld = store.hold(refused)
    guard couldHold, !areHeld, !refused.isEmpty else { return }
    log.error(
      "messages of the radio that are only in memory: \(refused.count); if the gateway is killed, they are lost. "
        + "\(store.reservedLocation) cannot be written either")
  }

  /// Ends when the disk has taken all messages.
  private func retry() async {
    defer { retrying = nil }
    var pause = Self.firstRetry
    while failure != nil {
      // Cancelled: the daemon ends.
      do { try await loop.sleep(for: pause) } catch { return }
      pause = min(pause * 2, Self.longestRetry)
      for entry in entries where entry.isRefused { write(entry) }
      commit()
    }
  }

  /// The daemon ends: writes the remaining messages. `isAsked`: the radio has not answered the last question. Returns
  /// the number of messages that are lost; those that are held are stored at the next start.
  func close(isAsked: Bool) -> Int {
    retrying?.cancel()
    for entry in entries where entry.commit == nil {
      if case .asked(let task) = entry.state { task.cancel() }
      write(entry)
    }
    let mayBeLost = isAsked && queue.mayHaveMore
    // If the link was too short to read the queue, the stored counts show that it is unread.
    if mayBeLost || !queue.isRead { isQueueKept = true }
    keepQueue(isAsked: mayBeLost)
    store.settle()
    settle()
    retrying?.cancel()
    let held = areHeld ? entries.count(where: \.wasRefused) : 0
    if held > 0 { log.warning("stopping: messages that wait in \(store.reservedLocation) for the next start: \(held)") }
    return entries.count - held
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

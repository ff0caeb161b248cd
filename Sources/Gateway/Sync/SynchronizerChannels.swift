// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

/// The slots that the radio has reported over this link. An unreported slot may have another channel by now: another
/// program used the radio, or its flash is older.
struct ToldSlots {
  /// Until the channels were requested, the stored ones count.
  var wereAskedFor = false
  var told: Set<UInt8> = []
  /// Slots that got another channel while messages waited in the radio: theirs may be of either, until the queue was empty.
  var mixed: Set<UInt8> = []
  /// Channels that the radio may not have, by slot. `hasRecalled`: also those from before the program began.
  var untaken: [UInt8: Store.UntakenChannel] = [:]
  var hasRecalled = false

  /// A link is up: nothing is told yet, and the radio still has its messages.
  mutating func begin() { self = ToldSlots(mixed: mixed, untaken: untaken, hasRecalled: hasRecalled) }

  /// The radio has this channel in its slot. Returns the channel that was in doubt there.
  mutating func has(_ channel: Channel) -> Store.UntakenChannel? {
    told.insert(channel.slot)
    return untaken.removeValue(forKey: channel.slot)
  }
}

extension Synchronizer {
  /// The radio did not report this slot: its messages have no known channel, and the gateway sends nothing there.
  public func doubts(_ slot: UInt8) -> Bool { slots.wereAskedFor && !slots.told.contains(slot) }

  /// The radio has reported this slot over this link.
  public func isReported(_ slot: UInt8) -> Bool { slots.told.contains(slot) }

  /// The radio may have another channel in this slot now: nothing is sent to it until the radio reports it.
  func doubt(_ slot: UInt8) {
    slots.told.remove(slot)
    plan.needs(.channels, now: true)
    woken.resume()
  }

  /// The radio did not say whether its slot has this channel now. If it turns out to have another, this region counts for the channel.
  public func doubt(_ channel: Channel, otherwise region: String?) {
    let digest = channel.secret.digest
    // A second doubt about it: what the first has stored is no former region.
    if let earlier = slots.untaken[channel.slot], earlier.digest == digest { return }
    slots.untaken[channel.slot] = (digest, region)
    let untaken = slots.untaken
    write { store throws(SQLiteError) in try store.setUntakenChannels(untaken) }
  }

  /// Channels that came into doubt before the program began. If the store cannot be read, the next link recalls them.
  func recallUntaken() {
    guard !slots.hasRecalled, let untaken = store.ifReadable({ try store.untakenChannels() }) else { return }
    slots.hasRecalled = true
    slots.untaken.merge(untaken) { newer, _ in newer }
  }

  /// The slot is about to get this channel: reads the messages that wait in the radio, which came under the present one. What the radio still has after
  /// `limit` is stored without a channel.
  public func willPut(_ channel: Channel, within limit: Duration) async {
    // A slot that cannot be read, or never was, may be in use.
    let present = store.ifReadable { try store.channel(slot: channel.slot) }
    guard present.map({ !$0.isEmpty && $0.secret != channel.secret }) ?? true else { return }
    // `try?`: the queue is not read, whatever the reason.
    if (try? await readQueue(within: limit)) != true { slots.mixed.insert(channel.slot) }
  }

  /// Messages of this slot may be of its present channel or of the one before.
  func isMixed(_ slot: UInt8) -> Bool { slots.mixed.contains(slot) }

  /// Requests for one slot.
  private static let maxTries = 2
  /// If more slots than this have no answer, the part fails at once.
  private static let maxLeft = 2

  /// Requests every slot of the radio, because empty ones lie between used ones. Old radios that do not report their
  /// number of slots are asked until they refuse.
  ///
  /// A slot that has no answer, or is refused, is requested twice and then skipped: one slot is no reason to start over,
  /// nor does it end the stored channels behind it. It stays in doubt until a retry succeeds.
  func syncChannels() async throws {
    defer { slots.wereAskedFor = true }
    let known = connection.identity?.device?.details.map { min(Int($0.channelSlots), 256) }
    let isRetry = plan.isRetry(.channels)
    var (end, left) = (known ?? 256, [(slot: Int, outcome: RadioSession.Outcome)]())
    for slot in 0..<end where !isRetry || !slots.told.contains(UInt8(slot)) {
      enter(.syncing(.channels, current: slot, total: known ?? 0))
      let outcome = try await askForChannel(UInt8(slot))
      if case .replied(.channelInfo) = outcome { continue }
      if case .failed(.refused) = outcome {
        if known == nil, slots.told.allSatisfy({ $0 < slot }) {
          end = slot
          break
        }
      } else {
        let silent = left.count { $0.outcome == .failed(.timedOut) }
        guard outcome == .failed(.timedOut), silent < Self.maxLeft else {
          throw SyncFailure("channel \(slot): \(Self.words(outcome))")
        }
      }
      left.append((slot, outcome))
    }
    // A radio may report more slots than it has; but it has those with a stored channel.
    while known != nil, let last = left.last, last.slot == end - 1, last.outcome != .failed(.timedOut),
      try store.channel(slot: UInt8(last.slot))?.isEmpty ?? true
    {
      end = last.slot
      left.removeLast()
    }
    try await store.save { [end] store throws(SQLiteError) in try store.forgetChannels(from: end) }
    try Task.checkCancellation()
    guard let first = left.first else {
      // A slot that was read before it came into doubt.
      guard let other = (0..<end).first(where: { !slots.told.contains(UInt8($0)) }) else { return }
      throw SyncFailure("channel \(other): changed while the channels were read")
    }
    throw SyncFailure("channel \(left.map { "\($0.slot)" }.joined(separator: ", ")): \(Self.words(first.outcome))")
  }

  private func askForChannel(_ slot: UInt8) async throws(CancellationError) -> RadioSession.Outcome {
    var outcome = try await ask(.getChannel(slot: slot))
    for _ in 1..<Self.maxTries {
      switch outcome {
      case .failed(.timedOut), .failed(.refused): outcome = try await ask(.getChannel(slot: slot))
      default: break
      }
    }
    return outcome
  }

  /// Stores a channel that the gateway has set in the radio.
  public func changed(_ channel: Channel) async throws(StoreError) {
    let doubted = slots.has(channel)
    do throws(StoreError) {
      try await store.save { store throws(SQLiteError) in try self.keep(channel, doubted, in: store) }
      // The exchange of channel messages follows the list of channels.
      observer?.syncChanged()
    } catch {
      // The radio has the channel: a later sync updates the store.
      failed(SyncFailure(error))
      throw error
    }
  }

  /// `doubted`: the channel that was in doubt in this slot. If the radio has another one there, its former region counts again.
  private func keep(_ channel: Channel, _ doubted: Store.UntakenChannel?, in store: Store) throws(SQLiteError) {
    if let doubted {
      try store.setUntakenChannels(slots.untaken)
      if doubted.digest != channel.secret.digest { try store.setRegion(doubted.region, ofChannel: doubted.digest) }
    }
    guard try store.setChannel(channel), !channel.isEmpty else { return }
    _ = try store.append(.channel, at: now, body: EventBody.channel(channel))
  }

  func keep(_ channel: Channel) {
    let doubted = slots.has(channel)
    write { store throws(SQLiteError) in try self.keep(channel, doubted, in: store) }
  }
}

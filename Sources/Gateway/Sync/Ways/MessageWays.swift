// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto
import Store
import Timing

/// Keeps the copies of messages that the radio hears. The first ones are written with the message. Those that come later
/// are written a few seconds after the last one, with an event that tells all. The timer runs only while there is
/// something to tell.
public final class MessageWays {
  /// Messages from before the start of the program whose copies may still come.
  private static let (recent, mostRecent): (Int64, Int) = (60_000, 16)

  private let store: Store
  private let loop: EventLoop
  private let tasks: LoopTasks
  private var packets = PacketCopies()
  private var timer: LoopTimer?
  /// Numbers of messages belong to this database (`Store.replacements`).
  private var present: Int
  private var isResumed = false
  /// The known regions, until they change.
  private var keys: (changes: UInt64, known: [(name: String, key: ChannelSecret)])?
  /// What repeaters around pass on.
  public private(set) var repeated = RepeatedFloods()
  /// The radio's default region; `nil`: it has none, or has not said it.
  public var defaultRegion: FloodScope? { didSet { keys = nil } }

  init(_ store: Store, on loop: EventLoop) {
    (self.store, self.loop, present) = (store, loop, store.replacements)
    tasks = LoopTasks(on: loop)
  }

  /// The radio has heard a packet, for whomever it was.
  func heard(_ bytes: [UInt8], snr: SNR, rssi: Int8, own: PublicKey?) {
    check()
    // `try?`: bytes that are no packet are no copy.
    guard let packet = try? Packet(decoding: bytes) else { return packets.heardOther() }
    let region = region(of: packet)
    repeated.heard(packet, in: region)
    guard [.text, .groupText, .groupData].contains(packet.type) else { return packets.heardOther() }
    let copy = HeardCopy(packet, snr: snr, rssi: rssi, at: loop.wallClock.milliseconds, region: region)
    packets.heard(packet, copy, own: own?.nodeHash, now: loop.now)
    arm()
  }

  /// The radio says that it has a message.
  func wasRead() { packets.wasRead() }

  /// Each packet of a region has another code, which only its name explains.
  private func region(of packet: Packet) -> String? {
    guard packet.route.hasTransportCodes else { return nil }
    return knownKeys.first { packet.isInScope(of: $0.key) }?.name
  }

  /// The names of regions that are known here, the radio's default first.
  public var knownRegions: [String] { knownKeys.map(\.name) }

  private var knownKeys: [(name: String, key: ChannelSecret)] {
    if let keys, keys.changes == store.regionChanges, present == store.replacements { return keys.known }
    // If the store cannot be read, the code remains, and the next packet's is looked up again.
    let names = store.ifReadable { try store.knownRegions() }
    let known = secrets(of: names ?? [])
    if names != nil { keys = (store.regionChanges, known) }
    return known
  }

  private func secrets(of known: [String]) -> [(name: String, key: ChannelSecret)] {
    let own = defaultRegion.map { [($0.name.string, $0.key)] } ?? []
    return own
      + known.compactMap { name in
        name == own.first?.0 ? nil : RegionChoice(name)?.key.map { (name, $0) }
      }
  }

  // MARK: Received messages

  /// A message is about to be stored. Returns the number of its copies; `nil`: none are known.
  func claim(_ taken: TakenMessage, own: PublicKey?) -> Int? {
    check()
    // Without this, a radio that tells no packets would cost time for each message.
    guard !packets.isEmpty else { return nil }
    switch taken.message {
    case .contact(let message):
      // The copies of a message that waited in the radio came before the gateway, and those of a later one may fit.
      guard taken.wait == .none, let own else { return nil }
      return packets.claim(message, own: own.nodeHash)
    case .channel(let message):
      return claim(.groupText, taken, message.slot) { $0.payload(message.text, message.senderTime, message.textType) }
    case .datagram(let datagram):
      return claim(.groupData, taken, datagram.slot) { secret in
        GroupEnvelope.seal(GroupData(dataType: datagram.dataType, data: datagram.data), with: secret)?.encode()
      }
    }
  }

  private func claim(
    _ type: PayloadType, _ taken: TakenMessage, _ slot: UInt8, _ payload: (ChannelSecret) -> [UInt8]?
  ) -> Int? {
    // If the store cannot be read, the write that follows fails.
    guard taken.knowsSlot, let channel = store.ifReadable({ try store.channel(slot: slot) }), !channel.isEmpty,
      let payload = payload(channel.secret)
    else { return nil }
    return packets.claim(type, payload, now: loop.now)
  }

  /// The copies so far, to be stored with the message.
  func copies(of serial: Int?) -> [HeardCopy] { serial.map { packets.copies(of: $0) } ?? [] }

  /// The message is on disk with this many copies.
  func stored(_ serial: Int?, _ count: Int, _ arrival: MessageArrival) {
    guard let serial, present == store.replacements else { return }
    packets.stored(serial, count, as: .received(arrival.id), now: loop.now)
    arm()
  }

  // MARK: Sent messages

  /// A channel message of ours has this payload.
  public func sends(_ id: Int64, _ payload: [UInt8]) {
    check()
    packets.expect(.sent(id), .groupText, payload, now: loop.now)
    arm()
  }

  /// A direct message of ours goes to this node.
  public func sends(_ id: Int64, to recipient: PublicKey, bytes: Int) {
    check()
    packets.expect(sent: id, to: recipient.nodeHash, bytes: bytes, now: loop.now)
  }

  // MARK: The store

  /// Another database has other messages under these numbers.
  private func check() {
    guard present != store.replacements else { return }
    (present, packets, keys) = (store.replacements, PacketCopies(after: packets), nil)
  }

  /// A radio is attached for the first time since the program's start: copies of messages from just before may come,
  /// and what was kept of them may not have been told.
  func resume() {
    guard !isResumed else { return }
    isResumed = true
    var untold: [MessageNumber] = []
    // If the store cannot be read, further copies of these messages are not recognised.
    store.ifReadable {
      try store.eachNewest(Self.mostRecent) { message, hasNews in
        if hasNews { untold.append(.received(message.id)) }
        expect(message)
      }
    }
    let moment = Moment(loop.wallClock)
    for message in untold {
      store.post(when: .heard, "copies of a message") { store throws(SQLiteError) in
        try store.tellCopies([], of: message, at: moment)
      }
    }
    arm()
  }

  private func expect(_ message: StoredMessage) {
    guard message.kind == .channel, loop.wallClock.milliseconds - message.received.milliseconds < Self.recent,
      let slot = message.slot, let time = message.senderTime,
      let channel = store.ifReadable({ try store.channel(slot: slot) }), channel.secret.digest == message.channel
    else { return }
    let text = Text(bytes: (message.senderName.map { $0.bytes + Array(": ".utf8) } ?? []) + message.text.bytes)
    guard let payload = channel.secret.payload(text, time, message.textType) else { return }
    packets.expect(.received(message.id), .groupText, payload, now: loop.now)
  }

  /// The program ends: keeps and tells what is pending.
  func stop() {
    tell(now: nil)
    tasks.cancel()
  }

  private func arm() {
    timer?.cancel()
    timer = packets.due.map { due in loop.schedule(at: due) { [weak self] in self?.ring() } }
  }

  private func ring() {
    check()
    tell(now: loop.now)
    arm()
  }

  private func tell(now: MonotonicTime?) {
    timer?.cancel()
    timer = nil
    guard present == store.replacements else { return }
    for due in packets.takeDue(now: now) {
      let moment = Moment(loop.wallClock)
      // It informs only: a commit of its own would double what a message costs a flash card.
      let commit = store.write(when: .heard) { store throws(SQLiteError) in
        try store.tellCopies(due.copies, more: due.more, of: due.message, at: moment)
      }
      guard now != nil else { continue }
      tasks.begin { [weak self] in
        guard await commit.failure() != nil, !Task.isCancelled, let self else { return }
        packets.failed(due, now: loop.now)
        arm()
      }
    }
  }
}

extension ChannelSecret {
  /// The payload of a channel message, as its sender's radio has sealed it.
  fileprivate func payload(_ text: Text, _ time: UInt32, _ type: TextType) -> [UInt8]? {
    GroupEnvelope.seal(GroupText(time: time, flags: type.rawValue << 2, text: text), with: self)?.encode()
  }
}

// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Store
import TestSupport
import Testing
import Transport
import VirtualRadio

@testable import Sync

/// A gateway's lower half and a virtual radio on one loop, joined in memory.
final class Pair: SyncObserver {
  let scratch: Scratch
  let loop: EventLoop
  let store: Store
  let radio: VirtualRadio
  let link: MemoryLink
  let connection: RadioConnection
  let synchronizer: Synchronizer
  /// Texts of messages that are on disk, in order.
  var stored: [String] = []
  /// What may wait for its commit does.
  var letsWait = false
  var messageLosses: [RadioQueue.Loss] = []
  /// How often the link was lost.
  var losses = 0

  init(
    contacts: Int = 3, channels: Int = 40, profile: StoreProfile = .durable, on machine: any Machine = LinuxMachine(),
    in scratch: Scratch = Scratch()
  ) throws {
    self.scratch = scratch
    loop = EventLoop(on: machine)
    store = try Store(Store.Settings(location: scratch.location("gw.db"), profile: profile), clocks: machine)
    var settings = VirtualRadioSettings(
      name: "r0", seed: 1, channelSlots: channels, queueCapacity: 256, clock: 1_795_000_000, contacts: contacts)
    // A radio tells whole seconds: of one that was started just now nobody knows whether that was before its first list.
    settings.age = .seconds(60)
    radio = VirtualRadio(settings, on: loop)
    link = MemoryLink(radio, on: loop)
    let log = Log(level: .error, sink: { _, _ in })
    connection = RadioConnection(link, on: loop, log: log)
    synchronizer = Synchronizer(connection, store: store, settings: .init(), on: loop, log: log)
    synchronizer.observer = self
    loop.afterTurn { [store, weak self] in
      store.commit()
      if store.takeNews().pause != nil, self?.letsWait != true { store.commit(everything: true) }
    }
  }

  deinit { end() }

  /// Nothing of it is left on the loop then.
  func end() {
    synchronizer.stop()
    connection.stop()
    loop.turn(wait: false)
  }

  func run(until condition: () -> Bool, _ what: Comment) {
    let isSo = turn(loop, until: condition)
    #expect(isSo, what)
  }

  func sync() {
    connection.start()
    run(until: { synchronizer.state == .synced }, "synced")
  }

  func messageStored(_ message: QueuedMessage) {
    if case .channel(let message) = message { stored.append(message.text.string) }
  }

  func linkChanged() { if case .waiting = connection.state { losses += 1 } }
  func syncChanged() {}
  func heard(_ push: Push, in frame: [UInt8]) {}
  func contactCame(_ contact: Contact) {}
  func messagesWereLost(_ loss: RadioQueue.Loss) { messageLosses.append(loss) }
  func radioReplaced() {}
  func radioIsIdle() {}
}

/// Carries frames to a virtual radio and back, and can be cut after so many of them.
final class MemoryLink: Link {
  private let radio: VirtualRadio
  private let loop: EventLoop
  private var decoder = SerialDecoder(.toRadio)
  /// Counts connections: what was under way when one was cut is lost.
  private var present = 0
  private var isOpen = false
  /// Comes back as soon as somebody waits for it.
  var returnsAtOnce = false
  /// Frames, either way, until it is cut by itself.
  var framesUntilCut: Int?
  private(set) var cuts = 0
  /// What the radio had said, and was lost with the link.
  private(set) var lost: [Reply] = []
  private(set) var messagesDelivered = 0
  var onCut: () -> Void = {}
  var onCommand: (Command) -> Void = { _ in }
  /// The radio answers these with an error.
  var refuses: (Command) -> Bool = { _ in false }
  /// The radio does not get these.
  var swallows: (Command) -> Bool = { _ in false }
  /// These come to nobody.
  var losesReply: (Reply) -> Bool = { _ in false }
  /// These come twice.
  var doublesReply: (Reply) -> Bool = { _ in false }
  /// Frames from the radio are given on when this is false again.
  var isHeldUp = false {
    didSet { if !isHeldUp { for frame in heldUp { carry(frame) } } }
  }
  private var heldUp: [[UInt8]] = []
  let name = "memory"
  var onEvent: (LinkEvent) -> Void = { _ in }

  init(_ radio: VirtualRadio, on loop: EventLoop) {
    self.radio = radio
    self.loop = loop
    radio.output = { [weak self] frame in
      guard let self else { return }
      if self.isHeldUp { self.heldUp.append(frame) } else { self.carry(frame) }
    }
  }

  /// In two pieces, as a serial line may.
  private func carry(_ frame: [UInt8]) {
    var times = 1
    // `try?`: what cannot be read is no reply, and comes once.
    if case .reply(let reply)? = try? RadioFrame(decoding: frame) {
      times = losesReply(reply) ? 0 : doublesReply(reply) ? 2 : 1
    }
    let (connection, bytes) = (present, SerialFraming.wrap(frame, .fromRadio))
    for _ in 0..<times { loop.later { [weak self] in self?.deliver(frame, bytes, connection) } }
  }

  private func deliver(_ frame: [UInt8], _ bytes: [UInt8], _ connection: Int) {
    guard isOpen, present == connection else { return lose(frame) }
    if case .reply(.message)? = try? RadioFrame(decoding: frame) { messagesDelivered += 1 }
    onEvent(.bytes(Array(bytes.prefix(2))))
    onEvent(.bytes(Array(bytes.dropFirst(2))))
    count()
  }

  private func lose(_ frame: [UInt8]) {
    if case .reply(let reply)? = try? RadioFrame(decoding: frame) { lost.append(reply) }
  }

  func open() {
    isOpen = true
    present += 1
    decoder.reset()
    loop.later { [weak self] in self?.onEvent(.up) }
  }

  func close() { isOpen = false }

  func send(_ bytes: [UInt8]) {
    guard isOpen else { return }
    decoder.append(bytes, now: loop.now)
    while let frame = decoder.next(now: loop.now) {
      if let command = try? Command(decoding: frame) {
        onCommand(command)
        if swallows(command) { continue }
        if refuses(command) {
          carry(Reply.error(.badState).encode())
          continue
        }
      }
      loop.later { [radio] in radio.received(frame) }
      count()
    }
  }

  func tryOtherLineSettings() -> Bool { false }
  func watchForReturn(_ action: @escaping () -> Void) { if returnsAtOnce { loop.later(action) } }

  private func count() {
    guard let left = framesUntilCut else { return }
    framesUntilCut = left > 1 ? left - 1 : nil
    if left <= 1 { cut() }
  }

  func cut() {
    guard isOpen else { return }
    onCut()
    isOpen = false
    cuts += 1
    loop.later { [weak self] in self?.onEvent(.down(.unplugged("memory"))) }
  }
}

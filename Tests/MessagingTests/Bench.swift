// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Store
import Sync
import TestSupport
import Testing
import Transport
import VirtualRadio

@testable import Messaging

/// The radio side of a gateway, its radio r0 and another radio r1, on one loop and connected in memory.
final class Bench: SyncObserver {
  /// Gets answers in tests that ask other nodes.
  weak var requests: NodeRequests?

  let scratch = Scratch(inMemory: true)
  let loop: EventLoop
  let store: Store
  let ether: Ether
  let own: VirtualRadio
  let other: VirtualRadio
  let synchronizer: Synchronizer
  let messenger: Messenger
  private let link: MemoryLink
  private(set) var sending: LoopTask?
  private var connecting: LoopTask?
  private(set) var knowsScopeIsStuck = false
  /// Also gets the radio's pushes.
  var alsoHears: (Push) -> Void = { _ in }

  /// `refuses`: the commands that the radio answers with an error, and the error, from the first connection on.
  init(
    _ settings: Messenger.Settings = Messenger.Settings(), maxSize: Int64 = 1 << 30,
    on machine: any Machine = LinuxMachine(), firmware: VirtualFirmware = .newest,
    refuses: @escaping (Command) -> RadioError? = { _ in nil }
  ) throws {
    loop = EventLoop(on: machine)
    store = try Store(Store.Settings(location: scratch.location("gw.db"), maxSize: maxSize))
    ether = Ether(on: loop, seed: 1, airtimeFactor: 0)
    var ours = VirtualRadioSettings(name: "r0", seed: 1, channelSlots: 4, clock: 1_795_000_000)
    (ours.packetPool, ours.firmware) = (16, firmware)
    own = VirtualRadio(ours, on: loop)
    other = VirtualRadio(VirtualRadioSettings(name: "r1", seed: 2, channelSlots: 4, clock: 1_795_000_000), on: loop)
    for radio in [own, other] { ether.add(radio) }
    let log = Log(level: .error, sink: { _, _ in })
    link = MemoryLink(own, on: loop)
    link.refuses = refuses
    let connection = RadioConnection(link, on: loop, log: log)
    synchronizer = Synchronizer(connection, store: store, settings: .init(), on: loop, log: log)
    messenger = try Messenger(store: store, synchronizer: synchronizer, settings: settings, on: loop, log: log)
    loop.afterTurn { [store] in store.commit() }
    synchronizer.observer = self
    for radio in [own, other] { radio.received(Command.sendSelfAdvert(flood: true).encode()) }
    // `try?`: the bench cancels these tasks.
    sending = loop.begin { [messenger] in try? await messenger.run() }
    connecting = loop.begin { try? await connection.run() }
    try run("synced") { self.synchronizer.isServing }
  }

  deinit {
    synchronizer.stop()
    connecting?.cancel()
    sending?.cancel()
    for _ in 0..<2 { loop.turn(wait: false) }
  }

  func linkChanged() {
    knowsScopeIsStuck = synchronizer.connection.isScopeStuck
    messenger.radioChanged()
    if synchronizer.connection.state != .up { requests?.linkLost() }
  }
  func syncChanged() { messenger.radioChanged() }
  func heard(_ push: Push, in frame: [UInt8]) {
    messenger.received(push)
    requests?.received(push)
    alsoHears(push)
  }
  func contactCame(_ contact: Contact) { messenger.contactChanged(contact) }
  func messageStored(_ message: QueuedMessage) {}
  func messageRepeated(_ message: QueuedMessage) {}
  func messagesWereLost(_ loss: RadioQueue.Loss) {}
  func radioReplaced() { messenger.radioReplaced() }
  func radioIsIdle() {}

  /// Turns the loop until the condition is true.
  func run(_ what: String, _ condition: () throws -> Bool) throws {
    let isSo = try turn(loop, until: condition)
    try #require(isSo, "waited in vain: \(what)")
  }

  /// The radio does not get these commands.
  func swallow(_ which: @escaping (Command) -> Bool) { link.swallows = which }

  /// The gateway does not get these frames of the radio.
  func lose(_ which: @escaping ([UInt8]) -> Bool) { link.loses = which }

  /// Replaces the radio by another one, without an interruption.
  func swap(to other: VirtualRadio) { link.swap(to: other) }

  func send(_ request: SendRequest) throws -> Result<[OutgoingMessage], Refusal> {
    try result("an answer to send") { [messenger] () throws(Refusal) in try await messenger.send(request) }
  }

  /// The result of a task on this loop.
  func result<Value>(
    _ what: String, of work: @escaping () async throws(Refusal) -> Value
  ) throws -> Result<Value, Refusal> {
    var result: Result<Value, Refusal>?
    _ = loop.begin { do throws(Refusal) { result = .success(try await work()) } catch { result = .failure(error) } }
    try run(what) { result != nil }
    return try #require(result)
  }

  /// The refusal of the work; `nil`: it succeeded.
  func refusal<Value>(of work: @escaping () async throws(Refusal) -> Value) throws -> Refusal? {
    if case .failure(let refusal) = try result("an answer", of: work) { return refusal }
    return nil
  }

  /// Trims the whole journal.
  func makeRoom() {
    let now = Moment(milliseconds: 1, trusted: false)
    for uptime in [nil, Int64.max] {
      store.trimJournal(now: now, uptime: uptime)
      store.commit()
    }
  }

  func state(_ key: String) throws -> OutgoingMessage { try #require(try store.outgoing(key: key)) }
}

/// Carries frames to a virtual radio in memory.
private final class MemoryLink: Link {
  private var radio: VirtualRadio
  private let loop: EventLoop
  private var decoder = SerialDecoder(.toRadio)
  var refuses: (Command) -> RadioError? = { _ in nil }
  /// Commands that the radio does not get.
  var swallows: (Command) -> Bool = { _ in false }
  /// Frames of the radio that are lost.
  var loses: ([UInt8]) -> Bool = { _ in false }
  let name = "memory"
  var onEvent: (LinkEvent) -> Void = { _ in }

  init(_ radio: VirtualRadio, on loop: EventLoop) {
    self.radio = radio
    self.loop = loop
    listen()
  }

  func swap(to other: VirtualRadio) {
    radio.output = { _ in }
    radio = other
    decoder.reset()
    listen()
    onEvent(.down(.radio("another radio")))
  }

  private func listen() {
    radio.output = { [weak self, loop] frame in
      guard self?.loses(frame) == false else { return }
      loop.later { self?.onEvent(.bytes(SerialFraming.wrap(frame, .fromRadio))) }
    }
  }

  func open() { loop.later { [weak self] in self?.onEvent(.up) } }
  func close() {}
  func send(_ bytes: [UInt8]) {
    decoder.append(bytes, now: loop.now)
    while let frame = decoder.next(now: loop.now) {
      // `try?`: as below.
      if (try? Command(decoding: frame)).map(swallows) ?? false { continue }
      // `try?`: bytes that are no command go to the radio.
      if let error = (try? Command(decoding: frame)).flatMap(refuses) {
        loop.later { [weak self] in
          self?.onEvent(.bytes(SerialFraming.wrap(Reply.error(error).encode(), .fromRadio)))
        }
      } else {
        loop.later { [radio] in radio.received(frame) }
      }
    }
  }
}

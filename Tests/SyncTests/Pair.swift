// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Store
import TestSupport
import Testing
import Timing
import Transport
import VirtualRadio

@testable import Sync

/// The radio side of a gateway and a virtual radio on one loop, connected in memory.
final class Pair: SyncObserver {
  let scratch: Scratch
  let loop: EventLoop
  let store: Store
  let radio: VirtualRadio
  let link: MemoryLink
  let connection: RadioConnection
  let synchronizer: Synchronizer
  /// The texts of stored messages, in order.
  var stored: [String] = []
  /// Data that may wait for its commit waits.
  var letsWait = false
  var messageLosses: [RadioQueue.Loss] = []
  /// Called with each report of lost messages.
  var whenLost: () -> Void = {}
  /// The number of lost links.
  var losses = 0

  init(
    contacts: Int = 3, channels: Int = 40, profile: StoreProfile = .durable, on machine: any Machine = LinuxMachine(),
    in scratch: Scratch = Scratch(inMemory: true), age: Duration = .seconds(60)
  ) throws {
    self.scratch = scratch
    loop = EventLoop(on: machine)
    store = try Store(Store.Settings(location: scratch.location("gw.db"), profile: profile), clocks: machine)
    var settings = VirtualRadioSettings(
      name: "r0", seed: 1, channelSlots: channels, queueCapacity: 256, clock: 1_795_000_000, contacts: contacts)
    // A radio reports whole seconds: if it has just started, the gateway cannot tell whether it started before its first list.
    settings.age = age
    radio = VirtualRadio(settings, on: loop)
    link = MemoryLink(radio, on: loop)
    let log = Log(level: .error, sink: { _, _ in })
    connection = RadioConnection(link, on: loop, log: log)
    synchronizer = Synchronizer(connection, store: store, settings: .init(), on: loop, log: log)
    synchronizer.observer = self
    loop.afterTurn { [store, weak self] in
      store.commit()
      if store.transactions.takeNews().pause != nil, self?.letsWait != true { store.commit(everything: true) }
    }
  }

  private var connecting: LoopTask?

  deinit { end() }

  /// Ends all its tasks on the loop.
  func end() {
    synchronizer.stop()
    connecting?.cancel()
    for _ in 0..<2 { loop.turn(wait: false) }
  }

  func run(until condition: () -> Bool, _ what: Comment) {
    let isSo = turn(loop, until: condition)
    #expect(isSo, what)
  }

  func pass(_ seconds: Double) {
    let end = loop.now + .seconds(seconds)
    loop.schedule(at: end) {}
    while loop.now < end { loop.turn(wait: true) }
  }

  /// The radio receives texts of a channel.
  func inject(_ count: Int) {
    for number in 1...count { radio.injectChannelText("W: \(number)", slot: 0, time: UInt32(number)) }
  }

  /// Opens the link, and keeps it open.
  func start() {
    // `try?`: `end` cancels this task.
    connecting = loop.begin { [connection] in try? await connection.run() }
  }

  func sync() {
    start()
    run(until: { synchronizer.state == .synced }, "synced")
  }

  func messageStored(_ message: QueuedMessage) {
    if case .channel(let message) = message { stored.append(message.text.string) }
  }

  func linkChanged() { if case .waiting = connection.state { losses += 1 } }
  func syncChanged() {}
  func heard(_ push: Push, in frame: [UInt8]) {}
  func contactCame(_ contact: Contact) {}
  func messageRepeated(_ message: QueuedMessage) {}
  func messagesWereLost(_ loss: RadioQueue.Loss) {
    messageLosses.append(loss)
    whenLost()
  }
  func radioReplaced() {}
  func radioIsIdle() {}
}

// SPDX-License-Identifier: MIT

import EventLoop
import TestSupport

@testable import Relay
@testable import Store

/// A gateway's store and the sync that fetches a hub's updates into it, in invented time.
final class UpdatesBench {
  private let scratch = Scratch(inMemory: true)
  let loop = EventLoop(on: InventedMachine())
  let store: Store
  let sync: BucketSync
  private(set) var lines: [String] = []

  init(_ source: any UpdatesSource, _ host: any RelayHost, rights: Set<String> = []) throws {
    let store = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: loop.clocks)
    self.store = store
    var say: (String) -> Void = { _ in }
    let log = Log(level: .notice, sink: { _, line in say(line) })
    let intake = CommandIntake(
      Upstream.Settings(name: "hub", allowed: [], commandsPerMinute: 10), store: store, on: loop, log: log)
    intake.host = host
    sync = BucketSync(
      upstream: "hub", rights: rights, store: store, source: source, commands: intake, on: loop, log: log,
      acknowledged: { 0 })
    sync.host = host
    loop.afterTurn { store.commit() }
    say = { [weak self] in self?.lines.append($0) }
  }

  /// The sync lives until the test calls this.
  func end() { sync.stop() }
}

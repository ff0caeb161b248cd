// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Store
import TestSupport
import Testing
import Timing

@testable import Relay

/// Carries out nothing until the disk takes it, and hears how long each command had waited.
private final class Host: RelayHost {
  var waited: [Int64] = []
  var isReadyForCommands = true
  var exchangedChannels: [String] { [] }
  var takenGateways: [String] { [] }

  func carryOut(_ command: RemoteCommand) async -> CommandAnswer {
    waited.append(command.waited)
    return .done(Array("{}".utf8))
  }
  func documentsChanged() {}
  func take(_ update: ChannelUpdate) -> ChannelUpdateFate { .skipped }
}

@Suite(.serialized) struct QueuedCommandTests {
  @Test(arguments: [nil, 0, 600_000] as [Int64?])
  func `a command waited as long as the hub says, and since then, whatever the two clocks show`(_ age: Int64?) throws {
    // The hub's clock is far from the gateway's.
    for at in [0, 1_900_000_000_000] as [Int64] {
      let (scratch, loop, host) = (Scratch(inMemory: true), EventLoop(on: InventedMachine()), Host())
      let store = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: loop.clocks)
      loop.afterTurn { store.commit() }
      let intake = CommandIntake(
        CommandIntake.Settings(), upstream: "hub", store: store, on: loop, log: Log(sink: { _, _ in }))
      let waited = age.map { #""age_ms":\#($0),"# } ?? ""
      let page = #"""
        {"first":1,"last":1,"last_at":\#(at),"updates":[{"seq":1,"at":\#(at),"id":"c",\#(waited)"body":{"id":"c","command":"send","to":"x","text":"y"}}]}
        """#
      guard case .updates(let updates, _, _, _, _, _)? = CatchUp.Page(try JSONValue(parsing: Array(page.utf8))) else {
        #expect(Bool(false), "\(page)")
        continue
      }
      store.write { store throws(SQLiteError) in
        _ = try store.queueCommand(updates[0].body, id: updates[0].id, of: "hub", age: updates[0].age)
      }
      pass(loop, .seconds(90))
      // A gateway's first visit: its radio was not read yet.
      host.isReadyForCommands = false
      intake.host = host
      intake.runNext()
      pass(loop, .seconds(25))
      #expect(host.waited.isEmpty)
      host.isReadyForCommands = true
      pass(loop, .seconds(10))
      #expect(host.waited == [120_000 + (age ?? 0)])
      withExtendedLifetime(scratch) {}
    }
  }

  private func pass(_ loop: EventLoop, _ time: Duration) {
    let end = loop.now + time
    while loop.now < end {
      let timer = loop.schedule(at: end) {}
      loop.turn(wait: true)
      timer.cancel()
    }
  }
}

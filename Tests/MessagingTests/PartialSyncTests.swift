// SPDX-License-Identifier: MIT

import Companion
import Store
import Sync
import Testing

@testable import Messaging

@Suite struct PartialSyncTests {
  @Test func `messages are sent and received although the radio never lists its contacts`() throws {
    let bench = try Bench(refuses: { if case .getContacts = $0 { .badState } else { nil } })
    guard case .failed = bench.synchronizer.state else {
      Issue.record("\(bench.synchronizer.state)")
      return
    }
    _ = try bench.send(SendRequest(to: "Public", text: "to all", key: "c")).get()
    try bench.run("it is on the air") { try bench.state("c").state == .sent }
    // Adverts report nodes one by one.
    bench.other.received(Command.sendSelfAdvert(flood: true).encode())
    try bench.run("it is known") { try bench.store.contact(bench.other.key) != nil }
    _ = try bench.send(SendRequest(to: "r1", text: "to one", key: "d")).get()
    try bench.run("it is delivered") { try bench.state("d").state == .delivered }
  }
}

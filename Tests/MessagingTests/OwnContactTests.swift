// SPDX-License-Identifier: MIT

import Companion
import Store
import Sync
import TestSupport
import Testing
import VirtualRadio

@testable import Messaging

@Suite struct OwnContactTests {
  @Test func `the radio's own card and key are no contact, and others' are`() throws {
    let bench = try Bench()
    let table = RadioTable(bench.synchronizer, store: bench.store)
    let own = bench.own.key
    let itself = Refusal.invalid("this is the radio itself, which cannot be its own contact")
    let card = try bench.result("its card") { () async throws(Refusal) in try await table.export(nil) }.get()
    let link = try SharedLink(parsing: card)
    #expect(try bench.refusal { () async throws(Refusal) in try await table.importLink(link) } == itself)
    let me = Contact(key: own, name: "Me")
    #expect(try bench.refusal { () async throws(Refusal) in try await table.add(me) } == itself)
    let other = try #require(PublicKey(bytes: Array(repeating: 9, count: 32)))
    let birch = Contact(key: other, name: "Birch")
    #expect(try bench.refusal { () async throws(Refusal) in try await table.add(birch) } == nil)
    #expect(try bench.store.contact(own) == nil)
  }
}

// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import Store
import Testing
import Transport

@testable import Messaging
@testable import VirtualRadio

@Suite struct RegionTests {
  @Test func `a region has the name that repeaters use, and its key is made with the number sign`() {
    #expect(Region("ottawa") == .named("ottawa") && Region("#ottawa") == .named("ottawa") && Region("*") == .unscoped)
    #expect(Region("ottawa")?.key == .hashtag("#ottawa") && Region("*")?.key == nil)
    #expect(Region("Ottawa")?.key != Region("ottawa")?.key)
    for text in ["", "#", "$own", "a b", "a,b", "##x", String(repeating: "x", count: 31), "x\u{0}"] {
      #expect(Region(text) == nil, "\(text)")
    }
    #expect(Region(String(repeating: "x", count: 30)) != nil && Region("Zürich") != nil)
  }

  @Test func `a shared link may contain the region of its channel`() throws {
    let link = "meshcore://channel/add?name=%23hill"
    #expect(
      try SharedLink(parsing: link + "&region_scope=%23ottawa")
        == .channel(name: "#hill", .hashtag("#hill"), region: .named("ottawa")))
    #expect(try SharedLink(parsing: link + "&region_scope=") == .channel(name: "#hill", .hashtag("#hill"), region: nil))
    #expect(throws: Refusal.self) { try SharedLink(parsing: link + "&region_scope=%24private") }
  }

  /// The radio keeps the scope that any client has set last until it reboots.
  @Test func `a scope that another program left in the radio is reset when the link comes up`() throws {
    let bench = try Bench()
    bench.own.received(Command.setFloodScopeKey(.key(.hashtag("#elsewhere"))).encode())
    #expect(bench.own.volatile.scope != .useDefault)
    bench.synchronizer.connection.link.onEvent(.down(.unplugged("memory")))
    try bench.run("the scope to be the default again") { bench.own.volatile.scope == .useDefault }
  }

  @Test func `a message to a channel's region leaves the scope unchanged afterwards`() throws {
    let bench = try Bench()
    bench.store.write { store throws(SQLiteError) in
      try store.setRegion("ottawa", ofChannel: ChannelSecret.publicChannel.digest)
    }
    try bench.store.commitNow()
    bench.ether.repeaters = [0xA0]
    bench.ether.regions = [.hashtag("#ottawa")]
    bench.ether.carriesUnscoped = false
    bench.ether.isFar = true
    let queued = bench.other.queuedMessages
    _ = try bench.send(SendRequest(to: "Public", text: "to ottawa", key: "o")).get()
    try bench.run("r1 to have it") { bench.other.queuedMessages == queued + 1 }
    try bench.run("the scope to be taken back") { bench.own.volatile.scope == .useDefault }
    #expect(try bench.state("o").state == .sent)
  }

  @Test func `while the radio refuses its default region, nothing is sent in a wrong region`() throws {
    var takesBack = true
    let bench = try Bench(refuses: {
      if case .setFloodScopeKey(.useDefault) = $0, !takesBack { .badState } else { nil }
    })
    bench.store.write { store throws(SQLiteError) in
      try store.setRegion("ottawa", ofChannel: ChannelSecret.publicChannel.digest)
    }
    try bench.store.commitNow()
    takesBack = false
    _ = try bench.send(SendRequest(to: "Public", text: "to ottawa", key: "o")).get()
    try bench.run("r1 to have it") { try bench.other.queuedMessages == 1 && bench.state("o").state == .sent }
    _ = try bench.send(SendRequest(to: "r1", text: "to r1", key: "d")).get()
    try bench.run("the other to fail") { try bench.state("d").hasEnded }
    #expect(try bench.state("d").reason == "region_unknown" && bench.other.queuedMessages == 1)
    #expect(bench.synchronizer.connection.isScopeStuck && bench.knowsScopeIsStuck, "the observer knows it")
    takesBack = true
    _ = try bench.send(SendRequest(to: "r1", text: "again", key: "e")).get()
    try bench.run("r1 to have it") { try bench.state("e").state == .delivered }
    #expect(
      bench.own.volatile.scope == .useDefault && !bench.synchronizer.connection.isScopeStuck && !bench.knowsScopeIsStuck
    )
  }
}

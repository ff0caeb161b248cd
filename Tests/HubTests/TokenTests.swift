// SPDX-License-Identifier: MIT

import EarlierSchemas
import Foundation
import JSON
import Synchronization
import TestSupport
import Testing

@testable import Hub

/// The identities that the hub accepts: each gateway has its own token, which gives no access to others.
@Suite struct TokenTests {
  private let scratch = Scratch(inMemory: true)

  private func token(_ name: String, _ gateway: String = "*", _ access: HubConfiguration.Access = .write)
    -> HubConfiguration.Token
  {
    HubConfiguration.Token(name: name, secrets: ["the-token-\(name)-of-16"], gateway: gateway, access: access)
  }

  /// The hub's answer to a gateway with a token: `nil` if it may write, otherwise the reason.
  private func come(_ gateway: String, with name: String, _ access: HubAccess, _ stores: HubStores) async throws
    -> String?
  {
    switch access.check("Bearer the-token-\(name)-of-16", gateway: gateway, .write) {
    case .allowed: return nil
    case .unbound(let grant): return try await access.bind(grant, in: stores)
    case .unknown(let message): return message
    case .forbidden: return "forbidden"
    }
  }

  /// Makes a gateway known to the hub.
  private func send(from gateway: String, to stores: HubStores) async throws {
    let batch = #"{"epoch":"e","events":[{"seq":1,"at":1,"trusted":true,"kind":"radio","body":{}}]}"#
    _ = try await stores.writer.take(try EventBatch(parsing: Array(batch.utf8)), from: gateway, at: 1)
  }

  @Test func `a token for writing allows no reading`() {
    let access = HubAccess([token("shared"), token("own", "hill")])
    for name in ["shared", "own"] {
      for gateway in ["hill", "dale", nil] {
        for operation in [HubAccess.Operation.read, .command, .measure, .administer] {
          #expect(access.check("Bearer the-token-\(name)-of-16", gateway: gateway, operation) == .forbidden(name))
        }
      }
    }
    #expect(access.check("Bearer the-token-own-of-16", gateway: "hill", .greet).allowed == "own")
    #expect(access.check("Bearer the-token-own-of-16", gateway: "dale", .greet) == .forbidden("own"))
  }

  @Test func `a token for any gateway belongs to its first gateway, also after a restart`() async throws {
    let location = scratch.location("hub.db")
    for _ in 0..<2 {
      let stores = try HubStores(location: location)
      let access = HubAccess([token("first"), token("second"), token("own", "ridge")])
      access.load(try await stores.writer.tokenBindings())
      #expect(try await come("hill", with: "first", access, stores) == nil)
      #expect(try await come("hill", with: "first", access, stores) == nil)
      let other = try #require(try await come("dale", with: "first", access, stores))
      #expect(other.contains("belongs to another gateway"))
      // A new token cannot claim a known gateway.
      for taken in ["hill", "ridge"] {
        #expect(try await come(taken, with: "second", access, stores) == "\(taken) has another token")
      }
      #expect(access.list.map(\.gateways) == [["hill"], [], []])
    }
  }

  @Test func `a gateway that came to another hub on the database is expected here at once`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    let (here, there) = (HubAccess([token("first")]), HubAccess([token("first")]))
    here.load(try await stores.writer.tokenBindings())
    #expect(try await come("hill", with: "first", there, stores) == nil)
    #expect(!here.expects("hill"))
    #expect(try await here.expects("hill", in: stores.lookups))
    #expect(try await !here.expects("dale", in: stores.lookups))
    #expect(try await stores.writer.endBindings(of: "hill") == 1)
    #expect(try await !here.expects("hill", in: stores.lookups))
  }

  @Test func `a new token replaces a removed one, but not the token of a gateway that lost its own`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    let access = HubAccess([token("first"), token("own", "ridge")])
    #expect(try await come("hill", with: "first", access, stores) == nil)
    try await send(from: "ridge", to: stores)
    access.replace(with: [token("next"), token("third")])
    #expect(try await come("hill", with: "next", access, stores) == nil)
    #expect(try await come("dale", with: "next", access, stores) != nil)
    let reason = try #require(try await come("ridge", with: "third", access, stores))
    #expect(reason.contains("needs a token of its own"))
  }

  @Test func `a token of a removed gateway ends with the next reading, and belongs to nobody`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    let access = HubAccess([token("first"), token("second")])
    #expect(try await come("hill", with: "first", access, stores) == nil)
    guard case .allowed(let grant) = access.check("Bearer the-token-first-of-16", gateway: "hill", .write) else {
      Issue.record("it is bound")
      return
    }
    #expect(access.allows(grant))
    #expect(try await stores.writer.endBindings(of: "hill") == 1)
    #expect(try await stores.writer.endBindings(of: "hill") == 0)
    access.load(try await stores.writer.tokenBindings())
    #expect(!access.allows(grant) && access.list.map(\.gateways) == [[], []])
    for gateway in ["hill", "dale"] { #expect(try await come(gateway, with: "first", access, stores) != nil) }
    #expect(try await come("hill", with: "second", access, stores) == nil, "it may come again with another one")
  }

  @Test func `a person can sign in after the hub's clock was ahead`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    #expect(try await stores.writer.setPerson("ana", role: .view, hash: "h", at: 1) == nil)
    for number in 0..<40 as Range<Int64> {
      try await stores.writer.beginSession("t\(number)", of: "ana", browser: "b\(number)", at: 1_000_000 + number)
    }
    try await stores.writer.beginSession("present", of: "ana", browser: "here", at: 1000)
    #expect(try await stores.writer.hasSession("present"))
    #expect(try await stores.writer.isKnown("here", to: "ana"))
    for table in ["web_sessions", "known_browsers"] {
      #expect(try await stores.writer.number("SELECT count(*) FROM \(table)") == 32)
    }
  }

  @Test func `messages heard by others are not kept for gateways whose last token was removed`() async throws {
    let stores = try HubStores(location: scratch.location("hub.db"))
    let access = HubAccess([token("first"), token("own", "ridge"), token("dale's", "dale"), token("all", "*", .all)])
    #expect(try await come("hill", with: "first", access, stores) == nil)
    let asking = ["dale", "hill", "ridge", "vale"]
    for gateway in asking {
      try await send(from: gateway, to: stores)
      _ = try await stores.bucketStates(of: [], for: gateway, hearers: ["b"])
      for text in ["one", "two"] {
        _ = try await stores.writer.push(HubStore.heardBucket, of: gateway, id: text, body: "{}", now: 1)
      }
    }
    let maintenance = RetentionService(stores: stores, retention: Retention(), access: access, log: { _, _ in })
    func left(hours: Int64) async throws -> [String] {
      await maintenance.forgetHearers(at: hours * 3_600_000)
      let answers = try await stores.writer.states(of: asking.map { HubStore.BucketQuery([], of: $0) })
      return zip(asking, answers).compactMap { $1.hearers.isEmpty ? nil : $0 }
    }
    #expect(try await left(hours: 1) == asking)
    #expect(try await left(hours: 48) == ["dale", "hill", "ridge"], "a token for all may be any gateway's")
    access.replace(with: [token("own", "ridge"), token("all", "*", .all)])
    #expect(try await left(hours: 1) == ["dale", "hill", "ridge"], "they were there lately")
    #expect(try await left(hours: 48) == ["ridge"])
    for (gateway, first, count) in [("dale", 3, 0), ("ridge", 1, 2)] as [(String, Int64, Int)] {
      let page = try JSONValue(
        parsing: await stores.writer.updates(
          HubStore.heardBucket, of: gateway, from: HubStore.Position(after: 0), until: nil, limit: 10))
      #expect(page["first"]?.integer == first && page["updates"]?.array?.count == count, "\(page)")
    }
  }

  @Test func `gateways that shared a token before the upgrade continue, and no new gateway joins them`() async throws {
    let location = scratch.location("hub.db")
    do {
      let stores = try HubStores(location: location)
      for gateway in ["hill", "dale"] {
        try await send(from: gateway, to: stores)
      }
      await stores.copyLog(atEnd: true)
    }
    try EarlierSchema.hub.undo(to: 13, in: location)
    let stores = try HubStores(location: location)
    let access = HubAccess([token("shared"), token("second"), token("third")])
    #expect(try await come("hill", with: "shared", access, stores) == nil)
    #expect(try await come("dale", with: "shared", access, stores) == nil)
    #expect(try await come("ridge", with: "shared", access, stores) != nil)
    #expect(try await come("hill", with: "second", access, stores) == "hill has another token")
    #expect(try await come("ridge", with: "third", access, stores) == nil)
    #expect(access.list.map(\.gateways) == [["dale", "hill"], [], ["ridge"]])
  }

  @Test func `an unknown token is refused only after a look at the folder, and strangers cannot cause a look each`()
    async
  {
    let looks = Mutex(0)
    let pause = Duration.milliseconds(100)
    let look = TokenRefresh(pause: pause) { looks.withLock { $0 += 1 } }
    let begun = ContinuousClock.now
    for _ in 0..<3 {
      let before = looks.withLock { $0 }
      await withTaskGroup(of: Void.self) { group in for _ in 0..<500 { group.addTask { await look.refresh() } } }
      #expect(looks.withLock { $0 } > before)
    }
    #expect(Double(looks.withLock { $0 }) <= 1 + (ContinuousClock.now - begun) / pause)
  }

  private func reread(_ tokens: inout GatewayTokens) -> Bool { tokens.read(always: false) }

  @Test func `the folder of gateway tokens is read again after a change, and a bad file hides no other`() throws {
    let folder = scratch.location("tokens")
    #expect(GatewayTokens(folder: folder) == nil)
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
    var tokens = try #require(GatewayTokens(folder: folder))
    let first = try tokens.add("hill")
    #expect(reread(&tokens))
    #expect(tokens.tokens.map(\.secrets) == [[first]])
    let second = try tokens.add("hill")
    _ = scratch.write("tokens/dale", "short\n")
    _ = scratch.write("tokens/.hidden", "a-token-that-nobody-reads\n")
    _ = scratch.write("tokens/no id", "a-token-that-nobody-reads\n")
    #expect(reread(&tokens))
    #expect(tokens.tokens.map(\.gateway) == ["hill"])
    #expect(tokens.tokens.map(\.secrets) == [[first, second]])
    #expect(tokens.faults.count == 2)
    try tokens.remove("hill", keepsNewest: true)
    #expect(reread(&tokens))
    #expect(tokens.tokens.map(\.secrets) == [[second]])
    try tokens.remove("hill", keepsNewest: false)
    #expect(reread(&tokens))
    #expect(tokens.tokens.isEmpty)
    // A missing folder removes no token, and is reported once.
    let third = try tokens.add("hill")
    #expect(reread(&tokens))
    try FileManager.default.removeItem(atPath: folder)
    #expect(reread(&tokens) && !reread(&tokens))
    #expect(tokens.tokens.map(\.secrets) == [[third]] && tokens.faults.count == 1)
  }
}

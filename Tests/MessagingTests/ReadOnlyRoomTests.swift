// SPDX-License-Identifier: MIT

import Companion
import MeshIdentity
import Store
import TestSupport
import Testing

@testable import Messaging
@testable import VirtualRadio

/// A room that anybody may read also accepts a wrong password, as a guest whose posts it ignores.
@Suite struct ReadOnlyRoomTests {
  private let room = Contact(
    key: PrivateIdentity(seed: Array(repeating: 0x52, count: 32)).publicKey, type: .room, name: "Lobby")

  private struct Fixture {
    let bench: Bench
    let service: NodeService
    let stored: StoredContact
  }

  private func fixture() throws -> Fixture {
    var settings = Messenger.Settings()
    settings.delivery.maxAttempts = 1
    let bench = try Bench(settings)
    bench.own.received(Command.addUpdateContact(room).encode())
    bench.synchronizer.refresh(room.key)
    try bench.run("the room to be known") { try bench.store.contact(room.key) != nil }
    let service = NodeService(bench.messenger, credentials: Credentials(location: bench.scratch.location("passwords")))
    bench.alsoHears = { service.requests.received($0) }
    return Fixture(bench: bench, service: service, stored: try #require(try bench.store.contact(room.key)))
  }

  /// `permissions`, `acl`: of the room's answer.
  private func logIn(
    _ fixture: Fixture, _ password: Text, permissions: UInt8, acl: UInt8, keeps: Bool = false
  ) throws -> LoginSuccess? {
    let answer = Push.loginSuccess(
      LoginSuccess(permissions: permissions, prefix: room.key.prefix, serverTime: 1, acl: acl, firmwareLevel: 1))
    // After the radio has accepted the question, which waits for its clock behind a post.
    fixture.bench.swallow { [unowned bench = fixture.bench] command in
      if case .sendLogin = command { bench.loop.schedule(after: .milliseconds(200)) { bench.own.push(answer) } }
      return false
    }
    let result = try fixture.bench.result("an answer") { () throws(Refusal) in
      try await fixture.service.logIn(fixture.stored, password: password, keepsReadOnly: keeps)
    }
    guard case .success(.login(let login)) = result else { return nil }
    return login
  }

  @Test func `a read-only login is reported and not kept, and a post to that room is refused with the reason`() throws {
    let fixture = try fixture()
    #expect(try logIn(fixture, "wrong", permissions: 2, acl: 0)?.isReadOnly == true)
    #expect(try fixture.service.credentials.read()[room.key] == nil)
    #expect(try fixture.bench.send(SendRequest(to: "Lobby", text: "hello")) == .failure(.readOnly("Lobby")))
    #expect(try logIn(fixture, "wrong", permissions: 0, acl: 0)?.isReadOnly == true, "a guest, whatever the first byte")
    #expect(try logIn(fixture, "to read", permissions: 2, acl: 0, keeps: true) != nil)
    #expect(try fixture.service.credentials.read()[room.key] == "to read", "somebody wants just that")
    #expect(try logIn(fixture, "right", permissions: 0, acl: 2)?.isReadOnly == false)
    #expect(try fixture.service.credentials.read()[room.key] == "right")
    #expect(try fixture.bench.send(SendRequest(to: "Lobby", text: "hello")).get().count == 1)
  }

  @Test func `nobody logs in to a companion, and nothing is sent for it`() throws {
    let fixture = try fixture()
    let companion = StoredContact(
      contact: Contact(key: room.key, type: .chat, name: "Birch"), onRadio: true, firstSeen: 0, lastHeard: nil)
    let result = try fixture.bench.result("a refusal") { () throws(Refusal) in
      try await fixture.service.logIn(companion, password: "password")
    }
    guard case .failure(.invalid(let words)) = result else {
      Issue.record("\(result)")
      return
    }
    #expect(words.contains("Birch is a companion"))
    #expect(try fixture.service.credentials.read()[room.key] == nil)
  }

  @Test func `a waiting post to a read-only room fails with that reason`() throws {
    let fixture = try fixture()
    _ = try fixture.bench.send(SendRequest(to: "Lobby", text: "too early", key: "p")).get()
    _ = try logIn(fixture, "wrong", permissions: 2, acl: 0)
    try fixture.bench.run("its end") { try fixture.bench.state("p").state == .failed }
    #expect(try fixture.bench.state("p").reason == "read_only")
  }
}

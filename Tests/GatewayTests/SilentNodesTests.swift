// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import SQLite
import Store
import TestSupport
import Testing

@testable import Gateway

@Suite struct SilentNodesTests {
  private let machine = InventedMachine()
  private let loop: EventLoop
  private let scratch = Scratch()
  private let store: Store
  private let ridge: PublicKey

  init() throws {
    loop = EventLoop(on: machine)
    store = try Store(Store.Settings(location: scratch.location("gw.db")), clocks: machine)
    let key = try #require(PublicKey(bytes: [UInt8](repeating: 7, count: 32)))
    ridge = key
    let now = machine.wallMilliseconds
    store.write { store throws(SQLiteError) in
      _ = try store.upsert(Contact(key: key, type: .repeater, name: Text("Ridge")), onRadio: true, heard: true, at: now)
    }
    store.commit()
  }

  private func pass(_ seconds: Int32) { machine.wait(milliseconds: seconds * 1000) { _, _ in } }

  private func hear() {
    let (prefix, now) = (ridge.prefix, machine.wallMilliseconds)
    store.write { store throws(SQLiteError) in try store.noteHeard(prefix, at: now) }
    store.commit()
  }

  private func isLate(_ nodes: inout SilentNodes) -> Bool {
    nodes.look(["Ridge"], tag: "", limit: .seconds(60)).first?.isLate ?? true
  }

  @Test
  func `a node that is heard every half minute is never silent, and becomes so after a minute`()
    throws
  {
    var nodes = SilentNodes(store, on: loop)
    var early = isLate(&nodes)
    store.nodeWasHeard = { node, _ in nodes.hear(node, ago: .zero) }
    for _ in 0..<100 {
      pass(30)
      early = isLate(&nodes) || early
      hear()
    }
    #expect(!early)
    let record = try #require(try store.contact(ridge)?.lastHeard)
    #expect(machine.wallMilliseconds - record > 60_000, "its record lags, so that few writes are needed")
    pass(59)
    #expect(!isLate(&nodes))
    pass(1)
    #expect(isLate(&nodes))
    hear()
    #expect(!isLate(&nodes))
  }

  @Test func `a node without a distinct visible name is shown with the beginning of its key`() throws {
    let now = machine.wallMilliseconds
    let keys = try (1...4).map { try #require(PublicKey(bytes: [UInt8](repeating: UInt8($0), count: 32))) }
    let names = ["\u{200B}", "", "Mast", " ridge\u{200B}"]
    store.write { store throws(SQLiteError) in
      for (key, name) in zip(keys, names) {
        _ = try store.upsert(Contact(key: key, type: .repeater, name: Text(name)), onRadio: true, heard: true, at: now)
      }
    }
    store.commit()
    let called = SilentNodes(store, on: loop).called([ridge] + keys)
    #expect(called[ridge] == "Ridge (070707070707)", "another one looks the same")
    #expect(called[keys[0]] == "010101010101" && called[keys[1]] == "020202020202" && called[keys[2]] == "Mast")
    #expect(called[keys[3]] == " ridge\u{FFFD} (040404040404)")
  }

  @Test func `the time at which a node was heard survives a restart, exactly after a clean stop`() throws {
    var nodes = SilentNodes(store, on: loop)
    _ = isLate(&nodes)
    store.nodeWasHeard = { node, _ in nodes.hear(node, ago: .zero) }
    pass(40)
    hear()
    store.nodeWasHeard = { _, _ in }
    nodes.keep()
    store.settle()
    pass(30)
    var after = SilentNodes(store, on: loop)
    #expect(!isLate(&after))
    pass(29)
    #expect(!isLate(&after))
    pass(1)
    #expect(isLate(&after))
  }

  @Test func `after a power cut, a node that was heard is late by at most a part of the limit`() throws {
    var nodes = SilentNodes(store, on: loop)
    _ = isLate(&nodes)
    store.nodeWasHeard = { node, _ in
      nodes.hear(node, ago: .zero)
      if nodes.takeNews() { _ = nodes.look(["Ridge"], tag: "", limit: .seconds(60)) }
    }
    for _ in 0..<20 {
      pass(20)
      hear()
    }
    store.nodeWasHeard = { _, _ in }
    var after = SilentNodes(store, on: loop)
    #expect(!isLate(&after), "the stored time is at most one interval older")
  }
}

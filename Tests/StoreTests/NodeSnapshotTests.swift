// SPDX-License-Identifier: MIT

import Companion
import JSON
import SQLite
import TestSupport
import Testing

@testable import Store

/// The settings that nodes have told.
@Suite struct NodeSnapshotTests {
  private func key(_ number: Int) -> PublicKey {
    PublicKey(bytes: [UInt8(number & 255), UInt8(number >> 8)] + [UInt8](repeating: 7, count: 30))!
  }

  @Test func `the clocks of sixteen nodes are being set at most, and none of a node that is forgotten`() throws {
    let shop = try Shop(nodesMax: 10)
    let store = shop.store
    func set(_ number: Int) throws {
      store.write { store throws(SQLiteError) in try store.setClockUnderWay(true, of: key(number)) }
      try store.commitNow()
    }
    for number in 0..<16 {
      #expect(store.mayBeUnderWay(key(number)))
      try set(number)
    }
    #expect(!store.mayBeUnderWay(key(16)) && store.mayBeUnderWay(key(3)) && store.clocksUnderWay.count == 16)
    // So many that some are forgotten, and with them nodes that were never known.
    store.write { store throws(SQLiteError) in
      for number in 0..<200 {
        _ = try store.upsert(Contact(key: key(15 + number), name: "n"), onRadio: false, heard: true, at: Int64(number))
      }
    }
    try store.commitNow()
    #expect(store.clocksUnderWay.count <= 1 && store.mayBeUnderWay(key(16)))
  }

  @Test func `sixteen snapshots of a node are kept, a thousand of all, and each is an event`() throws {
    let shop = try Shop()
    let store = shop.store
    func keep(_ number: Int, _ text: String) throws {
      let body = Array(#"{"node":"\#(key(number).hex)","at":\#(text)}"#.utf8)
      store.write { store throws(SQLiteError) in
        try store.keepSnapshot(of: key(number), body: body, at: Moment(milliseconds: 5, trusted: true))
      }
      try store.commitNow()
    }
    for number in 0..<20 { try keep(1, "\(number)") }
    try keep(2, "0")
    let kept = try store.snapshots(of: key(1)).map { try JSONValue(parsing: $0)["at"]?.integer }
    #expect(kept == (4..<20).map(Int64.init))
    for number in 0..<1100 { try keep(10 + number, "0") }
    #expect(try store.snapshots(of: key(1)).isEmpty && store.snapshots(of: key(2)).isEmpty)
    #expect(try store.snapshots(of: key(1109)).count == 1)
    var events = 0
    try store.readJournal(after: 0, limit: 5000) { event, _ in
      if event.kind == "snapshot" { events += 1 }
      return true
    }
    #expect(events == 1121)
  }
}

// SPDX-License-Identifier: MIT

import Companion
import JSON
import SQLite
import TestSupport
import Testing

@testable import Relay
@testable import Store

/// What hooks and webhooks get of a message's copies.
@Suite struct MessageCopiesTests {
  private let scratch = Scratch()

  @Test func `a message that is sent alone has the copies that are known by then, and the same content`() throws {
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let copies = [[0xA1], [0xA1, 0xB2]].map { (path: [UInt8]) in
      HeardCopy(
        Packet(
          route: .flood, type: .groupText, pathLength: PathLength(raw: UInt8(path.count)), path: path, payload: [1]),
        snr: SNR(quarters: 4), rssi: -90, at: 1_795_000_000_000)
    }
    func message(_ text: Text) -> QueuedMessage {
      .channel(ChannelMessage(snr: nil, slot: 0, path: ReceivedPath(raw: 0), senderTime: 7, text: text))
    }
    let moment = Moment(milliseconds: 1_795_000_000_000, trusted: true)
    store.write { store throws(SQLiteError) in
      let key = PublicKey(bytes: [0xA1] + Array(repeating: 7, count: 31))!
      _ = try store.upsert(Contact(key: key, type: .repeater, name: "Hill"), onRadio: true, heard: false, at: 1)
      let id = try store.insert(message("Alder: hello"), at: moment, copies: [copies[0]]).id
      try store.tellCopies([copies[1]], of: .received(id), at: moment)
      _ = try store.insert(message("Alder: not heard"), at: moment)
    }
    try store.commitNow()
    var events: [JournalEvent] = []
    try store.readJournal(after: 0) { event, _ in
      if event.kind != "contact" { events.append(event) }
      return true
    }
    #expect(events.map(\.kind) == ["message", "ways", "message"])
    let whole = events[0].withCopies(in: store)
    #expect(events[0].json?["ways"] == nil, "hubs and brokers get them once")
    #expect(whole.json?["ways"]?.array?.map { $0["path"]?.array?.count } == [1, 2])
    #expect(whole.json?["way_nodes"]?.array?.first?["nodes"]?.array?.first?["name"]?.string == "Hill")
    #expect(whole.json?["text"] == events[0].json?["text"])
    func content(_ event: JournalEvent) -> String {
      EventContent.digest(at: event.at, kind: event.kind, body: event.json ?? .null)
    }
    #expect(content(whole) == content(events[0]))
    #expect(events[1].withCopies(in: store) == events[1] && events[2].withCopies(in: store) == events[2])
  }
}

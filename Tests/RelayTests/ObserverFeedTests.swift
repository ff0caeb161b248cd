// SPDX-License-Identifier: MIT

import Companion
import SQLite
import Store
import TestSupport
import Testing

@testable import Relay

@Suite struct ObserverFeedTests {
  @Test(arguments: [false, true])
  func `an observer's packets have the key of the radio that heard them, not of the present one`(_ isSigned: Bool)
    throws
  {
    let scratch = Scratch(inMemory: true)
    let store = try Store(Store.Settings(location: scratch.location("gw.db")))
    let moment = Moment(milliseconds: 1_795_000_000_000, trusted: true)
    func hear(_ number: UInt8) throws {
      store.write { store throws(SQLiteError) in
        let mark = store.markInEvent(ofRadio: store.radio).map { #""radio":"\#($0)","# } ?? ""
        let body = #"{\#(mark)"raw":"15000\#(number)aabbccddeeff","snr":7,"rssi":-90}"#
        try store.append(.packet, at: moment, body: Array(body.utf8))
      }
      try store.commitNow()
    }
    let keys = try (1...2).map { number in try #require(PublicKey(bytes: Array(repeating: UInt8(number), count: 32))) }
    for (round, radio) in [0, 1, 0, 1].enumerated() {
      try store.attach(keys[radio], name: radio == 0 ? "Ash" : "Birch", at: moment.milliseconds)
      try hear(UInt8(round))
    }
    let facts = RadioFacts(
      key: String(repeating: "02", count: 32), name: "Birch", model: "", version: "", frequency: 869_525,
      bandwidth: 250_000, spreadingFactor: 11, codingRate: 5)
    let feed = ObserverFeed(
      settings: .init(iata: "ZRH", sendsRaw: true), isSigned: isSigned, client: "meshpost/1", facts: facts)
    var told: [String] = []
    try store.readJournal(after: 0) { event, _ in
      for message in feed.messages(for: event, store) {
        let payload = String(decoding: message.payload, as: UTF8.self)
        let word = payload.contains(#""origin":"Ash""#) ? "Ash" : payload.contains(#""origin":"Birch""#) ? "Birch" : "?"
        told.append("\(message.topic.dropFirst(13).prefix(2))\(message.topic.suffix(4)) \(word)")
      }
      return true
    }
    let (ash, birch) = (["01kets Ash", "01/raw Ash"], ["02kets Birch", "02/raw Birch"])
    #expect(told == (isSigned ? birch + birch : ash + birch + ash + birch))
  }
}

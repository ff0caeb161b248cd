// SPDX-License-Identifier: MIT

import Companion
import JSON
import MeshIdentity
import Testing
import Timing

@testable import Gateway
@testable import VirtualRadio

/// A busy mesh and a small radio, for a month: nobody is missing who is needed.
@Suite struct ThousandNodesTests {
  /// A node that advertises from its first to its last day.
  private struct Node {
    let identity: PrivateIdentity
    let name: String
    let type: NodeType
    let days: ClosedRange<Double>
    /// Hours between adverts.
    let pause: Double
    var next: Double
    var heard: Double?
  }

  private static func nodes(_ random: inout SeededRandom) -> [Node] {
    (0..<1000).map { number in
      var seed = [UInt8](repeating: 7, count: 32)
      (seed[0], seed[1]) = (UInt8(number & 0xFF), UInt8(number >> 8))
      let first = number < 300 ? 0 : Double.random(in: 0...28, using: &random)
      let last = min(30, first + Double.random(in: 1...40, using: &random))
      let pause = Double.random(in: 12...48, using: &random)
      return Node(
        identity: PrivateIdentity(seed: seed), name: "Ridge above the mill no. \(number)",
        type: number % 4 == 0 ? .repeater : .chat, days: first...last, pause: pause,
        next: first * 24 + Double.random(in: 0...pause, using: &random), heard: nil)
    }
  }

  private static func advert(_ node: Node, _ time: UInt32) -> Packet {
    let content = AdvertContent(type: node.type, position: nil, name: Text(node.name))
    var advert = Advert(key: node.identity.publicKey, time: time, signature: [], appData: content.encode())
    advert.signature = node.identity.sign(advert.signedBytes)
    return Packet(route: .flood, type: .advert, payload: advert.encode())
  }

  @Test(arguments: [1] as [UInt64])
  func `a radio with 350 places serves a thousand nodes, and has each one when it is needed`(seed: UInt64) throws {
    var random = SeededRandom(seed: seed)
    var nodes = Self.nodes(&random)
    let rig = try Rig(seed: seed) { ($0.maxContacts, $0.contacts) = (350, 0) }
    let polled = (0..<5).map { nodes[4 * $0].identity.publicKey.hex }
    rig.configure(polled.map { "[[poll]]\nnode = \"\($0)\"\nevery_min = 1440" }.joined(separator: "\n"))
    try rig.startSynced()
    func keys(_ query: String) throws -> Set<String> {
      Set(try rig.rows("/v1/contacts\(query)").compactMap { $0["key"]?.string })
    }
    var (hour, favourites, written, most) = (0.0, Set<String>(), [String: String](), 0)
    while hour < 30 * 24 {
      hour += 1
      for place in nodes.indices where nodes[place].next <= hour && nodes[place].days.contains(hour / 24) {
        nodes[place].heard = hour
        nodes[place].next = hour + nodes[place].pause
        rig.radio.heard(Self.advert(nodes[place], UInt32(rig.loop.wallClock.seconds)))
      }
      rig.pass(.seconds(3600))
      if hour == 48 {
        for node in nodes.filter({ $0.heard != nil }).prefix(10) {
          let key = node.identity.publicKey.hex
          #expect(try rig.post("/v1/contacts/favourite", #"{"contact":"\#(key)","favourite":true}"#).status == 200)
          favourites.insert(key)
        }
      }
      guard Int(hour) % 12 == 0, hour > 48 else { continue }
      let there = try keys("?on_radio=1")
      most = max(most, there.count)
      #expect(there.isSuperset(of: favourites), "seed \(seed), hour \(hour)")
      let known = try keys("")
      #expect(there.isSuperset(of: known.intersection(polled)), "seed \(seed), hour \(hour): polled nodes")
      for (key, id) in written {
        let row = try #require(try rig.outgoing(id))
        if row["ended"]?.bool == false { #expect(there.contains(key), "seed \(seed), hour \(hour): \(id)") }
      }
      // Somebody writes to a node that was heard within 14 days, wherever it is now.
      let recent = nodes.filter { $0.type == .chat && $0.heard.map { hour - $0 < 14 * 24 } ?? false }
      let chosen = try #require(recent.randomElement(using: &random)).identity.publicKey.hex
      guard written[chosen] == nil else { continue }
      let id = "at \(Int(hour))"
      let answer = try rig.post("/v1/send", #"{"to":"\#(chosen)","text":"are you there?","id":"\#(id)"}"#)
      #expect(answer.status == 202, "seed \(seed): \(id): \(answer.json)")
      try rig.until("\(id) to be transmitted") { try rig.outgoing(id)?["attempts"]?.integer ?? 0 > 0 }
      #expect(try keys("?on_radio=1").contains(chosen), "seed \(seed): \(id)")
      written[chosen] = id
    }
    #expect(try keys("").count > 900 && most > 300 && most <= 350 && written.count > 40, "\(most), \(written.count)")
    let ends = try written.values.compactMap { try rig.outgoing($0)?["reason"]?.string }
    #expect(Set(ends).isSubset(of: ["no_acknowledgement"]), "\(ends)")
    print("seed \(seed): \(try keys("").count) nodes, \(most) at most on the radio, \(written.count) written to")
  }
}

// SPDX-License-Identifier: MIT

import Companion
import JSON
import Testing
import VirtualRadio

/// What is in the radio's range, and what the radio knows besides messages.
@Suite struct RangeTests {
  @Test func `one packet finds the repeaters in range, each once`() throws {
    let rig = try Rig(repeaters: 3)
    try rig.startSynced()
    let answer = try rig.post("/v1/radio/survey", #"{"seconds":20}"#)
    #expect(answer.status == 200)
    let nodes = try #require(answer.json["nodes"]?.array)
    #expect(
      Set(nodes.compactMap { $0["key"]?.string.map { String($0.prefix(2)) } }) == ["a0", "a1", "a2"] && nodes.count == 3
    )
    #expect(
      nodes.allSatisfy {
        $0["type"]?.string == "repeater" && $0["snr_there"]?.number != nil && $0["key"]?.string?.count == 64
      })
    let uses = try rig.json("/v1/airtime")["hours"]?.array?.last?["purposes"]?.array ?? []
    #expect(uses.contains { $0["purpose"]?.string == "request" && $0["packets"]?.integer == 1 })
    let sensors = try rig.post("/v1/radio/survey", #"{"seconds":5,"types":"sensor"}"#)
    #expect(sensors.json["nodes"]?.array?.isEmpty == true)
    #expect(try rig.post("/v1/radio/survey", #"{"types":"lamp"}"#).status == 400)
    #expect(try rig.post("/v1/radio/survey", #"{"seconds":61}"#).status == 400)
  }

  @Test func `the way of the last advert is the radio's, and one that it does not remember is refused`() throws {
    let rig = try Rig(repeaters: 1)
    try rig.startSynced()
    rig.air("advert r1")
    rig.pass(.seconds(10))
    let way = try rig.post("/v1/contacts/path", #"{"contact":"r1","advert":true}"#)
    #expect(way.status == 200 && way.json["hops"]?.integer != nil)
    let heard = try #require(way.json["heard_at"]?.integer)
    #expect(abs(heard - Int64(rig.radios[0].clock)) < 60)
    rig.air("reboot r0")
    try rig.until("it is back") { try rig.status()["radio"]?["state"]?.string == "up" }
    rig.pass(.seconds(30))
    let refused = try rig.post("/v1/contacts/path", #"{"contact":"r1","advert":true}"#)
    #expect(refused.status != 200 && refused.json["error"]?.string?.contains("remembers no advert") == true)
  }

  @Test func `variables of the board are shown and set, and others are refused`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let all = try rig.json("/v1/radio/variables")["variables"]?.array ?? []
    #expect(all.map { $0["name"]?.string } == ["gps"])
    #expect(try rig.post("/v1/radio/variables", #"{"name":"gps","value":"1"}"#).status == 200)
    let refused = try rig.post("/v1/radio/variables", #"{"name":"lamp","value":"1"}"#)
    #expect(refused.status != 200 && refused.json["error"]?.string?.contains("no variable lamp") == true)
    for bad in [#"{"name":"a:b","value":"1"}"#, #"{"name":"","value":"1"}"#, #"{"name":"a","value":"1,b:2"}"#] {
      #expect(try rig.post("/v1/radio/variables", bad).status == 400)
    }
  }
}

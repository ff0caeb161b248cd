// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

/// Data of programs for programs on channels.
@Suite struct DatagramsTests {
  private func send(
    _ rig: Rig, type: String = "65280", _ data: String, to channel: String = "Public", _ more: String = ""
  ) throws -> (status: Int, json: JSONValue) {
    try rig.post(
      "/v1/channels/data", #"{"channel":"\#(channel)","data_type":\#(type),"data":"\#(data)"\#(more)}"#)
  }

  private func unplug(_ rig: Rig) throws {
    rig.link.isPresent = false
    try rig.until("the radio to be gone") { try rig.status()["radio"]?["state"]?.string == "down" }
  }

  /// The air time of messages and datagrams, in milliseconds.
  private func used(_ rig: Rig) throws -> Int64 {
    var sum: Int64 = 0
    for hour in try rig.json("/v1/airtime")["hours"]?.array ?? [] {
      for use in hour["purposes"]?.array ?? [] where use["purpose"]?.string == "message" {
        sum += use["ms"]?.integer ?? 0
      }
    }
    return sum
  }

  @Test func `a datagram goes out at once, and the gateway of another radio stores it as one`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let answer = try send(rig, "00ff10")
    #expect(answer.status == 200, "\(answer)")
    #expect(answer.json["channel_name"]?.string == "Public" && answer.json["data_type"]?.integer == 65280)
    #expect(answer.json["bytes"]?.integer == 3 && answer.json["region"]?.string == "default")
    let airtime = try #require(answer.json["airtime_ms"]?.integer)
    rig.pass(.seconds(5))
    #expect(try airtime > 0 && used(rig) == airtime)
    #expect(try rig.outgoing().isEmpty && rig.rows("/v1/messages").isEmpty, "it is not kept here")
    #expect(rig.radios[1].queuedMessages == 1)

    try unplug(rig)
    rig.plug(1)
    try rig.until("the other radio's message") { try !rig.rows("/v1/messages").isEmpty }
    let stored = try #require(rig.rows("/v1/messages").first)
    #expect(stored["kind"]?.string == "datagram" && stored["channel_name"]?.string == "Public", "\(stored)")
    #expect(stored["data_type"]?.integer == 65280 && stored["data"]?.string == "00ff10")
  }

  @Test func `what cannot be sent is refused with what is allowed, and nothing of it goes on the air`() throws {
    let rig = try Rig()
    try rig.startSynced()
    let bytes = { String(repeating: "00", count: $0) }
    for (type, data, words) in [
      ("0", "00", "from 1 to 65535"), ("65536", "00", "from 1 to 65535"), ("null", "00", "1 to 65535"),
      ("1", "", "1 to 163 bytes, not 0"), ("1", bytes(164), "1 to 163 bytes, not 164"), ("1", "0", "not hexadecimal"),
      ("1", "0x00", "not hexadecimal"),
    ] {
      let refused = try send(rig, type: type, data)
      #expect(refused.status == 400 && refused.json["error"]?.string?.contains(words) == true, "\(refused)")
    }
    #expect(try send(rig, "00", to: "#nosuch").status == 404)
    #expect(try send(rig, "00", to: "r1").status == 400, "it is a node")
    #expect(try send(rig, "00", #","region":"a b""#).status == 400)
    rig.pass(.seconds(5))
    #expect(try rig.radios[1].queuedMessages == 0 && used(rig) == 0)
    #expect(try send(rig, bytes(163)).status == 200)
    rig.pass(.seconds(5))
    #expect(rig.radios[1].queuedMessages == 1)
    try unplug(rig)
    let down = try send(rig, "01")
    #expect(down.status == 503 && down.json["code"]?.string == "link_down")
  }

  @Test func `firmware that has no datagrams is not asked for one`() throws {
    let rig = try Rig(isKnown: false) { $0.firmware = .v1_13 }
    try rig.startSynced()
    let refused = try send(rig, "00")
    #expect(refused.status == 502 && refused.json["error"]?.string?.contains("needs 1.15") == true, "\(refused)")
    #expect(try used(rig) == 0)
  }

  @Test func `datagrams and texts share the channel's limits`() throws {
    let rig = try Rig()
    rig.configure("[messaging]\nchannel_messages_per_hour = 1\n")
    try rig.startSynced()
    #expect(try send(rig, "00").status == 200)
    let refused = try send(rig, "01")
    #expect(refused.status == 429 && refused.json["error"]?.string?.contains("on this channel") == true, "\(refused)")
    try rig.send("Public", "hello", id: "t")
    rig.pass(.seconds(60))
    #expect(try rig.outgoing("t")?["state"]?.string == "pending" && rig.radios[1].queuedMessages == 1)
  }

  @Test func `a datagram is sent in its region, else in that of its channel, else in the radio's`() throws {
    let rig = try Rig(isKnown: false, repeaters: 1, regions: ["ottawa"], isFar: true)
    try rig.startSynced()
    /// Sends, and returns the region and how many have reached r1, which hears us only by the repeater. Each has other
    /// bytes: with the same ones it would be the same packet.
    func reached(_ data: String, _ region: String? = nil) throws -> [String] {
      let answer = try send(rig, data, region.map { #","region":"\#($0)""# } ?? "")
      #expect(answer.status == 200, "\(answer)")
      rig.pass(.seconds(30))
      return [answer.json["region"]?.string ?? "?", "\(rig.radios[1].queuedMessages)"]
    }
    #expect(try reached("00") == ["default", "0"])
    #expect(try reached("01", "ottawa") == ["ottawa", "1"])
    #expect(try reached("02") == ["default", "1"], "the region before is not in force any more")
    #expect(try rig.post("/v1/channels/region", #"{"channel":"Public","region":"ottawa"}"#).status == 200)
    #expect(try reached("03") == ["ottawa", "2"])
    #expect(try reached("04", "default") == ["default", "2"])
    #expect(try reached("05", "none") == ["*", "2"])
  }
}

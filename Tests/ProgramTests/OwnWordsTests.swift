// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// What the gateway has said, or was asked to say, comes to it by another way.
  @Suite struct OwnWords {
    private func gateway(_ rig: Rig, upstreams: String = "") throws {
      _ = rig.scratch.write(
        "gw.toml",
        """
        [gateway]
        id = "valley"
        [radio]
        link = "\(rig.link)"
        [store]
        location = "\(rig.scratch.location("gw.db"))"
        [control]
        socket = "\(rig.socket)"
        [relay]
        messages_from_hub = true
        channels = ["Public"]
        [[upstream]]
        name = "hub"
        url = "http://127.0.0.1:\(rig.hubPort)"
        token_file = "\(rig.scratch.location("token"))"
        \(upstreams)
        """)
    }

    private func sent(_ rig: Rig) throws -> [JSONValue] {
      try rig.meshpost("sent", "--json").lines.map { try JSONValue(parsing: $0) }
    }

    @Test func `its own words do not come back when another gateway on its mesh has heard them`() throws {
      let rig = try Rig()
      try rig.startHub()
      try gateway(rig)
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      try untilTrue("it to have the channel's bucket") {
        try rig.meshpost("sync", "--json").lines.joined().contains("channel/")
      }
      _ = try rig.meshpost("send", "Public", "an own word")
      var time: Int64?
      try untilTrue("it to be on the air") {
        time = try sent(rig).first { $0["text"]?.string == "an own word" }?["sender_time"]?.integer
        return time != nil
      }
      let now = Int64(Date().timeIntervalSince1970 * 1000)
      // Under the radio's former name, too.
      let words = [("r0", "an own word"), ("old name", "an own word"), ("r0", "another word")]
      let events = words.enumerated().map { number, word in
        """
        {"seq":\(number + 1),"at":\(now),"trusted":true,"kind":"message","body":{"kind":"channel",\
        "channel":"1155f1870f917786","channel_name":"Public","sender_name":"\(word.0)","sender_time":\(time ?? 0),\
        "text":"\(word.1)"}}
        """
      }
      let body = "{\"epoch\":\"e\",\"lane\":\"messages\",\"events\":[\(events.joined(separator: ","))]}"
      #expect(rig.askHub("POST", "/v1/gateways/neighbour/events", body: body)?.status == 200)
      try untilTrue("what it has not said itself: \(try sent(rig))") {
        try sent(rig).contains { $0["text"]?.string == "⇄r0@neighbour: another word" }
      }
      #expect(try sent(rig).count == 2)
    }

    @Test func `a command that comes by two upstreams is carried out once`() throws {
      let rig = try Rig()
      let broker = try TestBroker(rig)
      try rig.startHub()
      // Both take commands on the default topic.
      let ways = ["one", "other"].map {
        "[[upstream]]\nname = \"\($0)\"\nkind = \"mqtt\"\nurl = \"mqtt://127.0.0.1:\(broker.port)\"\n"
      }
      try gateway(rig, upstreams: ways.joined())
      try rig.startRadio()
      try rig.startGateway()
      try rig.waitForSync()
      try untilTrue("both to have subscribed and published") {
        let upstreams = try rig.status()?["upstreams"]?.array ?? []
        return upstreams.count { $0["kind"]?.string == "mqtt" && $0["last_success"] != nil } == 2
      }
      for number in 1...3 {
        let command = #"{"id":"c\#(number)","command":"send","to":"Public","text":"word \#(number)"}"#
        let program = try Program(
          "/usr/bin/mosquitto_pub", ["-p", "\(broker.port)", "-q", "1", "-t", "meshpost/valley/command", "-m", command])
        #expect(try program.ended() == 0)
      }
      func done(_ upstream: String) throws -> Int {
        try rig.meshpost("journal", "--json").lines.map { try JSONValue(parsing: $0) }.count {
          $0["kind"]?.string == "command" && $0["body"]?["result"] != nil && $0["body"]?["upstream"]?.string == upstream
        }
      }
      try untilTrue("both to bring all three: \(try done("one")), \(try done("other"))") {
        try done("one") == 3 && done("other") == 3
      }
      #expect(try sent(rig).compactMap { $0["text"]?.string }.sorted() == (1...3).map { "word \($0)" })
    }
  }
}

// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Restored older copies of databases, of gateways and of hubs.
  @Suite struct PutBack {
    private static let ways = ["", "link = \"http\""]

    @Test(arguments: ways, [false, true]) func `events that others post with a gateway's id remove none of its own`(
      _ way: String, _ hasServer: Bool
    ) throws {
      let server = hasServer ? try PostgresServer() : nil
      let rig = try begun(way, having: 10, at: server)
      let last = try #require(try rig.status()?["store"]?["last_seq"]?.integer)
      let epoch = try #require(try rig.hubRows("events").last?["epoch"]?.string)
      let forged = (1...40).map {
        "{\"seq\":\(last + Int64($0)),\"at\":1,\"trusted\":true,\"kind\":\"message\",\"body\":{\"text\":\"forged \($0)\"}}"
      }
      let answer = rig.askHub(
        "POST", "/v1/gateways/\(rig.gatewayID ?? "")/events",
        body: "{\"epoch\":\"\(epoch)\",\"lane\":\"messages\",\"events\":[\(forged.joined(separator: ","))]}")
      #expect(answer?.status == 200)
      try hear(20, rig, stored: 30)
      let own = { (texts: [String]) in texts.filter { !$0.hasPrefix("forged") } }
      try untilTrue("all at the hub: \(rig.gateway?.lines.suffix(5) ?? [])") {
        _ = rig.control("POST", "/v1/outbox/resume")
        return own(try Self.messages(rig)).count >= 30
      }
      let messages = own(try Self.messages(rig))
      #expect(Set(messages).count == 30 && messages.count == 30, "each once: \(messages)")
      #expect(rig.hub?.lines.contains { $0.contains("is here with other content") } == true)
    }

    @Test(arguments: ways, [true, false])
    func `a hub that lost the events before a gateway's new epoch gets all again, and both report the two histories`(
      _ way: String, _ isEmptied: Bool
    ) throws {
      let rig = try begun(way, having: 5)
      try endHub(rig)
      try copy(rig, "hub.db", to: "kept.db")
      try rig.startHub()
      try hear(5, rig, stored: 10)
      try rig.waitForAllAtHub(messages: 10)
      try end(rig)
      try copy(rig, "gw.db", to: "kept")
      try rig.startGateway()
      try rig.waitForSync()
      try hear(2, rig, stored: 12)
      try rig.waitForAllAtHub(messages: 12)
      try end(rig)
      // The database without the files beside it: the hub notices this.
      try copy(rig, "kept", to: "gw.db")
      try rig.startGateway()
      try rig.waitForSync()
      try hear(3, rig, stored: 13)
      try untilTrue("all at the hub: \(rig.gateway?.lines.suffix(5) ?? [])") { try Self.messages(rig).count >= 15 }
      for program in ["the gateway's", "the hub's"] {
        try untilTrue("\(program) alert") { try conflicts(rig, atHub: program == "the hub's") > 0 }
      }
      try endHub(rig)
      for suffix in ["", "-wal", "-shm"] { unlink(rig.scratch.location("hub.db" + suffix)) }
      if !isEmptied { try copy(rig, "kept.db", to: "hub.db") }
      try rig.startHub()
      try hear(1, rig, stored: 14)
      try untilTrue("all at the hub: \(try Self.messages(rig)) \(rig.gateway?.lines.suffix(5) ?? [])") {
        _ = rig.control("POST", "/v1/outbox/resume")
        return try Self.messages(rig).count >= 14
      }
      let messages = try Self.messages(rig)
      #expect(Set(messages).count == 14 && messages.count == 14, "each once: \(messages)")
    }

    @Test(arguments: ways, [false, true])
    func `another card's messages are reported by the card that comes after it, once`(
      _ way: String, _ hasServer: Bool
    ) throws {
      let server = hasServer ? try PostgresServer() : nil
      let rig = try begun(way, having: 5, at: server)
      try end(rig)
      try copy(rig, "gw.db", to: "kept")
      let first = try #require(try epochs(rig).first)
      for suffix in ["", "-wal", "-shm", ".mark"] { unlink(rig.scratch.location("gw.db" + suffix)) }
      try rig.startGateway()
      try rig.waitForSync()
      try hear(2, rig, stored: 2)
      try untilTrue("the new card reports the first one's epoch") {
        try gaps(rig).contains { $0.epoch == first && $0.last >= 5 }
      }
      try end(rig)
      let second = try #require(try epochs(rig).first { $0 != first })
      try copy(rig, "gw.db", to: "second")
      for suffix in ["", "-wal", "-shm", ".mark"] { unlink(rig.scratch.location("gw.db" + suffix)) }
      try rig.startGateway()
      try rig.waitForSync()
      try hear(1, rig, stored: 1)
      try untilTrue("the third card's message") { try rig.hubTexts().count == 8 }
      try end(rig)
      let third = try #require(try epochs(rig).first { ![first, second].contains($0) })
      try copy(rig, "kept", to: "gw.db")
      try rig.startGateway()
      try rig.waitForSync()
      try untilTrue("the first card reports the epochs of the others") {
        let told = try gaps(rig).filter { $0.by == first }
        return told.contains { $0.epoch == second && $0.last > 0 } && told.contains { $0.epoch == third && $0.last > 0 }
      }
      #expect(try conflicts(rig, atHub: false) == 1)
      let reported = try gaps(rig).count
      try end(rig)
      try rig.startGateway()
      try rig.waitForSync()
      try hear(1, rig, stored: 6)
      try untilTrue("all at the hub") { try rig.hubTexts().count == 9 }
      let all = try gaps(rig)
      #expect(all.count == reported, "each loss once: \(all)")
      try end(rig)
      try copy(rig, "second", to: "gw.db")
      try rig.startGateway()
      try rig.waitForSync()
      let before = all.filter { $0.epoch == first }.map(\.last).max() ?? 0
      try untilTrue("the second card reports what the first one has had since") {
        try gaps(rig).contains { $0.by == second && $0.epoch == first && $0.last > before }
      }
      try hear(1, rig, stored: 3)
      try untilTrue("all at the hub") { try rig.hubTexts().count == 10 }
      // The hub has the third card's loss already, in the same words: it may keep it as one.
      let last = try gaps(rig).map { "\($0)" }
      #expect(Set(last).count == last.count, "each loss once: \(last)")
    }

    /// The epochs of the hub's events, the newest event's last.
    private func epochs(_ rig: Rig) throws -> [String] {
      try rig.hubRows("events").compactMap { $0["epoch"]?.string }
    }

    /// The losses that the hub was told: in which epoch, and of which.
    private func gaps(_ rig: Rig) throws -> [(by: String, epoch: String, last: Int64)] {
      try rig.hubRows("events").filter { $0["kind"]?.string == "gap" }.map {
        ($0["epoch"]?.string ?? "", $0["body"]?["epoch"]?.string ?? "", $0["body"]?["last"]?.integer ?? 0)
      }
    }

    /// The open alerts about two histories. If the gateway learns of them from the hub's position, the hub learns of them from the gateway's alert.
    private func conflicts(_ rig: Rig, atHub: Bool) throws -> Int {
      let answer = atHub ? rig.askHub("GET", "/v1/alerts?state=open") : rig.control("GET", "/v1/alerts?state=open")
      let rules = atHub ? ["gateway_conflict", "journal_conflict"] : ["journal_conflict"]
      guard let body = answer?.body else { return 0 }
      return try JSONValue(parsing: body)["alerts"]?.array?.count { rules.contains($0["rule"]?.string ?? "") } ?? 0
    }

    // MARK: Steps

    /// The texts of messages with their times: restarted radios begin to count again.
    private static func messages(_ rig: Rig) throws -> [String] {
      try rig.hubRows("events").filter { $0["kind"]?.string == "message" }.map {
        "\($0["body"]?["text"]?.string ?? "") \($0["body"]?["sender_time"]?.integer ?? 0)"
      }
    }

    /// A radio, a gateway and a hub that all have this many messages. `server`: of the hub's database; `nil`: a file.
    private func begun(_ way: String, having count: Int, at server: PostgresServer? = nil) throws -> Rig {
      let rig = try Rig()
      if let server { rig.writeHubConfiguration(database: server.address) }
      rig.writeGatewayConfiguration(extra: way)
      try rig.startRadio(["--queue", "1000"])
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      try hear(count, rig, stored: Int64(count))
      try rig.waitForAllAtHub(messages: count)
      return rig
    }

    private func hear(_ count: Int, _ rig: Rig, stored: Int64) throws {
      // All texts differ, because equal texts at the same time are one message.
      for number in (Int(stored) - count)..<Int(stored) { rig.radio?.write("chan r1 0 message \(number) of \(stored)") }
      try untilTrue("\(stored) in the store: \(rig.gateway?.lines.suffix(5) ?? [])") {
        try rig.status()?["store"]?["messages"]?.integer == stored
      }
    }

    private func end(_ rig: Rig) throws {
      rig.gateway?.send(SIGTERM)
      _ = try rig.gateway?.ended()
    }

    private func endHub(_ rig: Rig) throws {
      rig.hub?.send(SIGTERM)
      _ = try rig.hub?.ended()
    }

    private func copy(_ rig: Rig, _ from: String, to: String) throws {
      for suffix in ["", "-wal", "-shm", ".mark"] {
        let (source, target) = (rig.scratch.location(from + suffix), rig.scratch.location(to + suffix))
        unlink(target)
        if access(source, F_OK) == 0 { try FileManager.default.copyItem(atPath: source, toPath: target) }
      }
    }
  }
}

// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

@testable import Hub

/// A gateway that sends its journal by lane, or as a whole, over links that break, to a hub that is sometimes restored.
private final class LaneGateway {
  struct Event {
    let seq: Int64
    let lane: String
    let text: String
  }

  /// The kinds of each lane, with bodies that the hub evaluates.
  private static let kinds: [String: [(kind: String, body: @Sendable (Int64) -> String)]] = [
    "messages": [
      ("message", { #"{"kind":"channel","channel":"0011223344556677","sender_time":\#($0),"text":"t\#($0 % 7)"}"# }),
      ("radio", { #"{"name":"r\#($0)"}"# }),
      ("document", { #"{"key":"\#(noteKey($0 % 3))","value":"\#($0)","updated_at":\#($0)}"# }),
      ("command", { #"{"id":"c\#($0 % 4)","result":{"n":\#($0)}}"# }),
      ("outgoing", { _ in "{}" }),
    ],
    "nodes": [
      ("contact", { #"{"key":"k\#($0 % 4)","name":"n\#($0)"}"# }),
      ("advert", { #"{"key":"k\#($0 % 4)","name":"a\#($0)"}"# }),
      ("contact_removed", { #"{"key":"k\#($0 % 4)"}"# }),
      ("gap", { #"{"lane":"nodes","first":\#($0),"last":\#($0)}"# }),
    ],
    "packets": [("packet", { #"{"raw":"\#($0)"}"# })],
  ]
  static let lanes = ["messages", "nodes", "packets"]

  let rig: LinkRig
  let events: [Event]
  /// The hub's position, as the protocol reports it.
  var has: [String: Int64] = [:]
  private var backup: [String: Int64] = [:]
  /// The last sent event, by lane or of the whole journal; after a restart it comes from the welcome.
  private var sent: [String?: Int64] = [:]
  private var speaksLanes = false

  init(_ rig: LinkRig, _ events: [Event]) {
    self.rig = rig
    self.events = events
  }

  static func journal(_ count: Int, _ random: inout SeededRandom) -> [Event] {
    var seq: Int64 = 0
    return (0..<count).map { _ in
      // Some numbers are missing, because a filter left them out.
      seq += Int.random(in: 0..<5, using: &random) == 0 ? 2 : 1
      let lane = lanes.randomElement(using: &random) ?? "nodes"
      let kinds = kinds[lane] ?? []
      let made = kinds[Int.random(in: 0..<kinds.count, using: &random)]
      return Event(seq: seq, lane: lane, text: LinkRig.event(seq, made.kind, made.body(seq)))
    }
  }

  func prepare() async throws {
    for number in 0..<4 {
      _ = try await rig.store.enqueue(.object([]), id: "c\(number)", for: "g", by: "me", at: 1)
    }
    try rig.backUp()
  }

  var isDone: Bool { Self.lanes.allSatisfy { lane in events.last { $0.lane == lane }?.seq ?? 0 <= has[lane] ?? 0 } }

  /// The smallest position among the lanes of which the hub has events.
  private var whole: Int64 { has.values.min() ?? 0 }

  func connect(version: Int) async throws {
    speaksLanes = version == 2
    let welcome = try await rig.hello(version: version)
    guard speaksLanes else {
      #expect(welcome["acknowledged"]?.integer ?? 0 == whole)
      sent = [nil: whole]
      return
    }
    let lanes = welcome["lanes"]?.fields ?? []
    sent = [:]
    for (lane, seq) in lanes { sent[lane] = seq.integer }
    #expect(lanes.map(\.0) == Self.lanes.filter { has[$0] != nil } && lanes.allSatisfy { $0.1.integer == has[$0.0] })
  }

  /// Sends up to four batches without waiting for the answers; one of them may not be accepted.
  func ship(_ random: inout SeededRandom, cuts: Bool) async throws {
    var failed: Set<String?> = []
    for _ in 0..<Int.random(in: 1...4, using: &random) {
      let lane = speaksLanes ? Self.lanes.randomElement(using: &random) : nil
      let after = sent[lane] ?? 0
      let batch = events.filter { $0.seq > after && (lane == nil || $0.lane == lane) }
        .prefix(Int.random(in: 1...4, using: &random))
      guard let last = batch.last?.seq else { continue }
      sent[lane] = last
      guard !cuts || Int.random(in: 0..<6, using: &random) > 0 else {
        failed.insert(lane)
        continue
      }
      let answer = try await rig.ship(batch.map(\.text), lane: lane.map { "\"\($0)\"" }, after: after)
      if !expect(answer, Array(batch), lane, after: after) { failed.insert(lane) }
    }
    // Events that were not accepted are sent again from the hub's position.
    for lane in failed { sent[lane] = lane.map { has[$0] ?? 0 } ?? whole }
  }

  /// Repeats a batch that the hub has already, out of order.
  func repeatOne(_ random: inout SeededRandom) async throws {
    guard let event = events.filter({ $0.seq <= has[$0.lane] ?? 0 }).randomElement(using: &random) else { return }
    let answer = try await rig.ship([event.text], lane: "\"\(event.lane)\"")
    _ = expect(answer, [event], event.lane, after: 0)
  }

  func backUp() throws {
    try rig.backUp()
    backup = has
  }

  func restore() throws {
    try rig.restore()
    has = backup
  }

  /// False: the hub lacks earlier events.
  private func expect(_ answer: JSONValue, _ batch: [Event], _ lane: String?, after: Int64) -> Bool {
    let before = lane.map { has[$0] ?? 0 } ?? whole
    guard after <= before else {
      #expect(answer["type"]?.string == "out_of_order" && answer["acknowledged"]?.integer == before)
      return false
    }
    for name in lane.map({ [$0] }) ?? Self.lanes { has[name] = max(has[name] ?? 0, batch.last?.seq ?? 0) }
    #expect(answer["type"]?.string == "taken")
    #expect(answer["acknowledged"]?.integer == lane.map { has[$0] ?? 0 } ?? whole)
    return true
  }
}

@Suite struct LaneScheduleTests {
  /// The hub's content: all events in the order of arrival, and the data derived from them.
  private struct Outcome {
    var seqs: [Int64] = []
    /// Independent of the order of the lanes.
    var made: [String] = []

    init(_ store: HubStore) async throws {
      let page = try JSONValue(parsing: try await store.events(gateway: "g", kind: nil, after: 0, limit: 1000))
      seqs = (page["events"]?.array ?? []).compactMap { $0["seq"]?.integer }
      made.append(String(decoding: try await store.contacts(gateway: "g", after: "", limit: 1000), as: UTF8.self))
      made += try await store.documents(of: "g", after: "", limit: 1000).found.map { "\($0)" }
      for number in 0..<4 { made.append("\(try await store.command("c\(number)", of: "g")?.answer ?? "waits")") }
      made.append(try await store.gateways().first?.radio ?? "no radio")
      let joined = try JSONValue(parsing: try await store.joinedMessages(channel: nil, after: 0, limit: 1000))
      made += (joined["messages"]?.array ?? []).compactMap { $0["body"]?["sender_time"]?.integer }.sorted().map(
        String.init)
      made.append("\(try await store.gateways().first?.events ?? 0) events")
    }
  }

  @Test(arguments: [UInt64(20_261_122), 5])
  func `after random schedules of lanes, cuts and versions the hub has all once, in order by lane`(
    _ seed: UInt64
  ) async throws {
    var random = SeededRandom(seed: seed)
    for round in 0..<20 {
      let (rig, plain) = (try LinkRig(), try LinkRig())
      let gateway = LaneGateway(rig, LaneGateway.journal(Int.random(in: 5...60, using: &random), &random))
      try await gateway.prepare()
      try await gateway.connect(version: 2)
      for _ in 0..<Int.random(in: 5...40, using: &random) {
        switch Int.random(in: 0..<12, using: &random) {
        case 0..<8: try await gateway.ship(&random, cuts: true)
        case 8: try await gateway.repeatOne(&random)
        case 9: try gateway.backUp()
        case 10:
          if Int.random(in: 0..<3, using: &random) == 0 { try gateway.restore() }
          fallthrough
        default:
          // Version 1 cannot report a lane without events.
          let mayBeOld = gateway.has.isEmpty || gateway.has.count == LaneGateway.lanes.count
          try await gateway.connect(version: mayBeOld && Bool.random(using: &random) ? 1 : 2)
        }
      }
      try await gateway.connect(version: 2)
      while !gateway.isDone { try await gateway.ship(&random, cuts: false) }

      // Sends the same journal to another hub, in its own order.
      let whole = LaneGateway(plain, gateway.events)
      try await whole.prepare()
      try await whole.connect(version: 1)
      while !whole.isDone { try await whole.ship(&random, cuts: false) }
      let (byLane, inOrder) = (try await Outcome(rig.store), try await Outcome(plain.store))
      let place: Comment = "seed \(seed), round \(round)"
      #expect(inOrder.seqs == gateway.events.map(\.seq), place)
      #expect(byLane.seqs.sorted() == inOrder.seqs, place)
      for lane in LaneGateway.lanes {
        let own = Set(gateway.events.filter { $0.lane == lane }.map(\.seq))
        let arrived = byLane.seqs.filter(own.contains)
        #expect(arrived == arrived.sorted(), "\(place): \(lane)")
      }
      #expect(byLane.made == inOrder.made, place)
    }
  }
}

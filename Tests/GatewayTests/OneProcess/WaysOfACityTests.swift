// SPDX-License-Identifier: MIT

import Companion
import JSON
import MeshCrypto
import Testing
import Timing

@testable import Gateway
@testable import Store
@testable import VirtualRadio

/// A thousand messages in a mesh of 30 repeaters: some share the first byte of their keys, and two share three bytes.
@Suite struct WaysOfACityTests {
  @Test func `every copy that the radio told is kept at its message, and a name that stands alone is right`() throws {
    var city = City(seed: 7)
    let floods = city.floods(1000)
    let rig = try Rig()
    rig.configure("")
    try rig.startSynced()
    func addRepeaters() {
      rig.daemon?.store.post("repeaters") { [city] store throws(SQLiteError) in
        for (number, key) in city.keys.enumerated() {
          let contact = Contact(key: key, type: .repeater, name: Text("R\(number)"))
          _ = try store.upsert(contact, onRadio: false, heard: false, at: 1)
        }
      }
    }
    addRepeaters()
    rig.pass(.seconds(5))

    // All copies and other packets, in the order of their times.
    var begun = 0
    let start = rig.loop.now
    for copy in floods.flatMap(\.copies).sorted(by: { ($0.at, $0.flood) < ($1.at, $1.flood) }) {
      let due = start + .seconds(copy.at) + .seconds(Double(rig.generation) * 30)
      if rig.loop.now < due { rig.pass(due - rig.loop.now) }
      rig.radio.heard(copy.packet)
      rig.radio.heard(city.noise())
      guard copy.place == 0 else { continue }
      begun += 1
      guard begun == 300 || begun == 700 else { continue }
      // Other messages have copies to come, too.
      rig.pass(.seconds(1))
      if begun == 300 { rig.kill(); try rig.start() } else { try rig.restart() }
      try rig.untilSynced()
    }
    rig.pass(.seconds(60))

    var rows: [JSONValue] = []
    while rows.count < 1000 {
      let page = try rig.rows("/v1/messages?ways=1&limit=50&after=\(rows.last?["cursor"]?.string ?? "0")")
      guard !page.isEmpty else { break }
      rows += page
    }
    #expect(rows.count == 1000)
    var (told, ambiguous, edges, found) = (0, 0, Set<Edge>(), Set<Edge>())
    for row in rows {
      let number = try #require(row["text"]?.string.flatMap { Int($0) })
      let flood = floods[number]
      let ways = row["ways"]?.array?.map { $0["path"]?.array?.compactMap(\.string) ?? [] } ?? []
      // A kill loses what it would have told within six seconds, and nothing else.
      guard !city.isKilled(flood, begun: 300) else { continue }
      #expect(ways == flood.copies.map { $0.path.map { city.hash($0, flood.width) } }, "message \(number)")
      told += ways.count
      let nodes = (row["way_nodes"]?.array ?? []).reduce(into: [String: Set<String>]()) { all, one in
        all[one["hash"]?.string ?? ""] = Set(one["nodes"]?.array?.compactMap { $0["name"]?.string } ?? [])
      }
      for copy in flood.copies {
        let names = copy.path.map { nodes[city.hash($0, flood.width)] ?? [] }
        for (repeater, names) in zip(copy.path, names) {
          #expect(names.contains("R\(repeater)"), "the right one is among the candidates")
          #expect(names.count == city.sharing(repeater, flood.width), "all candidates are shown")
          if names.count > 1 { ambiguous += 1 }
        }
        guard flood.width == 2 else { continue }
        for (place, hop) in copy.path.enumerated().dropFirst() {
          edges.insert(Edge(copy.path[place - 1], hop))
          let pair = [names[place - 1], names[place]]
          guard pair.allSatisfy({ $0.count == 1 }) else { continue }
          let numbers = pair.compactMap { $0.first.flatMap { Int($0.dropFirst()) } }
          found.insert(Edge(numbers[0], numbers[1]))
        }
      }
    }
    print("\(told) copies, \(ambiguous) ambiguous hops, \(found.count) of \(edges.count) edges at 2 bytes")
    #expect(told > 3000 && ambiguous > 500)
    #expect(found.isSubset(of: edges), "every edge without a mark is right")
    #expect(Double(found.count) >= 0.95 * Double(edges.count))
    #expect(rows.allSatisfy { $0["ways_more"] == nil })
  }
}

/// Two repeaters that hear each other.
private struct Edge: Hashable {
  let one: Int
  let other: Int
  init(_ one: Int, _ other: Int) { (self.one, self.other) = (min(one, other), max(one, other)) }
}

/// Repeaters at random places, and the floods of messages through them.
private struct City {
  struct Copy {
    /// Seconds.
    let at: Double
    /// The message's number, and the copy's place among its copies.
    let flood: Int
    var place = 0
    let path: [Int]
    let packet: Packet
  }

  struct Flood {
    let width: Int
    var copies: [Copy]
  }

  static let repeaters = 30
  let keys: [PublicKey]
  private var random: SeededRandom
  /// Who hears whom; the last station is the gateway's radio, which hears 7 repeaters.
  private let hearers: [[Int]]

  init(seed: UInt64) {
    var random = SeededRandom(seed: seed)
    var keys = (0..<Self.repeaters).map { _ in (0..<32).map { _ in UInt8.random(in: 1...254, using: &random) } }
    // Beginnings are forced to collide: 5 pairs in one byte, and one in three.
    for pair in 0..<5 { keys[2 * pair][0] = keys[2 * pair + 1][0] }
    let places = (0..<Self.repeaters).map { _ in
      (x: Double.random(in: -1...1, using: &random), y: Double.random(in: -1...1, using: &random))
    }
    func distance(_ one: Int, _ other: Int) -> Double {
      hypot((x: places[one].x - places[other].x, y: places[one].y - places[other].y))
    }
    let nearest = places.indices.sorted { hypot(places[$0]) < hypot(places[$1]) }.prefix(7)
    let hearers = places.indices.map { one in
      places.indices.filter { $0 != one && distance(one, $0) < 0.6 } + (nearest.contains(one) ? [Self.repeaters] : [])
    }
    // Two at the edge of the city, so that few edges are ambiguous at 2 bytes.
    let far = places.indices.filter { $0 >= 10 && !hearers[$0].isEmpty }.sorted {
      hearers[$0].count < hearers[$1].count
    }
    for byte in 0..<3 { keys[far[0]][byte] = keys[far[1]][byte] }
    (self.keys, self.hearers) = (keys.compactMap { PublicKey(bytes: $0) }, hearers)
    self.random = random
  }

  func hash(_ repeater: Int, _ width: Int) -> String { Hex.string(keys[repeater].bytes.prefix(width)) }

  /// Repeaters with the same hash, at most as many as are listed.
  func sharing(_ repeater: Int, _ width: Int) -> Int {
    min(4, keys.count { $0.bytes.prefix(width) == keys[repeater].bytes.prefix(width) })
  }

  /// Messages three seconds apart, each flooded for several seconds.
  mutating func floods(_ count: Int) -> [Flood] {
    (0..<count).map { number in
      let width = 1 + number % 3
      let text = GroupText(time: 1_795_000_000 + UInt32(number), text: Text("Alder: \(number)"))
      let payload = GroupEnvelope.seal(text, with: .publicChannel)?.encode() ?? []
      let copies = flood(from: Int.random(in: 0..<Self.repeaters, using: &random))
      return Flood(
        width: width,
        copies: copies.enumerated().map { place, copy in
          let bytes = copy.path.flatMap { keys[$0].bytes.prefix(width) }
          let length = PathLength(raw: UInt8((width - 1) << 6 | copy.path.count))
          return Copy(
            at: 3 * Double(number) + copy.at, flood: number, place: place, path: copy.path,
            packet: Packet(route: .flood, type: .groupText, pathLength: length, path: bytes, payload: payload))
        })
    }
  }

  /// Each repeater passes on what it hears first, a moment later. Returns what the radio hears, in order.
  private mutating func flood(from first: Int) -> [(at: Double, path: [Int])] {
    var waiting = [(at: 0.1, station: first, path: [Int]())]
    var (done, heard) = (Set<Int>(), [(at: Double, path: [Int])]())
    while let place = waiting.indices.min(by: { waiting[$0].at < waiting[$1].at }) {
      let (at, station, path) = waiting.remove(at: place)
      guard station < Self.repeaters else {
        heard.append((at, path))
        continue
      }
      guard done.insert(station).inserted else { continue }
      let sent = at + Double.random(in: 0.1...0.8, using: &random)
      for hearer in hearers[station] { waiting.append((sent, hearer, path + [station])) }
    }
    return heard
  }

  /// A packet of others, which is no message for us.
  mutating func noise() -> Packet {
    let bytes = (0..<40).map { _ in UInt8.random(in: 0...255, using: &random) }
    let types: [PayloadType] = [.groupText, .text, .advert, .ack]
    return Packet(
      route: .flood, type: types.randomElement(using: &random) ?? .ack, pathLength: PathLength(raw: 1),
      path: [bytes[0]], payload: bytes)
  }

  /// The kill at the beginning of message `begun` comes while copies of this one were told and not kept yet.
  func isKilled(_ flood: Flood, begun: Int) -> Bool {
    guard let first = flood.copies.first?.flood else { return false }
    return (begun - 4..<begun + 1).contains(first)
  }
}

private func hypot(_ place: (x: Double, y: Double)) -> Double { (place.x * place.x + place.y * place.y).squareRoot() }

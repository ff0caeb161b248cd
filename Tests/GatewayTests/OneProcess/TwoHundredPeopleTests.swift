// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import JSON
import Testing
import Timing

@testable import Gateway
@testable import VirtualRadio

/// A village and its valley: people who are often away, write to the gateway and are written to, over a mesh that loses packets, to a radio that has
/// no place for all of them.
@Suite struct TwoHundredPeopleTests {
  /// Somebody with a companion that repeats a text until it is acknowledged, as apps do.
  private final class Person {
    let radio: VirtualRadio
    let region: String
    var received: [String] = []
    var confirmed: Set<AckCode> = []
    var texts: [String: Bool] = [:]

    init(_ radio: VirtualRadio, _ region: String) {
      (self.radio, self.region) = (radio, region)
      radio.onMessage = { [unowned self] in
        if case .contact(let message) = $0 { received.append(message.text.string) }
      }
      radio.output = { [unowned self] frame in
        // `try?`: replies are no pushes.
        if case .sendConfirmed(let code, _)? = try? Push(decoding: frame) { confirmed.insert(code) }
      }
    }

    func write(_ text: String, to gateway: PublicKey, _ rig: Rig) {
      let time = radio.uniqueTime()
      texts[text] = false
      _ = rig.loop.begin { [self] in
        var random = SeededRandom(seed: UInt64(time))
        for attempt in UInt8(0)..<4 where texts[text] == false {
          radio.received(
            Command.sendText(
              OutgoingText(attempt: attempt, time: time, recipient: gateway.prefix, text: Text(text))
            ).encode())
          // `try?`: nobody cancels it
          try? await rig.loop.sleep(for: .seconds(Int64.random(in: 8...20, using: &random)))
          let codes = (0...attempt).map {
            AckCode.expected(time: time, attempt: $0, text: Text(text), sender: radio.key)
          }
          if codes.contains(where: confirmed.contains) { texts[text] = true }
        }
      }
    }
  }

  /// Everybody has heard of everybody: adverts of people at the gateway, the gateway as a contact of people.
  private static func meet(_ person: Person, _ rig: Rig) {
    let radio = person.radio
    let content = AdvertContent(type: .chat, position: nil, name: radio.stored.name)
    var advert = Advert(
      key: radio.key, time: UInt32(rig.loop.wallClock.seconds), signature: [], appData: content.encode())
    advert.signature = radio.stored.identity.sign(advert.signedBytes)
    rig.radio.heard(Packet(route: .flood, type: .advert, payload: advert.encode()))
    radio.received(Command.addUpdateContact(Contact(key: rig.radio.key, name: "r0")).encode())
    radio.received(
      Command.setDefaultFloodScope(FloodScope(name: Text(person.region), key: Region(person.region)!.key!)).encode())
  }

  @Test func `a thousand texts between two hundred people with 120 places arrive, or nobody is told that they did`()
    throws
  {
    var random = SeededRandom(seed: 29)
    let rig = try Rig(
      seed: 29, isKnown: false, nodes: 201, repeaters: 2, regions: ["hills"], isFar: true, airtime: 1
    ) { $0.maxContacts = 120 }
    rig.mesh.carry([.named("valley")], by: 1)
    rig.configure("[messaging]\nairtime_per_hour_s = 600")
    try rig.startSynced()
    #expect(try rig.post("/v1/radio/set", #"{"flood-scope":"hills"}"#).status == 200)
    let people = rig.radios.dropFirst().enumerated().map { Person($1, $0 % 2 == 0 ? "hills" : "valley") }
    for person in people {
      Self.meet(person, rig)
      rig.pass(.seconds(60))
    }
    for person in people where person.region == "valley" {
      let body = #"{"node":"\#(person.radio.key.hex)","region":"valley"}"#
      #expect(try rig.post("/v1/node/region", body).status == 200)
    }
    rig.air("loss 0.2")
    // Places that changed hands, and contacts that were written for other reasons.
    var (removals, writes) = ([MonotonicTime](), 0)
    rig.link.onCommand = { [loop = rig.loop] in
      switch $0 {
      case .removeContact: removals.append(loop.now)
      case .addUpdateContact, .resetPath: writes += 1
      default: break
      }
    }
    var (number, sent, gone) = (0, [String: Person](), Set<Int>())
    while number < 1000 {
      // A third is away at each moment, for a quarter of an hour to three hours.
      for place in people.indices where Double.random(in: 0..<1, using: &random) < (gone.contains(place) ? 0.02 : 0.01)
      {
        let isBack = gone.remove(place) != nil
        if !isBack { gone.insert(place) }
        for repeater in 0...1 { rig.air("\(isBack ? "join" : "part") r\(place + 1) R\(repeater)") }
      }
      let (place, text) = (Int.random(in: people.indices, using: &random), "text no. \(number)")
      if number % 2 == 0 {
        let body = #"{"to":"\#(people[place].radio.key.hex)","text":"\#(text)","id":"\#(text)"}"#
        let answer = try rig.post("/v1/send", body)
        #expect(answer.status == 202, "\(answer)")
        sent[text] = people[place]
      } else if !gone.contains(place) {
        people[place].write(text, to: rig.radio.key, rig)
      } else {
        continue
      }
      number += 1
      rig.pass(.seconds(60))
    }
    for place in gone { for repeater in 0...1 { rig.air("join r\(place + 1) R\(repeater)") } }
    rig.pass(.seconds(12 * 3600))

    var (delivered, arrived) = (0, 0)
    for row in try rig.rows("/v1/outgoing?limit=1000") {
      let (id, state) = (row["id"]?.string ?? "", row["state"]?.string ?? "")
      let times = sent[id]?.received.filter { $0 == id }.count ?? 0
      arrived += times > 0 ? 1 : 0
      delivered += state == "delivered" ? 1 : 0
      #expect(state != "delivered" || times > 0, "\(id) is told delivered, and nobody has it")
      #expect(
        ["delivered", "held_for_recipient"].contains(state) || row["reason"]?.string == "no_acknowledgement", "\(row)")
    }
    var stored: [String: Int] = [:]
    var withWay = 0
    for row in try rig.rows("/v1/messages?limit=1000&ways=1") {
      stored[row["text"]?.string ?? "", default: 0] += 1
      withWay += row["ways"]?.array?.isEmpty == false ? 1 : 0
    }
    let written = people.flatMap { $0.texts }
    for (text, isConfirmed) in written {
      #expect(stored[text] ?? 0 <= 1, "\(text) is there twice")
      #expect(!isConfirmed || stored[text] == 1, "\(text) was acknowledged, and is not there")
    }
    let unread = try rig.status()["messaging"]?["unread"]?.integer ?? 0
    let busiest =
      removals.indices.map { first in removals[first...].count { $0 - removals[first] < .seconds(3600) } }.max() ?? 0
    print(
      "to people: \(delivered) told delivered, \(arrived) there, of \(sent.count). From people:",
      "\(written.count { $0.value }) acknowledged, \(stored.count) there, of \(written.count); \(unread) told as unread.",
      "\(removals.count) places changed hands, \(busiest) in the busiest hour; \(writes) contacts and paths were written"
    )
    #expect(delivered == 500 && sent.count == 500 && written.count == 500, "what is accepted arrives within half a day")
    // An attempt that the radio hears and cannot read lets its sender in, so of those outside it has to hear two.
    #expect(stored.count > 450 && unread > 0 && unread <= 500 - stored.count + 15)
    #expect(busiest <= 60 + 32, "places that change hands, and nodes that were let in and did not write")
    #expect(withWay == stored.count)
  }
}

// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import Store
import TestSupport
import Testing
import Transport

@testable import Messaging
@testable import VirtualRadio

@Suite struct RegionTests {
  @Test func `a region has the name that repeaters use, and its key is made with the number sign`() {
    #expect(Region("ottawa") == .named("ottawa") && Region("#ottawa") == .named("ottawa") && Region("*") == .unscoped)
    #expect(Region("ottawa")?.key == .hashtag("#ottawa") && Region("*")?.key == nil)
    #expect(Region("Ottawa")?.key != Region("ottawa")?.key)
    for text in ["", "#", "$own", "a b", "a,b", "##x", String(repeating: "x", count: 31), "x\u{0}"] {
      #expect(Region(text) == nil, "\(text)")
    }
    #expect(Region(String(repeating: "x", count: 30)) != nil && Region("Zürich") != nil)
  }

  @Test func `a shared link may contain the region of its channel`() throws {
    let link = "meshcore://channel/add?name=%23hill"
    #expect(
      try SharedLink(parsing: link + "&region_scope=%23ottawa")
        == .channel(name: "#hill", .hashtag("#hill"), region: .named("ottawa")))
    #expect(try SharedLink(parsing: link + "&region_scope=") == .channel(name: "#hill", .hashtag("#hill"), region: nil))
    #expect(throws: Refusal.self) { try SharedLink(parsing: link + "&region_scope=%24private") }
  }

  @Test func `the refusal of a region names the rule, and the key that a private one needs`() throws {
    let secret = #expect(throws: Refusal.self) { try SharedLink.region("$club") }
    #expect(secret?.description.contains("needs its own key") == true)
    let other = #expect(throws: Refusal.self) { try SharedLink.region("a b") }
    #expect(other?.description.contains("or none (or *)") == true)
    #expect(try SharedLink.region("*") == .unscoped && SharedLink.region("a_b") == .named("a_b"))
  }

  /// The radio keeps the scope that any client has set last until it reboots.
  @Test func `a scope that another program left in the radio is reset when the link comes up`() throws {
    let bench = try Bench()
    bench.own.received(Command.setFloodScopeKey(.key(.hashtag("#elsewhere"))).encode())
    #expect(bench.own.volatile.scope != .useDefault)
    bench.synchronizer.connection.link.onEvent(.down(.unplugged("memory")))
    try bench.run("the scope to be the default again") { bench.own.volatile.scope == .useDefault }
  }

  @Test func `a channel's region is stored before the radio gets it, and not if the radio refuses it`() throws {
    let hill = ChannelSecret.hashtag("#hill")
    for refuses in [false, true] {
      let bench = try Bench(refuses: { command in
        guard refuses, case .setChannel = command else { return nil }
        return .illegalArgument
      })
      let table = RadioTable(bench.synchronizer, store: bench.store)
      var regions: [String?] = []
      bench.swallow { command in
        // `try?`: the test fails without a region.
        if case .setChannel = command { regions.append(try? bench.store.region(ofChannel: hill.digest)) }
        return false
      }
      let refusal = try bench.refusal { () async throws(Refusal) in
        try await table.add(name: "#hill", secret: hill, region: .named("ottawa"))
      }
      #expect(regions == ["ottawa"])
      #expect((refusal != nil) == refuses)
      let stored = try bench.store.region(ofChannel: hill.digest)
      #expect(refuses ? stored == nil : stored == "ottawa")
    }
  }

  @Test func `a message to a channel's region leaves the scope unchanged afterwards`() throws {
    let bench = try Bench()
    bench.store.write { store throws(SQLiteError) in
      try store.setRegion("ottawa", ofChannel: ChannelSecret.publicChannel.digest)
    }
    try bench.store.commitNow()
    bench.ether.repeaters = [0xA0]
    bench.ether.regions = [.named("ottawa")]
    bench.ether.isFar = true
    let queued = bench.other.queuedMessages
    _ = try bench.send(SendRequest(to: "Public", text: "to ottawa", key: "o")).get()
    try bench.run("r1 to have it") { bench.other.queuedMessages == queued + 1 }
    try bench.run("the scope to be taken back") { bench.own.volatile.scope == .useDefault }
    #expect(try bench.state("o").state == .sent)
  }

  @Test func `while the radio refuses its default region, nothing is sent in a wrong region`() throws {
    var takesBack = true
    let bench = try Bench(refuses: {
      if case .setFloodScopeKey(.useDefault) = $0, !takesBack { .badState } else { nil }
    })
    bench.store.write { store throws(SQLiteError) in
      try store.setRegion("ottawa", ofChannel: ChannelSecret.publicChannel.digest)
    }
    try bench.store.commitNow()
    takesBack = false
    _ = try bench.send(SendRequest(to: "Public", text: "to ottawa", key: "o")).get()
    try bench.run("r1 to have it") { try bench.other.queuedMessages == 1 && bench.state("o").state == .sent }
    _ = try bench.send(SendRequest(to: "r1", text: "to r1", key: "d")).get()
    try bench.run("the other to fail") { try bench.state("d").hasEnded }
    #expect(try bench.state("d").reason == "region_unknown" && bench.other.queuedMessages == 1)
    #expect(bench.synchronizer.connection.isScopeStuck && bench.knowsScopeIsStuck, "the observer knows it")
    takesBack = true
    _ = try bench.send(SendRequest(to: "r1", text: "again", key: "e")).get()
    try bench.run("r1 to have it") { try bench.state("e").state == .delivered }
    #expect(
      bench.own.volatile.scope == .useDefault && !bench.synchronizer.connection.isScopeStuck && !bench.knowsScopeIsStuck
    )
  }

  // MARK: The region of a message

  @Test func `the region of a message has one form, whatever the region is called`() {
    for (text, form) in [("default", "default"), ("none", "*"), ("*", "*"), ("#ottawa", "ottawa"), ("#none", "#none")] {
      #expect(RegionChoice(text)?.text == form && RegionChoice(form) == RegionChoice(text), "\(text)")
    }
    #expect(RegionChoice("#default")?.key == .hashtag("#default") && RegionChoice("a b") == nil)
  }

  /// What is heard of r0's texts: the region, or nil for a flood without one.
  private final class Air {
    var scopes: [String?] = []

    init(_ bench: Bench) {
      bench.ether.onAir = { [weak self, own = bench.own.station] station, packet in
        guard let self, station == own, [.text, .groupText].contains(packet.type) else { return }
        let names = ["ottawa", "gatineau", "hull"]
        scopes.append(
          names.first { Region($0)?.key.map(packet.isInScope) ?? false } ?? (packet.route == .flood ? nil : "?"))
      }
    }
  }

  static let firmware: [VirtualFirmware] = [.v1_9, .v1_13, .v1_15, .newest]

  @Test(arguments: firmware, ["ottawa", "none", "default"])
  func `what goes on the air is in the region that was asked for, or nothing does`(
    _ firmware: VirtualFirmware, _ region: String
  ) throws {
    let bench = try Bench(firmware: firmware)
    let hasDefault = firmware.protocolVersion >= 11
    if hasDefault {
      bench.own.received(
        Command.setDefaultFloodScope(FloodScope(name: "gatineau", key: .hashtag("#gatineau"))).encode())
    }
    let air = Air(bench)
    for to in ["r1", "Public"] {
      var request = SendRequest(to: to, text: "hello", key: to)
      request.region = RegionChoice(region)
      _ = try bench.send(request).get()
      try bench.run("its end") { try bench.state(to).hasEnded }
    }
    let expected: String?? =
      switch region {
      case "ottawa": firmware == .v1_9 ? nil : .some("ottawa")
      case "none": firmware == .v1_15 ? nil : .some(nil)
      default: .some(hasDefault ? "gatineau" : nil)
      }
    guard let expected else {
      #expect(air.scopes.isEmpty)
      #expect(try bench.state("r1").reason == "region_unknown" && bench.state("Public").reason == "region_unknown")
      #expect(try bench.state("r1").airtime == 0, "nothing was sent")
      return
    }
    // The second of a flood is a repetition of the first.
    #expect(air.scopes.count >= 2 && air.scopes.allSatisfy { $0 == expected }, "\(air.scopes)")
    #expect(try bench.state("Public").state == .sent && bench.state("r1").state == .delivered)
    #expect(bench.own.volatile.scope == .useDefault)
  }

  @Test func `a message's region comes before its recipient's or channel's, and that before the radio's`() throws {
    let bench = try Bench()
    bench.own.received(Command.setDefaultFloodScope(FloodScope(name: "hull", key: .hashtag("#hull"))).encode())
    let air = Air(bench)
    bench.store.write { store throws(SQLiteError) in
      try store.setRegion("gatineau", ofNode: bench.other.key)
      try store.setRegion("gatineau", ofChannel: ChannelSecret.publicChannel.digest)
    }
    try bench.store.commitNow()
    for to in ["r1", "Public"] {
      for (number, (region, heard)) in [("ottawa", "ottawa"), ("default", "hull"), ("", "gatineau")].enumerated() {
        var request = SendRequest(to: to, text: "hello", key: "\(to)\(number)")
        request.region = RegionChoice(region)
        air.scopes = []
        _ = try bench.send(request).get()
        try bench.run("its end") { try bench.state("\(to)\(number)").hasEnded }
        #expect(!air.scopes.isEmpty && air.scopes.allSatisfy { $0 == heard }, "\(to) \(region): \(air.scopes)")
        bench.own.received(Command.resetPath(bench.other.key).encode())
      }
    }
  }

  @Test func `a known id in another region is another message`() throws {
    let bench = try Bench()
    for to in ["r1", "Public"] {
      var request = SendRequest(to: to, text: "x", key: "in \(to)")
      request.region = RegionChoice("ottawa")
      #expect(try bench.send(request).get().first?.region == "ottawa")
      for same in [RegionChoice("#ottawa"), nil] {
        request.region = same
        #expect(try bench.send(request).get().first?.region == "ottawa")
      }
      for other in ["hull", "none", "default"] {
        request.region = RegionChoice(other)
        #expect(try bench.send(request) == .failure(.otherMessage("in \(to)")), "\(other)")
      }
      var plain = SendRequest(to: to, text: "x", key: "plain \(to)")
      #expect(try bench.send(plain).get().first?.region == nil)
      plain.region = RegionChoice("hull")
      #expect(try bench.send(plain) == .failure(.otherMessage("plain \(to)")))
    }
  }

  @Test func `a held message keeps its region over rounds and restarts`() throws {
    let bench = try Bench(on: InventedMachine())
    let air = Air(bench)
    bench.ether.part(bench.own.station, bench.other.station)
    var request = SendRequest(to: "r1", text: "hello", key: "o")
    request.region = RegionChoice("ottawa")
    _ = try bench.send(request).get()
    try bench.run("to be held") { try bench.state("o").state == .heldForRecipient }
    let first = air.scopes.count
    try bench.messenger.begin()
    bench.synchronizer.connection.link.onEvent(.down(.unplugged("memory")))
    try bench.run("another round") { air.scopes.count > first }
    #expect(try bench.state("o").region == "ottawa" && air.scopes.allSatisfy { $0 == "ottawa" }, "\(air.scopes)")
  }

  /// The scope is set, and then something happens before the text, or instead of it.
  @Test(arguments: ["cut", "reboot", "other program"])
  func `between the scope and the text nothing changes the region of the text`(_ what: String) throws {
    let bench = try Bench(on: InventedMachine())
    let air = Air(bench)
    var isFirst = true
    bench.swallow { [unowned bench] command in
      guard case .sendText = command, isFirst else { return false }
      isFirst = false
      switch what {
      case "cut": bench.loop.later { bench.synchronizer.connection.link.onEvent(.down(.unplugged("memory"))) }
      case "reboot": bench.own.received(Command.reboot.encode())
      default: bench.own.received(Command.setFloodScopeKey(.key(.hashtag("#hull"))).encode())
      }
      return true
    }
    var request = SendRequest(to: "r1", text: "hello", key: "o")
    request.region = RegionChoice("ottawa")
    _ = try bench.send(request).get()
    _ = try bench.send(SendRequest(to: "Public", text: "to the default", key: "d")).get()
    try bench.run("both to end") { try bench.state("o").state == .delivered && bench.state("d").hasEnded }
    #expect(!isFirst && air.scopes.filter { $0 != nil }.allSatisfy { $0 == "ottawa" }, "\(air.scopes)")
    #expect(air.scopes.count { $0 == nil } >= 1 && air.scopes.contains("ottawa"))
  }

  @Test func `a radio that does not know regions after all is asked once, not for each message`() throws {
    var asked = 0
    let bench = try Bench(refuses: {
      guard case .setFloodScopeKey(.key) = $0 else { return nil }
      asked += 1
      return .unsupported
    })
    let air = Air(bench)
    for number in 0..<3 {
      var request = SendRequest(to: "Public", text: "hello", key: "\(number)")
      request.region = RegionChoice("ottawa")
      _ = try bench.send(request).get()
      try bench.run("its end") { try bench.state("\(number)").hasEnded }
      #expect(try bench.state("\(number)").reason == "region_unknown")
    }
    #expect(asked == 1 && air.scopes.isEmpty)
  }

  @Test func `each text is repeated by exactly the repeaters that carry its region`() throws {
    let bench = try Bench()
    bench.ether.repeaters = [0xA0, 0xB0, 0xC0]
    bench.ether.regionsOf = [0xA0: [.named("a")], 0xB0: [.named("b")], 0xC0: [.unscoped]]
    var repeated: Set<UInt8> = []
    bench.ether.onAir = { station, packet in
      if case .repeater(let name) = station, [.text, .groupText].contains(packet.type) { repeated.insert(name) }
    }
    let cases: [(String?, Set<UInt8>)] = [
      ("a", [0xA0]), ("b", [0xB0]), ("none", [0xC0]), ("default", [0xC0]), (nil, [0xC0]), ("elsewhere", []),
    ]
    for (region, expected) in cases {
      for to in ["r1", "Public"] {
        bench.own.received(Command.resetPath(bench.other.key).encode())
        repeated = []
        let key = "\(region ?? "-") \(to)"
        var request = SendRequest(to: to, text: Text("to \(key)"), key: key)
        request.region = region.flatMap { RegionChoice($0) }
        _ = try bench.send(request).get()
        try bench.run("its end") { try bench.state(key).hasEnded }
        // What a repeater has heard goes out in the next turns.
        for _ in 0..<20 { bench.loop.turn(wait: false) }
        #expect(repeated == expected, "\(key)")
      }
    }
  }

  @Test func `a repeater says what it carries without a login, and packets of those regions then have names`() throws {
    let bench = try Bench()
    bench.ether.repeaters = [0xA0]
    bench.ether.regionsOf = [0xA0: [.named("a"), .named("b"), .unscoped]]
    let nodes = NodeService(bench.messenger, credentials: Credentials(location: bench.scratch.location("passwords")))
    bench.requests = nodes.requests
    let key = try #require(PublicKey(bytes: [0xA0] + [UInt8](repeating: 7, count: 31)))
    let ridge = Contact(
      key: key, type: .repeater, flags: 0, outPath: nil, name: "Ridge", lastAdvert: 1, latitude: nil, longitude: nil,
      lastModified: 1_795_000_000)
    bench.own.received(Command.addUpdateContact(ridge).encode())
    bench.synchronizer.refresh(key)
    try bench.run("the repeater") { try bench.store.contact(key) != nil }
    func ask() throws -> Result<NodeAnswer, Refusal> {
      let stored = try #require(try bench.store.contact(key))
      return try bench.result("an answer") { () throws(Refusal) in try await nodes.regions(of: stored) }
    }
    guard case .failure(.invalid) = try ask() else {
      Issue.record("a flooded question is not answered, so none is asked")
      return
    }
    var near = ridge
    near.outPath = .direct
    bench.own.received(Command.addUpdateContact(near).encode())
    bench.synchronizer.refresh(key)
    try bench.run("a path") { try bench.store.contact(key)?.contact.outPath != nil }
    #expect(try ask().get() == .regions(["a", "b", "*"]))
    try bench.run("the answer on disk") { try bench.store.contact(key)?.carried == "a,b,*" }
    #expect(Set(try bench.store.knownRegions()) == ["a", "b", "*"])
    let around = try bench.result("all answers") { () throws(Refusal) in try await nodes.regionsAround() }.get()
    #expect(around.map(\.contact.key) == [key])
    guard case .contact(let other)? = (try? Addressing(bench.store).find("r1")) else { return }  // `try?`: it is there
    let refusal = try bench.refusal { () throws(Refusal) in try await nodes.regions(of: other) }
    #expect(refusal?.code == "invalid", "a companion carries nothing")
  }

  /// A repeater without a path, whose advert the radio has heard by two others.
  private func repeater(_ bench: Bench) throws -> (nodes: NodeService, stored: StoredContact) {
    let nodes = NodeService(bench.messenger, credentials: Credentials(location: bench.scratch.location("passwords")))
    bench.requests = nodes.requests
    let key = try #require(PublicKey(bytes: [0xA0] + [UInt8](repeating: 7, count: 31)))
    var ridge = Contact(key: key, type: .repeater, name: "Ridge")
    ridge.lastModified = 1_795_000_000
    bench.own.received(Command.addUpdateContact(ridge).encode())
    bench.own.volatile.advertPaths.insert((key, 1_795_000_000, Path(bytes: [0xB0, 0xC0], bytesPerHop: 1)!), at: 0)
    bench.synchronizer.refresh(key)
    try bench.run("the repeater") { try bench.store.contact(key) != nil }
    return (nodes, try #require(try bench.store.contact(key)))
  }

  @Test func `a radio that refuses the way to a repeater is told so, and not as a lost link`() throws {
    let bench = try Bench(refuses: { command in
      guard case .addUpdateContact(let contact) = command, contact.outPath != nil else { return nil }
      return .tableFull
    })
    let (nodes, stored) = try repeater(bench)
    let refusal = try bench.refusal { () throws(Refusal) in try await nodes.regions(of: stored) }
    guard case .radio(let words)? = refusal else {
      Issue.record("\(String(describing: refusal))")
      return
    }
    #expect(words.contains("contact table is full"))
  }

  @Test func `a way that was not tried in reverse does not stay on the radio`() throws {
    var settings = Messenger.Settings()
    settings.delivery.budget.airtime = 1
    let bench = try Bench(settings)
    let (nodes, stored) = try repeater(bench)
    var paths = 0
    bench.swallow { command in
      if case .addUpdateContact(let contact) = command, contact.outPath != nil { paths += 1 }
      return false
    }
    let refusal = try bench.refusal { () throws(Refusal) in try await nodes.regions(of: stored) }
    #expect(refusal?.code == "full" && paths == 1, "\(String(describing: refusal))")
    let left = bench.own.stored.contacts.first { $0.key == stored.contact.key }
    #expect(left != nil && left?.outPath == nil)
  }

  @Test func `an answer goes out in the region of its question, if nothing else is chosen`() throws {
    let bench = try Bench()
    let air = Air(bench)
    bench.store.write { store throws(SQLiteError) in
      try store.setCarried("ottawa,*", by: bench.other.key, at: 1)
    }
    try bench.store.commitNow()
    bench.other.received(Command.setFloodScopeKey(.key(.hashtag("#ottawa"))).encode())
    bench.other.received(
      Command.sendChannelText(type: .plain, slot: 0, time: 1_795_000_100, text: "!ping").encode())
    var question: Int64 = 0
    try bench.run("the question") {
      try bench.store.eachMessage(limit: 1) { message in
        question = message.id
        return true
      }
      return question > 0
    }
    try bench.run("its copy") { try HeardCopy.region(of: bench.store.copies(of: .received(question)).kept) == "ottawa" }
    func say(_ key: String, _ region: String? = nil) throws -> [String?] {
      air.scopes = []
      var request = SendRequest(to: "Public", text: Text("pong \(key)"), key: key)
      (request.answers, request.region) = (question, region.flatMap { RegionChoice($0) })
      _ = try bench.send(request).get()
      try bench.run("its end") { try bench.state(key).hasEnded }
      return air.scopes
    }
    #expect(try say("like the question") == ["ottawa"])
    #expect(try say("as asked", "default") == [nil])
    bench.store.write { store throws(SQLiteError) in
      try store.setRegion("hull", ofChannel: ChannelSecret.publicChannel.digest)
    }
    try bench.store.commitNow()
    #expect(try say("like the channel") == ["hull"])
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import Timing

/// The laws of docs/reliability.md, checked in a world that is well again.
struct Laws {
  private let world: World
  private(set) var problems: [String] = []
  /// Of a gateway's messages: where hubs have them.
  private var placesAtHubs: [String: [Place]] = [:]

  struct Place {
    var epoch: String
    var seq: Int64
  }

  init(_ world: World) { self.world = world }

  /// Connections to one server in an hour, at most: a gateway retries after 1 s to 5 min, with jitter, and probes.
  private static let connectionsAnHour = 900

  /// Wake-ups in an hour, at most, on average: an idle gateway has some 200, and a server may send a byte every five seconds.
  private static let wakeUpsAnHour: Int64 = 2000

  /// Bytes from all gateways in 15 minutes in which nothing happens, at most: what is asked over and over would be more.
  private static let calmBytes = 16_000

  /// Bytes of a gateway's files, at most: a world has a few hundred messages.
  private static let cardBytes = 1_000_000

  /// The whole world's memory at its end, at most: 7 to 12 MiB, whether it was a day or a month.
  private static let memory = 24 << 20

  mutating func check() throws {
    for gateway in world.gateways {
      gateway.checkStored()
      checkReceived(gateway)
      checkStands(gateway)
      checkSent(gateway)
      for words in gateway.page.breaches { breach(gateway, words) }
    }
    for id in Set(world.gateways.map(\.id)).sorted() { try checkServers(id) }
    if let hook = world.hook, !world.mayRepeatForHooks, !hook.repeated.isEmpty {
      problems.append("hook: events again that it has taken: \(hook.repeated.prefix(5))")
    }
    checkJoined()
    checkBounds()
  }

  /// When all programs have ended.
  mutating func checkEnded() {
    for gateway in world.gateways {
      for words in gateway.breaches { breach(gateway, words) }
      if gateway.ghosts > 0 { breach(gateway, "\(gateway.ghosts) daemons are in memory after their end") }
    }
    let pages = String(decoding: Files.read("/proc/self/statm") ?? [], as: UTF8.self).split(separator: " ")
    // Without what is shared with files: `man 5 proc_pid_statm`.
    let own = (Int(pages[1]) ?? .max) - (Int(pages[2]) ?? 0)
    if own > Self.memory / 4096 { problems.append("\(own) pages of memory at the end") }
  }

  private mutating func breach(_ gateway: WorldGateway, _ words: String) {
    problems.append("gateway \(gateway.name): \(words)")
  }

  /// What the radio handed over is stored, once.
  private mutating func checkReceived(_ gateway: WorldGateway) {
    let stored = gateway.texts()
    let missing = Set(gateway.handed).subtracting(stored).subtracting(gateway.forgiven)
      .subtracting(gateway.lostWithCard)
    if !missing.isEmpty { breach(gateway, "handed over and not stored: \(missing.sorted().prefix(8))") }
    checkHeard(gateway)
    // `try?`: without a database there are none.
    let all = (try? gateway.column("SELECT text FROM messages")) ?? []
    if Set(all).count < all.count {
      let twice = Dictionary(grouping: all) { $0 }.filter { $1.count > 1 }.keys.sorted()
      breach(gateway, "stored twice: \(twice.prefix(8))")
    }
    let own = all.filter { $0.hasPrefix("s") }
    if !own.isEmpty, !gateway.hadOtherRadio, world.gateways.count == 1 {
      breach(gateway, "its own messages came back as new: \(own)")
    }
  }

  /// What the radio has heard is stored, or its loss between radio and disk is told. Not all is known behind a kill
  /// (docs/hub-protocol.md, `radio_gap`).
  private mutating func checkHeard(_ gateway: WorldGateway) {
    guard !gateway.hadOtherRadio, gateway.cardChanges == 0, !world.hasKills else { return }
    let missing = gateway.heard.subtracting(gateway.everStored).subtracting(gateway.forgiven)
    // `try?`: without a database there are none.
    let gaps = ((try? gateway.column("SELECT body FROM journal WHERE kind = 'radio_gap'")) ?? [])
      // `try?`: the gateway writes JSON.
      .compactMap { try? JSONValue(parsing: Array($0.utf8)) }
      // What the radio could not read, it has not handed over.
      .filter { $0["unread"] == nil }
    let told = gaps.reduce(Int64(0)) { sum, gap in
      let (lost, most) = (gap["lost"]?.integer, gap["at_most"]?.integer)
      return sum + (lost == nil && most == nil ? 1_000_000 : (lost ?? 0) + (most ?? 0))
    }
    if told < missing.count {
      let examples = missing.sorted().prefix(8)
      breach(gateway, "its radio has heard \(missing.count) that are not stored, and \(told) are told: \(examples)")
    }
  }

  /// Nothing stands still, and what is said is true.
  private mutating func checkStands(_ gateway: WorldGateway) {
    guard let status = gateway.json("/v1/status") else { return breach(gateway, "does not answer") }
    for upstream in status["upstreams"]?.array ?? [] {
      let pending = upstream["pending"]?.integer ?? 0
      if pending > 0 { breach(gateway, "stands still with \(pending) waiting: \(upstream.text.prefix(600))") }
    }
    let (messages, wakeUps) = (status["store"]?["messages"]?.integer ?? -1, Int64(gateway.machine.turns))
    // `try?`: without a database there are none.
    let count = (try? gateway.column("SELECT id FROM messages").count) ?? 0
    if messages != count { breach(gateway, "says that it has \(messages) messages, and has \(count)") }
    let hours = world.clock.elapsed / 3_600_000 + 1
    if wakeUps > hours * Self.wakeUpsAnHour { breach(gateway, "\(wakeUps) wake-ups in \(hours) hours") }
    guard let upstreams = status["upstreams"]?.array,
      upstreams.count == world.servers.count + (world.hook == nil ? 0 : 1), status["alerts"]?.array != nil
    else {
      return breach(gateway, "its status has no upstreams, or no alerts")
    }
    for upstream in upstreams where upstream["pending"]?.integer == nil { breach(gateway, "does not say what waits") }
    for rule in world.openAlerts(gateway) { breach(gateway, "the alert \(rule) does not end") }
    if gateway.page.isOpen {
      let newest = status["store"]?["last_seq"]?.integer ?? -1
      world.clock.pass(until: world.clock.now + .seconds(120)) { (gateway.page.last ?? -1) >= newest }
      let last = gateway.page.last ?? -1
      if last < newest { breach(gateway, "an open page ends with event \(last), and the journal with \(newest)") }
    }
    if gateway.radio.queuedMessages > 0 {
      breach(gateway, "\(gateway.radio.queuedMessages) messages stay in the radio")
    }
  }

  /// What was accepted for sending is there, and has ended or waits.
  private mutating func checkSent(_ gateway: WorldGateway) {
    guard gateway.cardChanges == 0 else { return }
    let rows = gateway.rows("/v1/outgoing?radio=all&limit=1000")
    let known = Set(rows.compactMap { $0["id"]?.string })
    let missing = gateway.accepted.subtracting(known)
    if !missing.isEmpty { breach(gateway, "accepted for sending and gone: \(missing.sorted())") }
  }

  /// Each server has what the gateways of this id have stored, or was told how much is lost.
  private mutating func checkServers(_ id: String) throws {
    let gateways = world.gateways.filter { $0.id == id }
    let names = Set(gateways.map(\.name))
    let stored = gateways.reduce(into: Set<String>()) { $0.formUnion($1.everStored) }
    let lost = gateways.reduce(into: Set<String>()) { $0.formUnion($1.lostWithCard) }
    let changes = gateways.reduce(0) { $0 + $1.cardChanges }
    placesAtHubs = [:]
    for message in try world.hubs.flatMap({ try $0.messages(of: id) }) {
      placesAtHubs[message.text, default: []].append(Place(epoch: message.epoch, seq: message.seq))
    }
    // Another radio may hand over the same message again, to a card that does not know it.
    let handed = Dictionary(gateways.flatMap(\.handed).map { ($0, 1) }, uniquingKeysWith: +)
    for hub in world.hubs {
      // What somebody wrote with a stolen token is nobody's promise.
      let messages = try hub.messages(of: id).filter { !$0.text.hasPrefix("x") }
      compare(hub.name, id, messages.map(\.text), try hub.gaps(of: id), stored, lost)
      let twice = Dictionary(grouping: messages) { $0.text }.filter { $1.count > handed[$0] ?? 0 }
      if !twice.isEmpty {
        let places = twice.prefix(5).map { "\($0) \($1.map { "\($0.epoch) \($0.seq)" })" }
        problems.append("\(hub.name): messages of \(id) twice: \(places)")
      }
      guard changes == 0, !world.hubWasPutBack else { continue }
      for (epoch, events) in Dictionary(grouping: messages, by: \.epoch)
      where events.map(\.seq) != events.map(\.seq).sorted() {
        problems.append("\(hub.name): messages of \(id) in epoch \(epoch) are out of order")
      }
    }
    var ledgers = [("broker", world.broker.ledger), ("webhook", world.webhook.ledger)]
    if let hook = world.hook { ledgers.append(("hook", hook.ledger)) }
    for (part, ledger) in ledgers {
      let (texts, gaps) = (names.flatMap { ledger.texts(of: $0) }, names.flatMap { ledger.gaps(of: $0) })
      compare(part, id, texts, gaps, stored, lost)
      if ledger.unreadable > 0 { problems.append("\(part): \(ledger.unreadable) unreadable events") }
      guard changes == 0, !gateways.contains(where: \.isImitated) else { continue }
      let contradictions = ledger.contradictions.filter { names.contains($0.gateway) }.map(\.number)
      if !contradictions.isEmpty {
        problems.append("\(part): other events of \(id) under the same number: \(contradictions.prefix(5))")
      }
      if Set(texts).count < texts.count { problems.append("\(part): messages of \(id) twice, under two numbers") }
    }
  }

  private mutating func compare(
    _ part: String, _ id: String, _ texts: [String], _ gaps: [JSONValue], _ stored: Set<String>, _ lost: Set<String>
  ) {
    let missing = stored.subtracting(texts)
    guard !missing.isEmpty else { return }
    let silent = missing.subtracting(lost)
    if !silent.isEmpty {
      problems.append("\(part): \(silent.count) messages of \(id) are missing: \(silent.sorted().prefix(8))")
    }
    let untellable = world.gateways.filter { $0.id == id }.reduce(into: Set<String>()) { $0.formUnion($1.untellable) }
    let tellable = missing.subtracting(untellable)
    let unnamed = tellable.filter { text in
      guard let places = placesAtHubs[text] else { return false }
      return !gaps.contains { gap in places.contains { Self.covers(gap, $0) } }
    }
    if !unnamed.isEmpty {
      let examples = unnamed.sorted().prefix(4).map { "\($0) \(placesAtHubs[$0] ?? [])" }
      problems.append(
        "\(part): \(unnamed.count) messages of \(id) were lost with the card, and no gap names their epochs: \(examples), \(gaps.map(\.text))"
      )
    }
    let told = gaps.reduce(Int64(0)) { $0 + ($1["at_most"]?.integer ?? $1["count"]?.integer ?? 1_000_000) }
    if told < tellable.count {
      problems.append(
        "\(part): \(tellable.count) messages of \(id) were lost with the card, and \(told) are told: \(tellable.sorted().prefix(8))"
      )
    }
  }

  /// Whether the gap may be about this event. Of another card a server tells how far it is; of a lost database more may have followed.
  private static func covers(_ gap: JSONValue, _ place: Place) -> Bool {
    guard let epoch = gap["epoch"]?.string else { return true }
    return epoch == place.epoch && (gap["reason"]?.string != "conflict" || gap["last"]?.integer ?? .max >= place.seq)
  }

  /// What one place has said, the other hears once, and nothing comes back to where it was said.
  private mutating func checkJoined() {
    guard world.otherMesh != nil else { return }
    let twice = world.joined.filter { $1 > 1 }.keys.sorted()
    if !twice.isEmpty, !world.nobodyKnowsTheTime {
      problems.append("sent twice from another place: \(twice.prefix(8))")
    }
    let back = world.joined.keys.filter { heard in
      heard.split(separator: "⇄").count > 2 || heard.contains("@\(heard.hasPrefix("r4") ? "A" : "B"): ")
    }
    if !back.isEmpty { problems.append("comes back to its own place: \(back.sorted().prefix(8))") }
    let last = (world.lastText + 1, world.lastText + 2)
    for number in world.meshes.indices { world.say(in: world.place(of: number)) }
    func isHeard(_ ear: String, _ gateway: String, _ number: Int) -> Bool {
      world.joined.keys.contains { $0.hasPrefix(ear) && $0.hasSuffix("@\(gateway): m\(number)") }
    }
    world.clock.pass(until: world.clock.now + .seconds(1800)) {
      isHeard("r5", "A", last.0) && isHeard("r4", "B", last.1)
    }
    if !isHeard("r5", "A", last.0) { problems.append("m\(last.0), heard by gateway A, is not sent by gateway B") }
    if !isHeard("r4", "B", last.1) { problems.append("m\(last.1), heard by gateway B, is not sent by gateway A") }
  }

  private mutating func checkBounds() {
    for server in world.servers where server.mostConnections > Self.connectionsAnHour {
      problems.append("\(server.name): \(server.mostConnections) connections of one gateway in an hour")
    }
    for (server, bytes) in zip(world.servers, world.calmBytes) where bytes > Self.calmBytes {
      problems.append("\(server.name): \(bytes) bytes in 15 minutes in which nothing happened")
    }
    for gateway in world.gateways where gateway.cardBytes > Self.cardBytes {
      breach(gateway, "\(gateway.cardBytes) bytes of files")
    }
  }
}

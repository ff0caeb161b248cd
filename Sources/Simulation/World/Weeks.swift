// SPDX-License-Identifier: MIT

import CSeededRandom
import EventLoop
import FoundationEssentials
import Glibc
import Hub
import JSON
import SQLite
import Store
import Timing
import VirtualRadio

/// Everyday weeks of one gateway at many times a busy mesh, with a hub, a broker and a webhook: what grows, and whether all arrives (docs/endurance.md).
///
/// Unlike a world of faults it keeps nothing of a message but a bit: what grows here is the programs'.
public final class Weeks {
  /// What a run needs to know.
  public struct Settings: Sendable {
    public var weeks = 8
    /// How many times a busy mesh.
    public var times = 10
    public var seed: UInt64 = 1
    public init() {}
  }

  /// A busy mesh (docs/benchmarks.md, "What reaches the card").
  private static let messagesADay = 1000.0
  private static let advertsADay = 2000.0
  private static let nodes = 300
  private static let sendingsAnHour: Int64 = 35
  /// People who hear: they get what the gateway sends, and write to it.
  private static let people = ["r1", "r2"]
  private static let hour: Int64 = 3_600_000
  private static let hoursASample: Int64 = 4

  private let settings: Settings
  private let root: String
  private let clock = WorldClock()
  private let outside: EventLoop
  private let mesh: VirtualMesh
  private let hub: WorldHub
  private let broker: WorldBroker
  private let webhook: WorldWebhook
  private let gateway: WorldGateway
  private var random: SeededRandom
  private var happenings: [(at: Int64, name: String, action: (Weeks) throws -> Void)] = []
  private let time: InventedNow
  private let tell: (String) -> Void
  private let names: [String]

  /// What was said so that the gateway may hear it, what its radio has heard and has handed over, and what the servers have.
  private var said: Tally
  private let heard: TallyLedger
  private let handed: TallyLedger
  private let atHub: TallyLedger
  private let atBroker: TallyLedger
  private let atWebhook: TallyLedger
  private var lastText = 0
  private var lastKey = 0
  private var adverts = 0
  private var refused = 0
  /// The newest of the hub's events that was counted.
  private var countedAtHub: Int64 = 0

  /// Runs the weeks. `row` gets the lines of a table as CSV, `tell` what happens. Returns what is wrong at the end, in words. Once in a process.
  public static func run(
    _ settings: Settings, row: @escaping (String) -> Void, tell: @escaping (String) -> Void
  ) throws -> [String] {
    signal(SIGPIPE, SIG_IGN)
    let root = "/dev/shm/weeks-\(getpid())"
    let files = FileManager.default
    try files.createDirectory(atPath: root, withIntermediateDirectories: true)
    defer { try? files.removeItem(atPath: root) }  // `try?`: only the space matters
    seeded_random_begin(settings.seed)
    let weeks = try Weeks(settings, in: root, tell)
    return try weeks.run(row)
  }

  private init(_ settings: Settings, in root: String, _ tell: @escaping (String) -> Void) throws {
    (self.settings, self.root, self.tell) = (settings, root, tell)
    random = SeededRandom(seed: settings.seed)
    // The days differ by chance; the hours by day and night.
    let most = Int(Self.messagesADay) * settings.times * settings.weeks * 7 * 5 / 4 + 1000
    said = Tally(most: most)
    (heard, handed, atHub) = (TallyLedger(most: most), TallyLedger(most: most), TallyLedger(most: most))
    (atBroker, atWebhook) = (TallyLedger(most: most), TallyLedger(most: most))
    (_, outside) = clock.begin()
    clock.listeners = [:]
    time = InventedNow(clock)
    let ofHub = HubClock.Invented { [time] in time.milliseconds }
    HubClock.invented.withLock { $0 = ofHub }
    mesh = VirtualMesh(on: outside, seed: settings.seed, airtimeFactor: 1) { _ in }
    let mesh = mesh
    func radio(_ name: String, _ number: Int, isDeaf: Bool = false) -> VirtualRadio {
      var own = VirtualRadioSettings(
        name: name, seed: settings.seed &* 1000 &+ UInt64(number), queueCapacity: 256,
        clock: UInt32(WorldClock.beginning / 1000))
      own.age = .seconds(3600)
      return mesh.add(own, isDeaf: isDeaf)
    }
    let own = radio("r0", 0)
    for (number, name) in Self.people.enumerated() { _ = radio(name, number + 1) }
    names = (1...Self.nodes).map { String("n\($0)-a-node-of-the-mesh-above-the-old-village".prefix(31)) }
    for (number, name) in names.enumerated() { _ = radio(name, number + 10, isDeaf: true) }
    hub = try WorldHub(
      "hub", "\(root)/hub", gateways: ["A"], settings: "[retention]\nmessages = \"7d\"\nnodes = \"7d\"", on: outside,
      of: clock)
    (broker, webhook) = (
      WorldBroker("broker", on: outside, of: clock), WorldWebhook("webhook", on: outside, of: clock)
    )
    (broker.ledger, webhook.ledger) = (atBroker, atWebhook)
    gateway = try WorldGateway(
      "A", id: "A", own, in: root, on: clock, servers: [hub, broker, webhook], tell: { tell("  \($0)") })
    gateway.onHeard = { [heard] in heard.messages.add($0) }
    gateway.onHanded = { [handed] in handed.messages.add($0) }
    gateway.configuration = { [unowned self] in try configuration($0) }
    plan()
  }

  private func configuration(_ folder: String) throws -> String {
    try "\(WorldHub.token)-A\n".write(toFile: "\(folder)/hub.token", atomically: true, encoding: .utf8)
    // The bounds are small, so that all are reached before the judged time.
    return """
      [gateway]
      id = "A"
      [radio]
      link = "tcp:127.0.0.1:1"
      [store]
      location = "\(folder)/gw.db"
      messages_max = 5000
      journal_max_size = "4 MiB"
      \(try World.upstreams(of: "A", hub, broker, webhook, folder))
      """
  }

  // MARK: What happens

  /// Each day the link to the hub ends once, a server is away for some minutes, and somebody has the page open; each week both programs start again.
  private func plan() {
    let day = 24 * Self.hour
    func add(_ at: Int64, _ name: String, _ action: @escaping (Weeks) throws -> Void) {
      happenings.append((at, name, action))
    }
    for number in 0..<Int64(settings.weeks * 7) {
      let begin = number * day
      func moment() -> Int64 { begin + Int64.random(in: 0..<day, using: &random) }
      add(moment(), "the link to the hub is cut") { $0.hub.hangUp() }
      let away = moment()
      let back = away + Int64.random(in: 1...40, using: &random) * 60_000
      let (part, mood): (KeyPath<Weeks, Server>, Mood) = [
        (\.asServers.hub, .refuses), (\.asServers.hub, .mute), (\.asServers.broker, .refuses),
        (\.asServers.webhook, .status(503, retryAfter: nil)), (\.asServers.webhook, .deaf),
      ].randomElement(using: &random)!
      add(away, "a server is away: \(mood)") { $0[keyPath: part].mood = mood }
      add(back, "it is back") { $0[keyPath: part].mood = .well }
      add(begin + 19 * Self.hour, "the page is opened") {
        $0.gateway.page.isOpen = true
        $0.gateway.page.follow("\($0.gateway.folder)/ctl")
      }
      add(begin + 20 * Self.hour, "the page is left") {
        $0.gateway.page.isOpen = false
        $0.gateway.page.leave()
      }
      if number % 7 == 1 {
        add(begin + 3 * Self.hour, "the gateway starts again") { try $0.restartGateway(addingPast: number == 1) }
      }
      if number % 7 == 4 {
        add(begin + 3 * Self.hour, "the hub ends") { $0.hub.close() }
        add(begin + 3 * Self.hour + 60_000, "the hub starts") { try $0.hub.open() }
      }
    }
    for number in 1...Int64(settings.weeks) * 7 * 24 {
      add(number * Self.hour, "") { $0.hub.deleteOld(uptime: $0.clock.elapsed) }
      for sending in 0..<Self.sendingsAnHour {
        add((number - 1) * Self.hour + (1 + sending) * Self.hour / (1 + Self.sendingsAnHour), "") { $0.send() }
      }
    }
    happenings.sort { $0.at < $1.at }
  }

  private var asServers: (hub: Server, broker: Server, webhook: Server) { (hub, broker, webhook) }

  private func restartGateway(addingPast: Bool) throws {
    gateway.end()
    // A timer of the ended gateway may hold its store for a minute.
    clock.pass(until: clock.now + .seconds(120))
    if addingPast { try addPast() }
    gateway.start()
  }

  /// What would grow for longer than the weeks. Readings reach their bound after 14 months, one an hour: copies of the first day's are in their place.
  /// And seven weeks seem to have passed: stored milliseconds need two more bytes from the 25th day on.
  private func addPast() throws {
    let database = try Database(location: "\(gateway.folder)/gw.db")
    try database.run("UPDATE meta SET value = value + (1 << 32) WHERE name = 'elapsed'")
    try database.run(
      """
      INSERT INTO readings(node, kind, at, trusted, body, radio)
        WITH RECURSIVE copies(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM copies LIMIT \(Store.maxReadings))
        SELECT node, kind, at, trusted, body, radio FROM copies, readings LIMIT \(Store.maxReadings)
      """)
  }

  /// Milliseconds until the next packet of the mesh: half as many as on average at night, and half as many more by day.
  private func pause(at now: Int64) -> Int64 {
    let hour = Double(now % (24 * Self.hour)) / Double(Self.hour)
    let weight = hour < 6 ? 0.4 : 1.2
    let average = 86_400_000 / ((Self.messagesADay + Self.advertsADay) * Double(settings.times) * weight)
    return Int64(-log(1 - Double.random(in: 0..<1, using: &random)) * average)
  }

  private static let words = """
    the to a and I you it of in is that on for we here with at so can just weather tower snow antenna die und ist nicht zu mit auf den wir Hütte Abend Grüße la \
    montagne réseau demain bonjour 73 👍 Schauinsland über
    """.split(separator: " ")

  private func text() -> String {
    lastText += 1
    let words = (0..<Int.random(in: 3...13, using: &random)).map { _ in Self.words.randomElement(using: &random)! }
    return "m\(lastText) \(words.joined(separator: " "))"
  }

  private func say() {
    let draw = Double.random(in: 0..<1, using: &random)
    let node = names.randomElement(using: &random)!
    guard draw < Self.messagesADay / (Self.messagesADay + Self.advertsADay) else {
      adverts += 1
      return mesh.perform("advert \(node)")
    }
    let (text, person) = (text(), Self.people.randomElement(using: &random)!)
    said.add(text)
    if Int.random(in: 0..<10, using: &random) == 0 {
      mesh.perform("dm \(person) r0 \(text)")
    } else {
      mesh.perform("chan \(node) 0 \(text)")
    }
  }

  /// The gateway's people write, and now and then an operator at the hub: so often that the bound of kept sent messages is reached in two weeks.
  private func send() {
    lastKey += 1
    let person = Self.people.randomElement(using: &random)!
    if lastKey.isMultiple(of: 20) {
      let body = #"{"id":"c\#(lastKey)","command":"send","to":"\#(person)","text":"s\#(lastKey)"}"#
      _ = hub.ask("POST", "/v1/gateways/A/commands?wait_s=0", body)
    } else {
      let to = Bool.random(using: &random) ? person : "Public"
      let answer = gateway.ask("POST", "/v1/send", #"{"to":"\#(to)","text":"s\#(lastKey)","expires_s":7200}"#)
      if answer.map({ $0.status >= 300 }) ?? true { refused += 1 }
    }
  }

  // MARK: Running

  private func run(_ row: (String) -> Void) throws -> [String] {
    _ = outside.begin { [mesh] in try? await mesh.advertiseAll() }  // `try?`: this task is never cancelled
    clock.pass(until: clock.now + .seconds(10))
    // From here on the people hear the gateway and each other: a signature that two more verify costs only time.
    for person in Self.people { for name in names { mesh.perform("part \(name) \(person)") } }
    gateway.start()
    clock.pass(until: clock.now + .seconds(60))
    var (nextSay, nextSample, place) = (clock.elapsed, Int64(0), 0)
    let end = Int64(settings.weeks) * 7 * 24 * Self.hour
    row(Self.columns.joined(separator: ","))
    while clock.elapsed < end {
      let due = place < happenings.count ? happenings[place].at : end
      pass(until: min(nextSay, nextSample, due, end))
      if clock.elapsed >= nextSay {
        say()
        nextSay = clock.elapsed + pause(at: clock.elapsed)
      }
      if clock.elapsed >= due, place < happenings.count {
        let happening = happenings[place]
        place += 1
        if !happening.name.isEmpty { tell("day \(due / Self.hour / 24): \(happening.name)") }
        try happening.action(self)
      }
      if clock.elapsed >= nextSample {
        nextSample += Self.hoursASample * Self.hour
        try countAtHub()
        row(try sample().map { "\($0)" }.joined(separator: ","))
      }
    }
    return try finish()
  }

  private func pass(until milliseconds: Int64) {
    clock.pass(until: MonotonicTime(seconds: 1000) + .milliseconds(milliseconds))
  }

  private static let columns = [
    "seconds", "heap_bytes", "anonymous_kib", "resident_kib", "descriptors", "threads", "written_bytes", "processor_s",
    "gateway_database_bytes", "gateway_used_bytes", "gateway_log_bytes", "stored_messages", "journal_events",
    "journal_bytes", "events", "pending", "lost", "dead_letters", "alerts", "wake_ups", "hub_database_bytes",
    "hub_log_bytes", "hub_events", "on_the_air",
  ]

  private func sample() throws -> [any CustomStringConvertible] {
    let own = ProcessFigures()
    let status = gateway.json("/v1/status") ?? .null
    let upstreams = status["upstreams"]?.array ?? []
    func sum(_ name: String) -> Int64 { upstreams.reduce(0) { $0 + ($1[name]?.integer ?? 0) } }
    func store(_ name: String) -> Int64 { status["store"]?[name]?.integer ?? 0 }
    let card = DatabaseFigures("\(gateway.folder)/gw.db")
    let ofHub = DatabaseFigures(hub.databaseFile)
    let rows = try hub.openDatabase().value("SELECT count(*) FROM events")?.integer ?? 0
    return [
      clock.elapsed / 1000, own.heapBytes, own.anonymousKibibytes, own.residentKibibytes, own.descriptors, own.threads,
      own.writtenBytes, own.processorSeconds, card.size, card.used, card.logSize, store("messages"),
      store("last_seq") - store("oldest_seq") + 1, store("journal_bytes"), store("last_seq"),
      upstreams.compactMap { $0["pending"]?.integer }.max() ?? 0, sum("lost"), sum("dead_letters"),
      status["alerts"]?.array?.count ?? 0, gateway.machine.turns, ofHub.size, ofHub.logSize, rows, said.count,
    ]
  }

  /// Counts the hub's new rows, before it deletes them.
  private func countAtHub() throws {
    let counted = """
      SELECT id, kind, body FROM events WHERE id > ?1 AND kind IN ('message', 'gap', 'radio_gap') ORDER BY id
      """
    try hub.openDatabase().every(counted, [.integer(countedAtHub)]) {
      countedAtHub = $0.integer(0)
      // `try?`: all stored bodies are JSON.
      atHub.take($0.text(1), (try? JSONValue(parsing: $0.text(2))) ?? .null)
    }
  }

  // MARK: The end

  private func finish() throws -> [String] {
    for server in [hub, broker, webhook] { server.mood = .well }
    let end = clock.now + .seconds(2400)
    func waiting() -> Int64 {
      let upstreams = gateway.json("/v1/status")?["upstreams"]?.array
      return upstreams?.reduce(0) { $0 + ($1["pending"]?.integer ?? 0) } ?? 1
    }
    repeat { clock.pass(until: clock.now + .seconds(60)) } while clock.now < end && waiting() > 0
    try countAtHub()
    var problems = gateway.page.breaches + gateway.breaches
    let left = waiting()
    if left > 0 { problems.append("\(left) events wait at the end") }
    tell("said:            \(said.words); \(adverts) adverts; \(lastKey) times somebody sent, \(refused) refused")
    tell("heard by radio:  \(heard.messages.words)")
    tell("handed over:     \(handed.messages.words)")
    for (name, ledger) in [("hub:    ", atHub), ("broker: ", atBroker), ("webhook:", atWebhook)] {
      tell("at the \(name)  \(ledger.messages.words); \(ledger.messages.copies) twice, \(ledger.told) told as lost")
      let missing = handed.messages.missing(in: ledger.messages)
      let isSame = ledger.messages.digest == handed.messages.digest
      if missing > ledger.told { problems.append("\(name) lacks \(missing) messages, and was told of \(ledger.told)") }
      if missing == 0, !isSame { problems.append("\(name) has other texts than the radio has handed over") }
      if ledger.wrong > 0 { problems.append("\(name) has got \(ledger.wrong) events that it cannot read") }
    }
    if atHub.messages.copies > 0 { problems.append("the hub has \(atHub.messages.copies) messages twice") }
    let inRadio = heard.messages.missing(in: handed.messages)
    if inRadio > atHub.toldOfRadio {
      problems.append("the radio lost \(inRadio) messages, and \(atHub.toldOfRadio) are told")
    }
    gateway.beginEnd()
    clock.pass(until: clock.now + .seconds(120)) { gateway.hasEnded }
    if !gateway.hasEnded { problems.append("the gateway does not end within two minutes") }
    return problems
  }
}

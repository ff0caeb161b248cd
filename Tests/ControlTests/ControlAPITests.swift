// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import Glibc
import JSON
import Messaging
import RadioSharing
import Relay
import Sync
import TestSupport
import Testing
import Transport

@testable import Control
@testable import EventLoop
@testable import Store

@Suite struct ControlAPITests {
  private final class Operations: GatewayOperations {
    func addUpstream(_ fields: JSONValue) throws(Refusal) -> [String] { throw .invalid("not here") }
    func removeUpstream(_ name: String) throws(Refusal) { throw .invalid("not here") }
    func documentsChanged() {}
    func memoryWasUsed() {}
    func deletionBegan() {}
    func setWebPassword(_ hash: String?) throws(Refusal) { throw .invalid("not here") }
    func configurationMistakes() -> [String] { [] }
    var overrides: [SettingOverride] {
      [SettingOverride(setting: "log.level", value: "debug", configured: "notice", document: "settings/log_level")]
    }
    var openFiles: [(words: String, remedy: String)] { [] }
    var settingsForNextStart: [String] { ["store.max_size"] }
    var idleSettings: [String] { [] }
    var configurationRefusal: String? { nil }
    var webReport: WebReport? { nil }
    var powerReport: PowerReport { PowerReport(millivolts: nil, isBatteryLow: false, isSupplyLow: nil) }
    var alertRules: [(name: String, sentence: String)] { [("radio_lost", "The radio has been away.")] }
    var shownBacklog: Int64 { 0 }
  }

  /// A client of the control socket, and its answer so far.
  private final class Client {
    private let descriptor: Int32
    private let loop: EventLoop
    private(set) var text = ""

    init(_ descriptor: Int32, on loop: EventLoop) {
      self.descriptor = descriptor
      self.loop = loop
      Descriptor.setNonBlocking(descriptor)
    }

    deinit { close(descriptor) }

    /// Reads until the answer has these words. False: it does not get them.
    @discardableResult
    func read(until words: String) -> Bool {
      turn(loop) {
        if case .bytes(let more) = Descriptor.read(descriptor) { text += String(decoding: more, as: UTF8.self) }
        return text.contains(words)
      }
    }
  }

  /// The control socket of a gateway whose radio is always absent.
  private final class Fixture {
    let scratch = Scratch()
    let loop = EventLoop()
    let store: Store
    let taps: TapAPI
    let api: ControlAPI
    let location: String

    /// `left`: the name of a file that is there before.
    init(left: String? = nil) throws {
      if let left { _ = scratch.write(left, "left by an earlier run") }
      // As in the daemon: the failing write shows that the peer has disconnected.
      signal(SIGPIPE, SIG_IGN)
      let log = Log(level: .error, sink: { _, _ in })
      taps = TapAPI(clock: loop.wallClock)
      store = try Store(Store.Settings(location: scratch.location("gw.db")))
      let link = Links.link(to: try LinkAddress(parsing: "tcp:127.0.0.1:1"), on: loop, log: log)
      let synchronizer = Synchronizer(
        RadioConnection(link, on: loop, log: log), store: store, settings: .init(), on: loop, log: log)
      let messenger = try Messenger(store: store, synchronizer: synchronizer, settings: .init(), on: loop, log: log)
      let nodes = NodeService(messenger, credentials: Credentials(location: scratch.location("passwords")))
      let table = RadioTable(synchronizer, store: store)
      let keeper = ContactEviction(.init(), table, synchronizer, store: store, on: loop, log: log)
      let messaging = MessagingParts(
        messenger: messenger, nodes: nodes, table: table, routine: NodePolling(messenger, nodes, .init()),
        keeper: keeper, knock: Knock(keeper))
      let proxy = CompanionProxy(
        CompanionProxy.Gateway(
          loop: loop, log: log, store: store, synchronizer: synchronizer, messenger: messenger,
          requests: nodes.requests, sign: { _ in nil }))
      location = scratch.location("control.sock")
      api = try ControlAPI(
        ControlAPI.Dependencies(
          version: "test", configurationFile: "", loop: loop, log: log, store: store, synchronizer: synchronizer,
          messaging: messaging, bluetooth: BluetoothOptions(), proxy: proxy,
          relay: try Relay([], store: store, on: loop, log: log), taps: taps, operations: Operations()),
        location: location, group: nil)
      loop.afterTurn { [store, weak api] in
        store.commit()
        if store.transactions.takeNews().hasGrown { api?.somethingIsNew() }
      }
    }

    deinit { api.stop() }

    func connect() throws -> Int32 {
      let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
      var address = sockaddr_un()
      address.sun_family = sa_family_t(AF_UNIX)
      withUnsafeMutableBytes(of: &address.sun_path) { path in path.copyBytes(from: Array(location.utf8) + [0]) }
      let result = withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
      }
      try #require(result == 0)
      return descriptor
    }

    func ask(_ request: String, body: String = "") throws -> Int32 {
      let descriptor = try connect()
      let bytes = Array("\(request) HTTP/1.1\r\nHost: x\r\nContent-Length: \(body.utf8.count)\r\n\r\n\(body)".utf8)
      try #require(write(descriptor, bytes, bytes.count) == bytes.count)
      return descriptor
    }

    func client(_ request: String, body: String = "") throws -> Client {
      Client(try ask(request, body: body), on: loop)
    }

    /// The answer up to `end`.
    func answer(_ request: String, body: String = "", until end: String = "}\n") throws -> String {
      let client = try client(request, body: body)
      client.read(until: end)
      return client.text
    }

    /// Appends an event for each number.
    func append(_ numbers: ClosedRange<Int>) {
      for number in numbers {
        store.post("a test") { store throws(SQLiteError) in
          try store.append(.gap, at: Moment(milliseconds: 1, trusted: false), body: Array(#"{"n":\#(number)}"#.utf8))
        }
      }
    }
  }

  @Test(arguments: [
    ("GET /v1/status", "", 200, #""version":"test""#), ("PUT /v1/status", "", 405, "PUT /v1/status"),
    ("GET /v1/nothing", "", 404, "not found: GET /v1/nothing"), ("POST /v1/send", "no JSON", 400, "invalid"),
    ("POST /v1/sync", "", 409, "the radio's link is down"), ("GET /v1/radio", "", 503, "link_down"),
    ("POST /v1/upstreams/remove", "", 400, "not here"), ("GET /v1/outgoing?id=none", "", 404, "not_found"),
    ("POST /v1/radio/pair?address=no", "", 400, "an address such as"),
    ("POST /v1/radio/forget?address=no", "", 400, #""code":"invalid""#),
    ("GET /v1/messages?q=a*&after=1", "", 400, "at least 3 letters"),
    ("POST /v1/send", #"{"to":"x","text":"y","split":"yes"}"#, 400, "split"),
    ("POST /v1/send", #"{"to":"x","text":"y","expires_s":"60"}"#, 400, "expires_s"),
  ]) func `each request gets its answer, and all errors have the same form`(
    _ request: String, _ body: String, _ status: Int, _ words: String
  ) throws {
    let answer = try Fixture().answer(request, body: body)
    #expect(answer.hasPrefix("HTTP/1.1 \(status) ") && answer.contains(words), "\(answer)")
  }

  @Test func `every route has its own path, and an answer`() throws {
    let fixture = try Fixture()
    for route in Route.allCases {
      // Scans and checks of Bluetooth use this machine's bus.
      if [.scan, .bluetoothDoctor].contains(route) { continue }
      let answer = try fixture.answer(route.rawValue, until: "\r\n\r\n")
      #expect(answer.hasPrefix("HTTP/1.1 "), "\(route)")
      #expect(!answer.hasPrefix("HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 0"))
    }
    // HEAD is GET without a body.
    #expect(try fixture.answer("HEAD /v1/status", until: "\r\n\r\n").hasPrefix("HTTP/1.1 200 "))
  }

  @Test func `the list of dead letters fits into one answer, however long the servers' words are`() throws {
    let fixture = try Fixture()
    let body = Array(#"{"text":"\#(String(repeating: "x", count: 9000))"}"#.utf8)
    fixture.store.write { store throws(SQLiteError) in
      for seq in Int64(1)...200 {
        try store.bury(
          JournalEvent(seq: seq, at: 1, trusted: true, kind: "message", body: body), upstream: "up", status: 422,
          reason: String(repeating: "y", count: 20_000), at: 1)
      }
    }
    try fixture.store.commitNow()
    let answer = try fixture.answer("GET /v1/outbox", until: "]}")
    #expect(answer.hasPrefix("HTTP/1.1 200 ") && answer.contains(#""seq":60,"#) && answer.utf8.count < 1 << 20)
    #expect(!answer.contains(String(repeating: "y", count: 300)))
  }

  @Test func `as many readings are answered as are wanted and kept`() throws {
    let fixture = try Fixture()
    let key = try #require(PublicKey(hex: String(repeating: "5a", count: 32)))
    fixture.store.post("a test") { store throws(SQLiteError) in
      for number in 1...2500 {
        try store.keepReading(
          of: key, kind: .telemetry, body: Array(#"{"n":\#(number)}"#.utf8),
          at: Moment(milliseconds: 1, trusted: false), isJournaled: false)
      }
    }
    try fixture.store.commitNow()
    for (limit, first) in [(10_000, 1), (1500, 1001), (1000, 1501), (1, 2500)] {
      let answer = try fixture.answer("GET /v1/readings?limit=\(limit)", until: #"{"n":2500}"#)
      #expect(answer.contains("{\"n\":\(first)}") && !answer.contains("{\"n\":\(first - 1)}"), "\(limit)")
    }
  }

  @Test func `the newest reading of each node is answered, however many another node has`() throws {
    let fixture = try Fixture()
    let (quiet, busy) = (String(repeating: "5a", count: 32), String(repeating: "5b", count: 32))
    let keys = [try #require(PublicKey(hex: quiet)), try #require(PublicKey(hex: busy))]
    fixture.store.post("a test") { store throws(SQLiteError) in
      for number in 1...1500 {
        try store.keepReading(
          of: keys[number < 3 ? 0 : 1], kind: number == 1 ? .status : .telemetry,
          body: Array(#"{"n":\#(number)}"#.utf8), at: Moment(milliseconds: 1, trusted: false), isJournaled: false)
      }
    }
    try fixture.store.commitNow()
    let answer = try fixture.answer("GET /v1/readings?newest=1", until: #"{"n":1500}"#)
    #expect(answer.contains(#"{"n":1}"#) && answer.contains(#"{"n":2}"#), "the pages show its battery")
    #expect(!answer.contains(#"{"n":3}"#) && !answer.contains(#"{"n":1499}"#))
    let one = try fixture.answer("GET /v1/readings?newest=1&kind=telemetry&limit=9", until: #"{"n":1500}"#)
    #expect(one.contains(#"{"n":2}"#) && !one.contains(#"{"n":1}"#))
  }

  @Test func `a client that follows the events gets new ones`() throws {
    let fixture = try Fixture()
    let client = try fixture.client("GET /v1/events?follow=1&limit=0")
    #expect(client.read(until: "\r\n\r\n"))
    for number in 1...3 {
      fixture.append(number...number)
      #expect(client.read(until: #"{"n":\#(number)}"#))
    }
  }

  @Test func `nobody waits for a message that the database has no more`() throws {
    let fixture = try Fixture()
    let message = OutgoingMessage(
      key: "one", origin: "control", priority: 0, kind: .direct, text: "hello",
      created: Moment(milliseconds: 1, trusted: false), lifetime: 1000)
    fixture.store.post("a test") { store throws(SQLiteError) in _ = try store.insertOutgoing(message) }
    try fixture.store.commitNow()
    let client = try fixture.client("GET /v1/outgoing?id=one&follow=1")
    #expect(client.read(until: #""id":"one""#), "\(client.text)")
    fixture.store.post("a test") { store throws(SQLiteError) in try store.database.run("DELETE FROM outgoing") }
    fixture.append(1...1)
    #expect(client.read(until: "\r\n0\r\n\r\n"), "\(client.text)")
  }

  @Test func `a page tells its reader when events before it were deleted`() throws {
    let fixture = try Fixture()
    fixture.append(1...10)
    fixture.store.post("a test") { store throws(SQLiteError) in
      try store.database.run("DELETE FROM journal WHERE seq BETWEEN 4 AND 6")
    }
    try fixture.store.commitNow()
    let status = "event: status"
    for (seq, isTold) in [(1, true), (3, true), (4, true), (6, false), (9, false), (10, false)] {
      let answer = try fixture.answer("GET /v1/live?after=\(seq)", until: status)
      #expect(answer.contains(#""seq":10,"missed":true"#) == isTold, "\(seq): \(answer)")
      #expect(answer.contains(#"{"n":10}"#) == (!isTold && seq < 10), "\(seq): \(answer)")
    }
  }

  @Test func `a page learns at once what the gateway's clock shows`() throws {
    let fixture = try Fixture()
    let before = fixture.loop.wallClock.milliseconds
    let answer = try fixture.answer("GET /v1/live", until: "event: status")
    let line = try #require(answer.split(separator: "\n").first { $0.contains(#""epoch":"#) }, "\(answer)")
    let hello = try JSONValue(parsing: Array(line.utf8.dropFirst("data: ".utf8.count)))
    let now = try #require(hello["now"]?.integer)
    #expect(now >= before && now <= fixture.loop.wallClock.milliseconds)
  }

  @Test func `a follower gets the number of events that were deleted before it received them`() throws {
    let fixture = try Fixture()
    fixture.append(1...10)
    fixture.store.post("a test") { store throws(SQLiteError) in
      try store.database.run("DELETE FROM journal WHERE seq BETWEEN 1 AND 6")
    }
    try fixture.store.commitNow()
    for (query, missed) in [("after=1", 5), ("after=5", 1), ("after=6", nil), ("limit=100", nil), ("limit=0", nil)] {
      for follow in ["", "&follow=1"] where !follow.isEmpty || query != "limit=0" {
        let isEmpty = query == "limit=0"
        let answer = try fixture.answer("GET /v1/events?\(query)\(follow)", until: isEmpty ? "\r\n\r\n" : #"{"n":10}"#)
        #expect(answer.contains("missed") == (missed != nil), "\(query): \(answer)")
        if let missed { #expect(answer.contains("{\"missed\":\(missed)}\n"), "\(query): \(answer)") }
      }
    }
    for request in ["GET /v1/messages?follow=1", "GET /v1/events?follow=1&limit=0"] {
      let client = try fixture.client(request)
      #expect(client.read(until: "\r\n\r\n"))
      let last = Int(fixture.store.lastSeq)
      fixture.append(last + 1...last + 4)
      fixture.store.post("a test") { store throws(SQLiteError) in
        try store.database.run("DELETE FROM journal WHERE seq < (SELECT max(seq) FROM journal)")
      }
      #expect(client.read(until: "{\"missed\":3}\n"), "\(request): \(client.text)")
    }
  }

  @Test func `rare messages are found among many, from both ends`() throws {
    let fixture = try Fixture()
    let store = fixture.store
    func hear(_ count: Int, _ text: String, by radio: UInt8) throws {
      let key = try #require(PublicKey(bytes: Array(repeating: radio, count: 32)))
      try store.attach(key, name: Text("radio \(radio)"), at: 1)
      store.post("a test") { store throws(SQLiteError) in
        for number in 1...count {
          let message = ContactMessage(
            snr: nil, sender: KeyPrefix(value: 1), path: ReceivedPath(raw: 0), senderTime: UInt32(number),
            text: Text("\(text) \(number)"))
          _ = try store.insert(.contact(message), at: Moment(milliseconds: 1, trusted: true))
        }
      }
      try store.commitNow()
    }
    try hear(1, "early", by: 1)
    try hear(5000, "other", by: 2)
    try hear(1, "late", by: 1)
    let radio = String(repeating: "01", count: 6)
    for query in ["", "&limit=5000", "&after=0"] {
      let answer = try fixture.answer("GET /v1/messages?radio=\(radio)\(query)", until: "0\r\n\r\n")
      #expect(answer.contains("early 1") && answer.contains("late 1") && !answer.contains("other"), "\(query)")
    }
    let followed = try fixture.answer("GET /v1/messages?radio=\(radio)&follow=1", until: "late 1")
    #expect(followed.contains("early 1") && !followed.contains("other"))
  }

  @Test func `the doctor sees that the database file is gone`() throws {
    let fixture = try Fixture()
    #expect(try fixture.answer("GET /v1/doctor").contains("removed or replaced") == false)
    unlink(fixture.scratch.location("gw.db"))
    #expect(try fixture.answer("GET /v1/doctor").contains("the database file was removed or replaced"))
    #expect(try fixture.answer("GET /v1/status").contains("the database file was removed or replaced"))
  }

  @Test func `a slow client gets every row, and delays nobody`() throws {
    let fixture = try Fixture()
    let body = Array(#"{"text":"\#(String(repeating: "x", count: 900))"}"#.utf8)
    for _ in 0..<1000 {
      fixture.store.post("a test") { store throws(SQLiteError) in
        try store.append(.gap, at: Moment(milliseconds: 1, trusted: false), body: body)
      }
    }
    fixture.store.commit()
    let descriptor = try fixture.ask("GET /v1/events?limit=1000")
    defer { close(descriptor) }
    Descriptor.setNonBlocking(descriptor)
    // The client reads nothing yet; other clients are answered.
    #expect(try fixture.answer("GET /v1/status").contains("HTTP/1.1 200"))
    var (rows, isOver) = (0, false)
    _ = turn(fixture.loop) {
      if case .bytes(let bytes) = Descriptor.read(descriptor) {
        let text = String(decoding: bytes, as: UTF8.self)
        rows += text.split(separator: "\n", omittingEmptySubsequences: false).count { $0.contains(#""}}"#) }
        isOver = text.hasSuffix("0\r\n\r\n")
      }
      return isOver
    }
    #expect(isOver && rows > 990, "\(rows) rows; some are cut in two by a read")
  }

  @Test(arguments: ["", "-wal", ".mark", ".lock", ".id"])
  func `a backup that would replace a file of the running gateway is refused, by whatever name`(_ suffix: String) throws
  {
    let fixture = try Fixture()
    let (file, other) = (fixture.store.location + suffix, fixture.scratch.location("link"))
    #expect(symlink(file, other) == 0)
    func request(_ replaced: String) throws -> String {
      var facts = stat()
      let isThere = stat(replaced, &facts) == 0
      try #require(isThere)
      return "GET /v1/backup?replaces=\(facts.st_dev):\(facts.st_ino)"
    }
    let refused = try fixture.answer(request(other))
    #expect(refused.contains(" 400 ") && refused.contains("a file that the running gateway uses"), "\(refused)")
    let earlier = fixture.scratch.write("earlier", "a backup")
    let client = try fixture.client(request(earlier))
    let isMade = client.read(until: "SQLite format 3")
    #expect(isMade)
  }

  @Test(arguments: [".moving", ".web", "-wal-of-mine"])
  func `a backup gets no name of the gateway's own files, also of one that is missing now`(_ suffix: String) throws {
    let fixture = try Fixture()
    let file = fixture.store.location + suffix
    let slash = try #require(file.lastIndex(of: "/"))
    let name = file[file.index(after: slash)...]
    var facts = stat()
    let isThere = stat(String(file[...slash]), &facts) == 0
    try #require(isThere && access(file, F_OK) != 0)
    let client = try fixture.client("GET /v1/backup?folder=\(facts.st_dev):\(facts.st_ino)&name=\(name)")
    let isAnswered = client.read(until: suffix == "-wal-of-mine" ? "SQLite format 3" : "that the running gateway uses")
    #expect(isAnswered)
  }

  @Test func `a backup replaces no file of an added upstream, and becomes none`() throws {
    let fixture = try Fixture()
    let folder = fixture.store.location + ".upstreams"
    #expect(mkdir(folder, 0o700) == 0 && mkdir("\(folder)/secrets", 0o700) == 0)
    for name in ["w2.toml", "secrets/w2.token"] {
      let file = "\(folder)/\(name)"
      close(creat(file, 0o600))
      var facts = stat()
      let isThere = stat(file, &facts) == 0
      try #require(isThere)
      let refused = try fixture.answer("GET /v1/backup?replaces=\(facts.st_dev):\(facts.st_ino)")
      #expect(refused.contains(" 400 ") && refused.contains("a file that the running gateway uses"), "\(refused)")
    }
    var facts = stat()
    let isThere = stat(folder, &facts) == 0
    try #require(isThere)
    let new = try fixture.answer("GET /v1/backup?folder=\(facts.st_dev):\(facts.st_ino)&name=new.toml")
    #expect(new.contains(" 400 "), "\(new)")
  }

  @Test func `a backup that is kept beside the database stays when another is made`() throws {
    let fixture = try Fixture()
    let kept = fixture.scratch.write("gw.db.backup", "an earlier one")
    let client = try fixture.client("GET /v1/backup")
    let isMade = client.read(until: "SQLite format 3")
    #expect(isMade && access(kept, F_OK) == 0)
  }

  @Test func `a start removes the copy of a backup that a kill cut off`() throws {
    let fixture = try Fixture(left: "gw.db.copying")
    #expect(access(fixture.store.location, F_OK) == 0)
    #expect(access(fixture.store.location + ".copying", F_OK) != 0)
  }

  @Test func `a thousand requests whose client disconnected leave nothing behind`() throws {
    let fixture = try Fixture()
    let loop = fixture.loop
    let requests = [
      "GET /v1/status", "GET /v1/events?follow=1", "GET /v1/sync?follow=1", "GET /v1/packets", "GET /v1/frames",
      "GET /v1/messages?follow=1", "GET /v1/backup", "GET /v1/contacts", "GET /v1/radio", "GET /v1/outgoing",
    ]
    // Objects that are created once exist before the count.
    for request in requests.prefix(1) { _ = try fixture.answer(request) }
    // Only the listening task remains.
    _ = turn(loop) { fixture.loop.taskCount == 1 }
    let (watches, timers) = (loop.watchCount, loop.waitingTimers)
    var began: [Int32] = []
    for number in 0..<1000 {
      began.append(try fixture.ask(requests[number % requests.count]))
      // Some clients disconnect before their request is read, others during the answer.
      if number % 3 == 0 { loop.turn(wait: false) }
      if began.count > 7 {
        for descriptor in began { close(descriptor) }
        began = []
        loop.turn(wait: false)
      }
    }
    for descriptor in began { close(descriptor) }
    let isOver = turn(loop) { fixture.loop.taskCount == 1 && loop.watchCount <= watches }
    #expect(isOver, "\(loop.taskCount) tasks, \(loop.watchCount) watched, before \(watches)")
    #expect(fixture.taps.count == 0 && fixture.api.followers == 0)
    #expect(loop.waitingTimers <= timers, "\(loop.waitingTimers) timers, before \(timers)")
    #expect(access(fixture.store.location + ".copying", F_OK) != 0)
    fixture.api.stop()
    #expect(turn(loop) { loop.taskCount == 0 }, "a request is still running: it is a child of the listener")
  }
}

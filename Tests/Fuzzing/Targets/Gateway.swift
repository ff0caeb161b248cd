// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
@testable import HTTP
import JSON
import LoopTestSupport
import Messaging
import RadioSharing
import Store
import Sync
import Timing
import Transport

@testable import Control
@testable import Gateway
@testable import Relay

extension FuzzTarget {
  // MARK: The control socket

  /// What a client writes to the control socket of a gateway whose radio is away.
  static func control(_ bytes: [UInt8]) {
    guard !asksThisMachine(bytes) else { return }
    let answer = ControlledGateway.shared.answer(to: bytes)
    var parser = HTTPParser(.responses, maxBody: 1 << 24)
    var (status, headers, body) = (0, HTTPHeaders(), [UInt8]())
    do throws(HTTPParseError) {
      var rest = answer[...]
      while !rest.isEmpty {
        let count = try parser.parse(rest) { event in
          switch event {
          case .response(let given, let own): (status, headers, body) = (given, own, [])
          case .body(let piece): body += piece
          case .end: judge(status, headers, body)
          case .request: must(false, "an answer is no request")
          }
        }
        guard count > 0 else { break }
        rest = rest.dropFirst(count)
      }
    } catch {
      must(false, "an answer is HTTP: \(error): \(String(decoding: answer, as: UTF8.self))")
    }
  }

  private static func judge(_ status: Int, _ headers: HTTPHeaders, _ body: [UInt8]) {
    let known = [200, 400, 403, 404, 405, 409, 413, 429, 502, 503, 504]
    must(known.contains(status), "the status is a documented one: \(status)")
    switch headers["Content-Type"] {
    case "application/json":
      must(
        (try? JSONValue(parsing: body))?.fields != nil, "an answer is JSON: \(String(decoding: body, as: UTF8.self))")
    case "application/x-ndjson":
      let lines = body.split(separator: 10)
      must(lines.allSatisfy { (try? JSONValue(parsing: Array($0))) != nil }, "each row is JSON")
    default: break
    }
  }

  /// Whether a request looks for radios, reads this machine's state or copies the database: slow, or not ours to disturb.
  /// Answers to HEAD have no body, which a reader of the answers alone cannot know.
  private static func asksThisMachine(_ bytes: [UInt8]) -> Bool {
    let others: Set = [
      "/v1/radio/scan", "/v1/radio/pair", "/v1/radio/forget", "/v1/doctor", "/v1/doctor/bluetooth", "/v1/report",
      "/v1/backup",
    ]
    var (parser, rest, found) = (HTTPParser(.requests, maxBody: 1 << 24), bytes[...], false)
    while !rest.isEmpty {
      // `try?`: the server refuses what follows, too.
      let count = try? parser.parse(rest) { event in
        guard case .request(let method, let target, let headers) = event else { return }
        let path = HTTPRequest(method, target, headers: headers).path
        if method == "HEAD" || others.contains(path) { found = true }
      }
      guard let count, count > 0 else { break }
      rest = rest.dropFirst(count)
    }
    return found
  }

  // MARK: A hub

  /// What a hub sends to a gateway: messages of a link, or answers to its questions about updates, one a line.
  static func hub(_ bytes: [UInt8]) {
    let choice = bytes.first ?? 0
    let lines = bytes.dropFirst().split(separator: 10).map(Array.init)
    let talk = HubTalk(takenGateways: choice & 2 == 0 ? [] : ["hill"])
    if choice & 1 == 0 { talk.link(lines) } else { talk.updates(lines) }
  }
}

/// A gateway's control socket, as in the daemon. It exists once: what requests leave in its store is there for the next.
private final class ControlledGateway {
  nonisolated(unsafe) static let shared = ControlledGateway()

  private let loop = EventLoop(on: InventedMachine())
  private let store: Store
  private let api: ControlAPI
  private let location = Workplace.location("control.sock")

  private init() {
    signal(SIGPIPE, SIG_IGN)
    let log = Log(level: .error, sink: { _, _ in })
    do {
      store = try Store(Store.Settings(location: Workplace.location("control.db")), clocks: LinuxClocks())
      let link = Links.link(to: try LinkAddress(parsing: "tcp:127.0.0.1:1"), on: loop, log: log)
      let synchronizer = Synchronizer(
        RadioConnection(link, on: loop, log: log), store: store, settings: .init(), on: loop, log: log)
      let messenger = try Messenger(store: store, synchronizer: synchronizer, settings: .init(), on: loop, log: log)
      let nodes = NodeService(messenger, credentials: Credentials(location: Workplace.location("passwords")))
      let table = RadioTable(synchronizer, store: store)
      let keeper = ContactEviction(.init(), table, synchronizer, store: store, on: loop, log: log)
      let messaging = MessagingParts(
        messenger: messenger, nodes: nodes, table: table, routine: NodePolling(messenger, nodes, .init()),
        keeper: keeper, knock: Knock(keeper))
      let proxy = CompanionProxy(
        CompanionProxy.Gateway(
          loop: loop, log: log, store: store, synchronizer: synchronizer, messenger: messenger,
          requests: nodes.requests, sign: { _ in nil }))
      api = try ControlAPI(
        ControlAPI.Dependencies(
          version: "fuzz", configurationFile: "", loop: loop, log: log, store: store, synchronizer: synchronizer,
          messaging: messaging, bluetooth: BluetoothOptions(), proxy: proxy,
          relay: try Relay([], store: store, on: loop, log: log), taps: TapAPI(clock: loop.wallClock),
          operations: operations),
        location: location, group: nil)
    } catch {
      fatalError("the gateway does not begin: \(error)")
    }
    loop.afterTurn { [store, weak api] in
      store.commit()
      if store.transactions.takeNews().hasGrown { api?.somethingIsNew() }
    }
  }

  private let operations = Operations()

  /// All that comes back until nothing more happens.
  func answer(to bytes: [UInt8]) -> [UInt8] {
    let client = connect()
    guard client >= 0 else { return [] }
    must(send(client, bytes, bytes.count, 0) == bytes.count, "the socket takes a small request")
    let answer = turn(until: 12, client)
    // Limits of requests in a time are for floods, and each input is a client of its own.
    close(client)
    let timer = loop.schedule(after: .seconds(60)) {}
    let end = loop.now + .seconds(60)
    while loop.now < end { loop.turn(wait: true) }
    timer.cancel()
    return answer
  }

  private func turn(until idle: Int, _ client: Int32) -> [UInt8] {
    var (answer, left) = ([UInt8](), idle)
    var buffer = [UInt8](repeating: 0, count: 65536)
    for _ in 0..<2000 where left > 0 {
      loop.turn(wait: false)
      let count = recv(client, &buffer, buffer.count, Int32(MSG_DONTWAIT))
      left = count > 0 ? idle : left - 1
      answer += buffer.prefix(max(0, count))
    }
    return answer
  }

  private func connect() -> Int32 {
    let client = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(location.utf8) + [0]) }
    let result = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        Glibc.connect(client, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    must(result == 0, "the socket is there: \(errno)")
    return client
  }
}

/// The daemon's part of requests. Upstreams are added as the daemon does, in files of this process.
private final class Operations: GatewayOperations {
  private let folder = UpstreamFolder(store: Workplace.location("control.db"))

  func addUpstream(_ fields: JSONValue) throws(Refusal) -> [String] {
    let added = try folder.add(fields)
    let name = added.upstream.name
    let again = folder.read().upstreams.first { $0.name.isExactly(name) }
    must(again?.isExactly(added.upstream) == true, "an upstream that was added is read back: \(fields.text)")
    must(folder.remove(name), "an upstream that was added can be removed: \(name)")
    return added.warnings
  }

  func removeUpstream(_ name: String) throws(Refusal) {
    must(!folder.remove(name), "nothing is there to be removed: \(name)")
    throw .invalid("not here")
  }

  func documentsChanged() {}
  func memoryWasUsed() {}
  func deletionBegan() {}
  func setWebPassword(_ hash: String?) throws(Refusal) {}
  func configurationMistakes() -> [String] { [] }
  var overrides: [SettingOverride] { [] }
  var openFiles: [(words: String, remedy: String)] { [] }
  var settingsForNextStart: [String] { [] }
  var idleSettings: [String] { [] }
  var configurationRefusal: String? { nil }
  var webReport: WebReport? { nil }
  var powerReport: PowerReport { PowerReport(millivolts: nil, isBatteryLow: false, isSupplyLow: nil) }
  var alertRules: [(name: String, sentence: String)] { [] }
  var shownBacklog: Int64 { 0 }
}

/// A gateway's end of a talk with a hub.
private final class HubTalk: RelayHost {
  nonisolated(unsafe) private static let store: Store = {
    do {
      return try Store(
        Store.Settings(location: Workplace.location("hub-talk.db"), gatewayID: "g"), clocks: LinuxClocks())
    } catch {
      fatalError("the store does not begin: \(error)")
    }
  }()
  nonisolated(unsafe) private static var count = 0

  private let loop = EventLoop(on: InventedMachine())
  private let log = Log(level: .error, sink: { _, _ in })
  private let intake: CommandIntake
  /// Each talk has a name of its own, so that the store's positions are those of this talk.
  private let upstream: String
  private var store: Store { Self.store }

  let takenGateways: [String]
  let exchangedChannels = ["0011223344556677"]

  init(takenGateways: [String]) {
    self.takenGateways = takenGateways
    Self.count += 1
    upstream = "hub\(Self.count)"
    intake = CommandIntake(
      Upstream.Settings(name: upstream, allowed: ["send", "status"], commandsPerMinute: 10), store: Self.store,
      on: loop, log: log)
    intake.host = self
    loop.afterTurn { Self.store.commit() }
  }

  func carryOut(_ command: RemoteCommand) async -> CommandAnswer { .done(Array("{}".utf8)) }
  func documentsChanged() {}
  func take(_ update: ChannelUpdate) -> ChannelUpdateFate { .sent }

  private func pass(_ duration: Duration) {
    let (end, timer) = (loop.now + duration, loop.schedule(after: duration) {})
    while loop.now < end { loop.turn(wait: true) }
    timer.cancel()
  }

  // MARK: Questions about updates

  private final class Answers: UpdatesSource {
    weak var updates: BucketSync?
    var (lines, questions): (ArraySlice<[UInt8]>, Int)

    init(_ lines: [[UInt8]]) { (self.lines, questions) = (lines[...], 0) }

    func ask(_ question: UpdatesQuestion) async throws(BucketSync.Trouble) -> JSONValue? {
      questions += 1
      // `try?`: an answer that is not JSON counts as missing.
      return lines.popFirst().flatMap { try? JSONValue(parsing: $0) }
    }
  }

  func updates(_ lines: [[UInt8]]) {
    let source = Answers(lines)
    let sync = BucketSync(
      upstream: upstream, rights: ["send", "documents", "settings"], store: store, source: source, commands: intake,
      on: loop, log: log, acknowledged: { 0 })
    sync.host = self
    sync.reachable(true)
    pass(.seconds(3600))
    must(source.questions <= 60 + 2 * lines.count, "a hub is asked rarely: \(source.questions)")
    for bucket in sync.report.buckets {
      must((0...CatchUp.maxSeq).contains(bucket.seq) && bucket.behind >= 0, "a position is possible: \(bucket)")
      must((try? store.bucket(bucket.name, of: upstream).seq) == bucket.seq, "a position is on disk: \(bucket)")
    }
    sync.stop()
    pass(.seconds(1))
  }

  // MARK: The link

  func link(_ lines: [[UInt8]]) {
    let socket = WebSocket(WebSocket.Settings(host: "hub", port: 1, target: "/"), tls: nil, on: loop)
    let requests = HubRequests(on: loop)
    requests.commands = intake
    let link = HubLink(
      socket, window: 4, memory: LinkMemory(silences: KeepAlive(longest: .seconds(60))), requests: requests,
      place: "hub", on: loop, log: log)
    var verdicts: [Verdict] = []
    var isAnswered = false
    let tasks =
      Lane.allCases.map { lane in
        loop.begin {
          verdicts.append(await link.carry(Batch(empty: lane), within: .seconds(30)) { _ in [] })
        }
      } + [
        loop.begin {
          _ = await link.ask(.state(["commands"], gateways: []))
          isAnswered = true
        }
      ]
    loop.turn(wait: false)
    for line in lines {
      do throws(WebSocketFailure) {
        let message = try HubLink.message(line)
        greeting(message)
        _ = try link.take(message) { bucket, seq in
          must((1...CatchUp.maxSeq).contains(seq), "an announced number is possible: \(bucket) \(seq)")
        }
      } catch {
        break
      }
      loop.turn(wait: false)
    }
    _ = link.close("the end")
    pass(.seconds(120))
    must(verdicts.count == Lane.allCases.count && isAnswered, "each batch gets a verdict, each question an end")
    for case .acknowledged(let seq) in verdicts { must(seq >= 0, "an acknowledged number is possible: \(seq)") }
    requests.cancel()
    withExtendedLifetime(tasks) {}
  }

  private func greeting(_ message: JSONValue) {
    _ = HubOverHTTP.digests(message)
    switch HubOverHTTP.acknowledged(message) {
    case .whole(let seq?): must(seq >= 0, "a hub's position is possible: \(seq)")
    case .byLane(let seqs):
      for lane in Lane.allCases { must(seqs[lane] ?? 0 >= 0, "a hub's position is possible: \(seqs)") }
    case .whole(nil), nil: break
    }
  }
}

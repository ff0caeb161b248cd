// SPDX-License-Identifier: MIT

import Companion
import Documents
import EventLoop
import HTTP
import JSON
import MeshCrypto
import Messaging
import Proxy
import Relay
import Store
import Sync
import Timing
import Transport

/// What says things on the mesh.
public struct MessagingParts {
  public let messenger: Messenger
  public let nodes: NodeService
  public let table: RadioTable
  public let routine: NodePolling
  public let keeper: ContactEviction

  public init(
    messenger: Messenger, nodes: NodeService, table: RadioTable, routine: NodePolling, keeper: ContactEviction
  ) {
    self.keeper = keeper
    self.messenger = messenger
    self.nodes = nodes
    self.table = table
    self.routine = routine
  }

  /// Another radio is attached: nothing that waits is for it, and no node knows it.
  public func radioReplaced() {
    messenger.radioReplaced()
    nodes.radioReplaced()
    routine.radioReplaced()
  }
}

/// The control socket: HTTP/1.1 with JSON on a Unix socket. Documented in docs/control-socket.md.
public final class ControlAPI {
  /// What the API shows and steers.
  public struct Parts {
    public let version: String
    public let configurationFile: String
    public let loop: EventLoop
    public let startedAt: MonotonicTime
    public let store: Store
    public let connection: RadioConnection
    public let synchronizer: Synchronizer
    public let messaging: MessagingParts
    public let bluetooth: BluetoothOptions
    public let log: Log
    public let proxy: CompanionProxy
    public let taps: TapAPI
    public let counts: PacketCounts
    /// The relay is made anew when its configuration is reloaded.
    public let relay: () -> Relay
    /// Adds an upstream with these fields, or takes one of those away; the configuration is loaded anew.
    /// Returns what is not wise about it.
    public let addUpstream: (JSONValue) throws(Refusal) -> [String]
    public let removeUpstream: (String) throws(Refusal) -> Void
    /// Something was looked for that took memory.
    public let memoryWasUsed: () -> Void
    /// A document was edited by an operator.
    public let documentChanged: (Document) -> Void
    public let power: () -> PowerReport

    public init(
      version: String, configurationFile: String, loop: EventLoop, store: Store, connection: RadioConnection,
      synchronizer: Synchronizer,
      messaging: MessagingParts, bluetooth: BluetoothOptions, log: Log,
      proxy: CompanionProxy, taps: TapAPI, counts: PacketCounts, relay: @escaping () -> Relay,
      addUpstream: @escaping (JSONValue) throws(Refusal) -> [String],
      removeUpstream: @escaping (String) throws(Refusal) -> Void, memoryWasUsed: @escaping () -> Void,
      documentChanged: @escaping (Document) -> Void, power: @escaping () -> PowerReport
    ) {
      self.power = power
      self.version = version
      self.configurationFile = configurationFile
      self.loop = loop
      startedAt = loop.now
      self.store = store
      self.connection = connection
      self.synchronizer = synchronizer
      self.messaging = messaging
      self.bluetooth = bluetooth
      self.log = log
      self.proxy = proxy
      self.taps = taps
      self.counts = counts
      self.relay = relay
      self.addUpstream = addUpstream
      self.removeUpstream = removeUpstream
      self.memoryWasUsed = memoryWasUsed
      self.documentChanged = documentChanged
    }
  }

  /// Rows of a page that are read at once.
  private static let pageRows = 100

  private let parts: Parts
  private let radio: RadioAPI
  private lazy var messaging = MessagingAPI(parts) { [unowned self] in self.stream($0, follow: $1, $2) }
  private lazy var messages = MessagesAPI(parts) { [unowned self] in self.stream($0, follow: $1, $2) }
  private lazy var table = RadioTableAPI(parts)
  private lazy var node = NodeAPI(parts)
  private lazy var care = RadioConfigurationAPI(parts) { [unowned self] in self.stream($0, follow: $1, $2) }
  private lazy var backup = BackupAPI(parts)
  private lazy var doctor = DoctorAPI(parts)
  private lazy var documents = DocumentAPI(parts)
  private lazy var relay = RelayAPI(parts)
  private var server: HTTPServer?
  /// On loopback, for metrics alone.
  private var metricsServer: HTTPServer?
  private var streams: [ObjectIdentifier: RowStream] = [:]

  /// `metricsPort`: on 127.0.0.1, where `/metrics` is to be had as well; 0: nowhere.
  public init(_ parts: Parts, location: String, group: String?, metricsPort: UInt16 = 0) throws {
    self.parts = parts
    radio = RadioAPI(parts)
    server = try HTTPServer(location: location, group: group, on: parts.loop, log: parts.log) {
      [weak self] request, responder in self?.handle(request, responder)
    }
    if metricsPort > 0 {
      metricsServer = try HTTPServer(loopbackPort: metricsPort, on: parts.loop, log: parts.log) {
        [weak self] request, responder in
        guard request.path == "/metrics", Self.namesNobody(request.headers["Host"]) else {
          return Answering.refuse(responder, .notFound(request.path))
        }
        self?.handle(HTTPRequest("GET", "/metrics"), responder)
      }
    }
    parts.store.onCommit { [weak self] in self?.somethingIsNew() }
  }

  /// A web page may have its own name point to this machine, and have the browser read what is here: then the request says that
  /// name. Addresses and `localhost` are nobody's.
  static func namesNobody(_ host: String?) -> Bool {
    guard let host = host?.utf8 else { return true }
    if host.first == UInt8(ascii: "[") { return true }
    let name = host.prefix { $0 != UInt8(ascii: ":") }
    if String(name)?.lowercased() == "localhost" { return true }
    return name.allSatisfy { $0 == UInt8(ascii: ".") || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
  }

  /// Rows or states may have come: whoever follows is told.
  public func somethingIsNew() {
    for stream in streams.values { stream.writePages() }
  }

  /// What servers upstream are told of the gateway: little, and only what changes seldom.
  public func stateJSON() -> [UInt8] { JSONWriter.object { StatusReport(parts: parts).writeState(to: &$0) } }

  public func stop() {
    server?.stop()
    metricsServer?.stop()
    (server, metricsServer) = (nil, nil)
  }

  private func handle(_ request: HTTPRequest, _ responder: HTTPResponder) {
    do {
      switch (request.method, request.path) {
      case ("GET", "/v1/status"): try status(responder)
      case ("GET", "/metrics"): try metrics(responder)
      case ("GET", "/v1/sync"): sync(request, responder)
      case ("POST", "/v1/sync"): startSync(request, responder)
      case ("GET", "/v1/messages"): messages.handle(request, responder)
      case ("GET", "/v1/contacts"): contacts(request, responder)
      case ("GET", "/v1/channels"): try channels(responder)
      case ("GET", "/v1/readings"): try readings(request, responder)
      case ("GET", "/v1/radios"): try radios(responder)
      case ("GET", "/v1/journal"), ("GET", "/v1/events"): journal(request, responder)
      case _ where try relay.handle(request, responder): break
      case _ where radio.handle(request, responder) || messaging.handle(request, responder): break
      case _ where table.handle(request, responder) || node.handle(request, responder): break
      case _ where documents.handle(request, responder) || parts.taps.handle(request, responder): break
      case _ where doctor.handle(request, responder) || care.handle(request, responder): break
      case _ where backup.handle(request, responder): break
      case (_, let path): refuse(responder, Self.paths.contains(path) ? 405 : 404, "\(request.method) \(path)")
      }
    } catch {
      refuse(responder, 503, "\(error)")
    }
  }

  private static let ownPaths = [
    "/v1/status", "/v1/sync", "/v1/messages", "/v1/contacts", "/v1/channels", "/v1/journal", "/v1/events",
    "/v1/readings", "/v1/radios", "/metrics",
  ]
  private static let paths: [String] = [
    ownPaths, TapAPI.paths, DoctorAPI.paths, RadioConfigurationAPI.paths, BackupAPI.paths, RadioAPI.paths,
    MessagingAPI.paths,
    RadioTableAPI.paths, NodeAPI.paths, RelayAPI.paths, DocumentAPI.paths,
  ].flatMap(\.self)

  private func answer(
    _ responder: HTTPResponder, status: Int = 200, _ body: (inout JSONWriter) throws -> Void
  ) rethrows {
    try Answering.answer(responder, status: status, body)
  }

  private func refuse(_ responder: HTTPResponder, _ status: Int, _ reason: String) {
    answer(responder, status: status) { $0.field("error", status == 404 ? "not found: \(reason)" : reason) }
  }

  // MARK: State

  private func status(_ responder: HTTPResponder) throws {
    try answer(responder) { try StatusReport(parts: parts).write(to: &$0) }
  }

  private func metrics(_ responder: HTTPResponder) throws {
    let body = try MetricsReport(parts: parts).write()
    let headers: HTTPHeaders = ["Content-Type": "text/plain; version=0.0.4; charset=utf-8"]
    responder.respond(HTTPResponse(status: 200, headers: headers, body: body))
  }

  /// One object, or with `follow=1` one a line whenever it has changed.
  private func sync(_ request: HTTPRequest, _ responder: HTTPResponder) {
    let report = StatusReport(parts: parts)
    guard request.query["follow"] == "1" else {
      return answer(responder) { json in
        report.writeSync(to: &json)
        report.writeUpdates(to: &json)
      }
    }
    var last: SyncState?
    stream(responder, follow: true) {
      guard last != report.parts.synchronizer.state else { return ([], true) }
      last = report.parts.synchronizer.state
      return (Self.line { report.writeSync(to: &$0) }, true)
    }
  }

  private func startSync(_ request: HTTPRequest, _ responder: HTTPResponder) {
    parts.relay().refresh()
    guard parts.connection.state == .up else { return refuse(responder, 409, "the radio's link is down") }
    parts.synchronizer.restart(fully: request.query["full"] == "1")
    answer(responder, status: 202) { $0.field("ok", true) }
  }

  // MARK: Rows

  private func stream(
    _ responder: HTTPResponder, follow: Bool = false, _ produce: @escaping RowStream.Producer
  ) {
    var headers: HTTPHeaders = ["Content-Type": "application/x-ndjson"]
    if let others = RadiosAPI.others(parts.store) { headers.add(RadiosAPI.othersHeader, others) }
    let stream = RowStream(responder, follow: follow, headers: headers, produce)
    let id = ObjectIdentifier(stream)
    streams[id] = stream
    stream.onEnd = { [weak self] in self?.streams[id] = nil }
    stream.start()
  }

  static func line(_ body: (inout JSONWriter) -> Void) -> [UInt8] { JSONWriter.object(body) + [10] }

  /// 0 to 2⁵³; what lies outside counts as the bound. `nil`: it is not there, or no whole number.
  static func number(_ request: HTTPRequest, _ name: String) -> Int64? {
    request.query[name].flatMap { Int64($0) }.map { min(max($0, 0), JSONValue.wholeNumbers.upperBound) }
  }

  /// What nodes told of themselves, the newest `limit`.
  private func readings(_ request: HTTPRequest, _ responder: HTTPResponder) throws {
    do throws(Refusal) {
      let node = try request.query["node"].map { name throws(Refusal) in
        try Addressing(parts.store).contact(name).contact.key
      }
      let limit = Int(clamping: min(max(Self.number(request, "limit") ?? 100, 1), 1000))
      let radio = try RadiosAPI.wanted(request, parts.store)
      var lines: [UInt8] = []
      do throws(StoreError) {
        try parts.store.eachReading(of: node, byRadio: radio, limit: limit) { at, kind, body in
          lines += Self.line { json in
            json.field("at", at)
            json.field("kind", kind)
            json.field("body", json: body)
          }
        }
      } catch {
        throw .store(error)
      }
      stream(responder) {
        defer { lines = [] }
        return (lines, true)
      }
    } catch {
      Answering.refuse(responder, error)
    }
  }

  /// By key; with `heard=N` the N that were heard last, newest first.
  private func contacts(_ request: HTTPRequest, _ responder: HTTPResponder) {
    let onRadio = request.query["on_radio"] == "1"
    let store = parts.store
    let radio: Int64?
    do throws(Refusal) {
      radio = try RadiosAPI.wanted(request, store)
    } catch {
      return Answering.refuse(responder, error)
    }
    if let most = Self.number(request, "heard") {
      return stream(responder) {
        var lines: [UInt8] = []
        try store.eachContactHeard(limit: Int(clamping: min(max(most, 0), 200)), ofRadio: radio) {
          lines += Self.line(of: $0, store)
        }
        return (lines, true)
      }
    }
    var after: [UInt8] = []
    stream(responder) {
      var lines: [UInt8] = []
      var count = 0
      try store.eachContact(after: after, onRadioOnly: onRadio, ofRadio: radio) { stored in
        lines += Self.line(of: stored, store)
        after = stored.contact.key.bytes
        count += 1
        return count < Self.pageRows
      }
      return (lines, count < Self.pageRows)
    }
  }

  private static func line(of stored: StoredContact, _ store: Store) -> [UInt8] {
    line { json in
      EventBody.write(stored, to: &json)
      json.field("radio", store.mark(ofRadio: stored.radio))
      DocumentAPI.writeNotes(of: stored.contact.key, store, to: &json)
    }
  }

  private func radios(_ responder: HTTPResponder) throws {
    var lines = try RadiosAPI.rows(parts.store)
    stream(responder) {
      defer { lines = [] }
      return (lines, true)
    }
  }

  private func channels(_ responder: HTTPResponder) throws {
    var lines: [UInt8] = []
    var found: [Channel] = []
    try parts.store.eachChannel { found.append($0) }
    for channel in found {
      lines += EventBody.channel(channel, region: try parts.store.region(ofChannel: channel.secret.digest)) + [10]
    }
    stream(responder) {
      defer { lines = [] }
      return (lines, true)
    }
  }

  /// Events after a seq (or the newest `limit`); `follow=1` goes on with what comes.
  private func journal(_ request: HTTPRequest, _ responder: HTTPResponder) {
    let store = parts.store
    let follow = request.query["follow"] == "1"
    var left = Int(clamping: min(max(Self.number(request, "limit") ?? 100, 0), 1_000_000))
    var after = Self.number(request, "after") ?? max(0, store.lastSeq - Int64(left))
    stream(responder, follow: follow) {
      var lines: [UInt8] = []
      var count = 0
      let most = follow ? Self.pageRows : min(Self.pageRows, left)
      try store.readJournal(after: after, limit: most) { event, isSound in
        lines += Self.line { json in
          json.field("seq", event.seq)
          json.field("at", event.at)
          json.field("trusted", event.trusted)
          json.field("kind", event.kind)
          json.field("sound", isSound ? nil : false)
          json.field("body", json: isSound ? event.body : Array("{}".utf8))
        }
        after = event.seq
        count += 1
        return true
      }
      left -= count
      return (lines, count < most || (!follow && left <= 0))
    }
  }
}

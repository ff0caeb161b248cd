// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import JSON
import Sockets

@testable import HTTP

/// A hub, a webhook or a broker on the test's own loop, which does everything except accept events, until it is well.
final class StandingServer {
  enum Fault: Equatable {
    case well
    /// It accepts this many further events, and then only shows that it is alive.
    case takes(Int)
    /// A byte of its answer every five seconds: after the answer's head, or from the first on.
    case dripsBody, dripsHead
    /// It accepts the connection, and sends only signs of life.
    case silent
    /// Everything except questions, or subscriptions, is answered.
    case noAnswers
    /// It sends bytes without a meaning every five seconds.
    case drips
    /// A hub that acknowledges everything, closes the connection, and has lost everything the next time.
    case forgets
    /// A hub that reports other events than it has acknowledged.
    case lies
    /// It closes the connection after every two accepted events.
    case hangsUp
    /// A broker that acknowledges each twice.
    case saysTwice
    /// A hub that sends a thousand requests at once.
    case asks
    /// A hub that sends 32 MiB, from the first event on, as fast as the gateway reads: long messages, short ones, or pings.
    case talks([UInt8])
    /// It takes events if the status is 200, and then sends so many bytes of its answer's body each second, without end.
    case neverEnds(status: Int, bytes: Int)
    /// A hub that is busy, and gives a reason of this length.
    case explains(Int)
  }

  let port: UInt16
  var fault: Fault
  /// Texts of the events that it has acknowledged, in order.
  private(set) var taken: [String] = []
  /// `n` of the states that it has taken, in order.
  private(set) var states: [Int64] = []
  /// Its rights at the gateway, as the last state told them.
  private(set) var rights: [String]?
  /// It answers so many greetings with 503 first.
  var refusedGreetings = 0
  /// It answers so many states with 503 first.
  var refusedStates = 0
  private(set) var connections = 0
  /// Connections that have ended.
  private(set) var ended = 0
  private let loop: EventLoop
  private let descriptor: Int32
  private var tasks: [LoopTask] = []
  /// The position in the lane `messages`.
  var acknowledged: Int64?
  private(set) var greetings = 0
  /// The bytes that a talking hub has sent.
  private(set) var talked = 0
  /// The number of answers to its requests.
  private(set) var answers = 0
  /// The epochs of links.
  private(set) var epochs: Set<String> = []
  /// The epoch of the last greeting.
  private var epoch = ""
  /// A broker that has kept the session of an earlier connection.
  var hasSession = false
  /// The topics of subscriptions that were ended.
  private(set) var unsubscribed: [String] = []
  /// The flags of each CONNECT: 2 is a clean start, 4 a will.
  private(set) var hellos: [UInt8] = []
  /// The number of messages that were acknowledged to the broker.
  private(set) var acknowledgements = 0
  /// The answers to commands that a broker has got.
  private(set) var results: [String] = []
  /// The broker's last connection.
  private var last: (line: Line, isFive: Bool)?
  private var lastID: UInt8 = 0
  /// A hub that reports its position in the answer to a poll.
  var tellsLanes = true
  /// An epoch of another card that began later. The server answers a poll for it, unless the poll names another.
  var otherEpoch: String?
  /// A hub that deletes what its gateway has deleted, and says so.
  var deletes = false

  init(_ fault: Fault, on loop: EventLoop) throws {
    signal(SIGPIPE, SIG_IGN)
    (self.loop, self.fault) = (loop, fault)
    (descriptor, port) = try LoopbackSocket.listen(on: 0)
    loop.watch(descriptor, for: .readable) { [unowned self] _ in self.accept() }
  }

  func stop() {
    for task in tasks { task.cancel() }
    loop.unwatch(descriptor)
    close(descriptor)
  }

  private func accept() {
    let socket = Glibc.accept(descriptor, nil, nil)
    guard socket >= 0 else { return }
    Descriptor.setNonBlocking(socket)
    // A delay of 40 ms in the kernel is minutes of invented time.
    var isOn: Int32 = 1
    setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &isOn, socklen_t(MemoryLayout<Int32>.size))
    connections += 1
    let line = Line(SocketStream(socket, on: loop))
    tasks.append(
      loop.begin { [unowned self] in
        // The connection ends when either side has closed it.
        do { try await serve(line) } catch {}
        line.stream.close()
      })
  }

  private func serve(_ line: Line) async throws {
    defer { ended += 1 }
    if fault == .drips { return try await drip([UInt8](repeating: 0x16, count: 10_000), line) }
    if try await line.peek() == 0x10 { return try await broker(line) }
    while true {
      let request = try await line.request()
      if let key = request.headers["Sec-WebSocket-Key"] { return try await link(line, key) }
      try await answer(request, line)
    }
  }

  private func drip(_ bytes: [UInt8], _ line: Line) async throws {
    for byte in bytes {
      line.stream.write([byte])
      try await loop.sleep(for: .seconds(5))
    }
  }

  private func speak(_ status: Int, _ bytes: Int, _ line: Line) async throws {
    line.stream.write(Array("HTTP/1.1 \(status) x\r\nTransfer-Encoding: chunked\r\n\r\n".utf8))
    let chunk = Array("\(String(bytes, radix: 16))\r\n\(String(repeating: " ", count: bytes))\r\n".utf8)
    while true {
      line.stream.write(chunk)
      // It ends with the connection.
      try await line.stream.drained()
      try await loop.sleep(for: .seconds(1))
    }
  }

  /// Whether the server accepts the next event.
  private func takes(_ texts: [String], through seq: Int64? = nil) -> Bool {
    switch fault {
    case .well, .noAnswers, .forgets, .lies, .asks, .talks, .hangsUp, .saysTwice: break
    case .takes(let left) where left > 0: fault = .takes(left - 1)
    default: return false
    }
    taken += texts
    acknowledged = seq ?? acknowledged
    return true
  }

  private func note(_ state: JSONValue) {
    if let number = state["n"]?.integer { states.append(number) }
    rights = state["allow"]?.array?.compactMap(\.string)
  }

  private var isSatisfied: Bool { fault == .hangsUp && taken.count.isMultiple(of: 2) }

  // MARK: HTTP

  private var greeting: String {
    #"{"acknowledged":\#(acknowledged.map { "\($0)" } ?? "null"),"# + (deletes ? #""deletes":true,"# : "")
      + (otherEpoch.map { #""others":{"\#($0)":9},"# } ?? "") + #""lanes":{"#
      + (acknowledged.map { #""messages":\#($0)"# } ?? "") + "}}"
  }

  private func toldOf(_ target: String) -> String {
    guard target.contains("/updates?") else {
      greetings += 1
      epoch = target.split(separator: "epoch=").last.map { String($0.prefix { $0 != "&" }) } ?? ""
      return greeting
    }
    guard tellsLanes, target.hasSuffix("&lanes=1") else { return #"{"buckets":[]}"# }
    if let otherEpoch, !target.contains("&epoch=\(epoch)&") {
      return #"{"epoch":"\#(otherEpoch)","buckets":[],"lanes":{"messages":9}}"#
    }
    return #"{"epoch":"\#(epoch)","buckets":[],"# + greeting.dropFirst()
  }

  private func answer(_ request: HTTPRequest, _ line: Line) async throws {
    let isPost = request.method == "POST"
    if refusedGreetings > 0, request.method == "GET", !request.target.contains("/updates?") {
      refusedGreetings -= 1
      return line.stream.write(Array("HTTP/1.1 503 x\r\nContent-Length: 2\r\n\r\n{}".utf8))
    }
    if request.method == "PUT" {
      let isRefused = refusedStates > 0
      if isRefused { refusedStates -= 1 } else { note(try JSONValue(parsing: request.body)) }
      return line.stream.write(Array("HTTP/1.1 \(isRefused ? 503 : 200) x\r\nContent-Length: 2\r\n\r\n{}".utf8))
    }
    // It does not know its own key, and reads no compression.
    if isPost, request.target.hasSuffix("/e") || request.headers["Content-Encoding"] != nil {
      let status = request.target.hasSuffix("/e") ? 404 : 415
      return line.stream.write(Array("HTTP/1.1 \(status) x\r\nContent-Length: 0\r\n\r\n".utf8))
    }
    let json = isPost ? try JSONValue(parsing: request.body) : .null
    let events = json["events"]?.array ?? [json]
    if case .neverEnds(let status, let bytes) = fault {
      if isPost, status == 200 { taken += events.map { $0["body"]?["text"]?.string ?? "" } }
      return try await speak(status, bytes, line)
    }
    var body = isPost ? "" : toldOf(request.target)
    var isTaken = true
    if isPost {
      let seq = events.last?["seq"]?.integer ?? 0
      isTaken = takes(events.map { $0["body"]?["text"]?.string ?? "" }, through: seq)
      body = #"{"acknowledged":\#(seq)}"#
    }
    let bytes = Array(body.utf8)
    let head = Array("HTTP/1.1 200 OK\r\nContent-Length: \(bytes.count)\r\n\r\n".utf8)
    if isTaken { return line.stream.write(head + bytes) }
    switch fault {
    case .dripsHead: try await drip(head + bytes, line)
    case .dripsBody:
      line.stream.write(Array("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".utf8))
      try await drip([UInt8](repeating: 0x20, count: 1000), line)
    default: try await line.silence()
    }
  }

  // MARK: The live link

  private var isExplaining: Bool { if case .explains = fault { true } else { false } }

  private func link(_ line: Line, _ key: String) async throws {
    line.stream.write(
      Array(
        ("HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: meshpost.v1\r\n"
          + "Sec-WebSocket-Accept: \(WebSocketKey.answer(to: key))\r\n\r\n").utf8))
    func say(_ text: String) {
      let bytes = Array(text.utf8)
      let size: [UInt8] =
        bytes.count < 126 ? [UInt8(bytes.count)] : [126, UInt8(bytes.count >> 8), UInt8(bytes.count & 255)]
      line.stream.write([0x81] + size + bytes)
    }
    let pings = loop.begin { [loop] in
      // It ends with the connection.
      while (try? await loop.sleep(for: .milliseconds(500))) != nil {
        line.stream.write([0x89, 100] + [UInt8](repeating: 7, count: 100))
      }
    }
    var talk: LoopTask?
    defer {
      pings.cancel()
      talk?.cancel()
    }
    while true {
      let (opcode, data) = try await line.frame()
      if opcode == 9 { line.stream.write([0x8A, UInt8(data.count)] + data) }
      guard opcode == 1, fault != .silent else { continue }
      let said = try JSONValue(parsing: data)
      switch said["type"]?.string {
      case "hello":
        if fault == .forgets { acknowledged = nil }
        epochs.insert(said["epoch"]?.string ?? "")
        let digests = fault == .lies && acknowledged != nil ? #","digests":{"messages":"0123456789abcdef"}"# : ""
        say(
          #"{"type":"welcome","protocol":2,"window":1,\#(deletes ? #""deletes":true,"# : "")"lanes":{\#(acknowledged.map { #""messages":\#($0)"# } ?? "")}\#(digests)}"#
        )
        for number in 0..<1000 where fault == .asks {
          let method = ["command", "nosuch"][number % 2]
          say(#"{"type":"request","id":"\#(number)","method":"\#(method)","params":{"id":"c","command":"send"}}"#)
        }
      case "response": answers += 1
      case "state": said["body"].map(note)
      case "events" where isExplaining:
        guard case .explains(let bytes) = fault else { break }
        let words = String(repeating: "y", count: bytes)
        say(#"{"type":"busy","n":\#(said["n"]?.integer ?? 0),"error":"\#(words)","retry_after_s":1}"#)
      case "events":
        let events = said["events"]?.array ?? []
        if takes(events.map { $0["body"]?["text"]?.string ?? "" }, through: events.last?["seq"]?.integer) {
          say("\(said["n"]?.integer ?? 0)")
          if case .talks(let frame) = fault {
            talk = loop.begin { [unowned self] in
              while talked < 32 << 20 {
                line.stream.write(frame)
                talked += frame.count
                // It ends with the connection.
                do { try await line.stream.drained() } catch { return }
              }
            }
          }
          if fault == .forgets || fault == .lies, taken.last == "12" { return }
          if isSatisfied { return }
        }
      case "request" where fault != .noAnswers:
        say(#"{"type":"response","id":"\#(said["id"]?.string ?? "")","ok":true,"result":{"buckets":[]}}"#)
      default: break
      }
    }
  }

  // MARK: MQTT

  private func broker(_ line: Line) async throws {
    var isFive = false
    while true {
      let (kind, body) = try await line.packet()
      switch kind >> 4 {
      case 1:
        isFive = body[6] == 5
        hellos.append(body[7])
        if body[7] & 2 != 0 { hasSession = false }
        last = (line: line, isFive: isFive)
        let flags: UInt8 = hasSession ? 1 : 0
        let answer: [UInt8] = isFive ? [0x20, 3, flags, 0, 0] : [0x20, 2, flags, 0]
        switch fault {
        case .silent: break
        case .dripsHead: try await drip(answer, line)
        default: line.stream.write(answer)
        }
      case 3:
        let size = Int(body[0]) << 8 | Int(body[1])
        let topic = String(decoding: body[2..<2 + size], as: UTF8.self)
        let payload = body[(size + 4 + (isFive ? 1 : 0))...]
        if topic.hasSuffix("/result") { results.append(String(decoding: payload, as: UTF8.self)) }
        let text = topic.hasPrefix("event") ? try JSONValue(parsing: Array(payload))["body"]?["text"]?.string : nil
        guard text.map({ takes([$0]) }) ?? true else { break }
        for _ in 0..<(fault == .saysTwice ? 2 : 1) { line.stream.write([0x40, 2, body[size + 2], body[size + 3]]) }
        if text != nil, isSatisfied { return }
      case 4: acknowledgements += 1
      case 8 where fault != .noAnswers:
        line.stream.write(isFive ? [0x90, 4, body[0], body[1], 0, 1] : [0x90, 3, body[0], body[1], 1])
      case 10:
        unsubscribed.append(String(decoding: body.dropFirst(isFive ? 5 : 4), as: UTF8.self))
        line.stream.write(isFive ? [0xB0, 4, body[0], body[1], 0, 0] : [0xB0, 2, body[0], body[1]])
      case 12: line.stream.write([0xD0, 0])
      default: break
      }
    }
  }

  /// Sends a short message, as if the session had a subscription to its topic.
  func say(_ payload: String = "", on topic: String, quality: UInt8 = 1) {
    guard let (line, isFive) = last else { return }
    lastID = lastID % 100 + 1
    let name = Array(topic.utf8)
    var body: [UInt8] = [0, UInt8(name.count)]
    body += name
    body += [0, lastID]
    if isFive { body.append(0) }
    body += Array(payload.utf8)
    line.stream.write([0x30 | quality << 1, UInt8(body.count)] + body)
  }

  /// Reads whole pieces from a connection.
  private final class Line {
    struct Nonsense: Error {}

    let stream: SocketStream
    private var bytes: [UInt8] = []

    init(_ stream: SocketStream) { self.stream = stream }

    func silence() async throws { while true { _ = try await stream.read() } }

    func peek() async throws -> UInt8 {
      if bytes.isEmpty { bytes = try await stream.read() }
      return bytes[0]
    }

    private func take(_ count: Int) async throws -> [UInt8] {
      while bytes.count < count { bytes += try await stream.read() }
      defer { bytes.removeFirst(count) }
      return Array(bytes.prefix(count))
    }

    func request() async throws -> HTTPRequest {
      var (parser, request, isOver) = (HTTPParser(.requests, maxBody: 1 << 20), HTTPRequest("GET", "/"), false)
      while !isOver {
        let taken = try parser.parse(bytes[...]) { event in
          switch event {
          case .request(let method, let target, let headers):
            request = HTTPRequest(method, target, headers: headers)
          case .body(let piece): request.body += piece
          case .end: isOver = true
          case .response: break
          }
        }
        bytes.removeFirst(taken)
        if !isOver { bytes += try await stream.read() }
      }
      return request
    }

    /// A client's frame: masked, with less than 64 KiB.
    func frame() async throws -> (opcode: UInt8, data: [UInt8]) {
      let head = try await take(2)
      var count = Int(head[1] & 127)
      if count == 126 { count = try await take(2).reduce(0) { $0 << 8 | Int($1) } }
      let mask = try await take(4)
      return (head[0] & 15, try await take(count).enumerated().map { $1 ^ mask[$0 % 4] })
    }

    func packet() async throws -> (kind: UInt8, body: [UInt8]) {
      let kind = try await take(1)[0]
      var (count, shift) = (0, 0)
      while true {
        let byte = try await take(1)[0]
        count |= Int(byte & 127) << shift
        shift += 7
        guard byte >= 128 else { break }
      }
      return (kind, try await take(count))
    }
  }
}

// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import Delivery
import JSON
import MeshCrypto
import Store
import UntrustedText

/// A question to another node.
public enum NodeQuestion: Equatable, Sendable {
  case login(password: Text)
  case status
  case telemetry
  /// From this index on.
  case neighbours(first: UInt16)
  case path
  /// Who is on a server's access list; only for its admins.
  case access
  /// The whole round trip, and bytes per hop as 1 << n.
  case trace(path: [UInt8], flags: UInt8)
  case cli(Text)
  /// A repeater's clock, without a login. It answers only along a known path.
  case clock
  /// A repeater's name and what its owner has written about it, without a login, and likewise along a known path.
  case owner
  /// Sets the clock to the time of sending (`ClockSetting`).
  case setClock
  /// A sign of life to a room. A client does not see its answer.
  case keepAlive
  /// A sign of life after which a room sends its posts from this time on, by its clock, which is not zero.
  case postsSince(UInt32)
  /// A login without a password, which a server answers to those whom it knows. It changes nothing there, not even the time of their last packet,
  /// unless it is a room that lets anybody read: there it is the login of a reader.
  case whetherKnown
  /// The regions that a repeater carries, without a login. `replyPath`: from the repeater to this radio.
  case regions(replyPath: Path)

  /// Whether servers answer it only to nodes that they know.
  public var needsLogin: Bool {
    switch self {
    case .status, .telemetry, .neighbours, .access, .cli, .setClock, .keepAlive, .postsSince: true
    case .login, .path, .trace, .regions, .clock, .owner, .whetherKnown: false
    }
  }

  /// Whether the radio sends it with the time of its own clock, and servers ignore one that is not newer than the last.
  var hasTimeOfRadio: Bool {
    switch self {
    case .login, .status, .telemetry, .neighbours, .access: true
    case .cli, .setClock, .keepAlive, .postsSince, .path, .trace, .regions, .clock, .owner, .whetherKnown: false
    }
  }

  /// Commands on a node's CLI may do anything: the gateway does not repeat them.
  var mayRepeat: Bool { !isCommandLine }

  /// Whether the answer is a text of the node's CLI.
  var isCommandLine: Bool {
    switch self {
    case .cli, .setClock: true
    case .login, .status, .telemetry, .neighbours, .path, .trace, .access, .regions, .clock, .owner, .keepAlive,
      .postsSince, .whetherKnown:
      false
    }
  }

  /// Whether the node is started anew by it.
  var restarts: Bool {
    guard case .cli(let text) = self else { return false }
    return ["reboot", "clkreboot"].contains { text.bytes.starts(with: Array($0.utf8)) }
  }

  /// The requested bytes of each neighbour's key, with which 11 entries fit into an answer.
  static let neighbourKeyBytes = 6
  static let neighboursOfAnswer: UInt8 = 11

  /// `nil`: it cannot be asked. `now`: this machine's time. `mark`: of a command to the node's CLI.
  func command(to contact: Contact, time: UInt32, now: Moment, _ mark: CommandMark) -> Command? {
    let key = contact.key
    let salt = UInt32.random(in: .min ... .max)
    switch self {
    case .login(let password): return .sendLogin(key, password: password)
    case .whetherKnown: return .sendLogin(key, password: "")
    case .status: return .sendStatusRequest(key)
    case .telemetry: return .sendTelemetryRequest(key)
    case .neighbours(let first):
      let (most, bytes) = (Self.neighboursOfAnswer, UInt8(Self.neighbourKeyBytes))
      return .sendBinaryRequest(key, .neighbours(count: most, first: first, keyBytes: bytes, salt: salt))
    case .path: return .sendPathDiscovery(key)
    case .access: return .sendBinaryRequest(key, BinaryRequest(type: 5, parameters: [0, 0]))
    case .trace(let path, let flags):
      return .sendTracePath(TraceRequest(tag: salt, auth: 0, flags: flags, path: path))
    case .cli(let text):
      return .sendText(
        OutgoingText(type: .cliData, attempt: 0, time: time, recipient: key.prefix, text: mark.marked(text)))
    case .clock: return contact.outPath.map { .sendAnonymousRequest(key, type: 3, parameters: $0.reversed.parameters) }
    case .owner: return contact.outPath.map { .sendAnonymousRequest(key, type: 2, parameters: $0.reversed.parameters) }
    case .setClock:
      let text = ClockSetting.command(at: now.milliseconds, isSynchronised: now.trusted)
      return text.flatMap { Self.cli(Text($0)).command(to: contact, time: time, now: now, mark) }
    case .keepAlive: return .sendBinaryRequest(key, BinaryRequest(type: 2, parameters: Self.sign(since: 0)))
    case .postsSince(let time):
      return .sendBinaryRequest(key, BinaryRequest(type: 2, parameters: Self.sign(since: time)))
    case .regions(let path):
      return .sendAnonymousRequest(key, type: Self.regionsRequest, parameters: path.parameters)
    }
  }

  /// Of a sign of life: the time from which on the room sends its posts; zero: as before. `nil`: it is another question.
  var sinceOfSign: UInt32? {
    switch self {
    case .keepAlive: 0
    case .postsSince(let time): time
    default: nil
    }
  }

  /// What a sign of life carries: the time, little-endian.
  static func sign(since time: UInt32) -> [UInt8] { (0..<4).map { UInt8(truncatingIfNeeded: time >> ($0 * 8)) } }

  /// What its air time is used for.
  func purpose(_ priority: DeliveryPriority) -> AirtimePurpose {
    switch self {
    case .login, .keepAlive, .postsSince, .whetherKnown: .login
    default: priority == .interactive ? .request : .poll
    }
  }
  /// docs/protocol/telemetry.md § 6.
  private static let regionsRequest: UInt8 = 1

  /// Whether the radio floods the question. It looks for a path even if it has one, and a trace has its own.
  func isFlooded(hasPath: Bool) -> Bool {
    switch self {
    case .path: true
    case .trace: false
    default: !hasPath
    }
  }

  /// The approximate bytes on the air, without a region.
  func length(path: Int) -> Int {
    switch self {
    case .login(let password): PacketLength.request(password.bytes.count, path: path, isLogin: true)
    case .whetherKnown: PacketLength.request(0, path: path, isLogin: true)
    case .cli(let text): PacketLength.text(CommandMark.length + text.bytes.count, path: path)
    case .trace(let hops, _): 2 + 9 + hops.count
    case .setClock: PacketLength.text(CommandMark.length + 15, path: path)
    case .clock, .owner: PacketLength.request(2 + path, path: path, isLogin: true)
    case .neighbours: PacketLength.request(11, path: path)
    case .regions(let back): PacketLength.request(2 + back.bytes.count, path: path, isLogin: true)
    case .status, .telemetry, .path, .access, .keepAlive, .postsSince: PacketLength.request(9, path: path)
    }
  }
}

/// A node's answer.
public enum NodeAnswer: Equatable, Sendable {
  case login(LoginSuccess)
  case status(NodeStatus)
  case telemetry(Telemetry)
  case neighbours(Neighbours)
  case path(DiscoveredPath)
  case access([AccessEntry])
  case trace(TraceData)
  case cli(Text)
  /// Names without `#`; `*`: floods without a region.
  case regions([String])
  /// Seconds since 1970, by the node's clock.
  case clock(UInt32)
  /// The node's name and its owner's text, which may have several lines.
  case owner(name: Text, text: Text)
  /// The radio sent the question, which has no visible answer.
  case sent

  /// Whether a server answers this only to nodes that it knows.
  var isForKnown: Bool {
    switch self {
    case .login, .status, .telemetry, .access, .cli: true
    case .neighbours, .path, .trace, .regions, .clock, .owner, .sent: false
    }
  }
}

extension NodeQuestion {
  /// The push as this question's answer; `nil`: it belongs to something else.
  func answer(in push: Push, from contact: Contact, tag: AckCode) -> NodeAnswer? {
    let prefix = contact.key.prefix
    switch (self, push) {
    case (.login, .loginSuccess(let said)) where said.prefix == prefix,
      (.whetherKnown, .loginSuccess(let said)) where said.prefix == prefix:
      var login = said
      // A room ignores what guests post, whatever else their permissions say.
      if contact.type == .room, login.permissions == 0, let acl = login.acl, acl & 3 == 0 { login.permissions = 2 }
      return .login(login)
    case (.status, .statusResponse(prefix, let data)):
      // `try?`: a push too short for a status is a late answer to something else (docs/protocol/observed.md).
      return (try? NodeStatus(decoding: data, of: contact.type)).map { .status($0) }
    case (.telemetry, .telemetryResponse(prefix, let data)): return .telemetry(Telemetry(decoding: data))
    case (.neighbours, .binaryResponse(tag, let data)):
      // `try?`: a push without a list of neighbours is no answer.
      return (try? Neighbours(decoding: data, keyBytes: Self.neighbourKeyBytes)).map { .neighbours($0) }
    case (.access, .binaryResponse(tag, let data)): return .access(AccessEntry.list(decoding: data))
    case (.regions, .binaryResponse(tag, let data)) where data.count >= Self.bytesOfTime:
      return .regions(Self.names(in: data.dropFirst(Self.bytesOfTime)))
    case (.clock, .binaryResponse(tag, let data)):
      // `try?`: a push without a time is no answer.
      var reader = FrameReader(data)
      return (try? reader.u32("time")).map { .clock($0) }
    case (.owner, .binaryResponse(tag, let data)):
      // The answer is padded with zeros.
      let lines = data.dropFirst(4).prefix { $0 != 0 }.split(
        separator: 10, maxSplits: 1, omittingEmptySubsequences: false)
      guard data.count > 4, let name = lines.first else { return nil }
      return .owner(name: Text(bytes: Array(name)), text: Text(bytes: lines.count > 1 ? Array(lines[1]) : []))
    case (.path, .pathDiscoveryResponse(let found)) where found.prefix == prefix: return .path(found)
    case (.trace, .traceData(let trace)) where AckCode(value: trace.tag.byteSwapped) == tag: return .trace(trace)
    default: return nil
    }
  }
}

extension NodeQuestion {
  /// A list of regions follows the repeater's time.
  private static let bytesOfTime = 4

  /// Names that can be regions. The answer is padded with zeros, and an answer is a packet, so there are few.
  private static func names(in data: ArraySlice<UInt8>) -> [String] {
    let text = String(decoding: data.prefix { $0 != 0 }, as: UTF8.self)
    return text.pieces(at: ",").filter { Region($0.begins(with: "$") ? String($0.dropFirst()) : $0) != nil }
  }
}

extension NodeAnswer {
  /// The node's time, as far as the answer has it.
  var time: UInt32? {
    switch self {
    case .clock(let time): time
    case .login(let login): login.serverTime
    default: nil
    }
  }

  /// The shapes are in docs/control-socket.md.
  public func write(to json: inout JSONWriter) {
    switch self {
    case .login(let login):
      json.field(Shape.Login().admin, login.isAdmin)
      json.field(Shape.Login().permissions, login.acl)
      if login.isReadOnly { json.field(Shape.Login().readOnly, true) }
      json.field(Shape.Login().serverTime, login.serverTime)
      json.field(Shape.Login().firmwareLevel, login.firmwareLevel)
    case .status(let status): Self.write(status, to: &json)
    case .telemetry(let telemetry): Self.write(telemetry, to: &json)
    case .neighbours(let neighbours):
      json.field(Shape.Neighbours().total, neighbours.total)
      json.objects(Shape.Neighbours().neighbours, neighbours.entries) { entry, json in
        json.field(Shape.Neighbour().key, Hex.string(entry.key))
        json.field(Shape.Neighbour().heardS, entry.heardAgo)
        json.field(Shape.Neighbour().snr, entry.snr.decibels)
      }
    case .access(let entries):
      json.objects(Shape.Access().entries, entries) { Self.write($0, name: nil, to: &$1) }
    case .path(let found):
      json.field(Shape.Path().out, found.out.description)
      json.field(Shape.Path().outHops, found.out.hops)
      json.field(Shape.Path().`in`, found.in.description)
      json.field(Shape.Path().inHops, found.in.hops)
    case .trace(let trace):
      let size = trace.hashSize
      json.array(Shape.Trace().hops) { json in
        for (index, snr) in trace.hopSNRs.enumerated() {
          json.object { json in
            json.field(Shape.Hop().node, Hex.string(trace.hashes.dropFirst(index * size).prefix(size)))
            json.field(Shape.Hop().snr, snr.decibels)
          }
        }
      }
      json.field(Shape.Trace().snrHere, trace.finalSNR.decibels)
    case .cli(let text): json.field(Shape.Reply().reply, text.string)
    case .regions(let names): json.field(Shape.Carried().carries, names)
    case .clock(let time): json.field("time", time)
    case .owner(let name, let text):
      json.field("owner_name", name.string)
      json.field("owner", text.string)
    case .sent: json.field("sent", true)
    }
  }

  /// An entry of an access list.
  public static func write(_ entry: AccessEntry, name: String?, to json: inout JSONWriter) {
    let row = Shape.AccessEntry()
    json.field(row.key, entry.prefix.hex)
    json.field(row.name, name)
    json.field(row.role, ["guest", "read-only", "read-write", "admin"][Int(entry.permissions & 3)])
    json.field(row.permissions, entry.permissions)
  }

  private static func write(_ status: NodeStatus, to json: inout JSONWriter) {
    let row = Shape.NodeStatus()
    json.field(row.batteryMv, status.batteryMillivolts)
    json.field(row.queue, status.queueLength)
    json.field(row.noiseFloorDbm, status.noiseFloor)
    json.field(row.lastRssiDbm, status.lastRSSI)
    json.field(row.lastSnr, Double(status.lastSNRQuarters) / 4)
    json.field(row.received, status.received)
    json.field(row.sent, status.sent)
    json.field(row.airtimeS, status.secondsSent)
    json.field(row.uptimeS, status.uptime)
    json.field(row.sentFlood, status.sentFlood)
    json.field(row.sentDirect, status.sentDirect)
    json.field(row.receivedFlood, status.receivedFlood)
    json.field(row.receivedDirect, status.receivedDirect)
    json.field(row.errorFlags, status.errorFlags)
    json.field(row.duplicatesDirect, status.directDuplicates)
    json.field(row.duplicatesFlood, status.floodDuplicates)
    switch status.tail {
    case .repeater(let seconds, let errors):
      json.field(row.receivingS, seconds)
      json.field(row.receiveErrors, errors)
    case .room(let stored, let pushed):
      json.field(row.postsStored, stored)
      json.field(row.postsPushed, pushed)
    case .none: break
    }
  }

  private static func write(_ telemetry: Telemetry, to json: inout JSONWriter) {
    json.objects(Shape.Telemetry().readings, telemetry.readings) { reading, json in
      let row = Shape.Sensor()
      json.field(row.channel, reading.channel)
      json.field(row.type, reading.type.name)
      if reading.values.count == 1 {
        json.field(row.value, reading.values.first)
      } else {
        json.array(row.values) { json in for value in reading.values { json.value(value) } }
      }
    }
    // Padding is left out.
    if telemetry.rest.contains(where: { $0 != 0 }) {
      json.field(Shape.Telemetry().unreadHex, Hex.string(telemetry.rest))
    }
  }
}

extension Path {
  /// As the parameters of an anonymous request: its length and its hops.
  fileprivate var parameters: [UInt8] { [length.raw] + bytes }
}

// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import TestSupport
import Testing
import VirtualRadio

/// Compares the virtual radio's answers with the firmware's: each command of the recorded traces is sent to a virtual radio, and the kinds of its
/// answers (and the error codes) must equal the recorded ones.
///
/// Left out are commands that need another radio's traffic: requests for messages, and commands to nodes that this radio does not have.
@Suite struct ConformanceTests {
  /// Answers that are not compared, as `trace:number of the command` (or `trace`: all of it), with the reason.
  private static let known: [String: String] = [
    "hazard_short_frames:5": "short frames use what an earlier one left in the buffer: not imitated",
    "hazard_short_frames:13": "the same",
    "hazard_zero_key:3": "REMOVE_CONTACT of zeros is OK and hides a contact: not imitated",
    "advert_discovery_auto_add:2": "the path of an advert that was heard",
    "contact_cards_and_signing:5": "the card of a node that was heard",
    "contact_cards_and_signing:6": "the same, shared",
    "contact_cards_and_signing:17": "the path of an advert that was heard",
    "contacts_incremental:0": "modification times of contacts that the trace does not show",
    "contacts_incremental:2": "a contact that the trace does not show",
    "contacts_incremental:3": "the same",
    "contacts_table_full:6": "the same",
    "power_loss:0": "its contact came by an advert after this",
    "client_meshcore_cli_repeater:4": "a list that was still running when the next command came",
    "client_meshcore_cli_repeater:5": "the rest of it",
    "contacts_interleaved": "commands during a list: which comes first is a matter of time",
  ]

  @Test(arguments: Fixtures.traceNames.filter { $0.hasPrefix("v1.17.1") && !$0.contains("handshake_v") })
  func `a virtual radio answers each command as the firmware did`(_ name: String) throws {
    let lines = Fixtures.trace(name)
    let scene = String(name.split(separator: "/").last ?? "")
    guard !lines.contains(where: \.isRaw), Self.known[scene] == nil else { return }
    let table = name.contains("contacts_table_full") ? 6 : 350
    let pair = Subject(maxContacts: table, transmits: !name.contains("pool_exhausted"))
    pair.learn(lines)
    for (number, exchange) in exchanges(lines).enumerated() {
      let answers = pair.answers(to: exchange.command)
      guard pair.canAnswer(exchange.command) else { continue }
      let place = "\(scene):\(number)"
      if Self.known[place] != nil { continue }
      let (wanted, got) = (kinds(exchange.answers), kinds(answers))
      #expect(wanted == got, "\(place): \(Hex.string(exchange.command))")
    }
  }

  private func exchanges(_ lines: [TraceLine]) -> [(command: [UInt8], answers: [[UInt8]])] {
    var found: [(command: [UInt8], answers: [[UInt8]])] = []
    for line in lines {
      if line.toRadio {
        found.append((line.bytes, []))
      } else if !found.isEmpty, let code = line.bytes.first, code < 0x80 {
        found[found.count - 1].answers.append(line.bytes)
      }
    }
    return found
  }

  /// The reply codes, with the code of an error; consecutive contacts count as one.
  private func kinds(_ frames: [[UInt8]]) -> [String] {
    frames.reduce(into: []) { kinds, frame in
      let kind = frame.prefix(frame.first == 1 ? 2 : 1).map { "\($0)" }.joined(separator: ".")
      if kind != "3" || kinds.last != "3" { kinds.append(kind) }
    }
  }
}

private final class Subject {
  private let loop = EventLoop()
  private let radio: VirtualRadio
  /// An air on which no packet ends.
  private let stillAir: Ether
  private var frames: [[UInt8]] = []

  init(maxContacts: Int, transmits: Bool) {
    stillAir = Ether(on: loop, airtimeFactor: 1000)
    var settings = VirtualRadioSettings(name: "Alder", seed: 1, maxContacts: maxContacts, clock: 1_715_770_351)
    settings.packetPool = 16
    radio = VirtualRadio(settings, on: loop)
    radio.output = { [weak self] in self?.frames.append($0) }
    if !transmits { stillAir.add(radio) }
  }

  /// Adds the contacts that the radio of the trace had before it began: those in its answers that no command had added, and those that it could send
  /// to.
  func learn(_ lines: [TraceLine]) {
    var added: Set<[UInt8]> = []
    for (number, line) in lines.enumerated() {
      let key = Array(line.bytes.dropFirst().prefix(32))
      if line.toRadio, line.bytes.first == 9 { added.insert(key) }
      if !line.toRadio, line.bytes.first == 3, !added.contains(key), key != [UInt8](repeating: 0, count: 32) {
        _ = answers(to: [9] + line.bytes.dropFirst())
      }
      if line.toRadio, let recipient = recipient(of: line.bytes), !added.contains(recipient),
        lines[(number + 1)...].first(where: { !$0.toRadio && ($0.bytes.first ?? 0) < 0x80 })?.bytes.first != 1
      {
        _ = answers(to: [9] + recipient + [1, 0, 0xFF] + [UInt8](repeating: 0, count: 64 + 32 + 4))
      }
    }
  }

  /// The whole key of the node that a command is for, if the traces contain it.
  private func recipient(of command: [UInt8]) -> [UInt8]? {
    let offset: Int
    switch command.first {
    case 0x02: offset = 7
    case 0x10, 0x11, 0x1A, 0x1B, 0x32: offset = 1
    case 0x2A, 0x34: offset = 2
    case 0x27: offset = 4
    default: return nil
    }
    let prefix = Array(command.dropFirst(offset).prefix(6))
    return Self.keys.first { $0.starts(with: prefix) }
  }

  private static let keys: Set<[UInt8]> = {
    var keys: Set<[UInt8]> = []
    for name in Fixtures.traceNames {
      for line in Fixtures.trace(name) where !line.toRadio && [3, 0x80, 0x81, 0x8A].contains(line.bytes.first ?? 0) {
        let key = Array(line.bytes.dropFirst().prefix(32))
        if key.count == 32, key.contains(where: { $0 != 0 }) { keys.insert(key) }
      }
    }
    return keys
  }()

  func answers(to command: [UInt8]) -> [[UInt8]] {
    frames = []
    radio.received(command)
    var quiet = 0
    while quiet < 3 {
      let before = frames.count
      loop.schedule(after: .microseconds(300)) {}
      loop.turn(wait: true)
      quiet = frames.count == before ? quiet + 1 : 0
    }
    return frames.filter { ($0.first ?? 0) < 0x80 }
  }

  func canAnswer(_ command: [UInt8]) -> Bool { command.first != 10 }
}

@Suite struct VirtualRadioTests {
  /// Two radios in one ether without air time.
  private final class Two {
    let loop = EventLoop()
    let ether: Ether
    let left, right: VirtualRadio
    var frames: [[UInt8]] = []

    init() {
      ether = Ether(on: loop, airtimeFactor: 0)
      left = VirtualRadio(VirtualRadioSettings(name: "Alder", seed: 1, clock: 1_795_000_000), on: loop)
      right = VirtualRadio(VirtualRadioSettings(name: "Birch", seed: 2, clock: 1_795_000_000), on: loop)
      ether.add(left)
      ether.add(right)
      left.output = { [weak self] in self?.frames.append($0) }
    }

    func ask(_ radio: VirtualRadio, _ command: Command) -> [RadioFrame] {
      frames = []
      radio.received(command.encode())
      for _ in 0..<20 {
        loop.schedule(after: .microseconds(100)) {}
        loop.turn(wait: true)
      }
      return frames.compactMap { try? RadioFrame(decoding: $0) }  // `try?`: the count tells
    }
  }

  @Test func `a heard node can be exported and shared, and one that was added by hand cannot`() throws {
    let two = Two()
    _ = two.ask(two.right, .sendSelfAdvert(flood: true))
    let card = try #require(
      two.ask(two.left, .exportContact(two.right.key)).compactMap {
        if case .reply(.exportContact(let card)) = $0 { card } else { nil }
      }.first)
    let advert = try Advert(decoding: Packet(decoding: card).payload)
    #expect(advert.key == two.right.key)
    #expect(two.ask(two.left, .shareContact(two.right.key)).contains(.reply(.ok)))
    let stranger = try #require(PublicKey(bytes: [UInt8](repeating: 9, count: 32)))
    _ = two.ask(two.left, .addUpdateContact(Contact(key: stranger, name: "hand")))
    #expect(two.ask(two.left, .exportContact(stranger)).contains(.reply(.error(.notFound))))
    #expect(two.ask(two.left, .shareContact(stranger)).contains(.reply(.error(.tableFull))))
  }

  @Test func `a contact that was added without a position has a position of zeros, as in the firmware`() throws {
    let two = Two()
    let key = try #require(PublicKey(bytes: [UInt8](repeating: 9, count: 32)))
    let short = Contact(key: key, name: "short", latitude: nil, longitude: nil, lastModified: nil)
    _ = two.ask(two.left, .addUpdateContact(short))
    _ = two.ask(two.left, .getContactByKey(key))
    #expect(two.frames.first?.count == 148)
  }
}

// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto

extension VirtualRadio {
  /// Executes commands that transmit. False: the command is of another kind.
  func carryOutSending(_ command: Command) -> Bool {
    switch command {
    case .sendSelfAdvert(let flood):
      var packet = selfAdvert()
      guard hasRoom else { return refuse(.tableFull) }
      if flood != true { packet.route = .direct }
      // Adverts ignore the override of the scope.
      transmit(packet, in: stored.defaultScope?.key)
      reply(.ok)
    case .sendText(let text): return send(text)
    case .sendChannelText(let type, let slot, let time, let text):
      guard type == .plain else { return refuse(.unsupported) }
      guard Int(slot) < stored.channels.count, hasRoom else { return refuse(.notFound) }
      sendGroup(text: text, time: time, stored.channels[Int(slot)])
      reply(.ok)
    case .sendChannelData(let datagram): return send(datagram)
    case .sendRawData(let path, let payload):
      guard let route = Path(bytes: path) else { return refuse(.illegalArgument) }
      transmit(
        Packet(route: .direct, type: .rawCustom, pathLength: route.length, path: route.bytes, payload: payload))
      reply(.ok)
    case .sendRawPacket(_, let bytes):
      guard let packet = try? Packet(decoding: bytes) else { return refuse(.illegalArgument) }
      transmit(packet)  // `try?`: one answer fits all reasons
      reply(.ok)
    case .sendControlData(let payload):
      guard let first = payload.first, first & 0x80 != 0 else { return refuse(.unsupported) }
      transmit(Packet(route: .direct, type: .control, payload: payload))
      reply(.ok)
    case .sendTracePath(let trace):
      let size = 1 << Int(trace.flags & 3)
      guard trace.path.count % size == 0 else { return refuse(.illegalArgument) }
      reply(.sent(Sent(flood: false, ackOrTag: AckCode(value: trace.tag.byteSwapped), suggestedTimeout: 3000)))
      answer(trace)
    default: return sendRequest(command)
    }
    return true
  }

  /// Answers a trace whose hops are all known repeaters; other traces get no answer.
  private func answer(_ trace: TraceRequest) {
    let size = 1 << Int(trace.flags & 3)
    guard let ether, size == 1, !trace.path.isEmpty, trace.path.allSatisfy(ether.repeaters.contains) else { return }
    let data = TraceData(
      flags: trace.flags, tag: trace.tag, auth: trace.auth, hashes: trace.path,
      hopSNRs: trace.path.map { _ in Ether.snr }, finalSNR: Ether.snr)
    loop.later { [self] in push(.traceData(data)) }
  }

  /// Answers a request to another node with SENT; nothing else follows.
  private func sendRequest(_ command: Command) -> Bool {
    let key: PublicKey
    switch command {
    case .sendLogin(let target, _), .sendStatusRequest(let target), .sendBinaryRequest(let target, _),
      .sendPathDiscovery(let target), .sendTelemetryRequest(.some(let target)):
      key = target
    case .sendAnonymousRequest(let target, let type, let parameters):
      let path = index(of: target).map { stored.contacts[$0].outPath } ?? .direct
      let tag = tag()
      reply(.sent(Sent(flood: path == nil, ackOrTag: tag, suggestedTimeout: timeout(hops: path?.hops))))
      if path != nil, !parameters.isEmpty { answer(anonymous: type, of: target, tag) }
      return true
    default: return false
    }
    guard let index = index(of: key) else { return refuse(.notFound) }
    let path = stored.contacts[index].outPath
    let isLogin = if case .sendLogin = command { true } else { false }
    let code = isLogin ? AckCode(bytes: Array(key.bytes.prefix(4))) ?? tag() : tag()
    reply(.sent(Sent(flood: path == nil, ackOrTag: code, suggestedTimeout: timeout(hops: path?.hops))))
    return true
  }

  /// A repeater answers which regions it carries, after its time.
  private func answer(anonymous type: UInt8, of target: PublicKey, _ tag: AckCode) {
    guard let ether, type == 1, ether.repeaters.contains(target.bytes[0]) else { return }
    let names = ether.carried(by: target.bytes[0]).map { $0.text + "," }.joined().utf8.dropLast()
    loop.later { [self] in
      push(.binaryResponse(tag: tag, data: withUnsafeBytes(of: clock.littleEndian) { Array($0) } + Array(names)))
    }
  }

  private func tag() -> AckCode { AckCode(value: uniqueTime().byteSwapped) }

  /// The time-out that the firmware suggests, in milliseconds (docs/protocol/companion.md § 9.5). `hops`: of the path; `nil`: it is a flood.
  private func timeout(hops: Int?, bytes: Int = 40) -> UInt32 {
    let airtime = Airtime.milliseconds(bytes: bytes, stored.radio)
    let wait: Double = hops.map { 500 + (6 * airtime + 250) * Double($0 + 1) } ?? 500 + 16 * airtime
    return UInt32(min(max(wait, 0), 4e9))
  }

  private func send(_ text: OutgoingText) -> Bool {
    guard text.type == .plain || text.type == .cliData else { return refuse(.unsupported) }
    guard let contact = stored.contacts.first(where: { $0.key.prefix == text.recipient }) else {
      guard text.recipient.isZero else { return refuse(.notFound) }
      // 1.17 treats an empty table entry as a node with a key of zeros: SENT, but nothing receives it.
      let code = AckCode.expected(time: text.time, attempt: text.attempt, text: text.text.beforeNul, sender: key)
      reply(.sent(Sent(flood: false, ackOrTag: code, suggestedTimeout: timeout(hops: 0))))
      return true
    }
    let body = text.text.beforeNul
    guard body.bytes.count <= (text.attempt > 3 ? 158 : 160) else { return refuse(.tableFull) }
    let time = text.type == .cliData ? uniqueTime() : text.time
    guard hasRoom,
      let packet = textPacket(body, type: text.type, attempt: text.attempt, time: time, to: contact)
    else { return refuse(.tableFull) }
    var code = AckCode(value: 0)
    if text.type == .plain {
      code = AckCode.expected(time: time, attempt: text.attempt, text: body, sender: key)
      volatile.acks.append(.init(code: code, sentAt: UInt64(max(0, loop.now.nanoseconds))))
      if volatile.acks.count > 8 { volatile.acks.removeFirst() }
    }
    let hops = packet.route.isFlood ? nil : packet.pathLength.hops
    let timeout = timeout(hops: hops, bytes: packet.encode().count)
    reply(.sent(Sent(flood: packet.route.isFlood, ackOrTag: code, suggestedTimeout: timeout)))
    transmit(packet)
    return true
  }

  private func textPacket(
    _ text: Text, type: TextType, attempt: UInt8, time: UInt32, to contact: Contact
  ) -> Packet? {
    var plain = FrameWriter()
    plain.u32(time)
    plain.u8(type.rawValue << 2 | attempt & 3)
    plain.raw(text.bytes)
    if attempt > 3 { plain.raw([0, attempt]) }
    return sealed(.text, plain.bytes, to: contact)
  }

  /// Whether the firmware's packet pool has room for another packet.
  private var hasRoom: Bool { ether?.hasRoom(self) ?? true }

  /// An encrypted packet to a contact, along its path if one is known.
  func sealed(_ type: PayloadType, _ plain: [UInt8], to contact: Contact) -> Packet? {
    sealed(type, plain, to: contact, along: contact.outPath)
  }

  /// Without a path it is flooded. The firmware does not look whether a key can be one: it transmits what nobody can read.
  func sealed(_ type: PayloadType, _ plain: [UInt8], to contact: Contact, along path: Path?) -> Packet? {
    let secret = stored.identity.sharedSecret(with: contact.key) ?? [UInt8](repeating: 0, count: 32)
    guard let (mac, cipher) = SealedBox.seal(plain, secret: secret) else { return nil }
    let envelope = Envelope(destination: contact.key.nodeHash, source: key.nodeHash, mac: mac, cipher: cipher)
    return routed(type, envelope.encode(), along: path)
  }

  /// A packet along a path; `nil`: a flood.
  func routed(_ type: PayloadType, _ payload: [UInt8], along path: Path?) -> Packet {
    Packet(
      route: path == nil ? .flood : .direct, type: type,
      pathLength: path?.length ?? PathLength(raw: stored.pathHashMode << 6), path: path?.bytes ?? [], payload: payload)
  }

  /// Prepends the radio's name and cuts the sum at 160 bytes, as the firmware does.
  func sendGroup(text: Text, time: UInt32, _ channel: Channel) {
    let whole = Text(bytes: Array((stored.name.bytes + Array(": ".utf8) + text.beforeNul.bytes).prefix(160)))
    guard let envelope = GroupEnvelope.seal(GroupText(time: time, text: whole), with: channel.secret) else { return }
    transmit(routed(.groupText, envelope.encode(), along: nil))
  }

  private func send(_ datagram: OutgoingDatagram) -> Bool {
    guard datagram.dataType != 0 else { return refuse(.illegalArgument) }
    guard Int(datagram.slot) < stored.channels.count else { return refuse(.notFound) }
    guard datagram.data.count <= 165 else { return refuse(.tableFull) }
    let content = GroupData(dataType: datagram.dataType, data: datagram.data)
    guard let envelope = GroupEnvelope.seal(content, with: stored.channels[Int(datagram.slot)].secret) else {
      return refuse(.tableFull)
    }
    transmit(routed(.groupData, envelope.encode(), along: datagram.path))
    reply(.ok)
    return true
  }

  /// Transmits for a client: a flood uses the scope that was set last, otherwise the default scope.
  func transmit(_ packet: Packet, after delay: Duration = .zero) {
    switch volatile.scope {
    case .unscoped: transmit(packet, in: nil, after: delay)
    case .key(let key) where !key.isZero: transmit(packet, in: key, after: delay)
    default: transmit(packet, in: stored.defaultScope?.key, after: delay)
    }
  }

  private func transmit(_ plain: Packet, in scope: ChannelSecret?, after delay: Duration = .zero) {
    var packet = plain
    if packet.route == .flood, let scope, !scope.isZero {
      packet.route = .transportFlood
      packet.transportCodes = Packet.TransportCodes(first: packet.transportCode(scopeKey: scope), second: 0)
    }
    volatile.sent &+= 1
    if packet.route.isFlood { volatile.sentFlood &+= 1 }
    volatile.sentMilliseconds += Airtime.milliseconds(bytes: packet.encode().count, stored.radio)
    remember(packet)
    ether?.carry(packet, from: self, after: delay)
  }

  /// Whether the packet is new; the last 160 are remembered.
  @discardableResult
  func remember(_ packet: Packet) -> Bool {
    let identity = packet.identity
    guard !volatile.seen.contains(identity) else { return false }
    volatile.seen.append(identity)
    if volatile.seen.count > 160 { volatile.seen.removeFirst() }
    return true
  }
}

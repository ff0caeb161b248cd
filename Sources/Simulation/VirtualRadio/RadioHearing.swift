// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto

extension VirtualRadio {
  /// Handles a packet that was received over the air.
  func heard(_ packet: Packet, isImported: Bool = false) {
    keepContacts()
    defer { keepContacts() }
    if !isImported {
      volatile.received &+= 1
      if packet.route.isFlood { volatile.receivedFlood &+= 1 }
      let bytes = packet.encode()
      volatile.receivedMilliseconds += Airtime.milliseconds(bytes: bytes.count, stored.radio)
      if bytes.count <= 173 { push(.logRxData(snr: Ether.snr, rssi: Ether.rssi, packet: bytes)) }
    }
    // A routed packet is for the next hop of its path; but its acknowledgement is taken early.
    let isForOthers =
      !packet.route.isFlood && packet.pathLength.hops > 0 && packet.type != .ack && packet.type != .trace
    guard !isForOthers, remember(packet) || isImported, let payload = try? packet.content() else { return }
    // `try?`: a malformed payload is dropped, as by the firmware.
    switch payload {
    case .advert: hearAdvert(packet)
    case .text(let envelope): hearText(envelope, packet)
    case .path(let envelope): hearPath(envelope, packet)
    case .ack(let code, _): confirm(code)
    case .groupText(let envelope): hearGroupText(envelope, packet)
    case .groupData(let envelope): hearGroupData(envelope, packet)
    case .control(let control):
      push(.controlData(snr: Ether.snr, rssi: Ether.rssi, pathLength: packet.pathLength.raw, payload: control.encode()))
    case .rawCustom(let bytes): push(.rawData(snr: Ether.snr, rssi: Ether.rssi, payload: bytes))
    default: break
    }
  }

  private func receivedPath(_ packet: Packet) -> ReceivedPath {
    ReceivedPath(raw: packet.route.isFlood ? packet.pathLength.raw : 0xFF)
  }

  /// The contact that sent the envelope, and its plain text. Several contacts may have the same hash: the MAC identifies the right one.
  private func open(_ envelope: Envelope) -> (index: Int, plain: [UInt8])? {
    guard envelope.destination == key.nodeHash else { return nil }
    for (index, contact) in stored.contacts.enumerated() where contact.key.nodeHash == envelope.source {
      guard let secret = stored.identity.sharedSecret(with: contact.key),
        let plain = SealedBox.open(mac: envelope.mac, cipher: envelope.cipher, secret: secret)
      else { continue }
      return (index, plain)
    }
    return nil
  }

  private func hearText(_ envelope: Envelope, _ packet: Packet) {
    guard let (index, plain) = open(envelope) else { return }
    var reader = FrameReader(plain)
    guard let time = try? reader.u32("time"), let flags = try? reader.u8("flags") else { return }  // `try?`: too short
    let sender = stored.contacts[index]
    let type = TextType(rawValue: flags >> 2)
    let text = reader.text().beforeNul
    queue(
      .contact(
        ContactMessage(
          snr: volatile.clientVersion >= 3 ? Ether.snr : nil, sender: sender.key.prefix, path: receivedPath(packet),
          textType: type, senderTime: time, text: text)))
    stored.contacts[index].lastModified = clock
    guard type == .plain else { return }
    let code = AckCode.expected(time: time, attempt: flags & 3, text: text, sender: sender.key)
    acknowledge(code, to: sender, heard: packet)
  }

  /// Before the firmware acknowledges a text (`TXT_ACK_DELAY`).
  private static let ackDelay: Duration = .milliseconds(200)
  /// Before it answers a flooded path with its own (`Mesh::onRecvPacket`).
  private static let pathDelay: Duration = .milliseconds(500)

  /// Answers a flooded text with a flooded packet that holds its path and the ack, and a direct text with the ack: along the path to its sender, or
  /// flooded.
  private func acknowledge(_ code: AckCode, to sender: Contact, heard packet: Packet) {
    guard packet.route.isFlood else {
      return transmit(routed(.ack, code.bytes, along: sender.outPath), after: Self.ackDelay)
    }
    let plain = [packet.pathLength.raw] + packet.path + [PayloadType.ack.rawValue] + code.bytes
    if let answer = sealed(.path, plain, to: sender, along: nil) { transmit(answer, after: Self.ackDelay) }
  }

  /// The sender of a flooded path gets the path that it came by, along the one that it has told.
  private func tellPath(of packet: Packet, to contact: Contact) {
    var plain = FrameWriter()
    plain.raw([packet.pathLength.raw] + packet.path + [0xFF])
    // So that no two such packets are the same.
    plain.u32(UInt32(truncatingIfNeeded: loop.now.nanoseconds))
    guard let answer = sealed(.path, plain.bytes, to: contact) else { return }
    transmit(answer, after: Self.pathDelay)
  }

  private func hearPath(_ envelope: Envelope, _ packet: Packet) {
    guard let (index, plain) = open(envelope) else { return }
    var reader = FrameReader(plain)
    guard let raw = try? reader.u8("path_len"), let path = try? Path(reading: &reader, length: PathLength(raw: raw))
    else { return }  // `try?`: a malformed path is dropped
    stored.contacts[index].outPath = path
    stored.contacts[index].lastModified = clock
    put(Push.pathUpdated(stored.contacts[index].key).encode())
    if packet.route.isFlood { tellPath(of: packet, to: stored.contacts[index]) }
    if let type = try? reader.u8("extra type"), type & 15 == PayloadType.ack.rawValue,
      let code = try? reader.big(4, "ack")  // `try?`: no extra is fine
    {
      confirm(AckCode(value: UInt32(truncatingIfNeeded: code)))
    }
  }

  private func confirm(_ code: AckCode) {
    guard let index = volatile.acks.firstIndex(where: { $0.code == code }) else { return }
    let sent = volatile.acks.remove(at: index)
    let trip = (UInt64(max(0, loop.now.nanoseconds)) &- sent.sentAt) / 1_000_000
    put(Push.sendConfirmed(ack: code, tripTime: UInt32(truncatingIfNeeded: trip)).encode())
  }

  private func hearGroupText(_ envelope: GroupEnvelope, _ packet: Packet) {
    for channel in stored.channels {
      guard let text = envelope.openText(with: channel.secret) else { continue }
      return queue(
        .channel(
          ChannelMessage(
            snr: volatile.clientVersion >= 3 ? Ether.snr : nil, slot: channel.slot, path: receivedPath(packet),
            senderTime: text.time, text: text.text)))
    }
  }

  private func hearGroupData(_ envelope: GroupEnvelope, _ packet: Packet) {
    for channel in stored.channels {
      guard let content = envelope.openData(with: channel.secret) else { continue }
      return queue(
        .datagram(
          ChannelDatagram(
            snr: Ether.snr, slot: channel.slot, path: receivedPath(packet), dataType: content.dataType,
            data: content.data)))
    }
  }

  /// Queues the message for the client. MSG_WAITING is sent even if the queue drops the message.
  public func queue(_ message: QueuedMessage) {
    volatile.queue.add(message)
    onMessage?(message)
    push(.messageWaiting)
  }

  public var queuedMessages: Int { volatile.queue.count }

  /// Queues a channel message as if it was received, without cryptography: for thousands of messages.
  public func injectChannelText(_ text: String, slot: UInt8, time: UInt32) {
    queue(
      .channel(
        ChannelMessage(
          snr: volatile.clientVersion >= 3 ? Ether.snr : nil, slot: slot, path: ReceivedPath(raw: 0),
          senderTime: time, text: Text(text))))
  }

  /// Queues a direct message as if one of the contacts had sent it.
  public func injectDirectText(_ text: String, fromContact number: Int, time: UInt32) {
    guard stored.contacts.indices.contains(number) else { return }
    queue(
      .contact(
        ContactMessage(
          snr: volatile.clientVersion >= 3 ? Ether.snr : nil, sender: stored.contacts[number].key.prefix,
          path: ReceivedPath(raw: 0xFF), senderTime: time, text: Text(text))))
  }
}

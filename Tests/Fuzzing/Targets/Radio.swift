// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Timing

extension FuzzTarget {
  /// One frame, in both directions.
  static func frames(_ bytes: [UInt8]) {
    for direction in [FrameDirection.fromRadio, .toRadio] {
      must(SecretMask.hex(bytes, direction).count == 2 * bytes.count, "a masked frame has two signs for each byte")
    }
    if let command = try? Command(decoding: bytes) {
      must((try? Command(decoding: command.encode())) == command, "a command survives encoding: \(command)")
    }
    if let frame = try? RadioFrame(decoding: bytes) {
      must((try? RadioFrame(decoding: frame.encode())) == frame, "a frame survives encoding: \(frame)")
    }
  }

  /// A radio's bytes with noise between the frames, for the decoders and the session. The clock advances with each piece.
  static func streams(_ bytes: [UInt8]) {
    let input = CutInput(bytes)
    let step = Duration.milliseconds([0, 10, 100, 1000][Int(input.choice & 3)])
    var now = MonotonicTime(seconds: 0)
    var (decoder, stream) = (SerialDecoder(.fromRadio), FrameStream(.fromRadio))
    var (clean, total) = ([[UInt8]](), 0)
    var session = RadioSession()
    _ = session.linkUp(now: now)
    let commands: [Command] = [.getContacts(since: nil), .syncNextMessage, .getDeviceTime, .getChannel(slot: 1)]
    for (place, piece) in input.pieces.enumerated() {
      now = now + step
      decoder.append(piece, now: now)
      decoder.timedOut(now: now)
      while let frame = decoder.next(now: now) {
        total += 3 + frame.count
        react(session.received(frame, now: now), &session, now)
      }
      stream.append(piece, now: now)
      while let frame = stream.next(now: now) { clean.append(frame) }
      must(decoder.pending <= 3 + SerialFraming.largestAccepted, "only one incomplete frame waits")
      if place % 5 == 0 {
        _ = session.submit(commands[place / 5 % 4], place % 2 == 0 ? .interactive : .sync, now: now)
      }
      if let deadline = session.deadline, deadline <= now { react(session.timedOut(now: now), &session, now) }
    }
    must(
      total + Int(decoder.skippedBytes) + decoder.pending == input.whole.count,
      "each byte is in a frame, skipped or waits")
    must(
      clean.flatMap { SerialFraming.wrap($0, .fromRadio) }.elementsEqual(
        input.whole.prefix(clean.reduce(0) { $0 + 3 + $1.count })),
      "frames of a clean stream are its bytes")
  }

  private static func react(_ actions: [RadioSession.Action], _ session: inout RadioSession, _ now: MonotonicTime) {
    for case .dropLink in actions {
      _ = session.linkLost()
      _ = session.linkUp(now: now)
    }
  }

  /// A packet on the air.
  static func packets(_ bytes: [UInt8]) {
    guard let packet = try? Packet(decoding: bytes) else { return }
    must(packet.encode() == bytes, "a packet encodes to its bytes")
    switch try? packet.content() {
    case .advert(let advert):
      must((try? Advert(decoding: advert.encode())) == advert, "an advert survives encoding")
      if let content = try? advert.content() {
        // Its features are not kept.
        let again = try? AdvertContent(decoding: content.encode())
        must(again?.name == content.name && again?.type == content.type, "an advert's content survives encoding")
      }
    case .control(let control):
      must((try? ControlPayload(decoding: control.encode())) == control, "a control payload survives encoding")
    default: break
    }
  }

  /// Answers of other nodes: readings, status, neighbours, access lists.
  static func telemetry(_ bytes: [UInt8]) {
    let telemetry = Telemetry(decoding: bytes)
    must(bytes.starts(with: telemetry.encode() + telemetry.rest), "readings encode to their bytes")
    must(AccessEntry.list(decoding: bytes).count <= bytes.count / 7, "an access list is within its bytes")
    for keyBytes in [0, 1, 6, 32] {
      let found = try? Neighbours(decoding: bytes, keyBytes: keyBytes)
      must((found?.entries.count ?? 0) <= bytes.count / (keyBytes + 5), "neighbours are within their bytes")
    }
    for type in [NodeType.repeater, .room, .sensor] {
      guard let status = try? NodeStatus(decoding: bytes, of: type) else { continue }
      must(bytes.starts(with: status.encode()), "a status encodes to its bytes")
    }
  }
}

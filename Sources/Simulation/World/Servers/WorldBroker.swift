// SPDX-License-Identifier: MIT

import EventLoop
import Sockets

/// A broker of MQTT 5 and 3.1.1, as far as a gateway uses it: keeps each event once. Source: OASIS MQTT 5.0.
final class WorldBroker: Server {
  var ledger = Ledger()

  private var publications = 0

  override func serve(_ peer: Peer, of gateway: String) async throws(StreamEnd) {
    var unread: [UInt8] = []
    let packets = Mailbox<(UInt8, [UInt8])>(bound: 100_000)
    let worker = loop.begin { [self] in
      // `try?`: the connection has ended.
      try? await work(packets, peer, of: gateway)
      peer.abort()
    }
    defer { worker.cancel() }
    while true {
      let packet = try await Self.packet(peer, &unread)
      // A broker that answers pings alone answers them at once, and everything else in its order.
      let isPing = packet.0 >> 4 == 12
      if !isPing { _ = packets.put(packet) } else if mood != .mute, mood != .deaf { peer.write([0xD0, 0]) }
    }
  }

  private func work(_ packets: Mailbox<(UInt8, [UInt8])>, _ peer: Peer, of gateway: String) async throws {
    var isFive = true
    while let (type, body) = try await packets.next() {
      try await untilItAnswers(peer)
      switch type >> 4 {
      case 1:
        isFive = body.count > 6 && body[6] == 5
        if case .status = mood {
          peer.write(isFive ? [0x20, 3, 0, 0x88, 0] : [0x20, 2, 0, 3])
          return
        }
        if mood == .portal { return peer.write(Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8)) }
        peer.write(isFive ? [0x20, 3, 0, 0, 0] : [0x20, 2, 0, 0])
      case 3: if publish(type, body, isFive, peer, of: gateway) { return }
      case 8: peer.write([0x90, isFive ? 4 : 3] + body.prefix(2) + (isFive ? [0] : []) + [1])
      case 14: return
      default: break
      }
    }
  }

  /// `true`: the connection ends.
  private func publish(_ type: UInt8, _ body: [UInt8], _ isFive: Bool, _ peer: Peer, of gateway: String) -> Bool {
    guard body.count >= 2 else { return true }
    let length = Int(body[0]) << 8 | Int(body[1])
    guard body.count >= 4 + length else { return true }
    let topic = String(decoding: body[2..<2 + length], as: UTF8.self)
    let id = Array(body[(2 + length)..<(4 + length)])
    var place = 4 + length
    if isFive {
      // No property of a gateway's publication is longer than 127 bytes.
      guard place < body.count else { return true }
      place += 1 + Int(body[place])
    }
    guard place <= body.count else { return true }
    let content = Array(body[place...])
    if case .dislikes(let status, let every) = mood, isFive, Ledger.number(content)?.isMultiple(of: every) == true {
      // "Unspecified error", as of a server's own failure, or "payload format invalid".
      peer.write([0x40, 3] + id + [status >= 500 ? 0x80 : 0x99])
      return false
    }
    if !topic.hasSuffix("/status") { ledger.take(content, of: gateway) }
    if mood == .losesAnswers { return true }
    publications += 1
    if mood != .takesHalf || publications.isMultiple(of: 2) { peer.write([0x40, 2] + id) }
    return false
  }

  private static func packet(_ peer: Peer, _ unread: inout [UInt8]) async throws(StreamEnd) -> (UInt8, [UInt8]) {
    while true {
      var (length, shift, place) = (0, 0, 1)
      var isWhole = false
      while place < min(5, unread.count) {
        length |= Int(unread[place] & 0x7F) << shift
        (shift, place) = (shift + 7, place + 1)
        if unread[place - 1] & 0x80 == 0 {
          isWhole = true
          break
        }
      }
      if isWhole, unread.count >= place + length {
        let packet = (unread[0], Array(unread[place..<place + length]))
        unread.removeFirst(place + length)
        return packet
      }
      unread += try await peer.read()
    }
  }
}

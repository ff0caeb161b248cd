// SPDX-License-Identifier: MIT

import ControlShapes
import JSON
import MeshCrypto
import Relay
import Store

/// Messages as rows of answers.
struct MessageRow {
  let store: Store
  /// For the state of a message at each upstream; `nil`: not requested.
  let relay: Relay?
  /// With the copies that the radio heard.
  var showsWays = false

  func write(_ row: ConversationRow, to json: inout JSONWriter) {
    json.field(Shape.Message().conversation, ConversationName(of: row)?.description)
    switch row {
    case .received(let message): write(message, to: &json)
    case .sent(let message, let place):
      store.write(message, at: place, asRow: &json)
      json.field(
        Shape.Message().reaction, ReactionText(reading: message.text, inChannel: message.kind == .channel)?.emoji)
      writeReactions(to: .sent(message.id), &json)
    }
    writeStandings(of: row, to: &json)
    writeWays(of: row, to: &json)
  }

  func writeWays(of row: ConversationRow, to json: inout JSONWriter) {
    guard showsWays else { return }
    let (number, field) =
      switch row {
      case .received(let message): (MessageNumber.received(message.id), Shape.Message().ways)
      case .sent(let message, _): (MessageNumber.sent(message.id), Shape.Message().heardBy)
      }
    // If copies or nodes cannot be read, the message is shown without them.
    guard let (copies, more) = store.ifReadable({ try store.copies(of: number) }), !copies.isEmpty else { return }
    EventBody.write(
      copies, more: more, field, store.ifReadable { try store.nodesOnWays(copies) } ?? [], to: &json)
  }

  private func write(_ message: StoredMessage, to json: inout JSONWriter) {
    let row = Shape.Message()
    // If the name cannot be read, the channel's digest remains.
    let channel = store.ifReadable { try store.nameOfChannel(of: message) }
    EventBody.write(message, channelName: channel, radio: store.mark(ofRadio: message.radio), to: &json)
    json.field(row.senderAlias, message.sender.flatMap { DocumentAPI.alias(ofKey: $0.hex, store) })
    json.field(row.direction, "received")
    json.field(row.cursor, "\(message.id)")
    json.field(row.receivedAt, message.received.milliseconds)
    json.field(row.clockTrusted, message.received.trusted)
    json.field(row.copies, message.copies)
    // If it cannot be read, the message is shown like any other.
    json.field(row.filtered, store.ifReadable { try store.filtered(message) }?.rawValue)
    writeRegion(of: message, to: &json)
    json.field(row.reaction, ReactionText(reading: message.text, inChannel: message.kind == .channel)?.emoji)
    writeReactions(to: .received(message.id), &json)
  }

  func writeReactions(to message: MessageNumber, _ json: inout JSONWriter) {
    // If reactions cannot be read, the message is shown without them.
    let reactions = store.ifReadable { try store.reactions(to: message) } ?? []
    guard !reactions.isEmpty else { return }
    json.objects(Shape.Message().reactions, reactions) { reaction, json in
      json.field(Shape.Reaction().emoji, reaction.emoji)
      json.field(Shape.Reaction().sender, reaction.sender)
      json.field(Shape.Reaction().ours, reaction.isOurs ? true : nil)
    }
  }

  /// A copy with a known region says more than one with a code alone, and any code more than none.
  private func writeRegion(of message: StoredMessage, to json: inout JSONWriter) {
    // If copies cannot be read, the message is shown without them.
    guard let copies = store.ifReadable({ try store.copies(of: .received(message.id)).kept }) else { return }
    let code = copies.lazy.compactMap(\.code).first
    if let region = HeardCopy.region(of: copies) {
      json.field(Shape.Message().region, region)
    } else if let code {
      json.field(Shape.Message().regionCode, HeardCopy.hex(code))
    } else if copies.contains(where: \.route.isFlood) {
      json.field(Shape.Message().region, Region.unscopedMark)
    }
  }

  /// Writes the state of the message at each upstream.
  func writeStandings(of row: ConversationRow, to json: inout JSONWriter) {
    guard let relay, let standings = store.ifReadable({ try relay.standings(of: row) }) else { return }
    json.objects(Shape.Message().upstreams, standings) { standing, json in
      let row = Shape.Standing()
      json.field(row.name, standing.upstream)
      json.field(row.state, standing.state.rawValue)
      json.field(row.upToDate, standing.isCurrent)
      json.field(row.awaitsEnd, standing.awaitsEnd ? true : nil)
      json.field(row.seq, standing.deadLetter)
    }
  }
}

// SPDX-License-Identifier: MIT

import Escaping
import Foundation
import JSON
import MeshCrypto
import SQLite

/// One message of the mesh, heard by several gateways, is one.
extension HubStore {
  /// The prefix of forwarded messages, which are never forwarded again.
  static let relayMark = "⇄"

  /// Within a transaction.
  func join(_ event: HubEvent, from gateway: String, epoch: String, now: Int64) throws(HubDatabaseError) {
    let identity = Self.identity(event, gateway: gateway, epoch: epoch)
    let channel = event.body["channel"]?.string
    var position = try position(of: identity)
    if position == nil {
      guard let (next, _) = try next("messages", "*", now) else { return }
      try database.run(
        "INSERT INTO messages(position, identity, channel, at, body) VALUES (?1, ?2, ?3, ?4, ?5)", .integer(next),
        .text(identity), .optional(channel), .integer(event.at), .text(JSONWriterText.text(Self.shared(event.body))))
      position = next
      try passOn(event, identity, channel, from: gateway, now)
    }
    let report = JSONWriterText.object { json in
      json.field("gateway", gateway)
      json.field("at", event.at)
      json.field("seq", event.seq)
      // Numbers and truth values: nothing else grows a list of hearers.
      for name in ["snr", "hops", "direct", "waited", "waited_s", "age_s"] {
        if let value = event.body[name], value.number != nil || value.bool != nil { json.field(name, value) }
      }
    }
    try database.run(
      """
      INSERT INTO heard(message, gateway, at, body) VALUES (?1, ?2, ?3, ?4)
      ON CONFLICT(message, gateway) DO NOTHING
      """, .optional(position), .text(gateway), .integer(event.at), .text(report))
  }

  private func position(of identity: String) throws(HubDatabaseError) -> Int64? {
    try database.first("SELECT position FROM messages WHERE identity = ?1", .text(identity)) { $0.integer(0) }
  }

  /// Channel, sender, sender time and text: the same for all receivers. Without these, the event's identity.
  private static func identity(_ event: HubEvent, gateway: String, epoch: String) -> String {
    let body = event.body
    guard let time = body["sender_time"]?.integer, let text = body["text"]?.string ?? body["data"]?.string else {
      return "\(gateway)/\(epoch)/\(event.seq)"
    }
    let place = body["channel"]?.string ?? "\(gateway)/\(body["kind"]?.string ?? "")/\(body["sender"]?.string ?? "")"
    let parts = [place, body["sender_name"]?.string ?? "", String(time), text]
    let digest = Digest.sha256(Array(parts.joined(separator: "\0").utf8)).prefix(16)
    return digest.map { String(format: "%02x", $0) }.joined()
  }

  /// Without what differs from one hearer to the next.
  private static func shared(_ body: JSONValue) -> JSONValue {
    let own: Set = ["id", "snr", "hops", "direct", "slot", "received_at", "waited", "waited_s", "age_s"]
    return .object((body.fields ?? []).filter { !own.contains($0.0) })
  }

  /// To the other gateways that have joined the channel.
  private func passOn(
    _ event: HubEvent, _ identity: String, _ channel: String?, from gateway: String, _ now: Int64
  ) throws(HubDatabaseError) {
    guard let channel, Self.isBucket("channel/\(channel)"), let text = event.body["text"]?.string,
      !text.utf8.starts(with: Self.relayMark.utf8), text.utf8.count <= HubBounds.textBytes
    else { return }
    let body = JSONWriterText.object { json in
      json.field("gateway", gateway)
      json.field("channel", channel)
      json.field("channel_name", HubBounds.cut(event.body["channel_name"]?.string, HubBounds.nameBytes))
      json.field("sender_name", HubBounds.cut(event.body["sender_name"]?.string, HubBounds.nameBytes))
      json.field("sender_time", event.body["sender_time"]?.integer)
      json.field("at", event.at)
      json.field("trusted", event.trusted)
      // Gateways that forward it need to know that it is not new.
      json.field("waited", event.body["waited"]?.bool)
      json.field("waited_s", event.body["waited_s"]?.integer)
      json.field("age_s", event.body["age_s"]?.integer)
      json.field("text", text)
    }
    try push("channel/\(channel)", of: gateway, id: identity, body: body, now: now)
  }
}

// SPDX-License-Identifier: MIT

import Glibc
import JSON
import MeshCrypto
import UntrustedText

/// An event with the data that follows from it alone, computed outside the transaction: pure.
struct PreparedEvent: Sendable {
  /// A message as all hearers have it, and as this gateway heard it.
  struct Heard: Sendable {
    var identity: String
    var channel: String?
    var body: String
    var report: String
    /// When the gateway received it; `nil`: the gateway's clock is not trusted.
    var at: Int64?
    /// The earliest possible sending time that the gateway knows; 0: unknown.
    var sent: Int64
    /// The update for the other gateways on its channel; `nil`: there is none.
    var update: String?
  }

  /// A change besides the journal.
  enum Effect: Sendable {
    case none
    case heard(Heard)
    case contact(key: String)
    case contactRemoved(key: String)
    case radio(name: String?)
    /// Rare, and done one by one.
    case command, document
    case alert(AlertReport)
  }

  /// It has a body only if the transaction reads the body.
  var event: HubEvent
  /// The body as JSON text.
  var body: String
  var effect: Effect
  /// The digest of a channel that the gateway knows, as the event shows.
  let channel: String?

  init(_ event: HubEvent, from gateway: String, epoch: String) {
    var event = event
    event.body = NumberBounds.bounded(event.body)
    self.event = event
    body = JSONWriterText.text(event.body)
    let digest = ["channel", "message"].contains(event.kind) ? event.body["channel"]?.string : nil
    channel = digest.flatMap { HubStore.isBucket("channel/\($0)") ? $0 : nil }
    effect =
      switch event.kind {
      case "contact", "advert": Self.contact(event)
      case "contact_removed": Self.key(event).map { .contactRemoved(key: $0) } ?? .none
      case "radio": .radio(name: HubBounds.cut(event.body["name"]?.string, HubBounds.nameBytes))
      case "message": .heard(Heard(event, from: gateway, epoch: epoch))
      case "command": .command
      case "document": .document
      case "alert", "power": AlertReport(event).map { .alert($0) } ?? .none
      default: .none
      }
    switch effect {
    case .command, .document: break
    case .none, .heard, .contact, .contactRemoved, .radio, .alert: self.event.body = .null
    }
  }

  private static func contact(_ event: HubEvent) -> Effect {
    guard let key = key(event), key.utf8.count <= HubBounds.keyBytes else { return .none }
    return .contact(key: key)
  }

  /// Without NUL, as in the database: two rows of one statement must not have the same key.
  private static func key(_ event: HubEvent) -> String? {
    (event.body["key"]?.string).map(PostgresHubDatabase.withoutNul)
  }
}

extension PreparedEvent.Heard {
  /// Fields that differ from hearer to hearer.
  private static let own: Set = ["id", "snr", "hops", "direct", "slot", "received_at", "waited", "waited_s", "age_s"]

  init(_ event: HubEvent, from gateway: String, epoch: String) {
    identity = Self.identity(event, gateway: gateway, epoch: epoch)
    channel = event.body["channel"]?.string
    body = JSONWriterText.text(.object((event.body.fields ?? []).filter { !Self.own.contains($0.0) }))
    report = JSONWriterText.object { json in
      json.field("gateway", gateway)
      json.field("at", event.at)
      json.field("seq", event.seq)
      // Only numbers and truth values: other values could be long.
      for name in ["snr", "hops", "direct", "waited", "waited_s", "age_s"] {
        if let value = event.body[name], value.number != nil || value.bool != nil { json.field(name, value) }
      }
    }
    at = event.trusted ? event.at : nil
    sent = Self.sent(event.body, at: event.at, trusted: event.trusted)
    update = Self.update(event, channel, from: gateway)
  }

  /// Gateways that forward the message compute the same: docs/hub-protocol.md, "Messages of other places".
  private static func sent(_ body: JSONValue, at: Int64, trusted: Bool) -> Int64 {
    let (waited, age) = (body["waited_s"]?.integer, body["age_s"]?.integer)
    if !trusted || (body["waited"]?.bool == true && waited == nil && age == nil) { return 0 }
    return max(0, max(at, 0) - min(max(waited ?? 0, age ?? 0, 0), longestAge) * 1000)
  }

  /// The same, from the update that other gateways got.
  static func sent(byUpdate body: String) -> Int64? {
    // `try?`: stored values were valid JSON when they arrived.
    (try? JSONValue(parsing: body)).map {
      sent($0, at: $0["at"]?.integer ?? 0, trusted: $0["trusted"]?.bool == true)
    }
  }

  /// Seconds in about a hundred years, which is as good as for ever.
  private static let longestAge: Int64 = 3_200_000_000

  /// The hash of channel, sender, sender time and text, which is the same for all receivers. Without time or text, the event's identity.
  ///
  /// It begins with the sender's time: messages of about the same time are neighbours in the index, so that one page of it gets many new rows.
  private static func identity(_ event: HubEvent, gateway: String, epoch: String) -> String {
    let body = event.body
    guard let time = body["sender_time"]?.integer, let text = body["text"]?.string ?? body["data"]?.string else {
      return "\(gateway)/\(epoch)/\(event.seq)"
    }
    let place = body["channel"]?.string ?? "\(gateway)/\(body["kind"]?.string ?? "")/\(body["sender"]?.string ?? "")"
    let parts = [place, body["sender_name"]?.string ?? "", String(time), text]
    let seconds = UInt32(clamping: time)
    let beginning = [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: seconds >> $0) }
    return (beginning + Digest.sha256(Array(parts.joined(separator: "\0").utf8)).prefix(12)).hex
  }

  /// The update for the other gateways on the channel.
  private static func update(_ event: HubEvent, _ channel: String?, from gateway: String) -> String? {
    guard let channel, HubStore.isBucket("channel/\(channel)"), let text = event.body["text"]?.string,
      !RelayMark.isIn(text, from: event.body["sender_name"]?.string ?? ""), text.utf8.count <= HubBounds.textBytes
    else { return nil }
    return JSONWriterText.object { json in
      json.field("gateway", gateway)
      json.field("channel", channel)
      json.field("channel_name", HubBounds.cut(event.body["channel_name"]?.string, HubBounds.nameBytes))
      json.field("sender_name", HubBounds.cut(event.body["sender_name"]?.string, HubBounds.nameBytes))
      json.field("sender_time", event.body["sender_time"]?.integer)
      json.field("at", event.at)
      json.field("trusted", event.trusted)
      // A gateway that forwards the message needs its age.
      json.field("waited", event.body["waited"]?.bool)
      json.field("waited_s", event.body["waited_s"]?.integer)
      json.field("age_s", event.body["age_s"]?.integer)
      json.field("text", text)
    }
  }
}

/// A gateway's batch, prepared for the transaction.
struct PreparedBatch: Sendable {
  var gateway: String
  var epoch: String
  var lane: EventBatch.Lane?
  /// The event of its lane before it, which the sender takes for acknowledged.
  var after: Int64?
  /// When it arrived, milliseconds since 1970.
  var at: Int64
  var events: [PreparedEvent]
  /// The approximate number of bytes that the database gets.
  var bytes: Int
  /// Whether all earlier events of its lane are stored or in this transaction, so that the gateway's position moves. Of events from a broker this is
  /// unknown.
  var isOrdered = true
  /// Set if the events may be stored under another epoch: they got their numbers before this epoch began, or were sent before. It is this epoch or
  /// the previous one.
  var before: String?
  /// Whether the sender handles conflicts: it sends a refused event again in a new epoch. A conflicting event of another sender goes into a further
  /// history.
  var handlesConflicts = false

  var gatewayEpoch: GatewayEpoch { GatewayEpoch(gateway: gateway, epoch: epoch) }

  /// The identity of an event in this batch.
  func key(_ event: PreparedEvent) -> EventKey {
    EventKey(gateway: gateway, epoch: epoch, seq: event.event.seq)
  }

  init(_ batch: EventBatch, from gateway: String, after: Int64?, at now: Int64) {
    self.init(batch.events, of: batch.epoch, in: batch.lane, from: gateway, after: after, at: now)
    before = batch.before
  }

  init(
    _ events: [HubEvent], of epoch: String, in lane: EventBatch.Lane?, from gateway: String, after: Int64?,
    at now: Int64
  ) {
    (self.gateway, self.epoch, self.lane, self.after, at) = (gateway, epoch, lane, after, now)
    self.events = events.map { PreparedEvent($0, from: gateway, epoch: epoch) }
    bytes = self.events.reduce(256) { $0 + $1.body.utf8.count * 2 + 256 }
  }
}

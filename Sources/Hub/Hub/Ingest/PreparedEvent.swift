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
    case deletion(GatewayDeletion)
    /// It was deleted before it came: a copy of the gateway may have sent it as it was.
    case emptied

    /// What it costs in ordinary events, which a transaction stores together. The others are up to eight round trips to
    /// a server each.
    var cost: Int {
      switch self {
      case .none, .heard, .contact, .contactRemoved, .radio, .emptied: 1
      case .command, .document, .alert: 20
      // As many lookups as that many events of an epoch that is not the newest.
      case .deletion(let deletion): max(20, deletion.entries.count)
      }
    }
  }

  /// It has a body only if the transaction reads the body.
  var event: HubEvent
  var body: String
  var effect: Effect
  /// The digest of a channel that the gateway knows, as the event shows.
  let channel: String?
  /// Whether a part of it is not served, because nobody may set such a document, or a text of a message is none.
  let isRefused: Bool

  init(_ event: HubEvent, from gateway: String, epoch: String) {
    var event = event
    event.body = NumberBounds.bounded(event.body)
    switch event.kind {
    case "document": isRefused = !HubStore.hasDocument(event.body)
    case "message":
      let texts = MessageTexts.kept(event.body)
      isRefused = texts != nil
      event.body = texts ?? event.body
    default: isRefused = false
    }
    self.event = event
    body = event.body.text
    channel = ["channel", "message"].contains(event.kind) ? Self.digest(in: event.body) : nil
    effect =
      switch event.kind {
      case "contact", "advert": Self.contact(event)
      case "contact_removed": Self.key(event).map { .contactRemoved(key: $0) } ?? .none
      case "radio": .radio(name: HubBounds.cut(event.body["name"]?.string, HubBounds.nameBytes))
      case "message": .heard(Heard(event, from: gateway, epoch: epoch))
      case "command": .command
      case EmptiedEvent.kind: GatewayDeletion(event.body).map { .deletion($0) } ?? .emptied
      case "document": .document
      case "alert", "power": AlertReport(event).map { .alert($0) } ?? .none
      default: .none
      }
    switch effect {
    case .command, .document: break
    case .none, .heard, .contact, .contactRemoved, .radio, .alert, .deletion, .emptied: self.event.body = .null
    }
  }

  /// The channel's digest; `nil`: there is none, or another text is in its place.
  fileprivate static func digest(in body: JSONValue) -> String? {
    body["channel"]?.string.flatMap { HubStore.isBucket("channel/\($0)") ? $0 : nil }
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
    channel = PreparedEvent.digest(in: event.body)
    identity = Self.identity(event, channel, gateway: gateway, epoch: epoch)
    body = Self.joined(event.body, in: channel).text
    // Only numbers and truth values: other values could be long.
    let facts = ["snr", "hops", "direct", "waited", "waited_s", "age_s"].map { name -> (String, (any JSONEncodable)?) in
      (name, event.body[name].flatMap { $0.number != nil || $0.bool != nil ? $0 : nil })
    }
    // Of a channel they are in no body that others share.
    let names = (channel == nil ? [] : ["channel_name", "radio"]).map { name -> (String, (any JSONEncodable)?) in
      (name, HubBounds.cut(event.body[name]?.string, HubBounds.nameBytes))
    }
    report = JSONWriter.text(
      JSONObject(joining: ["gateway": gateway, "at": event.at, "seq": event.seq], JSONObject(facts + names)))
    at = event.trusted ? event.at : nil
    sent = Self.sent(event.body, at: event.at, trusted: event.trusted)
    update = Self.update(event, channel, from: gateway)
  }

  /// The body that all hearers share, from the first report. In a channel it is the word of one gateway for all.
  private static func joined(_ body: JSONValue, in channel: String?) -> JSONValue {
    guard let channel else { return .object((body.fields ?? []).filter { !own.contains($0.0) }) }
    return SharedBody.of(body, in: channel)
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

  /// The hash of channel, sender, sender time and text, which is the same for all receivers. Without time or text, the event's identity. The data of a
  /// datagram are never the same as a text: otherwise who reports a text as data would hide the text of all others.
  ///
  /// Outside of channels the gateway's name is in the place of the digest, before a slash, which no digest has: no gateway's report is joined to a
  /// direct message of another.
  ///
  /// It begins with the sender's time: messages of about the same time are neighbours in the index, so that one page of it gets many new rows.
  private static func identity(_ event: HubEvent, _ channel: String?, gateway: String, epoch: String) -> String {
    let body = event.body
    let text = body["text"]?.string
    guard let time = body["sender_time"]?.integer, let content = text ?? body["data"]?.string else {
      return "\(gateway)/\(epoch)/\(event.seq)"
    }
    let place = channel ?? "\(gateway)/\(body["kind"]?.string ?? "")/\(body["sender"]?.string ?? "")"
    // Neither a digest nor a gateway's name begins with a slash.
    let start = text == nil ? ["/\(body["data_type"]?.integer.map { String($0) } ?? "")", place] : [place]
    let parts = start + [body["sender_name"]?.string ?? "", String(time), content]
    let seconds = UInt32(clamping: time)
    let beginning = [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: seconds >> $0) }
    return (beginning + Digest.sha256(Array(parts.joined(separator: "\0").utf8)).prefix(12)).hex
  }

  /// The update for the other gateways on the channel.
  private static func update(_ event: HubEvent, _ channel: String?, from gateway: String) -> String? {
    guard let channel, let text = event.body["text"]?.string,
      !RelayMark.isIn(text, from: event.body["sender_name"]?.string ?? ""), text.utf8.count <= HubBounds.textBytes
    else { return nil }
    func name(_ field: String) -> String? { HubBounds.cut(event.body[field]?.string, HubBounds.nameBytes) }
    return JSONWriter.text([
      "gateway": gateway, "channel": channel, "channel_name": name("channel_name"), "sender_name": name("sender_name"),
      "sender_time": event.body["sender_time"]?.integer, "at": event.at, "trusted": event.trusted,
      // A gateway that forwards the message needs its age.
      "waited": event.body["waited"]?.bool, "waited_s": event.body["waited_s"]?.integer,
      "age_s": event.body["age_s"]?.integer, "text": text,
    ])
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
  /// The approximate time in the transaction, in ordinary events.
  var cost: Int
  /// Whether all earlier events of its lane are stored or in this transaction, so that the gateway's position moves. Of events from a broker this is
  /// unknown.
  var isOrdered = true
  /// Set if the events may be stored under another epoch: they got their numbers before this epoch began, or were sent before. It is this epoch or
  /// the previous one.
  var before: String?
  /// Whether the sender handles conflicts: it sends a refused event again in a new epoch. A conflicting event of another sender goes into a further
  /// history.
  var handlesConflicts = false

  /// What the log says of events with refused content; `nil`: there are none.
  var refusedWords: String? {
    guard let first = events.first(where: \.isRefused) else { return nil }
    let count = events.count(where: \.isRefused)
    return "gateway \(gateway): events with content that is not allowed: \(count), such as \(first.event.seq) "
      + "(\(first.event.kind)) of epoch \(epoch); it is acknowledged, and not served"
  }

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
    (bytes, cost) = (0, 0)
    weigh()
  }

  private mutating func weigh() {
    bytes = events.reduce(256) { $0 + $1.body.utf8.count * 2 + 256 }
    cost = events.reduce(0) { $0 + $1.effect.cost }
  }

  /// Its parts of at most this cost, or one event, in order: each follows the one before.
  func parts(most: Int) -> [PreparedBatch] {
    guard cost > most, isOrdered else { return [self] }
    var (parts, part, left) = ([PreparedBatch](), self, events[...])
    while let first = left.first {
      var (count, sum) = (1, first.effect.cost)
      while count < left.count, sum + left[left.startIndex + count].effect.cost <= most {
        sum += left[left.startIndex + count].effect.cost
        count += 1
      }
      part.events = Array(left.prefix(count))
      part.weigh()
      parts.append(part)
      part.after = part.events.last?.event.seq
      left = left.dropFirst(count)
    }
    return parts
  }
}

/// The texts of a message. It removes a field that has another type: clients rely on texts.
enum MessageTexts {
  private static let names: Set = [
    "kind", "channel", "channel_name", "sender", "sender_name", "author", "text", "data",
  ]

  /// The body without such fields; `nil`: it has none.
  static func kept(_ body: JSONValue) -> JSONValue? {
    guard let fields = body.fields, !fields.allSatisfy(isPossible) else { return nil }
    return .object(fields.filter(isPossible))
  }

  private static func isPossible(_ name: String, _ value: JSONValue) -> Bool {
    !names.contains(name) || value == .null || value.string != nil
  }
}

/// Bounds of the numbers in gateways' events. It removes a field with an impossible number: no gateway sends one, and a page would show all of its
/// digits.
enum NumberBounds {
  /// The ranges of the radio's frames. Coordinates are checked where they are shown: a node may send any.
  private static let ranges: [String: ClosedRange<Double>] = [
    "snr": -32...31.75, "rssi": -128...127, "hops": 0...63, "battery_mv": 0...65_535, "waited_s": 0...longestAge,
    "age_s": 0...longestAge,
  ]
  /// Seconds in about a hundred years.
  private static let longestAge = 3_200_000_000.0
  private static let others = Double(JSONValue.wholeNumbers.lowerBound)...Double(JSONValue.wholeNumbers.upperBound)

  static func bounded(_ body: JSONValue) -> JSONValue {
    guard let fields = body.fields, !fields.allSatisfy(isPossible) else { return body }
    return .object(fields.filter(isPossible))
  }

  private static func isPossible(_ name: String, _ value: JSONValue) -> Bool {
    value.number.map { (ranges[name] ?? others).contains($0) } ?? isPossible(value)
  }

  private static func isPossible(_ value: JSONValue) -> Bool {
    switch value {
    case .number(let number): others.contains(number)
    case .array(let values): values.allSatisfy(isPossible)
    case .object(let fields): fields.allSatisfy { isPossible($0.1) }
    case .null, .bool, .integer, .string: true
    }
  }
}

// SPDX-License-Identifier: MIT

import JSON

/// The events that a server without a database has received from each gateway.
class Ledger {
  struct Identity: Hashable {
    var gateway: String
    var epoch: String
    var seq: Int64
    /// After a restored card, a gateway uses numbers twice: a server tells events apart by their content, too (docs/webhooks.md).
    var content: String
  }

  struct Event {
    var kind: String
    var body: JSONValue
    var copies = 1
  }

  private(set) var events: [Identity: Event] = [:]
  private(set) var order: [Identity] = []
  /// Numbers under which two different events came.
  private(set) var contradictions: [(gateway: String, number: String)] = []
  private var contents: [String: String] = [:]
  /// What could not be read: nothing of a gateway's may be.
  private(set) var unreadable = 0

  /// `bytes`: an event in JSON, as webhooks and brokers get it.
  func take(_ bytes: [UInt8], of gateway: String) {
    // `try?`: it is counted.
    guard let json = try? JSONValue(parsing: bytes), let seq = json["seq"]?.integer, let epoch = json["epoch"]?.string,
      let kind = json["kind"]?.string, let body = json["body"]
    else {
      unreadable += 1
      return
    }
    let content = EventContent.digest(at: json["at"]?.integer ?? 0, kind: kind, body: body)
    let identity = Identity(gateway: gateway, epoch: epoch, seq: seq, content: content)
    let number = "\(gateway) \(epoch) \(seq)"
    if let other = contents.updateValue(content, forKey: number), other != content, kind == "message" {
      contradictions.append((gateway, number))
    }
    guard var known = events[identity] else {
      events[identity] = Event(kind: kind, body: body)
      order.append(identity)
      return
    }
    known.copies += 1
    events[identity] = known
  }

  /// The number of the message in an event, which the world has given to its text; `nil`: it is another event.
  static func number(_ bytes: [UInt8]) -> Int? {
    // `try?`: then it is no event.
    guard let json = try? JSONValue(parsing: bytes), json["kind"]?.string == "message" else { return nil }
    return json["body"]?["text"]?.string.flatMap(World.number)
  }

  func texts(of gateway: String) -> [String] {
    order.compactMap { identity in
      guard identity.gateway == gateway, let event = events[identity], event.kind == "message" else { return nil }
      return event.body["text"]?.string
    }
  }

  func gaps(of gateway: String) -> [JSONValue] {
    order.compactMap { $0.gateway == gateway && events[$0]?.kind == "gap" ? events[$0]?.body : nil }
  }
}

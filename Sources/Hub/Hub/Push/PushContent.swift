// SPDX-License-Identifier: MIT

import JSON
import UntrustedText

/// What a push says, for the service worker of the pages (`Sources/Pages/worker.js`).
struct PushContent: Sendable, Equatable {
  /// Bytes of the JSON, so that a push fits a record with room to spare.
  static let mostBytes = 3000
  private static let titleBytes = 120

  /// Also the topic (RFC 8030 § 5.4): a newer push takes the place of an older one that waits, and of an older notification.
  enum Topic: String, Sendable { case messages, alerts }

  var topic: Topic
  /// The newest of what it is about: the same number again is the same push.
  var number: Int64
  /// How many things it is about.
  var count: Int
  var title: String
  var text: String
  /// Of an alert: browsers have its name in the reader's language.
  var rule: String?
  /// The path of the view that it opens.
  var path: String

  /// Of `count` messages, this is the newest.
  init(message newest: HubStore.JoinedMessage, count: Int) {
    // `try?`: stored values were valid JSON when they arrived.
    self.init(message: newest.position, (try? JSONValue(parsing: newest.json))?["body"] ?? .null, count: count)
  }

  init(message position: Int64, _ body: JSONValue, count: Int) {
    let (sender, channel) = (body["sender_name"]?.string, body["channel_name"]?.string)
    let said = body["text"]?.string ?? ""
    (topic, number, self.count) = (.messages, position, count)
    title = channel ?? sender ?? "Meshpost"
    self.text = channel == nil || sender == nil ? said : "\(sender ?? ""): \(said)"
    path = "/messages/\(position)"
  }

  /// Of `count` alerts, this is the newest.
  init(alert newest: HubAlert, count: Int) {
    (topic, number, self.count) = (.alerts, newest.id, count)
    title = newest.gateway.isEmpty ? "Meshpost" : newest.gateway
    (text, rule) = (newest.text, newest.rule)
    path = "/alerts"
  }

  /// The text is cut until it fits: JSON writes some characters with six bytes.
  var json: [UInt8] {
    var most = Self.mostBytes
    while true {
      let bytes = JSONWriter.object([
        "topic": topic.rawValue, "number": number, "count": count, "title": title.cut(toBytes: Self.titleBytes),
        "text": text.cut(toBytes: most), "rule": rule, "path": path,
      ])
      if bytes.count <= Self.mostBytes || most == 0 { return bytes }
      most /= 2
    }
  }
}

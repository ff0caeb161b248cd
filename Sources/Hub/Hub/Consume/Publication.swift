// SPDX-License-Identifier: MIT

import Deflate
import JSON

/// A publication of a broker, and the events in it: pure, total. Source: docs/mqtt.md.
public struct Publication: Sendable, Equatable {
  /// The largest payload, compressed or not.
  public static let maxBytes = 2 << 20
  /// The first byte of a compact payload; JSON never begins with it.
  private static let compactMark: UInt8 = 1

  public var topic: String
  public var payload: [UInt8]

  public init(topic: String, payload: [UInt8]) { (self.topic, self.payload) = (topic, payload) }

  /// Events of one gateway's journal.
  struct Events: Equatable {
    var gateway: String
    var epoch: String
    /// The epoch in which the events got their numbers.
    var before: String?
    var events: [HubEvent]
    /// Bytes of the events' uncompressed JSON.
    var bytes: Int
  }

  /// Why the publication can never be stored: a second attempt is useless.
  struct Refusal: Error, Equatable {
    let reason: String
  }

  /// The events of a publication. `nil`: it has none, but is a command, the answer to a command, or the state of a gateway. `patterns`: the consumed
  /// topics; the first match names the gateway. `commands`: topics for commands; `isAsked` is called for a command on another topic.
  func meaning(
    _ patterns: [TopicPattern], commands: [TopicPattern] = [], isAsked: () -> Void = {}
  ) throws(Refusal) -> Events? {
    if isForCommands || commands.contains(where: { $0.match(topic) != .elsewhere }) { return nil }
    let (json, bytes) = try content()
    guard json.fields != nil else { throw Refusal(reason: "no JSON object") }
    // No event has this field beside its identity.
    if json["command"]?.string != nil {
      isAsked()
      return nil
    }
    guard json["seq"] != nil || json["events"] != nil else {
      // Gateways publish such messages, too. A last will may come at any time.
      if json["status"]?.string != nil || json["ok"]?.bool != nil { return nil }
      throw Refusal(reason: "neither seq nor events: a template of its own has no identity that a hub could tell it by")
    }
    guard let gateway = json["gateway"]?.string, Name.isAllowed(gateway) else {
      throw Refusal(reason: "gateway is missing, or not \(Name.allowed)")
    }
    try check(gateway, patterns)
    return try Self.events(json, of: gateway, bytes)
  }

  /// Whether clients send commands on this topic. Such a client must not write events of the gateway: it could end commands as done, and use up
  /// numbers.
  private var isForCommands: Bool {
    topic.utf8.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).last?
      .elementsEqual("command".utf8) ?? false
  }

  private func content() throws(Refusal) -> (JSONValue, bytes: Int) {
    var bytes = payload
    guard !bytes.isEmpty else { throw Refusal(reason: "it is empty, or larger than \(Self.maxBytes) bytes") }
    guard bytes.count <= Self.maxBytes else { throw Refusal(reason: "it is larger than \(Self.maxBytes) bytes") }
    if bytes[0] == Self.compactMark {
      do {
        bytes = try Inflater.whole(
          Array(bytes.dropFirst()), dictionary: LinkDictionary.fromGateway, limit: Self.maxBytes)
      } catch {
        throw Refusal(
          reason: error == .tooLarge ? "it becomes larger than \(Self.maxBytes) bytes" : "it cannot be decompressed")
      }
    }
    do {
      return (try JSONValue(parsing: bytes), bytes.count)
    } catch {
      throw Refusal(reason: "no JSON: \(error)")
    }
  }

  /// A topic that names a gateway allows events of that gateway only.
  private func check(_ gateway: String, _ patterns: [TopicPattern]) throws(Refusal) {
    for pattern in patterns {
      switch pattern.match(topic) {
      case .elsewhere: continue
      case .anybody: return
      case .gateway(let name):
        guard Array(name.utf8) == Array(gateway.utf8) else {
          throw Refusal(reason: "it says that it is of gateway \(gateway), on another's topic")
        }
        return
      }
    }
    throw Refusal(reason: "its topic was not asked for")
  }

  private static func events(_ json: JSONValue, of gateway: String, _ bytes: Int) throws(Refusal) -> Events {
    do throws(EventBatch.Refusal) {
      if json["events"] != nil {
        let batch = try EventBatch(json)
        return Events(gateway: gateway, epoch: batch.epoch, before: batch.before, events: batch.events, bytes: bytes)
      }
      guard let epoch = json["epoch"]?.string, Name.isAllowed(epoch) else {
        throw EventBatch.Refusal.malformed("epoch is missing")
      }
      return Events(
        gateway: gateway, epoch: epoch, before: EventBatch.before(json), events: [try EventBatch.event(json)],
        bytes: bytes)
    } catch {
      throw Refusal(reason: error.message)
    }
  }
}

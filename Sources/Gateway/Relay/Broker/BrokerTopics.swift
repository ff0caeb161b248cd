// SPDX-License-Identifier: MIT

import JSON
import Store

extension TopicTemplate {
  /// The word for `{kind}`. Topics with `command` are for commands, so events about them get another word.
  static func word(of kind: String) -> String { kind == EventKind.command.rawValue ? "commanded" : kind }

  func renderForCommands(gateway: String) -> String { render(kind: "command", gateway: gateway, body: .null) }

  /// All possible topics; `nil`: values from the air determine it.
  fileprivate func all(gateway: String, kinds: [String]) -> [String]? {
    guard fields.allSatisfy({ ["gateway", "kind", "lane"].contains($0) }) else { return nil }
    let lanes = fields.contains("lane") ? Lane.allCases.map(\.rawValue) + ["all", "none"] : ["none"]
    return lanes.flatMap { lane in
      let body = JSONValue.object([("lane", .string(lane))])
      return kinds.map { render(kind: $0, gateway: gateway, body: body) }
    }
  }
}

/// Keeps the topics for publishing apart from those for commands: otherwise the gateway would carry out its own
/// publications, endlessly.
extension UpstreamSettings {
  /// The topic at which this upstream receives commands; `nil`: none.
  var commandTopic: TopicTemplate? {
    guard case .mqtt(let mqtt) = kind, !journal.allowed.isEmpty else { return nil }
    return mqtt.commandTopic
  }

  /// The setting's key and the topic with which this upstream would publish to the command topic of `reader` (possibly itself); `nil`: there is none.
  /// `gateway`: the gateway's name, if it is known.
  public func keyThatFeeds(_ reader: UpstreamSettings, gateway: String?) -> (key: String, topic: String)? {
    guard case .mqtt(let mqtt) = kind, let commands = reader.commandTopic else { return nil }
    let gateway = gateway ?? "{gateway}"
    let read = commands.renderForCommands(gateway: gateway)
    return mqtt.publishes(to: read, takesCommands: !journal.allowed.isEmpty, gateway: gateway).map { ($0, read) }
  }

  /// Describes the client ids and status topics that two upstreams share at one broker, where each must have its own.
  public static func sharedAtBrokers(_ upstreams: [UpstreamSettings]) -> [String] {
    var found: [String] = []
    for (place, one) in upstreams.enumerated() {
      guard case .mqtt(let mine) = one.kind, let broker = broker(one.url) else { continue }
      for other in upstreams[..<place] {
        guard case .mqtt(let theirs) = other.kind, let there = Self.broker(other.url), there.port == broker.port,
          there.host.isExactly(broker.host)
        else { continue }
        let both = "the upstreams \"\(other.name)\" and \"\(one.name)\" have one"
        if let id = mine.clientID, theirs.clientID?.isExactly(id) == true {
          found.append("\(both) client_id at one broker, which disconnects each when the other connects: change one")
        }
        if mine.observer == nil, theirs.observer == nil, mine.statusTopic == theirs.statusTopic {
          found.append(
            "\(both) status_topic at one broker: when either is cut off, it says \"offline\" for both: change one"
          )
        }
      }
    }
    return found
  }

  /// The command topics of the others, as `separate` gives them.
  var foreignCommandTopics: [TopicTemplate] {
    guard case .mqtt(let mqtt) = kind else { return [] }
    return mqtt.foreignCommandTopics
  }

  /// Without what `separate` gives, which changes with other upstreams.
  var withoutOthers: UpstreamSettings {
    guard case .mqtt(var mqtt) = kind else { return self }
    mqtt.foreignCommandTopics = []
    var alone = self
    alone.kind = .mqtt(mqtt)
    return alone
  }

  /// Gives each upstream the command topics of the others.
  public static func separate(_ upstreams: inout [UpstreamSettings]) {
    let topics = upstreams.map(\.commandTopic)
    for place in upstreams.indices {
      guard case .mqtt(var mqtt) = upstreams[place].kind else { continue }
      mqtt.foreignCommandTopics = []
      for (other, topic) in topics.enumerated() where other != place {
        guard let topic, topic != topics[place], !mqtt.foreignCommandTopics.contains(topic) else { continue }
        mqtt.foreignCommandTopics.append(topic)
      }
      upstreams[place].kind = .mqtt(mqtt)
    }
  }
}

extension UpstreamSettings.MQTTSettings {
  fileprivate func publishes(to topic: String, takesCommands: Bool, gateway: String) -> String? {
    func isBelow(_ prefix: String) -> Bool { Array(topic.utf8).starts(with: Array("\(prefix)/".utf8)) }
    func isAmong(_ topics: [String]?) -> Bool { topics?.contains { $0.isExactly(topic) } ?? false }
    if let observer {
      if isBelow("meshcore/\(observer.iata)") { return "observer" }
    } else {
      let kinds = isCompact ? ["compact"] : EventKind.allCases.map { TopicTemplate.word(of: $0.rawValue) }
      if isAmong(self.topic.all(gateway: gateway, kinds: kinds)) { return "topic" }
      if isAmong(statusTopic.all(gateway: gateway, kinds: ["status"])) { return "status_topic" }
    }
    if let homeAssistantPrefix, isBelow(homeAssistantPrefix), !isOutside(homeAssistantPrefix, topic) {
      return "home_assistant_prefix"
    }
    guard takesCommands, let commandTopic else { return nil }
    return isAmong([commandTopic.renderForCommands(gateway: gateway) + "/result"]) ? "command_topic" : nil
  }

  /// Our topics have three or four levels below the prefix.
  private func isOutside(_ prefix: String, _ topic: String) -> Bool {
    let levels = topic.utf8.count { $0 == UInt8(ascii: "/") } - prefix.utf8.count { $0 == UInt8(ascii: "/") }
    return levels < 3 || levels > 4
  }
}

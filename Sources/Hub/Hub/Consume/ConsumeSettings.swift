// SPDX-License-Identifier: MIT

import Glibc
import MQTT
import ServiceManager
import TOML
import UntrustedText

/// `[consume]`: the broker of the events. Documented in deploy/hub.toml.
public struct ConsumeSettings: Sendable {
  /// Nodes of one cluster, tried in turn; at least one.
  public var brokers: [BrokerAddress]
  public var user: String?
  public var passwordFile: String?
  public var authorities: String?
  public var certificate: String?
  public var key: String?
  public var clientID: String
  public var topics: [TopicPattern]
  /// Topics within `topics` on which clients send commands to gateways, besides those that end in `/command`. They have no events.
  public var commandTopics: [TopicPattern]
  /// The name of the group of consumers that share the publications.
  public var group: String?
  /// `auto`, `5` or `3.1.1`.
  public var version: String
  /// Most publications that may be unacknowledged.
  public var window: Int
  /// Seconds for which the broker keeps the session while this program is away.
  public var session: Int64
  public var keepAlive: Int
  public var refusedFile: String
  /// Most new gateways a day, and the number of known gateways at which the hub admits no new one.
  public var newGateways: Int64
  public var mostGateways: Int64

  /// `nil`: a setting is wrong; `table` has the error.
  init?(_ table: inout TOMLReader) {
    let url = table.string("url")
    let urls = table.optionalStrings("urls") ?? url.map { [$0] } ?? []
    if url != nil, urls != url.map({ [$0] }) { table.note("urls", "url or urls, not both") }
    if urls.isEmpty { table.note("url", "mqtt://HOST or mqtts://HOST is required") }
    if urls.count > 16 { table.note("urls", "at most 16") }
    brokers = urls.compactMap { BrokerAddress($0) }
    if brokers.count < urls.count {
      table.note(
        url == nil ? "urls" : "url", "expected mqtt://HOST, mqtts://HOST, ws://HOST/PATH or wss://HOST/PATH")
    }
    user = table.string("user")
    passwordFile = table.string("password_file")
    authorities = table.string("ca_file").map(Self.location)
    certificate = table.string("cert_file").map(Self.location)
    key = table.string("key_file").map(Self.location)
    clientID = table.string("client_id") ?? "meshpost-hub"
    if clientID.isEmpty || clientID.utf8.count > 256 {
      table.note("client_id", "1 to 256 bytes: the broker keeps what comes under this name")
    }
    topics = Self.topics("topics", default: ["meshpost/{gateway}/+"], &table)
    if topics.isEmpty, table.errors.isEmpty { table.note("topics", "1 to \(Self.mostTopics) topic filters") }
    commandTopics = Self.topics("command_topics", default: [], &table)
    // The hub would ignore the events that gateways publish there.
    let (published, asked) = (topics.flatMap { $0.examples(KnownKinds.all.filter { $0 != "command" }) }, commandTopics)
    if let covered = published.first(where: { topic in asked.contains { $0.match(topic) != .elsewhere } }) {
      table.note(
        "command_topics", "covers the topics of events, such as \"\(covered)\": none would be taken from there")
    }
    group = table.string("group")
    if let group, !Name.isAllowed(group) { table.note("group", Name.allowed) }
    version = table.choice("version", of: ["auto", "5", "3.1.1"], default: "auto")
    window = Int(table.integer("window", in: 1...1000, default: 64))
    session = table.integer("session_s", in: 60...4_294_967_294, default: 7 * 86_400)
    keepAlive = Int(table.integer("keep_alive_s", in: 5...3600, default: 60))
    refusedFile = table.string("refused_file") ?? "/var/lib/meshpost-hub/refused.jsonl"
    newGateways = table.integer("new_gateways_per_day", in: 1...1_000_000, default: 1000)
    mostGateways = table.integer("max_gateways", in: 1...10_000_000, default: 10_000)
    table.finish()
    guard table.errors.isEmpty else { return nil }
  }

  private static let mostTopics = 32

  private static func topics(_ key: String, default usual: [String], _ table: inout TOMLReader) -> [TopicPattern] {
    var topics: [TopicPattern] = []
    for text in table.optionalStrings(key) ?? usual {
      if let topic = TopicPattern(text) {
        topics.append(topic)
      } else {
        table.note(key, "\"\(text)\" is no topic filter: levels, +, #, and {gateway} for one level")
      }
    }
    if topics.count > mostTopics { table.note(key, "at most \(mostTopics) topic filters") }
    return topics
  }

  private static func location(_ name: String) -> String {
    Credential.location(name, or: HubConfiguration.credentials)
  }

  /// The first line of the password file, read for each connection; `nil`: the configuration has none.
  public func password() throws(HubConfiguration.Failure) -> String? {
    guard let passwordFile else { return nil }
    guard let line = HubConfiguration.firstLine(of: passwordFile) else {
      throw HubConfiguration.Failure(description: "the password file \(passwordFile) cannot be read, or is empty")
    }
    return line.trimmed
  }

  /// Topic filters in the broker's syntax.
  public var filters: [String] { topics.map { (group.map { "$share/\($0)/" } ?? "") + $0.filter } }
}

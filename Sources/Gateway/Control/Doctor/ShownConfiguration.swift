// SPDX-License-Identifier: MIT

import Alerts
import JSON
import TOML
import UntrustedText

/// A configuration for strangers: values of keys known to be harmless are shown, all others are hidden.
///
/// A new key is hidden until it is listed here. Secrets are in unexpected places: arguments of programs, texts of
/// templates, names of channels (from which the secret of a `#channel` is derived).
enum ShownConfiguration {
  private enum Disclosure {
    /// The value, except parts that look like a secret.
    case whole
    /// Only the scheme and host of a URL.
    case host
    /// The location of a file; any other text is hidden, because it may be the secret itself.
    case location
    /// A program, and the number of its arguments.
    case program
    case count
  }

  /// How values are shown, by key; keys are separated by spaces.
  private static func keys(
    _ whole: String, hosts: String = "", locations: String = "", programs: String = "", counts: String = ""
  ) -> [String: Disclosure] {
    var ways: [String: Disclosure] = [:]
    let all: [(String, Disclosure)] = [
      (whole, .whole), (hosts, .host), (locations, .location), (programs, .program), (counts, .count),
    ]
    for (keys, way) in all { for key in keys.split(separator: " ") { ways[String(key)] = way } }
    return ways
  }

  private static let alerts = keys(
    AlertRule.ofGateways.map(\.rawValue).map { "\($0) \($0)_after_s \($0)_ends_after_s \($0)_over_s " }.joined()
      + "tag disk_free care node_battery_mv node_battery_fall_days node_battery_fall_mv node_noise_dbm node_clock_off_s node_unanswered_polls",
    counts: "nodes")

  private static let ways: [String: [String: Disclosure]] = [
    "gateway": keys("id"),
    "radio": keys(
      "link key set_time adapter power_on unblock power_cycle advert_when_new advert_every_h", locations: "pin_file"),
    "store": keys(
      "profile max_size messages_max nodes_max journal_max_size journal_max_age_days", locations: "location"),
    "messaging": keys(
      """
      attempts flood_after floods timeout_percent in_flight path_discovery lifetime_h repeat_unheard airtime_per_hour_s messages_per_hour \
      channel_airtime_per_hour_s channel_messages_per_hour busy_percent queue room_interval_min
      """, locations: "credentials_file"),
    "poll": keys("node kind every_min"),
    "relay": keys("messages_from_hub max_age_min messages_per_minute hold_s", counts: "channels gateways"),
    "control": keys("group metrics_port", locations: "socket"), "power": keys("low_battery_mv"), "alerts": alerts,
    "log": keys("level"), "contacts": keys("evict keep_free min_age_days types"),
    "hook": keys(
      "name kinds user timeout_s memory max_age_s waited reply replies_per_minute replies_per_hour from",
      programs: "run", counts: "channels contacts rooms"),
    "proxy": keys("name listen allow max_clients history", counts: "allow_from"),
    "web": keys("listen tiles_credit", hosts: "tiles", locations: "pages", counts: "allow_from names"),
    "upstream": keys(
      """
      name kind batch_events batch_bytes from timeout_s link keep_alive_s allow commands_per_minute kinds max_age_s \
      waited content_type batch format home_assistant observer iata observer_raw radio_token stats_interval_s version \
      fold outgoing daily_bytes monthly_bytes bulk_hours
      """, hosts: "url proxy", locations: "token_file ca_file secret_file password_file cert_file key_file",
      counts: "channels contacts rooms home_assistant_notify"),
  ]

  /// `bytes`: the file. If it cannot be parsed, the result has the line of the mistake and nothing of its content.
  static func text(_ bytes: [UInt8]) -> String {
    do {
      let table = try TOMLParser.parse(bytes)
      return table.entries.flatMap { section($0.key, $0.value) }.joined(separator: "\n")
    } catch {
      return "line \(error.line) is invalid; the configuration is not shown"
    }
  }

  private static func section(_ name: String, _ value: TOMLValue) -> [String] {
    switch value.kind {
    case .table(let table): ["[\(shown(name))]"] + lines(table, ways[name] ?? [:])
    case .array(let elements) where elements.contains { if case .table = $0.kind { true } else { false } }:
      elements.flatMap { element in
        guard case .table(let table) = element.kind else { return ["[[\(shown(name))]]"] }
        return ["[[\(shown(name))]]"] + lines(table, ways[name] ?? [:])
      }
    default: ["\(shown(name)) = \(hidden)"]
    }
  }

  private static let hidden = "(hidden)"

  private static func lines(_ table: TOMLTable, _ ways: [String: Disclosure]) -> [String] {
    table.entries.map { entry in
      "\(shown(entry.key)) = \(ways[entry.key].flatMap { shown(entry.value, $0) } ?? hidden)"
    }
  }

  /// Shows a known form of key; a secret may be in the place of a key.
  private static func shown(_ key: String) -> String {
    ways[key] != nil || ways.values.contains { $0[key] != nil } || Self.secrets.contains(key) ? key : "(unknown)"
  }

  /// Known keys that are never shown.
  private static let secrets: Set<String> = [
    "pin", "user", "template", "client_id", "topic", "status_topic", "command_topic", "home_assistant_prefix",
    "token_audience", "token_owner", "token_email",
  ]

  /// `nil`: hidden.
  private static func shown(_ value: TOMLValue, _ way: Disclosure) -> String? {
    switch (way, value.kind) {
    case (.whole, .integer(let number)): return "\(number)"
    case (.whole, .bool(let bool)): return "\(bool)"
    case (.whole, .string(let text)): return quoted(Redaction.line(text))
    case (.whole, .array(let elements)):
      let texts = elements.map { shown($0, .whole) ?? hidden }
      return "[\(texts.joined(separator: ", "))]"
    case (.host, .string(let text)):
      // Without a scheme it is not a URL and may be a secret, except a proxy's `none`.
      if text.utf8.elementsEqual("none".utf8) { return quoted(text) }
      return text.utf8.contains(UInt8(ascii: ":")) && text.mentions("://") ? quoted(Redaction.line(text)) : nil
    case (.location, .string(let text)):
      return text.utf8.first == UInt8(ascii: "/") ? quoted(Redaction.line(text)) : nil
    case (.program, .array(let elements)):
      guard let first = elements.first, let program = shown(first, .location) else { return nil }
      return elements.count == 1 ? "[\(program)]" : "[\(program), …] (\(elements.count - 1) arguments, hidden)"
    case (.count, .array(let elements)): return "[…] (\(elements.count), hidden)"
    default: return nil
    }
  }

  private static func quoted(_ text: String) -> String { JSONValue.string(text).text }
}

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

  private static let alerts: [String: Disclosure] = {
    let rules = AlertRule.ofGateways.map(\.rawValue)
    let keys = rules.flatMap { [$0, "\($0)_after_s", "\($0)_ends_after_s", "\($0)_over_s"] }.map {
      ($0, Disclosure.whole)
    }
    return ["nodes": .count, "tag": .whole, "disk_free": .whole].merging(keys) { own, _ in own }
  }()

  private static let ways: [String: [String: Disclosure]] = [
    "gateway": ["id": .whole],
    "radio": [
      "link": .whole, "key": .whole, "set_time": .whole, "adapter": .whole, "power_on": .whole, "unblock": .whole,
      "power_cycle": .whole, "pin_file": .location, "advert_when_new": .whole, "advert_every_h": .whole,
    ],
    "store": [
      "location": .location, "profile": .whole, "max_size": .whole, "messages_max": .whole, "nodes_max": .whole,
      "journal_max_size": .whole,
      "journal_max_age_days": .whole,
    ],
    "messaging": [
      "attempts": .whole, "flood_after": .whole, "floods": .whole, "timeout_percent": .whole, "in_flight": .whole,
      "path_discovery": .whole, "airtime_per_hour_s": .whole, "messages_per_hour": .whole,
      "channel_airtime_per_hour_s": .whole, "channel_messages_per_hour": .whole, "queue": .whole,
      "room_interval_min": .whole, "credentials_file": .location,
    ],
    "poll": ["node": .whole, "kind": .whole, "every_min": .whole],
    "relay": [
      "messages_from_hub": .whole, "channels": .count, "max_age_min": .whole, "gateways": .count,
      "messages_per_minute": .whole, "hold_s": .whole,
    ],
    "control": ["socket": .location, "group": .whole, "metrics_port": .whole], "power": ["low_battery_mv": .whole],
    "alerts": alerts,
    "log": ["level": .whole],
    "contacts": ["evict": .whole, "keep_free": .whole, "min_age_days": .whole, "types": .whole],
    "hook": [
      "name": .whole, "kinds": .whole, "run": .program, "user": .whole, "channels": .count, "contacts": .count,
      "rooms": .count, "timeout_s": .whole, "memory": .whole, "max_age_s": .whole, "waited": .whole, "reply": .whole,
      "replies_per_minute": .whole, "replies_per_hour": .whole, "from": .whole,
    ],
    "proxy": [
      "name": .whole, "listen": .whole, "allow_from": .count, "allow": .whole, "max_clients": .whole, "history": .whole,
    ],
    "web": [
      "listen": .whole, "allow_from": .count, "names": .count, "pages": .location, "tiles": .host,
      "tiles_credit": .whole,
    ],
    "upstream": [
      "name": .whole, "kind": .whole, "url": .host, "proxy": .host, "token_file": .location, "ca_file": .location,
      "secret_file": .location, "password_file": .location, "cert_file": .location, "key_file": .location,
      "batch_events": .whole, "batch_bytes": .whole, "from": .whole, "timeout_s": .whole, "link": .whole,
      "keep_alive_s": .whole, "allow": .whole, "commands_per_minute": .whole, "kinds": .whole, "channels": .count,
      "contacts": .count, "rooms": .count, "max_age_s": .whole, "waited": .whole, "content_type": .whole,
      "batch": .whole, "format": .whole, "home_assistant": .whole, "home_assistant_notify": .count, "observer": .whole,
      "iata": .whole,
      "observer_raw": .whole, "radio_token": .whole, "stats_interval_s": .whole, "version": .whole,
      "fold": .whole, "outgoing": .whole, "daily_bytes": .whole, "monthly_bytes": .whole, "bulk_hours": .whole,
    ],
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

  private static func quoted(_ text: String) -> String {
    var json = JSONWriter()
    json.value(text)
    return json.string
  }
}

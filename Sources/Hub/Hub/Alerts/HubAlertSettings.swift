// SPDX-License-Identifier: MIT

import Alerts
import TOML

/// `[alerts]` of hub.toml: the hub's own rules. See docs/alerts.md.
public struct HubAlertSettings: Sendable, Equatable {
  public var rules = AlertSettings(AlertRule.ofHubs)
  /// Bytes that have to be free on the file system of an SQLite file; 0: the alert is off.
  public var diskFree: Int64 = 1 << 30

  init() {}

  init(_ table: inout TOMLReader) {
    diskFree = table.size("disk_free", in: 0...(1 << 50), default: diskFree)
    for rule in AlertRule.ofHubs {
      let (name, usual) = (rule.rawValue, rule.usual)
      let begins =
        rule.isEventDriven
        ? 0
        : table.integer(
          "\(name)_after_s", in: rule.leastSeconds...Self.longest, default: usual.begins.components.seconds)
      let ends = table.integer(
        "\(name)_ends_after_s", formerly: "\(name)_over_s", in: 0...Self.longest,
        default: usual.ends.components.seconds)
      let isOn = table.bool(name, default: true)
      rules.times[rule] = isOn ? AlertTimes(begins: .seconds(begins), ends: .seconds(ends)) : nil
    }
    table.finish()
  }

  private static let longest: Int64 = 366 * 86_400
}

// SPDX-License-Identifier: MIT

import TOML

/// A rule for alerts. The names are part of the hub protocol. Source: docs/alerts.md.
public enum AlertRule: String, CaseIterable, Hashable, Sendable {
  // Rules of the gateway.
  case radioLost = "radio_lost"
  case backlogged
  case deadLetters = "dead_letters"
  case nodeSilent = "node_silent"
  case clockWrong = "clock_wrong"
  case diskFull = "disk_full"
  case journalLoss = "journal_loss"
  case journalConflict = "journal_conflict"
  case batteryLow = "battery_low"
  case supplyLow = "supply_low"
  case contactsFull = "contacts_full"
  case remoteCommands = "remote_commands"
  case radioQueueFull = "radio_queue_full"
  case messagesStuck = "messages_stuck"
  case regionStuck = "region_stuck"
  case configurationWrong = "configuration_wrong"
  case storeLost = "store_lost"
  // Rules of the gateway about other nodes.
  case nodeBatteryLow = "node_battery_low"
  case nodeBatteryFalling = "node_battery_falling"
  case nodeRestarted = "node_restarted"
  case nodeNoisy = "node_noisy"
  case nodeUnanswering = "node_unanswering"
  case nodeClockWrong = "node_clock_wrong"
  // Rules of the hub.
  case gatewaySilent = "gateway_silent"
  case gatewayConflict = "gateway_conflict"
  case gatewaysRefused = "gateways_refused"
  case hubDiskFull = "hub_disk_full"
  case hubDatabase = "hub_database"
  case hubStoreLost = "hub_store_lost"
  case retentionHeld = "retention_held"

  public static let ofGateways = allCases.filter { !ofHubs.contains($0) }
  /// Rules about what other nodes report, and about their clocks.
  public static let ofNodes: [AlertRule] = [
    .nodeBatteryLow, .nodeBatteryFalling, .nodeRestarted, .nodeNoisy, .nodeUnanswering, .nodeClockWrong,
  ]
  public static let ofHubs: [AlertRule] = [
    .gatewaySilent, .gatewayConflict, .gatewaysRefused, .hubDiskFull, .hubDatabase, .hubStoreLost, .retentionHeld,
  ]

  /// The worst first: what stops messages, then what makes them late or wrong, then the rest. The pages' `weight.js` has the same order.
  public static let byWeight: [AlertRule] = [
    .hubStoreLost, .hubDatabase, .gatewaySilent, .radioLost, .messagesStuck, .regionStuck, .storeLost, .diskFull,
    .hubDiskFull, .journalLoss, .journalConflict, .gatewayConflict, .gatewaysRefused, .radioQueueFull, .batteryLow,
    .supplyLow, .backlogged, .deadLetters, .contactsFull, .remoteCommands, .configurationWrong, .retentionHeld,
    .clockWrong, .nodeSilent, .nodeUnanswering, .nodeBatteryLow, .nodeBatteryFalling, .nodeRestarted, .nodeClockWrong,
    .nodeNoisy,
  ]

  /// The default times.
  public var usual: AlertTimes {
    let (begins, ends): (Int64, Int64) =
      switch self {
      case .deadLetters, .configurationWrong, .remoteCommands, .retentionHeld, .nodeBatteryLow, .nodeBatteryFalling,
        .nodeNoisy, .nodeUnanswering, .nodeClockWrong:
        (0, 0)
      case .diskFull, .supplyLow, .hubDiskFull: (0, 600)
      case .batteryLow: (0, 1800)
      case .journalLoss, .journalConflict, .radioQueueFull, .storeLost, .nodeRestarted, .gatewayConflict,
        .gatewaysRefused, .hubStoreLost:
        (0, 86_400)
      case .regionStuck: (60, 300)
      case .contactsFull: (60, 600)
      case .radioLost, .messagesStuck, .hubDatabase: (120, 300)
      case .gatewaySilent: (900, 0)
      case .backlogged: (900, 300)
      case .clockWrong: (3600, 600)
      case .nodeSilent: (86_400, 0)
      }
    return AlertTimes(begins: .seconds(begins), ends: .seconds(ends))
  }

  /// Whether an alert begins with an event, and ends after its time without events: there is no state to check.
  public var isEventDriven: Bool { self == .gatewayConflict || self == .gatewaysRefused }

  /// Why an alert has no time before it begins; `nil`: it has one.
  public var beginsWith: String? {
    switch self {
    case .nodeRestarted: "it begins with the report that shows a restart"
    case .nodeUnanswering: "it begins with a number of polls, node_unanswered_polls"
    default: nil
    }
  }

  /// The least number of seconds until the alert may begin: with 0, a node would be silent immediately after contact.
  public var leastSeconds: Int64 { self == .nodeSilent || self == .gatewaySilent ? 1 : 0 }

  /// Somebody ends the alert, and expects to see that: no reading that changes to and fro does.
  var endsByHand: Bool { [.configurationWrong, .deadLetters, .remoteCommands, .retentionHeld].contains(self) }

  /// The rule and its times as a sentence for people.
  public func sentence(_ times: AlertTimes) -> String {
    let (begins, ends) = (Self.words(times.begins), Self.words(times.ends))
    let over = times.ends == .zero ? "" : " It ends when all has been well for \(ends)."
    return switch self {
    case .radioLost: "The radio has been away for \(begins).\(over)"
    case .backlogged: "An upstream has taken nothing for \(begins), and events wait for it.\(over)"
    case .deadLetters:
      "An upstream has refused events for good, or an operator has skipped some. It ends when they are sent again or deleted."
    case .nodeSilent:
      "A node that is named for it has not been heard for \(begins); another one in care that was heard regularly, for four times its longest "
        + "pause. It ends when it is heard."
    case .clockWrong: "This machine's clock has not been synchronised for \(begins).\(over)"
    case .diskFull: "The disk or the database is nearly full, or nothing can be written.\(over)"
    case .journalLoss: "Events were deleted before every upstream had them.\(over)"
    case .journalConflict:
      "An upstream has other events under this gateway's id and epoch, or the database is an older copy of itself: a card was put back or "
        + "copied, another gateway has the same id, or somebody else writes in its name.\(over)"
    case .batteryLow: "The radio's battery is low.\(over)"
    case .supplyLow: "This machine's supply voltage is too low.\(over)"
    case .contactsFull:
      "The radio's contact table is full, and a node was not added: the radio cannot read its texts until it has a place.\(over)"
    case .remoteCommands:
      "Another program lets a node run any command on the radio. It ends when that is taken away, or confirmed here."
    case .radioQueueFull:
      "Messages were lost in the radio because its queue was full or it was started anew, or on their way from it, or may be.\(over)"
    case .messagesStuck:
      "The radio is there and has not handed over its messages for \(begins): nothing is received.\(over)"
    case .regionStuck:
      "The radio has not gone back to its default region for \(begins), and what it might flood is not sent.\(over)"
    case .configurationWrong:
      "The configuration file is refused, and the gateway runs with the last one that worked.\(over)"
    case .storeLost: "The gateway's database was damaged, removed or replaced.\(over)"
    case .nodeBatteryLow: "The battery of a node in care is low.\(over)"
    case .nodeBatteryFalling: "The battery of a node in care has been falling for days.\(over)"
    case .nodeRestarted: "A node in care was started anew.\(over)"
    case .nodeNoisy: "A node in care hears much noise.\(over)"
    case .nodeUnanswering: "A node has not answered several polls in a row.\(over)"
    case .nodeClockWrong: "The clock of a node in care is wrong.\(over)"
    case .gatewaySilent:
      "Nothing has come for \(begins) from a gateway that keeps a link; from others for four times the longest of their usual pauses. "
        + "It ends when it is heard."
    case .gatewayConflict:
      "Under a gateway's id two histories come, or two gateways take its link from each other: a card was put back or copied, two gateways have "
        + "one id, or somebody else writes in its name.\(over)"
    case .gatewaysRefused:
      "More gateways that the hub does not know come by a broker than its [consume] allows, and are refused.\(over)"
    case .hubDiskFull: "The hub's disk is nearly full.\(over)"
    case .hubDatabase: "The hub's database has not answered for \(begins).\(over)"
    case .hubStoreLost: "The hub's database was removed or replaced.\(over)"
    case .retentionHeld:
      "The hub's [retention] would delete far more at once than its last runs, and waits for a word.\(over)"
    }
  }

  /// A duration for people: `2 minutes`, `1 day`.
  public static func words(_ duration: Duration) -> String {
    let seconds = duration.components.seconds
    let (count, unit) =
      switch seconds {
      case 172_800... where seconds.isMultiple(of: 86_400): (seconds / 86_400, "day")
      case 3600... where seconds.isMultiple(of: 3600): (seconds / 3600, "hour")
      case 60... where seconds.isMultiple(of: 60): (seconds / 60, "minute")
      default: (seconds, "second")
      }
    return "\(count) \(unit)\(count == 1 ? "" : "s")"
  }
}

/// The duration of trouble until the alert begins, and the duration of good readings until it ends.
public struct AlertTimes: Equatable, Sendable {
  public var begins: Duration
  public var ends: Duration

  public init(begins: Duration, ends: Duration) { (self.begins, self.ends) = (begins, ends) }
}

/// The rules that are on, with their times; other rules are off.
public struct AlertSettings: Equatable, Sendable {
  public var times: [AlertRule: AlertTimes]

  public init(_ rules: [AlertRule]) {
    times = Dictionary(uniqueKeysWithValues: rules.map { ($0, $0.usual) })
  }

  /// Reads `RULE = false`, `RULE_after_s` and `RULE_ends_after_s` of each rule.
  public init(_ rules: [AlertRule], reading table: inout TOMLReader) {
    self.init(rules)
    for rule in rules {
      let (name, usual) = (rule.rawValue, rule.usual)
      var begins = usual.begins.components.seconds
      if let reason = rule.beginsWith {
        if table.has("\(name)_after_s") { table.note("\(name)_after_s", "is not allowed: \(reason)") }
        table.forget("\(name)_after_s")
      } else if !rule.isEventDriven {
        begins = table.integer("\(name)_after_s", in: rule.leastSeconds...Self.longest, default: begins)
      }
      let ends = table.integer(
        "\(name)_ends_after_s", formerly: "\(name)_over_s", in: 0...Self.longest,
        default: usual.ends.components.seconds)
      let isOn = table.bool(name, default: true)
      times[rule] = isOn ? AlertTimes(begins: .seconds(begins), ends: .seconds(ends)) : nil
    }
  }

  private static let longest: Int64 = 366 * 86_400

  /// The sentences of all rules that are on, in the order of the rules.
  public var sentences: [(rule: AlertRule, sentence: String)] {
    AlertRule.allCases.compactMap { rule in times[rule].map { (rule, rule.sentence($0)) } }
  }
}

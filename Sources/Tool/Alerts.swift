// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import Glibc
import JSON

struct AlertsCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "alerts", abstract: "List alerts, acknowledge them, and show the rules.",
    subcommands: [List.self, Acknowledge.self, Rules.self], defaultSubcommand: List.self)

  struct List: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "List alerts, the newest first.")
    @OptionGroup var connection: Connection
    @Flag(help: "Only those that are open.") var open = false
    @Option(help: "Maximum number of alerts, 1 to 1000.") var limit = 20
    @Option(help: "Only alerts before this id.") var before: Int64?

    func validate() throws {
      guard (1...1000).contains(limit) else { throw ValidationError("--limit: \(limit) is not allowed: 1 to 1000") }
    }

    var exchange: Exchange {
      let target = "/v1/alerts?state=\(open ? "open" : "all")&limit=\(limit)"
      return .get(target.with(["before": before.map { "\($0)" }])) { answer in
        let alerts = answer[Shape.Alerts().alerts]
        if alerts.isEmpty { print(open ? "no alert is open" : "there has been no alert") }
        for alert in alerts { print(styled: Show.alert(alert)) }
      }
    }
  }

  struct Acknowledge: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Say that somebody has seen an alert. It ends when its reason does.")
    @OptionGroup var connection: Connection
    @Argument(help: "The alert's id.") var id: Int64
    @Option(help: "A note, at most 500 bytes.") var note: String?
    @Option(help: "Who has seen it. Default: you.") var by: String?

    var exchange: Exchange {
      let who = by ?? getpwuid(getuid()).map { String(cString: $0.pointee.pw_name) }
      let body: [UInt8] = .object([
        "id": .integer(id), "by": who.map(JSONValue.string), "note": note.map(JSONValue.string),
      ])
      return .post("/v1/alerts/acknowledge", body: body) { print(styled: Show.alert($0)) }
    }
  }

  struct Rules: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Show the rules that are on, with their times.")
    @OptionGroup var connection: Connection

    var exchange: Exchange {
      .get("/v1/alerts/rules") { answer in
        let rules = answer[Shape.AlertRules().rules]
        if rules.isEmpty { print("no rule is on: see [alerts] in the configuration") }
        for rule in rules {
          print(
            "\(Show.clean(rule[Shape.AlertRule().rule]).padding(16))\(Show.clean(rule[Shape.AlertRule().sentence]))")
        }
      }
    }
  }
}

extension Show {
  static func alert(_ alert: JSONValue) -> Styled {
    let row = Shape.Alert()
    let id = alert[row.id] ?? 0
    let text = clean(alert[row.text])
    var end = ""
    if let ended = alert[row.endedAt] { end = ", over \(time(ended))" }
    if let person = alert[row.acknowledgedBy] {
      end += ", acknowledged by \(clean(person))"
      if let note = alert[row.note] { end += ": \(clean(note))" }
    }
    let isOpen = alert[row.endedAt] == nil
    let shown: Styled = isOpen && alert[row.acknowledgedAt] == nil ? "\(TerminalColour.bad(text))" : "\(text)"
    return "\(id)  \(time(alert[row.beganAt]))  \(shown)\(end)"
  }
}

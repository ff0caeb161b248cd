// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import JSON

struct AirtimeCommand: ExchangeCommand {
  static let configuration = CommandConfiguration(
    commandName: "airtime", abstract: "Show what the air time was used for, and how busy the channel is.",
    discussion: "Seconds on the air by purpose, for each hour of the last day, or for each day with --days.")
  @OptionGroup var connection: Connection
  @Option(help: "Show so many days instead, 1 to 62.") var days: Int?

  func validate() throws {
    if let days, !(1...62).contains(days) { throw ValidationError("--days: 1 to 62") }
  }

  var exchange: Exchange {
    .get("/v1/airtime?hours=\((days ?? 1) * 24)") { answer in
      print(lines: Show.airtime(answer, byDay: days != nil))
    }
  }
}

extension Show {
  /// A table: a line for each hour or day, and a column for each purpose that occurs.
  static func airtime(_ answer: JSONValue, byDay: Bool) -> [Styled] {
    let (row, use) = (Shape.Airtime(), Shape.AirtimeUse())
    let (used, limit) = (answer[row.usedMs] ?? 0, max(1, answer[row.limitMs] ?? 1))
    var lines: [Styled] = [
      "this hour  \(used / 1000) of \(limit / 1000) s (\(used * 100 / limit) %)", "channel    \(channel(answer))", "",
    ]
    var spans: [(name: String, hours: [JSONValue])] = []
    for hour in answer[row.hours] {
      let name = format(hour[Shape.AirtimeHour().at] ?? 0, byDay ? "%Y-%m-%d" : "%m-%d %H:%M")
      if spans.last?.name != name { spans.append((name, [])) }
      spans[spans.count - 1].hours.append(hour)
    }
    guard !spans.isEmpty else { return lines + ["nothing was sent or heard"] }
    let uses = answer[row.hours].flatMap { $0[Shape.AirtimeHour().purposes] }
    let purposes: [String] = ["message", "retry", "relayed", "hook", "request", "login", "poll", "advert", "client"]
      .filter {
        name in uses.contains { $0[use.purpose] == name }
      }
    func line(_ name: String, _ cells: [String]) -> Styled {
      Styled(name.padding(13) + cells.map { String(repeating: " ", count: max(1, 9 - $0.count)) + $0 }.joined())
    }
    lines.append(line("seconds", purposes + ["sent", "heard"]))
    for span in spans {
      let own = span.hours.flatMap { $0[Shape.AirtimeHour().purposes] }
      let cells = purposes.map { name in own.filter { $0[use.purpose] == name }.reduce(0) { $0 + ($1[use.ms] ?? 0) } }
      let sent = span.hours.reduce(0) { $0 + ($1[Shape.AirtimeHour().sentMs] ?? 0) }
      let heard = span.hours.reduce(0) { $0 + ($1[Shape.AirtimeHour().heardMs] ?? 0) }
      lines.append(line(span.name, (cells + [sent, heard]).map { $0 == 0 ? "-" : tenths($0) }))
    }
    return lines
  }

  /// How busy the channel is, and whether something waits for it.
  static func channel(_ answer: JSONValue) -> String {
    let row = Shape.Airtime()
    let limit = answer[row.busyPercent] ?? 100
    let words = "\(answer[row.channelUsePercent] ?? 0) % in use in the last two minutes"
    if answer[row.waits] == true { return "\(words): what is not urgent waits" }
    return limit < 100 ? "\(words); from \(limit) % on, what is not urgent waits" : words
  }

  private static func tenths(_ milliseconds: Int64) -> String {
    let tenths = (milliseconds + 50) / 100
    return "\(tenths / 10).\(tenths % 10)"
  }
}

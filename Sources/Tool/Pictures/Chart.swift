// SPDX-License-Identifier: MIT

import ArgumentParser
import ControlShapes
import Glibc
import JSON
import UntrustedText

struct ChartCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "chart", abstract: "Draw signal, battery or traffic over time, as SVG.",
    subcommands: [Signal.self, Battery.self, Traffic.self])

  struct Options: ParsableArguments {
    @OptionGroup var output: OutputOption
    @OptionGroup var radio: RadioChoice
    @Option(
      help: ArgumentHelp("Only data since this time: \(TimeArgument.forms). Default: a week ago.", valueName: "time"))
    var since: TimeArgument?

    /// Default: a week ago.
    var beginning: Int64 { since?.milliseconds ?? (Int64(time(nil)) - 7 * 86400) * 1000 }
  }

  struct Signal: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Draw the signal-to-noise ratio of received messages, a dot for each.")
    @OptionGroup var connection: Connection
    @OptionGroup var options: Options
    @Argument(help: "Only messages from this node.", completion: Completing.nodes) var node: String?

    func run() throws {
      var points: [Chart.Point] = []
      let target = options.radio.target("/v1/messages?limit=100000&since=\(options.beginning)".with(["from": node]))
      let others = try ControlClient(connection).rows(target) { row in
        if let at = row[Shape.Message().receivedAt], let snr = row[Shape.Message().snr] {
          points.append(.init(at: at, value: snr))
        }
      }
      let chart = Chart(
        title: "signal\(node.map { " of \($0)" } ?? "")", unit: "dB", from: options.beginning, form: .dots,
        series: [("signal-to-noise ratio", points)])
      try ChartCommand.write(chart, options, connection)
      others.tell("messages", options.radio, connection)
    }
  }

  struct Battery: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Draw the battery voltage of nodes, from their readings ([[poll]], node status, node telemetry).")
    @OptionGroup var connection: Connection
    @OptionGroup var options: Options
    @Argument(help: "Only this node. Default: all nodes with readings.", completion: Completing.nodes) var node: String?

    func run() throws {
      var series: [(String, [Chart.Point])] = []
      let target = options.radio.target("/v1/readings?limit=1000".with(["node": node]))
      try ControlClient(connection).rows(target) { row in
        guard let at = row[Shape.Reading().at], at >= options.beginning,
          let volts = Self.volts(row[Shape.Reading().body])
        else { return }
        let name = row[Shape.Reading().body]?["name"]?.string ?? "?"
        let place = series.firstIndex { $0.0.isExactly(name) } ?? series.count
        if place == series.count { series.append((name, [])) }
        series[place].1.append(.init(at: at, value: volts))
      }
      let chart = Chart(title: "battery", unit: "V", from: options.beginning, form: .line, series: series)
      try ChartCommand.write(chart, options, connection)
    }

    /// Repeaters report millivolts in their status, other nodes a voltage in their telemetry.
    private static func volts(_ body: JSONValue?) -> Double? {
      if let millivolts = body?["battery_mv"]?.number { return millivolts / 1000 }
      return body?["readings"]?.array?.first { $0["type"]?.string == "voltage" }?["value"]?.number
    }
  }

  struct Traffic: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Draw received and sent messages an hour, or a day over more than ten days.")
    @OptionGroup var connection: Connection
    @OptionGroup var options: Options

    func run() throws {
      let client = ControlClient(connection)
      let now = Int64(time(nil)) * 1000
      let step: Int64 = now - options.beginning > 10 * 86_400_000 ? 86_400_000 : 3_600_000
      var (received, sent): ([Int64: Double], [Int64: Double]) = ([:], [:])
      let target = options.radio.target("/v1/messages?limit=1000000&since=\(options.beginning)")
      let others = try client.rows(target) { row in
        if let at = row[Shape.Message().receivedAt] { received[at / step, default: 0] += 1 }
      }
      try client.rows(options.radio.target("/v1/outgoing?limit=10000")) { row in
        if let at = row[Shape.Outgoing().createdAt], at >= options.beginning { sent[at / step, default: 0] += 1 }
      }
      func points(_ counts: [Int64: Double]) -> [Chart.Point] {
        (min(options.beginning, now) / step...now / step).map { .init(at: $0 * step, value: counts[$0] ?? 0) }
      }
      let chart = Chart(
        title: step > 3_600_000 ? "messages a day" : "messages an hour", unit: "", from: options.beginning,
        form: .steps(step),
        series: [("received", points(received)), ("sent", points(sent))])
      try ChartCommand.write(chart, options, connection)
      others.tell("messages", options.radio, connection)
    }
  }

  fileprivate static func write(_ chart: Chart, _ options: Options, _ connection: Connection) throws {
    let count = chart.series.reduce(0) { $0 + $1.1.count }
    if connection.json, options.output.file == nil { return print(json: chart.json) }
    try OutputFile.write(chart.svg(to: Int64(time(nil)) * 1000), to: options.output.file)
    if connection.json { print(json: .object([("points", .integer(Int64(count)))])) }
  }
}

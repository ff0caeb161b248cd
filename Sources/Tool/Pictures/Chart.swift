// SPDX-License-Identifier: MIT

import ArgumentParser
import ControlShapes
import Glibc
import JSON
import UntrustedText

struct ChartCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "chart", abstract: "Draw signal, traffic or readings of nodes over time, as SVG.",
    subcommands: [Signal.self, Battery.self, Clock.self, Neighbours.self, Noise.self, Traffic.self])

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
      var (points, count): ([Chart.Point], Int) = ([], 0)
      let path = "/v1/messages?limit=\(ChartCommand.mostDots)&since=\(options.beginning)"
      let others = try ControlClient(connection).rows(options.radio.target(path.with(["from": node]))) { row in
        count += 1
        if let at = row[Shape.Message().receivedAt], let snr = row[Shape.Message().snr] {
          points.append(.init(at: at, value: snr))
        }
      }
      let chart = Chart(
        title: "signal\(node.map { " of \($0)" } ?? "")", unit: "dB", from: options.beginning, form: .dots,
        series: [("signal-to-noise ratio", points)])
      try ChartCommand.write(chart, options, connection)
      ChartCommand.tell(count, "messages", of: ChartCommand.mostDots)
      others.tell("messages", options.radio, connection)
    }
  }

  /// Of the charts of readings, which have a line for each node.
  struct ReadingOptions: ParsableArguments {
    @OptionGroup var connection: Connection
    @OptionGroup var options: Options
    @Argument(help: "Only this node. Default: all nodes with readings.", completion: Completing.nodes) var node: String?

    /// `kind`: of the readings; `nil`: all. `value`: of a reading's body; `nil`: it has none.
    func draw(_ title: String, _ unit: String, _ kind: String?, _ value: @escaping (JSONValue) -> Double?) throws {
      var (series, nodes): ([(String, [Chart.Point])], [String]) = ([], [])
      let path = "/v1/readings?limit=\(ChartCommand.mostKept)"
      let target = options.radio.target(path.with(["node": node, "kind": kind]))
      let row = Shape.Reading()
      try ControlClient(connection).rows(target) { reading in
        guard let at = reading[row.at], at >= options.beginning else { return }
        guard let body = reading[row.body], let value = value(body) else { return }
        // By the key: two nodes may have one name, and a node may change its own.
        let name = body["name"]?.string ?? "?"
        let node = body["node"]?.string ?? name
        let place = nodes.firstIndex { $0.isExactly(node) } ?? nodes.count
        if place == nodes.count {
          nodes.append(node)
          series.append((name, []))
        }
        series[place].0 = name
        series[place].1.append(.init(at: at, value: value))
      }
      let chart = Chart(title: title, unit: unit, from: options.beginning, form: .line, series: series)
      try ChartCommand.write(chart, options, connection)
      try ChartCommand.tell("readings", "/v1/readings", row.at, options, connection)
    }
  }

  struct Battery: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Draw the battery voltage of nodes, from their readings ([[poll]], node status, node telemetry).")
    @OptionGroup var readings: ReadingOptions
    func run() throws { try readings.draw("battery", "V", nil, Self.volts) }

    /// Repeaters report millivolts in their status, other nodes a voltage in their telemetry.
    private static func volts(_ body: JSONValue) -> Double? {
      if let millivolts = body["battery_mv"]?.number { return millivolts / 1000 }
      return body["readings"]?.array?.first { $0["type"]?.string == "voltage" }?["value"]?.number
    }
  }

  struct Clock: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Draw how far the clocks of nodes are ahead of the gateway's, from polls of the kind clock.")
    @OptionGroup var readings: ReadingOptions
    func run() throws { try readings.draw("clock", "s", "node_clock") { $0["offset_s"]?.number } }
  }

  struct Neighbours: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Draw how many neighbours repeaters have, from polls of the kind neighbours.")
    @OptionGroup var readings: ReadingOptions

    func run() throws {
      try readings.draw("neighbours", "", "node_neighbours") { $0["neighbours"] == nil ? nil : $0["total"]?.number }
    }
  }

  struct Noise: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Draw the noise floor that nodes report in their status.")
    @OptionGroup var readings: ReadingOptions
    func run() throws { try readings.draw("noise floor", "dBm", "node_status") { $0["noise_floor_dbm"]?.number } }
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
      var receivedCount = 0
      let target = options.radio.target("/v1/messages?limit=\(ChartCommand.mostCounted)&since=\(options.beginning)")
      let others = try client.rows(target) { row in
        receivedCount += 1
        if let at = row[Shape.Message().receivedAt] { received[at / step, default: 0] += 1 }
      }
      try client.rows(options.radio.target("/v1/outgoing?limit=\(ChartCommand.mostKept)")) { row in
        guard let at = row[Shape.Outgoing().createdAt], at >= options.beginning else { return }
        sent[at / step, default: 0] += 1
      }
      func points(_ counts: [Int64: Double]) -> [Chart.Point] {
        (min(options.beginning, now) / step...now / step).map { .init(at: $0 * step, value: counts[$0] ?? 0) }
      }
      let chart = Chart(
        title: step > 3_600_000 ? "messages a day" : "messages an hour", unit: "", from: options.beginning,
        form: .steps(step),
        series: [("received", points(received)), ("sent", points(sent))])
      try ChartCommand.write(chart, options, connection)
      ChartCommand.tell(receivedCount, "received messages", of: ChartCommand.mostCounted)
      try ChartCommand.tell("sent messages", "/v1/outgoing", Shape.Outgoing().createdAt, options, connection)
      others.tell("messages", options.radio, connection)
    }
  }

  /// Messages of which each is a dot, and those that are only counted.
  fileprivate static let (mostDots, mostCounted) = (100_000, 1_000_000)
  /// As many sent messages, and as many readings, as a gateway keeps.
  fileprivate static let mostKept = 10_000

  /// Says so if older rows of the period may be missing: a chart reads the newest `limit`.
  fileprivate static func tell(_ count: Int, _ what: String, of limit: Int) {
    guard count >= limit else { return }
    OtherRadios.note(
      "the chart has the newest \(limit) \(what): older ones of its period, if there are any, are left out")
  }

  /// Says so if the gateway may have deleted rows of the period: it keeps the newest of all radios, nodes and kinds together, so the rows of a chart
  /// do not show it.
  fileprivate static func tell(
    _ what: String, _ path: String, _ at: Field<Int64>, _ options: Options, _ connection: Connection
  ) throws {
    var (count, oldest) = (0, Int64.max)
    try ControlClient(connection).rows("\(path)?limit=\(mostKept)&radio=all") { row in
      count += 1
      oldest = min(oldest, row[at] ?? .max)
    }
    guard count >= mostKept, oldest >= options.beginning else { return }
    OtherRadios.note(
      "the gateway keeps the newest \(mostKept) \(what): older ones of the chart's period, if there were any, are left out"
    )
  }

  fileprivate static func write(_ chart: Chart, _ options: Options, _ connection: Connection) throws {
    let count = chart.series.reduce(0) { $0 + $1.1.count }
    if connection.json, options.output.file == nil { return print(json: chart.json) }
    let output = options.output
    let file = try OutputFile.write(
      chart.svg(to: Int64(time(nil)) * 1000), to: output.file, replaces: output.force)
    if connection.json { file.tell(JSONValue.object([("points", .integer(Int64(count)))]).text) }
  }
}

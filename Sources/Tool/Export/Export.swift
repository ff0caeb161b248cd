// SPDX-License-Identifier: MIT

import ArgumentParser

struct ExportCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "export", abstract: "Export messages, nodes or readings for other programs.",
    discussion: """
      JSON lines are those of the control socket. In CSV every field is quoted, times are RFC 3339 in UTC, and text that a \
      spreadsheet would evaluate as a formula is preceded by an apostrophe, as names and texts come over the air. GeoJSON \
      and GPX contain positions. Control characters are replaced on a terminal, but not in a file or pipe.
      """,
    subcommands: [Messages.self, Contacts.self, Readings.self])

  enum Format: String, ExpressibleByArgument, CaseIterable { case jsonl, csv, geojson, gpx }
  /// Of rows without a position.
  enum PlainFormat: String, ExpressibleByArgument, CaseIterable { case jsonl, csv }

  struct Messages: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Export received and sent messages, oldest first, as jsonl or csv.")
    @OptionGroup var connection: Connection
    @OptionGroup var filter: MessageFilter
    @OptionGroup var output: OutputOption
    @Option(help: "jsonl or csv.") var format = PlainFormat.jsonl
    @Option(help: "Maximum number of messages; the newest are kept.") var limit = 1_000_000

    func validate() throws { try RowLimit.check(limit) }

    func run() throws {
      let columns = [
        "id", "received_at", "clock_trusted", "kind", "sender", "sender_name", "author", "author_name", "channel",
        "channel_name", "sender_time", "text", "snr", "hops", "direct", "copies", "direction", "recipient",
        "recipient_name", "outgoing", "state", "reason", "origin", "radio",
      ]
      let writer: any ExportWriter =
        switch format {
        case .jsonl: JSONLinesWriter()
        case .csv: CSVWriter(columns: columns)
        }
      let target = filter.target("/v1/messages?limit=\(limit)")
      try ExportCommand.write(target, writer, output, connection).tell("messages", filter.radio, connection)
    }
  }

  struct Contacts: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Export known nodes as jsonl or csv, or their positions as geojson or gpx.")
    @OptionGroup var connection: Connection
    @OptionGroup var output: OutputOption
    @Option(help: "jsonl, csv, geojson or gpx.") var format = Format.jsonl
    @Flag(help: "Only nodes in the radio's contact table.") var onRadio = false
    @OptionGroup var radio: RadioChoice

    func run() throws {
      let columns = [
        "key", "name", "alias", "type", "favourite", "hops", "path", "lat", "lon", "last_advert", "last_heard",
        "first_seen", "on_radio",
      ]
      let writer: any ExportWriter =
        switch format {
        case .jsonl: JSONLinesWriter()
        case .csv: CSVWriter(columns: columns)
        case .geojson: GeoJSONWriter()
        case .gpx: GPXWriter()
        }
      let target = radio.target("/v1/contacts?on_radio=\(onRadio ? 1 : 0)")
      try ExportCommand.write(target, writer, output, connection).tell("nodes", radio, connection)
    }
  }

  struct Readings: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Export readings of nodes, oldest first, as jsonl or csv, or their positions as a gpx track or geojson."
    )
    @OptionGroup var connection: Connection
    @OptionGroup var output: OutputOption
    @Argument(help: "Only this node's readings.") var node: String?
    @Option(help: "jsonl, csv, geojson or gpx.") var format = Format.jsonl
    @Option(help: "Maximum number of readings; the newest are kept.") var limit = 10_000
    @OptionGroup var radio: RadioChoice

    func validate() throws { try RowLimit.check(limit) }

    func run() throws {
      let writer: any ExportWriter =
        switch format {
        case .jsonl: JSONLinesWriter()
        case .csv: CSVWriter(columns: ["at", "kind", "node", "body"])
        case .geojson: TrackWriter(GeoJSONWriter())
        case .gpx: TrackWriter(GPXWriter())
        }
      let target = radio.target("/v1/readings?limit=\(limit)".with(["node": node]))
      try ExportCommand.write(target, writer, output, connection)
    }
  }

  @discardableResult
  fileprivate static func write(
    _ target: String, _ writer: any ExportWriter, _ output: OutputOption, _ connection: Connection
  ) throws -> OtherRadios {
    var writer = writer
    let file = try OutputFile(output.file, replaces: output.force)
    try file.write(writer.head)
    let others = try ControlClient(connection).rows(target) { row in try file.write(writer.row(row)) }
    try file.write(writer.tail)
    try file.close()
    return others
  }
}

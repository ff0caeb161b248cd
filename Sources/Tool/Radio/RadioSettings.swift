// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import JSON
import UntrustedText

extension RadioCommand {
  struct Info: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Show identity, settings and statistics.")
    @OptionGroup var connection: Connection

    func run() throws {
      try ControlClient(connection).show("/v1/radio") { print(lines: Show.radioInfo($0)) }
    }
  }

  struct Set: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Change radio settings, given as KEY=VALUE.",
      discussion: """
        For example: meshpost radio set name=Hilltop position=47.3769,8.5417 'preset=EU/UK (Narrow)' power=14

        `meshpost radio set` without arguments lists the keys and the allowed values. All values are checked before the first \
        is sent. Radio parameters apply immediately: a radio with other parameters than its mesh receives nothing.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "A setting as KEY=VALUE.") var settings: [String] = []

    func run() throws {
      var fields: [(String, JSONValue)] = []
      for setting in settings {
        let parts = setting.pieces(at: "=", most: 2)
        guard parts.count == 2 else { throw ValidationError("\(setting): expected KEY=VALUE") }
        fields.append((parts[0], .string(parts[1])))
      }
      guard !fields.isEmpty else { return try printKeys() }
      let answer = try ControlClient(connection).post("/v1/radio/set", body: JSONValue.object(fields).bytes)
      if connection.json { return print(answer.text) }
      print(lines: Show.radioInfo(answer.value))
      if fields.contains(where: { Self.advertised.contains($0.0) }) { print(Advert.offer) }
    }

    /// Settings that other nodes learn only from adverts.
    private static let advertised = ["name", "position", "location-policy"]

    private func printKeys() throws {
      let answer = try ControlClient(connection).get("/v1/radio/presets")
      if connection.json { return print(answer.text) }
      for setting in answer.value["settings"]?.array ?? [] {
        print("\((setting["name"]?.string ?? "").padding(23))\(setting["allowed"]?.string ?? "")")
      }
    }
  }

  struct Presets: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "List presets of radio parameters by region.")
    @OptionGroup var connection: Connection

    func run() throws {
      let answer = try ControlClient(connection).get("/v1/radio/presets")
      if connection.json { return print(answer.text) }
      for preset in answer.value["presets"]?.array ?? [] {
        let name = (preset["name"]?.string ?? "").padding(26)
        print(
          "\(name)\(preset["frequency"]?.number ?? 0) MHz, \(preset["bandwidth"]?.number ?? 0) kHz, "
            + "SF \(preset["sf"]?.integer ?? 0), CR \(preset["cr"]?.integer ?? 0)")
      }
    }
  }
}

extension Show {
  static func radioInfo(_ radio: JSONValue) -> [Styled] {
    var lines: [Styled] = []
    func line(_ name: String, _ value: String?) {
      if let value { lines.append("\(name.padding(23))\(value)") }
    }
    line("radio", [radio["model"], radio["version"]].compactMap { $0?.string }.joined(separator: " "))
    line("key", radio["key"]?.string)
    line("battery", radio["battery_mv"]?.number.map { "\($0 / 1000) V" })
    for (name, value) in radio["settings"]?.fields ?? [] { line(name, value.string ?? value.text) }
    for (name, value) in radio["stats"]?.fields ?? [] {
      let text = value.array?.compactMap(\.string).joined(separator: ", ") ?? value.string ?? value.text
      line(name, text.isEmpty ? "-" : text)
    }
    return lines
  }
}

// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Escaping
import JSON

extension RadioCommand {
  struct Info: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "What the radio is, how it is set, and how it is.")
    @OptionGroup var connection: Connection

    func run() throws {
      let answer = try ControlClient(connection).get("/v1/radio")
      if connection.json { return print(answer.text) }
      print(lines: Show.radioInfo(answer.value))
    }
  }

  struct Set: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Set the radio: KEY=VALUE, one or more.",
      discussion: """
        For example: meshpost radio set name=Hilltop position=47.3769,8.5417 'preset=EU/UK (Narrow)' power=14

        `meshpost radio set` without anything tells the keys and what is allowed. All are looked at before the first is \
        sent. Radio parameters count at once: a radio on other parameters than its mesh hears nobody.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "What, and its value.") var settings: [String] = []

    func run() throws {
      var fields: [(String, JSONValue)] = []
      for setting in settings {
        let parts = setting.pieces(at: "=", most: 2)
        guard parts.count == 2 else { throw ValidationError("\(setting): KEY=VALUE is wanted") }
        fields.append((parts[0], .string(parts[1])))
      }
      guard !fields.isEmpty else { return try tellKeys() }
      let answer = try ControlClient(connection).post("/v1/radio/set", body: JSONValue.object(fields).bytes)
      if connection.json { return print(answer.text) }
      print(lines: Show.radioInfo(answer.value))
      if fields.contains(where: { Self.advertised.contains($0.0) }) { print(Advert.offer) }
    }

    /// What others know of the radio from its adverts alone.
    private static let advertised = ["name", "position", "location-policy"]

    private func tellKeys() throws {
      let answer = try ControlClient(connection).get("/v1/radio/presets")
      if connection.json { return print(answer.text) }
      for setting in answer.value["settings"]?.array ?? [] {
        print("\((setting["name"]?.string ?? "").padding(23))\(setting["allowed"]?.string ?? "")")
      }
    }
  }

  struct Presets: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Regions' radio parameters.")
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
      let words = value.array?.compactMap(\.string).joined(separator: ", ") ?? value.string ?? value.text
      line(name, words.isEmpty ? "-" : words)
    }
    return lines
  }
}

// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import JSON
import UntrustedText

extension RadioCommand {
  struct Info: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Show identity, settings and statistics.")
    @OptionGroup var connection: Connection
    var exchange: Exchange { .get("/v1/radio") { print(lines: Show.radioInfo($0)) } }
  }

  struct Set: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Change radio settings, given as KEY=VALUE.",
      discussion: """
        For example: meshpost radio set name=Hilltop position=47.3769,8.5417 'preset=EU/UK (Narrow)' power=14

        `meshpost radio set` without arguments lists the keys and the allowed values. All values are checked before the first \
        is sent. Radio parameters apply immediately: a radio with other parameters than its mesh receives nothing.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "A setting as KEY=VALUE.") var settings: [String] = []

    var exchange: Exchange {
      get throws {
        let fields = try settings.map { setting -> (String, JSONValue) in
          let parts = setting.pieces(at: "=", most: 2)
          if settings.count == 2, settings[1].isEmpty, parts.count == 1 {
            throw ValidationError("\(setting): the value is empty. \(Self.remedy)")
          }
          guard parts.count == 2 else { throw ValidationError("\(setting): expected \(form). \(Self.remedy)") }
          return (parts[0], .string(parts[1]))
        }
        guard !fields.isEmpty else { return keys }
        try GivenOnce.check(fields.map(\.0), "KEY=VALUE")
        return .post("/v1/radio/set", body: JSONValue.object(fields).bytes) { answer in
          print(lines: Show.radioInfo(answer))
          if fields.contains(where: { Self.advertised.contains($0.0) }) { print(Advert.offer) }
        }
      }
    }

    private static let remedy = "`meshpost radio set` without arguments lists the keys and the allowed values"

    /// The form of a setting: the one that was meant, if a key and a value were given as two arguments.
    private var form: String {
      let areTwo = settings.count == 2 && !settings.contains { $0.has("=") }
      return areTwo ? settings.joined(separator: "=") : "KEY=VALUE"
    }

    /// Settings that other nodes learn only from adverts.
    private static let advertised = ["name", "position", "location-policy"]

    private var keys: Exchange {
      .get("/v1/radio/presets") { answer in
        for setting in answer[Shape.Presets().settings] {
          print("\((setting[Shape.Setting().name] ?? "").padding(23))\(setting[Shape.Setting().allowed] ?? "")")
        }
      }
    }
  }

  struct Presets: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "List presets of radio parameters by region.")
    @OptionGroup var connection: Connection

    var exchange: Exchange {
      .get("/v1/radio/presets") { answer in
        let row = Shape.Preset()
        for preset in answer[Shape.Presets().presets] {
          let name = (preset[row.name] ?? "").padding(26)
          print(
            "\(name)\(preset[row.frequency] ?? 0) MHz, \(preset[row.bandwidth] ?? 0) kHz, "
              + "SF \(preset[row.sf] ?? 0), CR \(preset[row.cr] ?? 0)")
        }
      }
    }
  }
}

extension Show {
  static func radioInfo(_ radio: JSONValue) -> [Styled] {
    let row = Shape.Radio()
    var lines: [Styled] = []
    func line(_ name: String, _ value: String?) {
      if let value { lines.append("\(name.padding(23))\(value)") }
    }
    line("radio", [radio[row.model], radio[row.version]].compactMap { $0 }.joined(separator: " "))
    line("key", radio[row.key])
    line("battery", radio[row.batteryMv].map { "\(Double($0) / 1000) V" })
    for (name, value) in radio[row.settings]?.fields ?? [] { line(name, value.string ?? value.text) }
    for (name, value) in radio[row.stats]?.fields ?? [] {
      let text = value.array?.compactMap(\.string).joined(separator: ", ") ?? value.string ?? value.text
      line(name, text.isEmpty ? "-" : text)
    }
    return lines
  }
}

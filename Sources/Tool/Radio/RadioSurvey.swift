// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import JSON

extension RadioCommand {
  struct Survey: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "List the repeaters in direct range, with the signal in both directions.",
      discussion: """
        Sends one packet, which all repeaters that hear it answer by themselves: no login is needed, and they need not be \
        known. A repeater answers four times in two minutes at most.
        """)
    @OptionGroup var connection: Connection
    @Option(help: "How long to listen, in seconds (1 to 60).") var seconds = 15
    @Option(help: "Which nodes to ask, such as repeater,sensor.") var types = "repeater"

    func validate() throws {
      guard (1...60).contains(seconds) else { throw ValidationError("--seconds: 1 to 60") }
    }

    var exchange: Exchange {
      let body: [UInt8] = .object(["seconds": .integer(Int64(seconds)), "types": .string(types)])
      return .post("/v1/radio/survey", body: body, limit: seconds + 30) { print(lines: Show.survey($0)) }
    }
  }

  struct Variables: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Show or set variables of the radio's board, such as gps=1.",
      discussion: "Which ones there are depends on the board and its sensors.")
    @OptionGroup var connection: Connection
    @Argument(help: "A variable to set, as NAME=VALUE.") var setting: String?

    var exchange: Exchange {
      get throws {
        guard let setting else { return .get("/v1/radio/variables") { print(lines: Show.variables($0)) } }
        let parts = setting.pieces(at: "=", most: 2)
        guard parts.count == 2 else { throw ValidationError("\(setting): expected NAME=VALUE") }
        let body: [UInt8] = .object(["name": .string(parts[0]), "value": .string(parts[1])])
        return .post("/v1/radio/variables", body: body) { print(lines: Show.variables($0)) }
      }
    }
  }
}

extension Show {
  static func survey(_ answer: JSONValue) -> [Styled] {
    let row = Shape.SurveyedNode()
    let nodes = answer[Shape.Survey().nodes]
    if nodes.isEmpty { return ["nobody answered"] }
    return nodes.map { node in
      let name = clean(node[row.name] ?? "not known yet").padding(26)
      let signal =
        "hears us at \(node[row.snrThere] ?? 0) dB, heard at \(node[row.snr] ?? 0) dB (\(node[row.rssi] ?? 0) dBm)"
      return "\((node[row.key] ?? "?").prefix(12))  \((node[row.type] ?? "?").padding(9))\(name)\(signal)"
    }
  }

  static func variables(_ answer: JSONValue) -> [Styled] {
    let all = answer[Shape.Variables().variables]
    if all.isEmpty { return ["the radio's board has no variables"] }
    return all.map { "\(clean($0[Shape.Variable().name]))=\(clean($0[Shape.Variable().value]))" }
  }

  static func access(_ answer: JSONValue) -> [Styled] {
    let row = Shape.AccessEntry()
    let entries = answer[Shape.Access().entries]
    if entries.isEmpty { return ["nobody is on the list"] }
    return entries.map { entry in
      "\(entry[row.key] ?? "?")  \((entry[row.role] ?? "?").padding(11))\(clean(entry[row.name]))"
    }
  }
}

// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import Glibc
import JSON

struct RadioCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "radio", abstract: "Find, pair, configure and back up radios.",
    subcommands: [
      Probe.self, List.self, Info.self, Set.self, Advert.self, RadioRegions.self, Presets.self, Backup.self,
      Restore.self, Scan.self, Pair.self, Forget.self, Survey.self, Variables.self,
    ])

  struct Scan: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "List MeshCore radios in Bluetooth range, strongest first.")
    @OptionGroup var connection: Connection
    @Option(help: "How long to listen, in seconds (1 to 60).") var seconds = 8

    func validate() throws {
      guard (1...60).contains(seconds) else { throw ValidationError("--seconds: 1 to 60") }
    }

    var exchange: Exchange {
      .get("/v1/radio/scan?seconds=\(seconds)", limit: seconds + 30) { answer in
        let radios = answer[Shape.Scan().radios]
        if radios.isEmpty { print("no MeshCore radio in range") }
        for radio in radios { Show.radio(radio) }
      }
    }
  }

  struct Pair: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Pair with a Bluetooth radio, using the PIN from its display or settings.",
      discussion:
        "Without --pin or --pin-file, uses the configuration's PIN or prompts for one. An existing bond is removed first."
    )
    @OptionGroup var connection: Connection
    @Argument(help: "The radio's address, such as C0:FF:EE:00:00:01 (see `meshpost radio scan`).") var address: String
    @Option(help: "Six digits. Visible in the process list: omit it to be prompted.") var pin: String?
    @Option(help: "The file whose first line is the PIN; - is standard input.", completion: .file()) var pinFile:
      String?

    func validate() throws {
      if pin != nil, pinFile != nil { throw ValidationError("--pin and --pin-file cannot be combined") }
    }

    var exchange: Exchange {
      get throws {
        let given = try pin ?? fromFile() ?? asked()
        let body = given.map { [UInt8].object(["pin": .string($0)]) } ?? []
        let target = "/v1/radio/pair".with(["address": address])
        return .post(target, body: body, limit: 180, done: "paired with \(address)")
      }
    }

    private func fromFile() throws -> String? {
      guard let pinFile else { return nil }
      guard let line = pinFile == "-" ? try TypedText.line() : try InputFile.firstLine(pinFile), !line.isEmpty else {
        throw Failure.say("\(pinFile): no such file, or its first line is empty", EX_NOINPUT)
      }
      return line
    }

    /// Reads a line from the terminal without echo; `nil`: there is no terminal.
    private func asked() throws -> String? {
      guard isatty(0) != 0 else { return nil }
      return try HiddenPrompt.line("PIN of \(address) (empty: the configuration's): ").flatMap { $0.isEmpty ? nil : $0 }
    }
  }

  struct Forget: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Remove a radio and its bond from this machine.")
    @OptionGroup var connection: Connection
    @Argument(help: "The radio's address.") var address: String

    var exchange: Exchange {
      .post(
        "/v1/radio/forget".with(["address": address]),
        done: "removed \(address); the radio may still have a bond with this machine")
    }
  }
}

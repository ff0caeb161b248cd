// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import Glibc
import HTTP
import JSON

/// Selects rows by radio: by default those of the attached radio.
struct RadioChoice: ParsableArguments {
  @Option(help: "Only data of this radio, by name or key prefix (see meshpost radio list).")
  var radio: String?
  @Flag(help: "Data of all radios that were ever attached.") var allRadios = false

  /// The target of the request with this choice.
  func target(_ target: String) -> String { target.with(["radio": radio ?? (allRadios ? "all" : nil)]) }
}

/// Radios other than the attached one, and their row counts.
struct OtherRadios {
  let radios: [JSONValue]

  init(_ response: HTTPResponse) {
    // `try?`: without the header the note about other radios is left out.
    let text = response.headers["Meshpost-Other-Radios"].flatMap { PercentCoding.decode($0) }
    radios = text.flatMap { try? JSONValue(parsing: $0) }?.array ?? []  // as above
  }

  /// Prints a note about hidden rows of other radios. `what`: `messages` or `nodes`.
  func tell(_ what: String, _ choice: RadioChoice, _ connection: Connection) {
    guard !connection.json, choice.radio == nil, !choice.allRadios else { return }
    for radio in radios {
      guard let count = radio[what]?.integer, count > 0 else { continue }
      let (name, mark) = (Show.clean(radio[Shape.KnownRadio().name]), radio[Shape.KnownRadio().radio] ?? "?")
      let one = count == 1 ? "1 \(what.dropLast())" : "\(count) \(what)"
      Self.note("\(one) of another radio (\(name), \(mark.prefix(4))…): --radio \(mark), or --all-radios")
    }
  }

  /// Prints to standard error: programs read the rows from standard output.
  static func note(_ message: String) { Console.error(message) }
}

extension RadioCommand {
  struct List: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "List the radios of this gateway. Each has its own messages, nodes and queue.")
    @OptionGroup var connection: Connection

    func run() throws { try ControlClient(connection).lines("/v1/radios", Show.knownRadio) }
  }
}

/// Messages held for another radio: one of them, or all.
struct HeldMessages: ParsableArguments {
  @OptionGroup var connection: Connection
  @Flag(help: "All held messages.") var all = false
  @Argument(help: "A message's id.") var id: String?

  func validate() throws {
    guard (id == nil) == all else { throw ValidationError("expected the id of a message, or --all") }
  }

  func act(_ verb: String) throws {
    let client = ControlClient(connection)
    if let id {
      let answer = try client.post("/v1/outgoing/\(verb)".with(["id": id]))
      let whole = JSONValue.object([("messages", .array([answer.value])), ("refused", .array([]))])
      return print(connection.json ? whole.text : Show.outgoing(answer.value))
    }
    let answer = try client.post("/v1/outgoing/\(verb)?held=1")
    let (messages, refused) = (answer.value[Shape.Adopted().messages], answer.value[Shape.Adopted().refused])
    if connection.json {
      print(answer.text)
    } else {
      for message in messages { print(Show.outgoing(message)) }
      let row = Shape.Refused()
      for one in refused { print("\(Show.clean(one[row.id])) remains held: \(Show.clean(one[row.error]))") }
      if messages.isEmpty && refused.isEmpty { print("no message is held") }
    }
    if !refused.isEmpty { throw ExitCode(EX_NOUSER) }
  }
}

extension SentCommand {
  struct Adopt: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Send messages held for another radio with the attached radio.",
      discussion:
        "The recipient sees a different sender. A message that the other radio had already sent may arrive twice.")
    @OptionGroup var held: HeldMessages
    func run() throws { try held.act("adopt") }
  }

  struct Cancel: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Cancel messages held for another radio, or one message.")
    @OptionGroup var held: HeldMessages
    func run() throws { try held.act("cancel") }
  }
}

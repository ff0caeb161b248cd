// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc
import HTTP
import JSON

/// Whose rows are shown: those of the radio that is attached, unless something else is said.
struct RadioChoice: ParsableArguments {
  @Option(help: "Those of this radio, by its name or the beginning of its key (see meshpost radio list).")
  var radio: String?
  @Flag(help: "Those of every radio that was ever attached.") var allRadios = false

  /// As the control socket takes it, with an `&` in front.
  var query: String {
    if let radio { return "&radio=\(ControlClient.escape(radio))" }
    return allRadios ? "&radio=all" : ""
  }
}

/// Other radios than the one that is attached, and what there is of them.
struct OtherRadios {
  let radios: [JSONValue]

  init(_ response: HTTPResponse) {
    // `try?`: without it nothing is said of others.
    let text = response.headers["Meshpost-Other-Radios"].flatMap { PercentCoding.decode($0) }
    radios = text.flatMap { try? JSONValue(parsing: $0) }?.array ?? []  // as above
  }

  /// Says to people what was left out. `what`: `messages` or `nodes`.
  func tell(_ what: String, _ choice: RadioChoice, _ connection: Connection) {
    guard !connection.json, choice.radio == nil, !choice.allRadios else { return }
    for radio in radios {
      guard let count = radio[what]?.integer, count > 0 else { continue }
      let (name, mark) = (Show.clean(radio["name"]?.string), radio["radio"]?.string ?? "?")
      let one = count == 1 ? "1 \(what.dropLast())" : "\(count) \(what)"
      Self.note("\(one) of another radio (\(name), \(mark.prefix(4))…): --radio \(mark), or --all-radios")
    }
  }

  /// Beside what is shown, so that what reads it further is not disturbed.
  static func note(_ words: String) {
    fflush(nil)
    Console.error(words)
  }
}

extension RadioCommand {
  struct List: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Radios that this gateway has had: each has messages, nodes and a queue of its own.")
    @OptionGroup var connection: Connection

    func run() throws { try ControlClient(connection).lines("/v1/radios", Show.knownRadio) }
  }
}

/// What another radio was to send.
extension OutgoingCommand {
  struct Adopt: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Let the radio that is attached send what another one was to send.",
      discussion: "The recipient sees another sender. What the other radio had sent already may arrive twice.")
    @OptionGroup var connection: Connection
    @Flag(help: "All that is held.") var all = false
    @Argument(help: "A message's id.") var id: String?

    func validate() throws { try OutgoingCommand.check(id, all) }
    func run() throws { try OutgoingCommand.act("adopt", id, connection) }
  }

  struct Cancel: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Give up what another radio was to send, or one message.")
    @OptionGroup var connection: Connection
    @Flag(help: "All that is held.") var all = false
    @Argument(help: "A message's id.") var id: String?

    func validate() throws { try OutgoingCommand.check(id, all) }
    func run() throws { try OutgoingCommand.act("cancel", id, connection) }
  }

  fileprivate static func check(_ id: String?, _ all: Bool) throws {
    guard (id == nil) == all else { throw ValidationError("the id of a message, or --all") }
  }

  fileprivate static func act(_ verb: String, _ id: String?, _ connection: Connection) throws {
    let client = ControlClient(connection)
    if let id {
      let answer = try client.post("/v1/outgoing/\(verb)?id=\(ControlClient.escape(id))")
      let whole = JSONValue.object([("messages", .array([answer.value])), ("refused", .array([]))])
      return print(connection.json ? whole.text : Show.outgoing(answer.value))
    }
    let answer = try client.post("/v1/outgoing/\(verb)?held=1")
    let (messages, refused) = (answer.value["messages"]?.array ?? [], answer.value["refused"]?.array ?? [])
    if connection.json {
      print(answer.text)
    } else {
      for message in messages { print(Show.outgoing(message)) }
      for one in refused { print("\(Show.clean(one["id"]?.string)) stays held: \(Show.clean(one["error"]?.string))") }
      if messages.isEmpty && refused.isEmpty { print("nothing is held") }
    }
    if !refused.isEmpty { throw ExitCode(EX_NOUSER) }
  }
}

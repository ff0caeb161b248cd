// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Escaping
import JSON

struct UpstreamCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "upstream", abstract: "Look at servers upstream, add and remove them, pause them, try them.",
    subcommands: [List.self, Add.self, Remove.self, Pause.self, Resume.self, Test.self], defaultSubcommand: List.self)

  struct List: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "What each has had, and what it waits for.")
    @OptionGroup var connection: Connection

    func run() throws {
      let answer = try ControlClient(connection).get("/v1/outbox")
      if connection.json { return print(answer.text) }
      for upstream in answer.value["upstreams"]?.array ?? [] { Show.upstream(upstream) }
    }
  }

  struct Add: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Forward to one more server, from now on, or from the beginning of the journal.",
      discussion: """
        It is kept beside the database, and stays until it is removed. Keys are those of [[upstream]] in \
        deploy/meshpostd.toml. Tokens and other files are read here, where the command runs, and kept on the gateway for the \
        daemon alone: whoever may add an upstream need not be allowed to read the gateway's own secrets.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "A name of its own.") var name: String
    @Argument(help: "Its address; - reads it from standard input, for one that is a secret.") var address: String
    @Option(help: "hub, webhook or mqtt; without it mqtt or hub, as the address says.") var kind: String?
    @Option(help: "A file here that holds the bearer token; for a broker, the password.") var tokenFile: String?
    @Flag(help: "The token is the first line of standard input, or typed in.") var tokenStdin = false
    @Option(help: "Another file here, by the key that names it, as ca_file=ca.pem.") var file: [String] = []
    @Option(help: "now, or start: with what the journal has already.") var from = "now"
    @Option(help: "Another key and its value: a number, true, false, a list as JSON, or else a text.") var set:
      [String] = []

    func run() throws {
      guard let url = address == "-" ? readLine() : address, !url.isEmpty else {
        throw ValidationError("an address is missing on standard input")
      }
      let isBroker = ["mqtt:", "mqtts:", "ws:", "wss:"].contains { url.hasPrefix($0) }
      var fields: [(String, JSONValue)] = [
        ("name", .string(name)), ("kind", .string(kind ?? (isBroker ? "mqtt" : "hub"))), ("url", .string(url)),
        ("from", .string(from)),
      ]
      for setting in set {
        let (key, text) = try Self.pair(setting, "--set: key=value is wanted")
        // `try?`: what is no JSON is a text. A template is one, too, when it is JSON: no key takes an object.
        let value = (try? JSONValue(parsing: text)) ?? .string(text)
        fields.append((key, value.fields == nil ? value : .string(text)))
      }
      let files = try files(tokenKey: fields[1].1 == .string("mqtt") ? "password_file" : "token_file")
      if !files.isEmpty { fields.append(("files", .object(files))) }
      var body = JSONWriter()
      body.value(.object(fields))
      let answer = try ControlClient(connection).post("/v1/upstreams/add", body: body.bytes)
      for words in answer.value["warnings"]?.array ?? [] {
        Console.error("warning: \(words.string ?? "")")
      }
      print(connection.json ? answer.text : "\(name) is added; see `meshpost upstream list`")
    }

    /// What is sent along, by the key that is to name it on the gateway.
    private func files(tokenKey: String) throws -> [(String, JSONValue)] {
      var files = try file.map { item in
        let (key, location) = try Self.pair(item, "--file: key=FILE is wanted, as ca_file=ca.pem")
        return (key, JSONValue.string(String(decoding: try InputFile.read(location), as: UTF8.self)))
      }
      guard !tokenStdin || tokenFile == nil else {
        throw ValidationError("--token-file and --token-stdin exclude each other")
      }
      if let tokenFile {
        files.append((tokenKey, .string(String(decoding: try InputFile.read(tokenFile), as: UTF8.self))))
      } else if tokenStdin {
        guard let token = Asking.hidden("Token: "), !token.isEmpty else {
          throw ValidationError("--token-stdin: there is none")
        }
        files.append((tokenKey, .string(token)))
      }
      return files
    }

    private static func pair(_ text: String, _ wanted: String) throws -> (String, String) {
      let parts = text.pieces(at: "=", most: 2)
      guard parts.count == 2 else { throw ValidationError(wanted) }
      return (parts[0], parts[1])
    }
  }

  struct Remove: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Forward nothing more to a server that was added so; what was kept for it is freed.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.", completion: Completing.upstreams) var upstream: String

    func run() throws {
      let target = "/v1/upstreams/remove?upstream=\(ControlClient.escape(upstream))"
      try Asking.done(target, [], "\(upstream) is removed", connection)
    }
  }

  struct Pause: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Send it nothing until it is resumed, also after a restart. Nothing is lost.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.", completion: Completing.upstreams) var upstream: String

    func run() throws { try UpstreamCommand.act("pause", upstream, connection) }
  }

  struct Resume: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Go on, and try at once.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.", completion: Completing.upstreams) var upstream: String

    func run() throws { try UpstreamCommand.act("resume", upstream, connection) }
  }

  struct Test: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Is it there, and does it take us? A webhook gets an event of kind `test`.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name.", completion: Completing.upstreams) var upstream: String

    func run() throws {
      let target = "/v1/upstreams/test?upstream=\(ControlClient.escape(upstream))"
      let answer = try ControlClient(connection).post(target, limit: 660)
      print(connection.json ? answer.text : "\(upstream) is there, and takes us")
    }
  }

  fileprivate static func act(_ verb: String, _ upstream: String, _ connection: Connection) throws {
    let target = "/v1/upstreams/\(verb)?upstream=\(ControlClient.escape(upstream))"
    let answer = try ControlClient(connection).post(target)
    if connection.json { return print(answer.text) }
    Show.upstream(answer.value)
  }
}

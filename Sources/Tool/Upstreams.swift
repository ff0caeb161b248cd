// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import Glibc
import JSON
import UntrustedText

struct UpstreamCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "upstream",
    abstract: "List, add, remove, pause, resume and test upstream servers; show and resend the events that they lack.",
    subcommands: [
      List.self, Pending.self, Dead.self, Retry.self, Drop.self, Add.self, Remove.self, Forget.self, Pause.self,
      Resume.self, Skip.self, Test.self,
    ],
    defaultSubcommand: List.self)

  struct List: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "List upstreams with their state and progress.")
    @OptionGroup var connection: Connection

    var exchange: Exchange {
      .get("/v1/outbox") { answer in
        for upstream in Show.upstreams(of: answer) { Show.upstream(upstream) }
      }
    }
  }

  struct Pending: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract:
        "Show how many events wait in each lane of each upstream, how long sending them takes, and dead letters.")
    @OptionGroup var connection: Connection
    var exchange: Exchange { .get("/v1/outbox", Show.outbox) }
  }

  struct Dead: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "List dead letters: events that an upstream refused or an operator skipped, with the reason.")
    @OptionGroup var connection: Connection

    var exchange: Exchange {
      .get("/v1/outbox") { answer in
        let letters = answer[Shape.Outbox().deadLetters]
        for letter in letters { Show.deadLetter(letter) }
        let all = answer[Shape.Outbox().upstreams].reduce(Int64(0)) { $0 + ($1[Shape.Upstream().deadLetters] ?? 0) }
        if letters.isEmpty, all == 0 { print("there is no dead letter") }
        if letters.count < all { Console.error("the first \(letters.count) of \(all) dead letters") }
      }
    }
  }

  struct Retry: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Resend dead letters: all, those of an upstream, or one of these.")
    @OptionGroup var connection: Connection
    @Argument(help: "Only this upstream's dead letters.", completion: Completing.upstreams) var upstream: String?
    @Argument(help: "Only the dead letter with this seq: `meshpost upstream dead` lists them.") var seq: Int64?

    func validate() throws { try EventNumber.check(seq) }

    var exchange: Exchange {
      .post("/v1/outbox/retry".with(["upstream": upstream, "seq": seq.map { "\($0)" }])) { answer in
        let count = answer[Shape.Retried().retried] ?? 0
        print("\(count) dead letter\(count == 1 ? "" : "s") queued again")
        guard let kept = answer[Shape.Retried().keptBack] else { return }
        Console.error(
          "\(kept) dead letter\(kept == 1 ? " stays" : "s stay") here: the upstream's filter leaves that out now")
      }
    }
  }

  struct Drop: ExchangeCommand {
    static let configuration = CommandConfiguration(abstract: "Delete an upstream's dead letters, or one of these.")
    @OptionGroup var connection: Connection
    @Argument(help: "The upstream.", completion: Completing.upstreams) var upstream: String
    @Argument(help: "Only the dead letter with this seq: `meshpost upstream dead` lists them.") var seq: Int64?

    func validate() throws { try EventNumber.check(seq) }

    var exchange: Exchange {
      .post("/v1/outbox/drop".with(["upstream": upstream, "seq": seq.map { "\($0)" }])) {
        let count = $0[Shape.Dropped().dropped] ?? 0
        print("\(count) dead letter\(count == 1 ? "" : "s") deleted")
      }
    }
  }

  struct Add: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Add an upstream, from now on or from the beginning of the journal.",
      discussion: Examples.of(
        "upstream add",
        after: """
          The upstream is stored beside the database until it is removed. Keys are those of [[upstream]] in \
          deploy/meshpostd.toml. Tokens and other files are read on the machine where the command runs, and stored on the \
          gateway, readable by the daemon only: adding an upstream does not require access to the gateway's own secrets.
          """))
    @OptionGroup var connection: Connection
    @Argument(help: "A unique name.") var name: String
    @Argument(help: "The URL; - reads it from standard input, for a URL that contains a secret.") var address: String
    @Option(help: "hub, webhook or mqtt. Default: mqtt or hub, from the URL.") var kind: String?
    @Option(help: "A local file with the bearer token; for a broker, the password.") var tokenFile: String?
    @Flag(help: "Read the token from the first line of standard input, or prompt for it.") var tokenStdin = false
    @Option(help: "Another local file, as KEY=FILE, such as ca_file=ca.pem.") var file: [String] = []
    @Option(help: "Where it starts: \(UpstreamStart.help). Default: now; for a hub, a terminal asks.")
    var from: String?
    @Option(help: "What the server may make this gateway do: \(UpstreamRights.help). Default: none.") var allow: String?
    @Option(
      help: """
        Another key, as KEY=VALUE: a number, true, false, a JSON list, or text. KEY=- prompts for the value, or reads it from a line of \
        standard input: for a proxy's URL with a password, which others could read in the list of processes.
        """) var set: [String] = []

    func run() throws {
      warnOfPasswords()
      guard let given = address == "-" ? try TypedText.line() : address, !given.isEmpty else {
        throw ValidationError("no URL on standard input")
      }
      let url = ServerURL.plain(given)
      let isBroker = ["mqtt:", "mqtts:", "ws:", "wss:"].contains { url.hasPrefix($0) }
      let kind = self.kind ?? (isBroker ? "mqtt" : "hub")
      let start = try from ?? (kind == "hub" && asks ? UpstreamStart.ask(name) : "now")
      var fields: [(String, JSONValue)] = [
        ("name", .string(name)), ("kind", .string(kind)), ("url", .string(url)), ("from", .string(start)),
      ]
      if let allow { fields.append(("allow", .array(UpstreamRights.read(allow).map { .string($0) }))) }
      for setting in set {
        let (key, text) = try Self.pair(setting, "--set: expected KEY=VALUE")
        if text == "-" {
          fields.append((key, .string(try Self.typed(key))))
          continue
        }
        // `try?`: a value that is not JSON is text. A template is text even if it is JSON: no key takes an object. Nor
        // does one take null, which the gateway would ignore.
        let value = (try? JSONValue(parsing: text)) ?? .string(text)
        let isText = value == .null || value.fields != nil
        fields.append((key, isText ? .string(text) : value))
      }
      try GivenOnce.check(fields.map(\.0), "--set")
      let files = try files(tokenKey: fields[1].1 == .string("mqtt") ? "password_file" : "token_file")
      try GivenOnce.check(files.map(\.0), "--file")
      if !files.isEmpty { fields.append(("files", .object(files))) }
      let answer = try ControlClient(connection).post("/v1/upstreams/add", body: JSONValue.object(fields).bytes)
      for warning in answer.value[Shape.Added().warnings] {
        Console.error("warning: \(warning)")
      }
      let isFromNow = kind == "hub" && start == "now"
      let note = isFromNow ? ". It gets what comes from now on; `--from start` sends what is stored, too" : ""
      print(connection.json ? answer.text : "added \(name); see `meshpost upstream list`\(note)")
    }

    /// Whether somebody is there to answer, and standard input has no other task.
    private var asks: Bool {
      guard !connection.json, !tokenStdin, address != "-", isatty(0) != 0, isatty(1) != 0 else { return false }
      return !self.set.contains(where: { $0.hasSuffix("=-") })
    }

    func validate() throws { if let from { try UpstreamStart.check(from) } }

    /// Warns of secrets on the command line: every user of the machine can read it, and the shell's history keeps it.
    private func warnOfPasswords() {
      if URLText.hasPassword(address) {
        Console.error(
          "warning: the URL's password is visible to other users: give - as the URL, and the URL on standard input")
      }
      for setting in set where URLText.hasPassword(setting) {
        let key = setting.pieces(at: "=", most: 2)[0]
        Console.error(
          "warning: the password in \(key) is visible to other users: use --set \(key)=- to be asked for it")
      }
    }

    private static func typed(_ key: String) throws -> String {
      guard let value = try HiddenPrompt.line("\(key): "), !value.isEmpty else {
        throw ValidationError("--set \(key)=-: no value given")
      }
      return value
    }

    /// Contents of the files to send, by the key that names each on the gateway.
    private func files(tokenKey: String) throws -> [(String, JSONValue)] {
      var files = try file.map { (item) throws -> (String, JSONValue) in
        let (key, location) = try Self.pair(item, "--file: expected KEY=FILE, such as ca_file=ca.pem")
        let bytes = try InputFile.read(location)
        let isPEM = ["ca_file", "cert_file", "key_file"].contains(key)
        let text = try isPEM ? InputFile.pem(bytes, from: location) : InputFile.string(bytes, from: location)
        return (key, .string(text))
      }
      guard !tokenStdin || tokenFile == nil else {
        throw ValidationError("--token-file and --token-stdin cannot be combined")
      }
      if let tokenFile {
        files.append((tokenKey, .string(try InputFile.string(InputFile.read(tokenFile), from: tokenFile))))
      } else if tokenStdin {
        guard let token = try HiddenPrompt.line("Token: "), !token.isEmpty else {
          throw ValidationError("--token-stdin: no token given")
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

  struct Remove: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Remove an upstream that was added with `upstream add`. It keeps its place in the journal.")
    @OptionGroup var connection: Connection
    @Argument(help: "The upstream's name.", completion: Completing.upstreams) var upstream: String
    var exchange: Exchange { .post("/v1/upstreams/remove".with(["upstream": upstream]), done: "removed \(upstream)") }
  }

  struct Forget: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract:
        "Forget the place in the journal of an upstream that was removed: a new upstream with its name begins anew.")
    @OptionGroup var connection: Connection
    @Argument(help: "Its name, as `meshpost status` and `meshpost doctor` show it.") var upstream: String
    var exchange: Exchange { .post("/v1/upstreams/forget".with(["upstream": upstream]), done: "forgot \(upstream)") }
  }

  struct Pause: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Pause an upstream until it is resumed, also across restarts; its events wait.")
    @OptionGroup var connection: Connection
    @Argument(help: "The upstream's name.", completion: Completing.upstreams) var upstream: String
    var exchange: Exchange { .post("/v1/upstreams/pause".with(["upstream": upstream])) { Show.upstream($0) } }
  }

  struct Resume: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Resume an upstream and retry now; without a name, retry all waiting and stopped upstreams.",
      discussion: """
        Rereads token files. Without a name, paused upstreams stay paused, and --json prints an object with `ok`.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "The upstream's name.", completion: Completing.upstreams) var upstream: String?

    var exchange: Exchange {
      guard let upstream else {
        return .post("/v1/outbox/resume", done: "retrying upstreams; see `meshpost status`")
      }
      return .post("/v1/upstreams/resume".with(["upstream": upstream])) {
        // Its state is that of the last try until this one has ended.
        print("retrying \(Show.clean(upstream)); see `meshpost status`. Until now:")
        Show.upstream($0)
      }
    }
  }

  struct Skip: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Skip the event that an upstream neither takes nor refuses, for example with 500 each time.",
      discussion: """
        The event becomes a dead letter, which `meshpost upstream retry` sends again; the others go on. If several events were tried \
        together, one is sent at a time from then on, and nothing is skipped: repeat the command when one has failed alone. \
        The server is asked once more: nothing is skipped unless it takes another event and then fails over this one again, by an answer of its own. \
        So a server that is away, or fails over everything, costs no event. If no other event waits, or with SEQ, its answer to this one decides.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "The upstream's name.", completion: Completing.upstreams) var upstream: String
    @Argument(
      help: "The event's seq, as the command says it: skip this event even if the server does not take another either.")
    var seq: Int64?

    func validate() throws { try EventNumber.check(seq) }

    var exchange: Exchange {
      .post("/v1/upstreams/skip".with(["upstream": upstream, "seq": seq.map { "\($0)" }]), limit: 60) { answer in
        let seq = answer[Shape.Skipped().skipped] ?? 0
        print(
          "event \(seq) is a dead letter now; to send it again: meshpost upstream retry \(Escaping.argument(upstream)) \(seq)"
        )
      }
    }
  }

  struct Test: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract:
        "Check that an upstream answers and accepts this gateway. A webhook or a hook's program gets an event of kind `test`.",
      discussion: Examples.of("upstream test"))
    @OptionGroup var connection: Connection
    @Argument(help: "The upstream's name; a hook's is hook/NAME.", completion: Completing.upstreams)
    var upstream: String

    var exchange: Exchange {
      let target = "/v1/upstreams/test".with(["upstream": upstream])
      return .post(target, limit: 660, done: "\(upstream) answers and accepts this gateway")
    }
  }
}

enum EventNumber {
  static func check(_ seq: Int64?) throws {
    if let seq, seq <= 0 { throw ValidationError("SEQ: the number of an event is 1 or more") }
  }
}

enum URLText {
  /// `SCHEME://USER:PASSWORD@…`, or the same without a scheme, which proxies allow.
  static func hasPassword(_ text: String) -> Bool {
    var login = text.utf8[...]
    guard let end = login.lastIndex(of: UInt8(ascii: "@")) else { return false }
    login = login[..<end]
    if let slash = login.lastIndex(of: UInt8(ascii: "/")) { login = login[login.index(after: slash)...] }
    return login.contains(UInt8(ascii: ":"))
  }
}

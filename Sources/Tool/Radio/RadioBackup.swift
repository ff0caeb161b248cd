// SPDX-License-Identifier: MIT

import ArgumentParser
import Companion
import Console
import Glibc
import JSON
import UntrustedText

extension RadioCommand {
  struct Backup: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Back up the radio's settings, channels and contacts to a file.",
      discussion: """
        The file holds JSON lines and is readable by its owner only, as it contains channel secrets. With --private-key it \
        also contains the radio's identity, encrypted with a passphrase (prompted for, or the first line of standard input).
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "The file.") var file: String
    @Flag(help: "Include the private key. Anyone with the file and the passphrase can impersonate this node.")
    var privateKey = false
    @Flag(help: "Replace the file if it exists.") var force = false

    func run() throws {
      let client = ControlClient(connection)
      let output = try OutputFile(file, isSecret: true, replaces: force)
      let passphrase = privateKey ? try Passphrase.new() : nil
      var counts: [String: Int64] = [:]
      try client.rows("/v1/radio/backup") { row in
        counts[row["kind"]?.string ?? "?", default: 0] += 1
        try output.write(row.text + "\n")
      }
      if let passphrase {
        let answer = try client.post("/v1/radio/private-key", body: JSONValue.object([("export", .bool(true))]).bytes)
        guard let key = answer.value["private_key"]?.string.flatMap({ Hex.bytes($0) }), key.count == 64 else {
          throw Failure.say("the gateway did not tell the private key: nothing was written", EX_PROTOCOL)
        }
        let sealed = try KeyEnvelope.seal(key, passphrase: passphrase)
        try output.write(JSONValue.object([("kind", .string("private_key"))] + sealed).text + "\n")
      }
      try output.close()
      let (channels, contacts) = (counts["channel"] ?? 0, counts["contact"] ?? 0)
      if connection.json {
        let fields: [(String, JSONValue)] = [
          ("channels", .integer(channels)), ("contacts", .integer(contacts)), ("private_key", .bool(privateKey)),
        ]
        return output.tell(JSONValue.object(fields).text)
      }
      output.tell(
        "settings, \(Show.counted(channels, "channel")), \(Show.counted(contacts, "contact"))\(privateKey ? " and the private key" : "") written to \(file)"
      )
    }
  }

  struct Restore: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Restore settings, channels and contacts from a backup to the radio.",
      discussion: """
        Restores to the same radio or another one. Contacts and channels that are not in the backup are kept. The private key \
        is restored only with --private-key: the radio then becomes the node that was backed up.
        """)
    @OptionGroup var connection: Connection
    @Argument(help: "The file.") var file: String
    @Option(help: "What to restore, separated by commas: settings, channels, contacts.") var only =
      "settings,channels,contacts"
    @Flag(help: "Also restore the private key; prompts for the passphrase (or reads it from standard input).")
    var privateKey = false
    @Flag(help: "Do not prompt for confirmation.") var yes = false

    func run() throws {
      let wanted = Swift.Set(only.split(separator: ",").map(String.init))
      guard wanted.isSubset(of: ["settings", "channels", "contacts"]) else {
        throw ValidationError("--only: settings, channels, contacts")
      }
      guard !wanted.isEmpty || privateKey else { throw ValidationError("--only: nothing would be restored") }
      let rows = try Self.read(file)
      let passphrase = privateKey ? try Passphrase.known() : nil
      try confirm(rows, wanted)
      let client = ControlClient(connection)
      var counts: [String: Int64] = [:]
      if let passphrase { try restoreKey(rows, passphrase, client) }
      // Also if the radio refuses one: the others before it are restored.
      defer { tell(counts) }
      var isWhole = true
      let own = wanted.contains("contacts") ? try client.get("/v1/radio").value["key"]?.string : nil
      for row in rows {
        let kind = row["kind"]?.string ?? ""
        switch kind {
        case "radio" where wanted.contains("settings"):
          let settings = Self.settings(of: row)
          isWhole = settings.isWhole && isWhole
          if settings.fields.isEmpty { continue }
          _ = try client.post("/v1/radio/set", body: JSONValue.object(settings.fields).bytes)
        case "channel" where wanted.contains("channels"):
          guard Self.isNameFit(row) else {
            isWhole = false
            continue
          }
          _ = try client.post("/v1/channels/put", body: row.bytes)
        case "contact" where row["key"]?.string.map({ $0.lowercased() == own }) ?? false:
          // Another radio's backup has this one among its contacts.
          continue
        case "contact" where wanted.contains("contacts"): _ = try client.post("/v1/contacts/put", body: row.bytes)
        default: continue
        }
        counts[kind, default: 0] += 1
      }
      if !isWhole { throw ExitCode(EX_DATAERR) }
    }

    /// The radio's settings. A name that another program set and the gateway would refuse must not keep the others from the radio.
    private static func settings(of row: JSONValue) -> (fields: [(String, JSONValue)], isWhole: Bool) {
      let fields = row["settings"]?.fields ?? []
      guard let name = row["settings"]?["name"]?.string, let fault = GivenName.radioFault(Array(name.utf8)) else {
        return (fields, true)
      }
      Console.error("meshpost: the radio's name is not restored: \(fault)")
      return (fields.filter { $0.0 != "name" }, false)
    }

    /// Says why, if the gateway would refuse the channel for its name.
    private static func isNameFit(_ row: JSONValue) -> Bool {
      // A name that is no hexadecimal is the gateway's to refuse.
      guard let name = row["name_hex"]?.string.flatMap({ Hex.bytes($0) }), let fault = GivenName.channelFault(name)
      else { return true }
      Console.error(
        "meshpost: the channel in slot \(row["slot"]?.integer ?? 0) is not restored: \(fault); its secret is in the "
          + "file, for `meshpost channel add NAME --secret -`")
      return false
    }

    private func tell(_ counts: [String: Int64]) {
      let (settings, channels, contacts) = (counts["radio"] ?? 0, counts["channel"] ?? 0, counts["contact"] ?? 0)
      if connection.json {
        let fields: [(String, JSONValue)] = [
          ("settings", .bool(settings > 0)), ("channels", .integer(channels)), ("contacts", .integer(contacts)),
          ("private_key", .bool(privateKey)),
        ]
        return print(json: .object(fields))
      }
      let rows = "\(Show.counted(channels, "channel")) and \(Show.counted(contacts, "contact"))"
      print("\(settings > 0 ? "settings, " : "")\(rows) restored")
    }

    private func confirm(_ rows: [JSONValue], _ wanted: Swift.Set<String>) throws {
      guard !yes else { return }
      let radio = rows.first
      let name = Show.clean(radio?["settings"]?["name"]?.string)
      print(
        "backup of \(name), \(Show.time(radio?["at"]?.integer)): \(wanted.sorted().joined(separator: ", ")) will be written to the radio."
      )
      print("Continue? [y/N] ", terminator: "")
      guard try TypedText.line()?.lowercased().hasPrefix("y") == true else {
        throw Failure.say("aborted; nothing was changed", EX_TEMPFAIL)
      }
    }

    private func restoreKey(_ rows: [JSONValue], _ passphrase: String, _ client: ControlClient) throws {
      guard let envelope = rows.first(where: { $0["kind"]?.string == "private_key" }) else {
        throw Failure.say("no private key in \(file)", EX_DATAERR)
      }
      do {
        let key = try KeyEnvelope.open(envelope, passphrase: passphrase)
        let body = JSONValue.object([("import", .string(Hex.string(key)))])
        _ = try client.post("/v1/radio/private-key", body: body.bytes)
      } catch let failure as KeyEnvelope.Failure {
        throw Failure.say("\(failure)", EX_DATAERR)
      }
    }

    private static func read(_ file: String) throws -> [JSONValue] {
      let bytes = try InputFile.read(file)
      // `try?`: with a line that is not JSON the file is not a backup.
      let rows = bytes.split(separator: 10).map { try? JSONValue(parsing: Array($0)) }
      let whole = rows.compactMap { $0 }
      guard whole.count == rows.count, whole.first?["kind"]?.string == "radio", whole.first?["version"]?.integer == 1
      else {
        throw Failure.say("\(file) is not a radio backup that this version can read", EX_DATAERR)
      }
      return whole
    }
  }
}

enum Passphrase {
  private static let shortest = 8

  static func new() throws -> String {
    let first = try HiddenPrompt.line("passphrase for the private key: ") ?? ""
    guard first.utf8.count >= shortest else {
      throw Failure.say("the passphrase must have at least \(shortest) characters", EX_USAGE)
    }
    guard try isatty(0) == 0 || HiddenPrompt.line("repeat the passphrase: ") == first else {
      throw Failure.say("the passphrases differ", EX_USAGE)
    }
    return first
  }

  static func known() throws -> String { try HiddenPrompt.line("passphrase of the private key: ") ?? "" }
}

struct BackupCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "backup", abstract: "Back up the gateway's store to a file while it runs.",
    discussion: """
      The backup contains the whole store: messages, nodes, channels with their secrets, the journal and the cursor of each \
      upstream. It is a consistent snapshot. To restore it, stop the daemon and run: meshpostd --restore FILE, \
      with its --config if it has one. To back up the radio's own data, use `meshpost radio backup`.
      """)
  @OptionGroup var connection: Connection
  @Argument(help: "The file.") var file: String
  @Flag(help: "Replace the file if it exists.") var force = false

  func run() throws {
    let output = try OutputFile(file, isSecret: true, replaces: force)
    var count: Int64 = 0
    var target = "/v1/backup"
    // The gateway refuses to have its own files replaced, also those that are missing now. Another machine's are others.
    if connection.isHere {
      let place = Folder.resolved(file)
      target = target.with([
        "replaces": Self.identity(of: file), "folder": Self.identity(of: Folder.of(place)),
        "name": place.pieces(at: "/").last,
      ])
    }
    try ControlClient(connection).pieces(target) { piece in
      count += Int64(piece.count)
      try output.write(piece)
    }
    try output.close()
    if connection.json { return output.tell("{\"bytes\":\(count)}") }
    // The daemon takes the next argument as the file, whatever it begins with.
    let argument = Escaping.argument(file.begins(with: "-") ? "./\(file)" : file)
    output.tell("\(count) bytes written to \(file); restore with: meshpostd --restore \(argument)")
    output.tell("(after the gateway has ended; with its --config, if that is not /etc/meshpost/meshpostd.toml)")
  }

  private static func identity(of file: String) -> String? {
    var facts = stat()
    return stat(file, &facts) == 0 ? "\(facts.st_dev):\(facts.st_ino)" : nil
  }
}

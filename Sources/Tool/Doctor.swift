// SPDX-License-Identifier: MIT

import ArgumentParser
import ControlShapes
import Glibc
import JSON
import Release

struct DoctorCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "doctor", abstract: "Find problems and suggest remedies.",
    discussion: """
      Checks the radio and its link, permissions, clocks, the disk and its wear, the store, upstream servers and their \
      certificates, hooks, programs that share the radio, power and heat. Also suggests a remedy when the daemon is not \
      running. Exits with 1 if a check fails.
      """,
    subcommands: [All.self, Bluetooth.self], defaultSubcommand: All.self)

  struct All: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Run all checks. Exits with 1 if a check fails.")
    @OptionGroup var connection: Connection
    @Flag(help: "Only warnings and failures.") var brief = false

    func run() throws {
      let doctor = LocalDoctor(connection: connection)
      var findings = doctor.examine()
      if findings.isEmpty { findings = doctor.askGateway() }
      if brief { findings.removeAll { $0[Shape.Finding().state] == "ok" } }
      try DoctorCommand.tell(findings, connection)
    }
  }

  struct Bluetooth: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Check Bluetooth: service, permissions, adapter, rfkill, versions and the radio's bond.",
      discussion: "Exits with 1 if a check fails.")
    @OptionGroup var connection: Connection

    func run() throws {
      let answer = try ControlClient(connection).get("/v1/doctor/bluetooth")
      try DoctorCommand.tell(answer.value[Shape.Findings().findings], connection)
    }
  }

  fileprivate static func tell(_ findings: [JSONValue], _ connection: Connection) throws {
    if connection.json {
      print(json: .object([("findings", .array(findings))]))
    } else {
      for finding in findings { Show.finding(finding) }
      if findings.isEmpty { print("no problems found") }
    }
    if findings.contains(where: { $0[Shape.Finding().state] == "failed" }) { throw ExitCode(1) }
  }
}

/// Checks whether the daemon runs, and whether this user may use its socket; then the daemon checks the rest.
struct LocalDoctor {
  let connection: Connection

  /// Why the daemon cannot be asked; empty: nothing is known against it.
  func examine() -> [JSONValue] {
    guard connection.isHere else { return [] }
    // A folder that this user may not look into may have it.
    if access(connection.socket, F_OK) != 0, errno != EACCES {
      return [
        finding(
          "daemon", "failed",
          "no control socket at \(connection.socket): meshpostd is not running, or uses another socket",
          "See `systemctl status meshpost` and `journalctl -u meshpost -n 20`; --socket selects another socket.")
      ] + configuration()
    }
    if access(connection.socket, R_OK | W_OK) != 0 {
      return [
        finding(
          "permission", "failed", "permission denied: \(connection.socket)",
          Failure.remedyOfPermission(connection.socket))
      ]
    }
    return []
  }

  /// The default configuration file.
  private func configuration() -> [JSONValue] {
    let file = Setup.serviceFile
    guard access(file, F_OK) == 0 else {
      return [
        finding("configuration", "failed", "\(file) does not exist", "`sudo meshpost setup` asks, and writes it.")
      ]
    }
    guard access(file, R_OK) == 0 else {
      return [finding("configuration", "warning", "\(file) cannot be read", "`sudo meshpost doctor` checks it.")]
    }
    // `try?`: the reason why the check is impossible is already printed.
    guard let check = try? ConfigurationCheck(file) else {
      return [finding("configuration", "warning", "\(file) could not be checked", nil)]
    }
    let remedy = "Correct it, or let `sudo meshpost setup` ask again; then `sudo systemctl restart meshpost`."
    let found =
      check.mistakes.isEmpty
      ? [finding("configuration", "ok", "\(file) is valid", nil)]
      : check.mistakes.map { finding("configuration", "failed", "\(file): line \($0.line): \($0.words)", remedy) }
    return found + check.ofStore.map { finding("store", "failed", $0, nil) }
  }

  /// The daemon's own findings, and whether it is of this version.
  func askGateway() -> [JSONValue] {
    let client = ControlClient(connection)
    // `try?`: the client has printed the error, here and below.
    guard let findings = (try? client.get("/v1/doctor"))?.value[Shape.Findings().findings]?.array else {
      let remedy = connection.isHere ? "See `systemctl status meshpost`." : "Try `meshpost doctor` on that machine."
      return [finding("daemon", "failed", "no answer", remedy)]
    }
    let status = try? client.get("/v1/status")  // a store that cannot be read is among the findings
    return (status?.value[Shape.Status().version].map { [version($0)] } ?? []) + findings
  }

  private func version(_ theirs: String) -> JSONValue {
    guard theirs != Release.version else { return finding("version", "ok", theirs, nil) }
    return finding(
      "version", "warning", "meshpost is \(Release.version), meshpostd \(theirs)",
      "Restart meshpostd after an upgrade, or upgrade the older one.")
  }

  private func finding(_ subject: String, _ state: String, _ words: String, _ remedy: String?) -> JSONValue {
    var fields: [(String, JSONValue)] = [
      ("subject", .string(subject)), ("state", .string(state)), ("words", .string(words)),
    ]
    if let remedy { fields.append(("remedy", .string(remedy))) }
    return .object(fields)
  }
}

struct ReportCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "report", abstract: "Collect what a bug report needs, without secrets and keys.",
    discussion: """
      The report contains versions, the findings of `meshpost doctor`, the status, the configuration and the newest log \
      lines, as one text. Only configuration values that are known to be harmless are shown. Secrets, keys, message texts, \
      positions, the output of hooks, and everything of an address but its host are left out; node names are not. Read it \
      before you send it. With --output, only the file's owner can read it.
      """)
  @OptionGroup var connection: Connection
  @OptionGroup var output: OutputOption

  func run() throws {
    let text = try ControlClient(connection).text("/v1/report") + "\nmeshpost \(Release.version)\n"
    if connection.json { return print(json: .object([("report", .string(text))])) }
    try OutputFile.write(text, to: output.file, isSecret: true, replaces: output.force)
  }
}

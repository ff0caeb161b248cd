// SPDX-License-Identifier: MIT

import ArgumentParser
import Glibc
import JSON
import Release

struct DoctorCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "doctor", abstract: "Look for what is wrong, and say what to do.",
    discussion: """
      Looks at the radio and its link, permissions, clocks, the disk and its wear, the store, servers upstream and their \
      certificates, hooks, programs that share the radio, power and heat. Also says what to do when the daemon does not \
      run. Ends with exit code 1 when something has failed.
      """,
    subcommands: [All.self, Bluetooth.self], defaultSubcommand: All.self)

  struct All: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Everything. Ends with exit code 1 when something has failed.")
    @OptionGroup var connection: Connection
    @Flag(help: "Only what is not well.") var brief = false

    func run() throws {
      var findings = LocalDoctor(connection).examine()
      if !findings.contains(where: { $0["state"]?.string == "failed" }) {
        findings += try ControlClient(connection).get("/v1/doctor").value["findings"]?.array ?? []
      }
      if brief { findings.removeAll { $0["state"]?.string == "ok" } }
      try DoctorCommand.tell(findings, connection)
    }
  }

  struct Bluetooth: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Service, permissions, adapter, rfkill, versions and the radio's bond.",
      discussion: "Ends with exit code 1 when something has failed.")
    @OptionGroup var connection: Connection

    func run() throws {
      let answer = try ControlClient(connection).get("/v1/doctor/bluetooth")
      try DoctorCommand.tell(answer.value["findings"]?.array ?? [], connection)
    }
  }

  fileprivate static func tell(_ findings: [JSONValue], _ connection: Connection) throws {
    if connection.json {
      print(json: .object([("findings", .array(findings))]))
    } else {
      for finding in findings { Show.finding(finding) }
      if findings.isEmpty { print("all is well") }
    }
    if findings.contains(where: { $0["state"]?.string == "failed" }) { throw ExitCode(1) }
  }
}

/// What can be seen without the daemon: whether it runs, and whether we may talk to it.
struct LocalDoctor {
  private let connection: Connection

  init(_ connection: Connection) { self.connection = connection }

  func examine() -> [JSONValue] {
    guard connection.isHere else { return [version()].compactMap { $0 } }
    if access(connection.socket, F_OK) != 0 {
      return [
        finding(
          "daemon", "failed",
          "there is no control socket at \(connection.socket): meshpostd does not run, or has another",
          "`systemctl status meshpost`, `journalctl -u meshpost -n 20`; --socket names another socket.")
      ] + configuration()
    }
    if access(connection.socket, R_OK | W_OK) != 0 {
      return [
        finding(
          "permission", "failed", "this user may not use \(connection.socket)",
          Failure.remedyOfPermission(connection.socket))
      ]
    }
    return [version()].compactMap { $0 }
  }

  /// The usual configuration, as the daemon reads it.
  private func configuration() -> [JSONValue] {
    let file = "/etc/meshpost/meshpostd.toml"
    guard access(file, F_OK) == 0 else {
      return [
        finding("configuration", "failed", "there is no \(file)", "Copy deploy/meshpostd.toml there, and change it.")
      ]
    }
    return [finding("configuration", "ok", "\(file) is there; `meshpostd --check` says whether it is right", nil)]
  }

  private func version() -> JSONValue? {
    let status: ControlClient.Answer
    do {
      status = try ControlClient(connection).get("/v1/status")
    } catch {
      // It has said so itself.
      return finding("daemon", "failed", "it does not answer", "`systemctl status meshpost`")
    }
    let theirs = status.value["version"]?.string ?? "?"
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
    commandName: "report", abstract: "Gather what a bug report needs, without secrets and keys.",
    discussion: """
      Versions, what `meshpost doctor` finds, the status, the configuration and the newest log lines, as one text. Of the \
      configuration only what is known to be harmless is shown. Left out are secrets, keys, texts of messages, positions, \
      what hooks say, and all of an address but its host; names of nodes are not. Read it before you send it. A file that it \
      goes into is readable for its owner alone.
      """)
  @OptionGroup var connection: Connection
  @Option(help: ArgumentHelp("Into this file instead of standard output.", valueName: "file")) var output: String?

  func run() throws {
    let text = try ControlClient(connection).text("/v1/report") + "\nmeshpost \(Release.version)\n"
    if connection.json { return print(json: .object([("report", .string(text))])) }
    let file = try OutputFile(output, isSecret: true)
    try file.write(text)
    try file.close()
  }
}

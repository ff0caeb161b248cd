// SPDX-License-Identifier: MIT

import CPostgres
import Foundation

/// A dump by PostgreSQL's own `pg_dump`, of one moment, while the server is used.
struct PostgresDump {
  private let address: String
  private let password: String?
  private let patience: Duration

  /// Seconds for a connection where the address says nothing of it, as the hub's own.
  private static let connectLimit = "5"
  /// Pause between two looks at the dump's size.
  private static let pause: Duration = .milliseconds(100)
  /// Time for `pg_dump` to end after SIGTERM.
  private static let endLimit: Duration = .seconds(5)

  /// `patience`: without a byte more for so long a tool is ended. However large a database is, its dump grows.
  ///
  /// The password, also one within the address, goes by the environment: arguments are everybody's to read.
  init(address: String, password: String?, patience: Duration) throws {
    var message: UnsafeMutablePointer<CChar>?
    guard let options = PQconninfoParse(address, &message) else {
      defer { PQfreemem(message) }
      throw HubBackup.Failure("the database's address: \(PostgresHubDatabase.words(message))")
    }
    defer { PQconninfoFree(options) }
    var (parts, secret) = ([String](), password)
    var option = options
    while let keyword = option.pointee.keyword.map({ String(cString: $0) }) {
      if let value = option.pointee.val.map({ String(cString: $0) }) {
        if keyword == "password" {
          secret = secret ?? value
        } else {
          parts.append("\(keyword)='\(Self.quoted(value))'")
        }
      }
      option += 1
    }
    (self.address, self.password, self.patience) = (parts.joined(separator: " "), secret, patience)
  }

  private static func quoted(_ value: String) -> String {
    value.replacing("\\", with: "\\\\").replacing("'", with: "\\'")
  }

  /// Looked through afterwards: `pg_restore` finds the hub's tables in it.
  func make(at location: String) throws {
    // In this process: nothing else makes files meanwhile.
    let before = umask(0o077)
    defer { umask(before) }
    guard let dump = Self.tool("pg_dump"), let restore = Self.tool("pg_restore") else {
      throw HubBackup.Failure(
        "pg_dump is not here: install postgresql-client, or make the backup where the server is, as its documentation says"
      )
    }
    _ = try run(
      dump, ["--format=custom", "--no-password", "--file=\(location)", "--dbname=\(address)"], growing: location)
    let list = try run(restore, ["--list", location])
    for table in ["gateways", "epochs", "events"] where !list.contains(" \(table) ") {
      throw HubBackup.Failure("the dump has no table \(table)")
    }
  }

  /// On the path, or where Debian keeps those of each version: the newest.
  private static func tool(_ name: String) -> String? {
    let path = getenv("PATH").map { String(cString: $0) } ?? "/usr/bin"
    let root = "/usr/lib/postgresql"
    // `try?`: no such folder, no versions.
    let versions = ((try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []).compactMap { Int($0) }.sorted()
    let places = versions.reversed().map { "\(root)/\($0)/bin" } + path.split(separator: ":").map(String.init)
    return places.map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
  }

  /// What it prints. `growing`: the file that it writes; else what it prints.
  private func run(_ tool: String, _ arguments: [String], growing: String? = nil) throws -> String {
    let name = URL(filePath: tool).lastPathComponent
    let process = Process()
    process.executableURL = URL(filePath: tool)
    process.arguments = arguments
    var environment = ProcessInfo.processInfo.environment
    environment["PGPASSWORD"] = password
    environment["PGAPPNAME"] = "meshpost-hub backup"
    environment["PGCONNECT_TIMEOUT"] = environment["PGCONNECT_TIMEOUT"] ?? Self.connectLimit
    process.environment = environment
    process.standardInput = FileHandle.nullDevice
    // Into files: no pipe that fills up while the other is read.
    let folder = FileManager.default.temporaryDirectory.appending(path: "meshpost-\(UUID().uuidString)")
    try FileManager.default.createDirectory(
      at: folder, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
    // `try?`: what stays of a temporary folder is removed by the system.
    defer { try? FileManager.default.removeItem(at: folder) }
    let (output, errors) = (folder.appending(path: "out"), folder.appending(path: "errors"))
    for file in [output, errors] { _ = FileManager.default.createFile(atPath: file.path(), contents: nil) }
    process.standardOutput = try FileHandle(forWritingTo: output)
    process.standardError = try FileHandle(forWritingTo: errors)
    try process.run()
    guard Self.ends(process, while: growing ?? output.path(), grows: patience) else {
      throw HubBackup.Failure(
        "\(name): nothing more came for \(patience.components.seconds) s, so it was ended; --patience waits longer")
    }
    guard process.terminationStatus == 0 else {
      let words = String(decoding: try Data(contentsOf: errors), as: UTF8.self)
      throw HubBackup.Failure("\(name): \(words.prefix(2000))")
    }
    return String(decoding: try Data(contentsOf: output), as: UTF8.self)
  }

  /// True: by itself. False: its file did not grow for `patience`, and it was ended.
  private static func ends(_ process: Process, while file: String, grows patience: Duration) -> Bool {
    var (size, grown) = (Int64(-1), ContinuousClock.now)
    while process.isRunning {
      let now = bytes(file)
      if now != size { (size, grown) = (now, .now) }
      guard ContinuousClock.now - grown < patience else {
        end(process)
        return false
      }
      Thread.sleep(forTimeInterval: pause / .seconds(1))
    }
    return true
  }

  private static func end(_ process: Process) {
    let asked = ContinuousClock.now
    process.terminate()
    while process.isRunning, ContinuousClock.now - asked < endLimit {
      Thread.sleep(forTimeInterval: pause / .seconds(1))
    }
    if process.isRunning { kill(process.processIdentifier, SIGKILL) }
    process.waitUntilExit()
  }

  /// 0: it is not there yet.
  private static func bytes(_ file: String) -> Int64 {
    var facts = stat()
    return stat(file, &facts) == 0 ? Int64(facts.st_size) : 0
  }
}

// SPDX-License-Identifier: MIT

import CPostgres
import EventLoop
import FoundationEssentials
import Glibc

/// A dump by PostgreSQL's own `pg_dump`: a snapshot, while the server is used.
struct PostgresDump {
  private let address: String
  private let password: String?
  private let patience: Duration

  /// Seconds for a connection if the address does not set them, as for the hub's own.
  private static let connectLimit = "5"

  /// `patience`: it ends a dump that does not grow for this long.
  ///
  /// The password, also from the address, goes through the environment: other users can read arguments.
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

  /// Makes the dump, and verifies that `pg_restore` finds the hub's tables in it.
  func make(at location: String) throws {
    // For the whole process: nothing else creates files meanwhile.
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

  /// The tool in the newest of Debian's folders for versions, or on the path.
  private static func tool(_ name: String) -> String? {
    let path = getenv("PATH").map { String(cString: $0) } ?? "/usr/bin"
    let root = "/usr/lib/postgresql"
    // `try?`: without the folder there are no versions.
    let versions = ((try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []).compactMap { Int($0) }.sorted()
    let places = versions.reversed().map { "\(root)/\($0)/bin" } + path.split(separator: ":").map(String.init)
    return places.map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
  }

  /// Returns the output. `growing`: the file that the tool writes. Without it the tool has to end within `patience`.
  private func run(_ tool: String, _ arguments: [String], growing: String? = nil) throws -> String {
    let name = URL(filePath: tool).lastPathComponent
    var environment = ProcessInfo.processInfo.environment
    environment["PGPASSWORD"] = password
    environment["PGAPPNAME"] = "meshpost-hub backup"
    environment["PGCONNECT_TIMEOUT"] = environment["PGCONNECT_TIMEOUT"] ?? Self.connectLimit
    var (size, grown) = (Int64(-1), ContinuousClock.now)
    let exit = try Subprocess.run([tool] + arguments, environment: environment) {
      let now = growing.map(Self.bytes) ?? 0
      if now != size { (size, grown) = (now, .now) }
      return ContinuousClock.now - grown < patience
    }
    guard let exit else {
      throw HubBackup.Failure(
        "\(name): nothing more came for \(patience.components.seconds) s, so it was ended; --patience waits longer")
    }
    guard exit.code == 0 else {
      throw HubBackup.Failure("\(name): \(String(decoding: exit.errors.prefix(2000), as: UTF8.self))")
    }
    return String(decoding: exit.output, as: UTF8.self)
  }

  /// 0: the file does not exist yet.
  private static func bytes(_ file: String) -> Int64 {
    var facts = stat()
    return stat(file, &facts) == 0 ? Int64(facts.st_size) : 0
  }
}

/// Runs another program to its end, for a command line.
public enum Subprocess {
  /// Pause between two calls of `mayGoOn`.
  private static let pause: Duration = .milliseconds(100)
  /// Most bytes of its output, and of its errors.
  private static let maxOutput = 64 << 20

  /// Blocks until the program has ended. It calls `mayGoOn` again and again; `false` ends the program, and the result is `nil`. Throws `SystemError`
  /// if it cannot be started.
  public static func run(
    _ arguments: [String], environment: [String: String], while mayGoOn: @escaping () -> Bool = { true }
  ) throws -> ChildProcess.Exit? {
    let loop = EventLoop()
    var result: Result<ChildProcess.Exit?, any Error> = .success(nil)
    let program = loop.begin {
      do {
        result = .success(
          try await ChildProcess.run(
            arguments, environment: environment, input: [], limit: .seconds(30 * 86_400), maxOutput: maxOutput, on: loop
          ))
      } catch is CancellationError {
        result = .success(nil)
      } catch {
        result = .failure(error)
      }
      loop.stop()
    }
    let watch = loop.begin {
      // `try?`: cancelled when the program has ended.
      while (try? await loop.sleep(for: pause)) != nil { if !mayGoOn() { program.cancel() } }
    }
    loop.run()
    watch.cancel()
    loop.turn(wait: false)
    return try result.get()
  }
}

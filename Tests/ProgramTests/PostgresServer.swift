// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import TestSupport
import Testing

/// The test's own real PostgreSQL server. It does not run as root.
final class PostgresServer {
  let port: Int
  private let scratch = Scratch()
  private var program: Program?
  private let tools: String

  init() throws {
    let (descriptor, port) = try LoopbackPort.take()
    close(descriptor)
    self.port = Int(port)
    let versions = try FileManager.default.contentsOfDirectory(atPath: "/usr/lib/postgresql").sorted()
    tools = "/usr/lib/postgresql/\(versions.last ?? "")/bin"
    if geteuid() == 0, let user = getpwnam("postgres") { chown(scratch.folder.path(), user.pointee.pw_uid, gid_t.max) }
    let made = try run(
      "initdb", ["-D", scratch.location("data"), "-U", "hub", "-A", "trust", "-E", "UTF8", "--no-sync"])
    guard try made.ended() == 0 else { throw Program.Waited(description: "initdb: \(made.lines.suffix(5))") }
    try start()
    let create = try run("createdb", ["-h", "127.0.0.1", "-p", "\(port)", "-U", "hub", "mesh"])
    guard try create.ended() == 0 else { throw Program.Waited(description: "createdb: \(create.lines)") }
  }

  private func run(_ tool: String, _ arguments: [String]) throws -> Program {
    try runAsItsUser("\(tools)/\(tool)", arguments)
  }

  /// Starts PgBouncer in front of it; returns the program and its port.
  func pool(_ mode: String) throws -> (Program, Int) {
    let (descriptor, port) = try LoopbackPort.take()
    close(descriptor)
    let file = scratch.write(
      "pgbouncer.ini",
      """
      [databases]
      mesh = host=127.0.0.1 port=\(self.port) user=hub
      [pgbouncer]
      listen_addr = 127.0.0.1
      listen_port = \(port)
      unix_socket_dir =
      auth_type = any
      pool_mode = \(mode)
      """)
    let pool = try runAsItsUser("/usr/sbin/pgbouncer", [file])
    try pool.line(with: "process up")
    return (pool, Int(port))
  }

  private func runAsItsUser(_ program: String, _ arguments: [String]) throws -> Program {
    guard geteuid() == 0 else { return try Program(program, arguments, folder: scratch.folder) }
    return try Program("/usr/sbin/runuser", ["-u", "postgres", "--", program] + arguments, folder: scratch.folder)
  }

  func start() throws {
    program = try run(
      "postgres",
      [
        "-D", scratch.location("data"), "-p", "\(port)", "-k", scratch.folder.path(), "-c",
        "listen_addresses=127.0.0.1",
        "-c", "logging_collector=off", "-c", "max_prepared_transactions=4",
      ])
    try program?.line(with: "ready to accept connections")
  }

  /// Drops the database, also under its users, and makes an empty one with its name.
  func dropDatabase() throws {
    for sql in ["DROP DATABASE mesh WITH (FORCE)", "CREATE DATABASE mesh"] {
      let psql = try run("psql", ["-h", "127.0.0.1", "-p", "\(port)", "-U", "hub", "-d", "postgres", "-c", sql])
      guard try psql.ended() == 0 else { throw Program.Waited(description: "\(sql): \(psql.lines)") }
    }
  }

  /// Ends it as a power cut does: acknowledged data must survive.
  func crash() throws {
    let stop = try run("pg_ctl", ["-D", scratch.location("data"), "stop", "-m", "immediate", "-W"])
    _ = try stop.ended()
    _ = try program?.ended()
  }

  /// Stops all processes without ending them, until `thaw`. The kernel continues to accept connections and bytes.
  func freeze() throws { try signal(SIGSTOP) }

  func thaw() throws {
    try signal(SIGCONT)
    // The program that started it as its user stops with it.
    program?.send(SIGCONT)
  }

  private func signal(_ number: Int32) throws {
    let file = try String(contentsOfFile: scratch.location("data/postmaster.pid"), encoding: .utf8)
    let server = try #require(file.split(separator: "\n").first.flatMap { Int32($0) })
    // The server process first, so that it starts no further processes.
    kill(server, number)
    let children = try String(contentsOfFile: "/proc/\(server)/task/\(server)/children", encoding: .utf8)
    for child in children.split(separator: " ") { kill(try #require(Int32(child)), number) }
  }

  /// The first column of the first row.
  func value(_ sql: String) throws -> String {
    let psql = try run(
      "psql", ["-h", "127.0.0.1", "-p", "\(port)", "-U", "hub", "-d", "mesh", "-v", "ON_ERROR_STOP=1", "-Atc", sql])
    guard try psql.ended() == 0 else { throw Program.Waited(description: "psql: \(psql.lines)") }
    return psql.lines.first ?? ""
  }

  /// Starts a session that runs this, and waits until it runs.
  func session(_ sql: String) throws -> Program {
    try run("psql", ["-h", "127.0.0.1", "-p", "\(port)", "-U", "hub", "-d", "mesh", "-c", sql])
  }

  func execute(_ sql: String) throws {
    let psql = try run(
      "psql", ["-h", "127.0.0.1", "-p", "\(port)", "-U", "hub", "-d", "mesh", "-v", "ON_ERROR_STOP=1", "-c", sql])
    guard try psql.ended() == 0 else { throw Program.Waited(description: "psql: \(psql.lines)") }
  }

  /// Restores a dump of `pg_dump` into a new database.
  func restore(_ dump: String, as name: String) throws {
    // The server's user needs to read the dump.
    let readable = scratch.location("dump")
    try FileManager.default.copyItem(atPath: dump, toPath: readable)
    chmod(readable, 0o644)
    let place = ["-h", "127.0.0.1", "-p", "\(port)", "-U", "hub"]
    for (tool, arguments) in [("createdb", [name]), ("pg_restore", ["--exit-on-error", "-d", name, readable])] {
      let program = try run(tool, place + arguments)
      guard try program.ended() == 0 else { throw Program.Waited(description: "\(tool): \(program.lines)") }
    }
  }

  deinit { try? crash() }

  var address: String { "postgresql://hub@127.0.0.1:\(port)/mesh" }
}

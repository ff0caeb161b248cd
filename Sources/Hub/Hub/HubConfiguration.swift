// SPDX-License-Identifier: MIT

import Alerts
import FoundationEssentials
import Glibc
import SQLite
import ServiceManager
import TOML
import UntrustedText

/// The configuration of `meshpost-hub`, documented in deploy/hub.toml.
public struct HubConfiguration: Sendable {
  /// `write` is for gateways, which read only their own updates; `command` is for operators, who may also read; `metrics` allows nothing but metrics.
  public enum Access: String, Sendable, CaseIterable { case metrics, read, write, command, all }

  /// A token and its rights.
  public struct Token: Sendable, Equatable {
    /// The file's name, for people.
    public var name: String
    /// The file's lines, one secret each. Two while an operator replaces a token.
    public var secrets: [String]
    /// A gateway's id, or `*`.
    public var gateway: String
    public var access: Access
    /// Path of the token's file.
    public var location = ""
  }

  public struct Failure: Error, CustomStringConvertible {
    public let description: String

    public init(description: String) { self.description = description }
  }

  public var host: String
  public var port: Int
  /// A file, or `postgresql://…`.
  public var location: String
  public var password: String?
  /// Path of the password's file.
  public var passwordLocation: String?
  public var tokens: [Token]
  /// Path of the folder with a file for each gateway's tokens.
  public var gatewayTokens: String?
  public var maxBody: Int
  /// Events a second and gateway; 0 = no limit.
  public var rateLimit: Int
  /// Bytes of batches a day and gateway; 0 = no limit.
  public var bytesPerDay: Int64
  /// Most connections, as far as the limit of open files allows.
  public var maxConnections: Int
  public var retention: Retention
  public var alerts = HubAlertSettings()
  /// Lines of lower levels are not written.
  public var logLevel: HubLog.Level

  let source: [UInt8]

  /// Whether the database is on a server; otherwise it is an SQLite file.
  public var isServer: Bool { HubStore.isServer(location) }
  /// `nil`: the hub has no pages.
  public var web: HubWebSettings?
  /// Settings of the table `[consume]`.
  public var consume: ConsumeSettings?

  /// The purpose of reading a configuration. A consumer, or a command on a hub's database, serves no requests and needs no tokens: often only root
  /// may read the token files, and only the hub's user may use the database.
  public enum Purpose: Sendable { case serving, consuming, commands }

  static let credentials = "/etc/meshpost-hub/credentials"

  public init(file: String, for purpose: Purpose = .serving) throws(Failure) {
    let bytes: [UInt8]
    do throws(ReadFailure) {
      bytes = try ReadFailure.contents(of: file)
    } catch {
      throw Failure(description: "\(file): cannot be read: \(error.reason)")
    }
    do {
      try self.init(parsing: bytes, file: file, for: purpose)
    } catch let error as TOMLError {
      throw Failure(description: "\(file): \(error)")
    } catch {
      throw Failure(description: "\(error)")
    }
  }

  init(parsing bytes: [UInt8], file: String, for purpose: Purpose = .serving) throws {
    source = bytes
    var root = TOMLReader(try TOMLParser.parse(bytes))
    host = root.string("host") ?? "127.0.0.1"
    port = Int(root.integer("port", in: 0...65535, default: 8787))
    location = root.string("database") ?? "/var/lib/meshpost-hub/hub.db"
    if location.isEmpty || location.unicodeScalars.contains("://".unicodeScalars), !HubStore.isServer(location) {
      root.note("database", "expected the path of an SQLite file, or an address that begins with postgresql://")
    }
    if !HubStore.isServer(location) { location = DatabaseFile.behindLinks(location) }
    password = Self.password(&root)
    passwordLocation = root.string("database_password_file").map { Credential.location($0, or: Self.credentials) }
    maxBody = Int(root.size("max_body", in: 1024...(64 << 20), default: 1 << 20))
    rateLimit = Int(root.integer("max_events_per_second", in: 0...1_000_000, default: 0))
    bytesPerDay = Int64(root.size("max_bytes_per_day", in: 0...(1 << 40), default: 1 << 30))
    maxConnections = Int(root.integer("max_connections", in: 1...1_000_000, default: 4096))
    logLevel = HubLog.Level(name: root.choice("log_level", of: HubLog.Level.names, default: "info")) ?? .info
    var kept = root.table("retention")
    retention = Retention(&kept)
    root.note(from: kept)
    var rules = root.table("alerts")
    alerts = HubAlertSettings(&rules)
    root.note(from: rules)
    if var table = root.optionalTable("web") {
      web = HubWebSettings(&table)
      root.note(table.errors)
    }
    if var table = root.optionalTable("consume") {
      consume = ConsumeSettings(&table)
      root.note(table.errors)
    } else if purpose == .consuming {
      root.note("consume", "a table [consume] with the broker's url is required")
    }
    tokens = []
    for var table in root.tables("token") where purpose == .serving {
      if let token = Self.token(&table) { tokens.append(token) }
      table.finish()
      root.note(table.errors)
    }
    gatewayTokens = root.string("gateway_tokens")
    if let gatewayTokens, purpose == .serving, GatewayTokens(folder: gatewayTokens) == nil {
      root.note("gateway_tokens", "\(gatewayTokens) is not a folder that this user may read")
    }
    root.finish()
    // A mistyped key may be the one that is missing.
    if tokens.isEmpty, gatewayTokens == nil, purpose == .serving, root.errors.isEmpty {
      root.note("token", "gateway_tokens, or at least one [[token]] with file, gateway and access, is required")
    }
    guard root.errors.isEmpty else {
      let lines = root.errors.sorted { $0.line < $1.line }.map { "\(file): \($0)" }
      throw Failure(description: lines.joined(separator: "\n"))
    }
  }

  /// Reads the password for a database server from its file: the address appears in logs, so it has no password.
  private static func password(_ root: inout TOMLReader) -> String? {
    guard let file = root.string("database_password_file") else { return nil }
    let line = firstLine(of: file)
    if line == nil { root.note("database_password_file", "\(file) cannot be read, or is empty") }
    return line
  }

  /// `name`: a path, or a credential's name.
  static func contents(of name: String) -> String {
    let location = Credential.location(name, or: credentials)
    return FileManager.default.contents(atPath: location).map { String(decoding: $0, as: UTF8.self) } ?? ""
  }

  /// `nil`: the file cannot be read, or is empty.
  static func firstLine(of name: String) -> String? {
    contents(of: name).split(whereSeparator: \.isNewline).first.map(String.init)
  }

  /// The secrets, one a line; `nil`: there is none, or one is too short.
  static func secrets(in text: String) -> [String]? {
    let secrets = text.split(whereSeparator: \.isNewline).map { $0.trimmed }
      .filter { !$0.isEmpty }
    return secrets.isEmpty || secrets.contains { $0.utf8.count < 16 } ? nil : secrets
  }

  private static func token(_ table: inout TOMLReader) -> Token? {
    let location = table.string("file")
    let gateway = table.string("gateway") ?? "*"
    let access = table.choice("access", of: Access.allCases.map(\.rawValue), default: "read")
    if gateway != "*", !Name.isAllowed(gateway) { table.note("gateway", "`*` or an id: \(Name.allowed)") }
    guard let location else {
      table.note("file", "file is missing")
      return nil
    }
    guard let secrets = secrets(in: contents(of: location)) else {
      table.note("file", "\(location) cannot be read, is empty, or contains a token of fewer than 16 characters")
      return nil
    }
    return Token(
      name: URL(filePath: location).lastPathComponent, secrets: secrets, gateway: gateway,
      access: Access(rawValue: access) ?? .read,
      location: Credential.location(location, or: credentials))
  }
}

extension HubConfiguration {
  /// The settings in `fresh` that need a restart: they differ from this configuration, with which the hub started. Tokens and the log's level need
  /// none; `[consume]` is for another program.
  public func waiting(in fresh: HubConfiguration) -> [String] {
    // `try?`: both were read without mistakes.
    guard let now = try? TOMLParser.parse(fresh.source), let then = try? TOMLParser.parse(source) else { return [] }
    let changed = TOMLTable.changes(from: then, to: now).filter {
      !["token", "gateway_tokens", "log_level"].contains($0) && !$0.hasPrefix("consume.")
    }
    let hasOtherPassword = password != fresh.password && !changed.contains("database_password_file")
    return changed + (hasOtherPassword ? ["database_password_file"] : [])
  }
}

/// `[alerts]` of hub.toml: the hub's own rules. See docs/alerts.md.
public struct HubAlertSettings: Sendable, Equatable {
  public var rules = AlertSettings(AlertRule.ofHubs)
  /// Bytes that have to be free on the file system of an SQLite file; 0: the alert is off.
  public var diskFree: Int64 = 1 << 30

  init() {}

  init(_ table: inout TOMLReader) {
    diskFree = table.size("disk_free", in: 0...(1 << 50), default: diskFree)
    rules = AlertSettings(AlertRule.ofHubs, reading: &table)
    table.finish()
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import FoundationEssentials
import Glibc
import JSON
import UntrustedText

/// Checks a hub's configuration, database and machine, also while the hub serves.
public struct HubDoctor: Sendable {
  private let configuration: HubConfiguration

  public init(_ configuration: HubConfiguration) { self.configuration = configuration }

  public func examine() async -> [HubFinding] {
    var found = files() + address() + [clock()] + disk()
    do {
      let store = try HubStore.existing(configuration, writes: false)
      found.add("database", .ok, "it answers")
      found += shared(try await store.tokenBindings())
      let isServer = configuration.isServer
      found += isServer ? try await store.examineServer() : try await store.examineFile(configuration.location)
      found += try await store.examineAges(configuration.retention)
      found += try await store.unknown(configuration.retention.kinds.keys.sorted()).map {
        HubFinding(
          "retention", .warning, "[retention] kinds: \"\($0)\" is not a kind of event here",
          "Correct it: expected \(KnownKinds.allowed)")
      }
    } catch {
      found.add(
        "database", .failed, "\(error)",
        configuration.isServer
          ? "See whether the server runs, and whether address, password and pg_hba.conf are right."
          : "See whether the file is there, and readable for you; the hub makes it at its first start.")
    }
    return found
  }

  // MARK: Configuration

  private func files() -> [HubFinding] {
    var found: [HubFinding] = []
    let folder = configuration.gatewayTokens.flatMap { GatewayTokens(folder: $0) }
    found += (folder?.faults ?? []).map { HubFinding("tokens", .warning, $0, "Mend the file, or remove it.") }
    let grouped = Set((folder?.tokens ?? []).map(\.location))
    let secrets =
      configuration.tokens.map(\.location) + [configuration.passwordLocation].compactMap { $0 } + Array(grouped)
    for location in Set(secrets).sorted() {
      var facts = stat()
      guard stat(location, &facts) == 0 else {
        found.add("secrets", .failed, "\(location): \(String(cString: strerror(errno)))", "Make the file.")
        continue
      }
      // The hub reads gateways' tokens as a member of their group.
      guard facts.st_mode & (grouped.contains(location) ? 0o037 : 0o077) != 0 else { continue }
      let isEverybodys = facts.st_mode & 0o007 != 0
      found.add(
        "secrets", isEverybodys ? .failed : .warning,
        "\(location) is open to \(isEverybodys ? "everybody" : "its group")",
        "`chmod \(grouped.contains(location) ? 640 : 600) \(location)`; replace the secret if others may have read it.")
    }
    if found.isEmpty {
      found.add("secrets", .ok, "\(Set(secrets).count) files, for those alone who need them")
    }
    let all = configuration.tokens.filter { $0.gateway == "*" && $0.access == .all }
    if !all.isEmpty {
      found.add(
        "tokens", .warning, "\(all.map(\.name).joined(separator: ", ")) may do everything for every gateway",
        "Give each gateway a token of its own (`meshpost-hub tokens add`), and operators one with `command`.")
    }
    return found
  }

  /// Tokens that several gateways share: older hubs bound no token to one gateway.
  private func shared(_ bindings: [TokenBinding]) -> [HubFinding] {
    let access = HubAccess(configuration.tokens)
    access.load(bindings)
    return access.list.filter { $0.gateways.count > $0.token.secrets.count }.map { listed in
      HubFinding(
        "tokens", .warning,
        "\(listed.token.name) is the token of \(listed.gateways.count) gateways: whoever has one of them speaks for all",
        "Give each its own: `meshpost-hub tokens add \(Escaping.argument(listed.gateways.first ?? ""))` and so on; then remove this one."
      )
    }
  }

  private func address() -> [HubFinding] {
    let isLocal = ["127.0.0.1", "::1", "localhost"].contains(configuration.host)
    return [
      isLocal
        ? HubFinding("network", .ok, "listens on \(configuration.host) only: others need a TLS proxy in front")
        : HubFinding(
          "network", .warning, "listens on \(configuration.host) without TLS: tokens can be read on the way",
          "Let it listen on 127.0.0.1, with Caddy, nginx or HAProxy in front; or only within a VPN.")
    ]
  }

  // MARK: The machine

  private func clock() -> HubFinding {
    LinuxClocks().isWallSynchronised
      ? HubFinding("clock", .ok, "the machine's clock is synchronised")
      : HubFinding(
        "clock", .warning, "the machine's clock is not synchronised: commands expire at the wrong time",
        "`timedatectl` tells why.")
  }

  /// A transaction may need more bytes than that.
  private static let tooLittle: UInt64 = 1 << 20

  private func disk() -> [HubFinding] {
    guard !configuration.isServer else { return [] }
    let folder = URL(filePath: configuration.location).deletingLastPathComponent().path(percentEncoded: false)
    var space = statvfs()
    guard statvfs(folder, &space) == 0 else {
      return [HubFinding("disk", .failed, "\(folder): \(String(cString: strerror(errno)))", "See whether it is there.")]
    }
    let free = UInt64(space.f_bavail) &* UInt64(space.f_frsize)
    let all = max(1, UInt64(space.f_blocks) &* UInt64(space.f_frsize))
    let words = "\(free >> 20) MiB free where the database is"
    if space.f_flag & UInt(ST_RDONLY) != 0 {
      return [HubFinding("disk", .failed, "\(folder) is read-only", "See `dmesg`: errors of the disk make it so.")]
    }
    let remedy = "Make room, or delete what is old: `meshpost-hub purge`, `[retention]`."
    if free < Self.tooLittle {
      let full = "the disk is full where the database is: the hub stores nothing, and gateways wait"
      return [HubFinding("disk", .failed, full, remedy)]
    }
    guard free < 1 << 30 || free < all / 20 else { return [HubFinding("disk", .ok, words)] }
    let state = free < 100 << 20 ? HubFinding.State.failed : .warning
    return [HubFinding("disk", state, words, "\(remedy) When it is full, gateways wait.")]
  }
}

extension HubStore {
  // MARK: Ages

  fileprivate func examineAges(_ retention: Retention) throws(HubDatabaseError) -> [HubFinding] {
    var found: [HubFinding] = []
    let now = HubClock.now
    if let words = Self.clockTrouble(now, surely: try surelyPassed(at: now, keeps: false)) {
      found.add("clock", .warning, words, "See whether the clock is right: `timedatectl`.")
    }
    if let held = try heldRetention() {
      found.add("retention", .warning, held.message, HeldRetention.remedy)
    } else if !retention.isEmpty {
      let last = try retentionProgress().values.map(\.at).max().map {
        "its last run was at \(Date(timeIntervalSince1970: Double($0) / 1000).formatted(.iso8601))"
      }
      found.add(
        "retention", .ok, last ?? "it has not run yet: the first run begins within ten minutes of the hub's start")
    }
    return found
  }

  // MARK: An SQLite file

  /// A larger log shows that a reader prevents its copy into the file for very long.
  private static let longLog: Int64 = 256 << 20

  fileprivate func examineFile(_ location: String) throws(HubDatabaseError) -> [HubFinding] {
    var found: [HubFinding] = []
    var facts = stat()
    if stat(location, &facts) == 0, facts.st_mode & 0o007 != 0 {
      found.add("file", .failed, "\(location) is open to everybody", "`chmod o= \(location)*`")
    }
    if stat(location + "-wal", &facts) == 0, Int64(facts.st_size) > Self.longLog {
      found.add(
        "log", .warning, "\(location)-wal has \(facts.st_size >> 20) MiB: something reads for very long",
        "End long backups and programs that have the file open: `fuser -v \(location)`.")
    }
    let (pages, free) = (try number("PRAGMA page_count"), try number("PRAGMA freelist_count"))
    if pages > 100_000, free > pages / 2 {
      found.add(
        "size", .warning, "\(free * 100 / pages) % of the file are free",
        "New rows use it. To give it back, stop the hub once: `sqlite3 \(location) VACUUM`.")
    }
    return found
  }

  // MARK: A PostgreSQL server

  private func setting(_ name: String) throws(HubDatabaseError) -> String {
    try database.first("SELECT current_setting(?1)", name) { $0.text(0) } ?? ""
  }

  fileprivate func examineServer() throws(HubDatabaseError) -> [HubFinding] {
    var found = [try version()] + (try durability())
    found += [try connections(), try oldestTransaction()] + (try preparedTransactions()) + (try bloat())
    if try setting("idle_in_transaction_session_timeout") == "0" {
      found.add(
        "transactions", .warning,
        "idle_in_transaction_session_timeout is off: one forgotten transaction holds up readers",
        "`ALTER SYSTEM SET idle_in_transaction_session_timeout = '5min'`, then `SELECT pg_reload_conf()`.")
    }
    return found
  }

  private func version() throws(HubDatabaseError) -> HubFinding {
    let number = try number("SELECT current_setting('server_version_num')::bigint")
    let name = "PostgreSQL \(try setting("server_version"))"
    return number >= 140_000
      ? HubFinding("server", .ok, name)
      : HubFinding("server", .warning, "\(name) is not tried", "Upgrade the server to version 14 or newer.")
  }

  private func durability() throws(HubDatabaseError) -> [HubFinding] {
    let risks = [
      (
        "fsync", "a power cut destroys the database", "`ALTER SYSTEM SET fsync = on`, then `SELECT pg_reload_conf()`."
      ),
      (
        "full_page_writes", "a power cut can destroy the database",
        "`ALTER SYSTEM SET full_page_writes = on`, then `SELECT pg_reload_conf()`."
      ),
      (
        "synchronous_commit", "a crash loses events that gateways no longer send",
        "`ALTER ROLE … SET synchronous_commit = on` for the hub's role, or remove the setting."
      ),
    ]
    var found: [HubFinding] = []
    for (name, risk, remedy) in risks where try setting(name) == "off" {
      found.add("durability", .failed, "\(name) is off: \(risk)", remedy)
    }
    return found.isEmpty ? [HubFinding("durability", .ok, "what is committed is on disk")] : found
  }

  private func connections() throws(HubDatabaseError) -> HubFinding {
    let used = try number("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
    let most = try number("SELECT current_setting('max_connections')::bigint")
    let words = "\(used) of \(most) connections of the server are in use"
    // A hub has nine, and with `[retention]` ten.
    return most - used < 10
      ? HubFinding("connections", .warning, words, "Raise max_connections of the server, or end what holds them.")
      : HubFinding("connections", .ok, words)
  }

  /// Writing transactions hold up readers of joined messages. Source: decision 0018.
  private func oldestTransaction() throws(HubDatabaseError) -> HubFinding {
    let oldest = try database.first(
      """
      SELECT pid, coalesce(datname, '?'), coalesce(application_name, ''), coalesce(state, '?'),
      extract(epoch FROM clock_timestamp() - xact_start)::bigint FROM pg_stat_activity
      WHERE backend_xid IS NOT NULL AND xact_start IS NOT NULL AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1
      """
    ) { ($0.integer(0), "\($0.text(3)), database \($0.text(1)), \($0.text(2))", $0.integer(4)) }
    guard let (pid, words, seconds) = oldest, seconds > 60 else {
      return HubFinding("transactions", .ok, "none that writes is older than a minute")
    }
    return HubFinding(
      "transactions", .warning,
      "one has been open for \(seconds) s (\(words)): joined messages behind it cannot be read",
      "End it where it comes from, or: `SELECT pg_terminate_backend(\(pid))`.")
  }

  /// A prepared transaction is in no activity of the server, outlives its restart, and ends by nobody but its owner.
  private func preparedTransactions() throws(HubDatabaseError) -> [HubFinding] {
    try database.rows(
      """
      SELECT gid, database, owner, extract(epoch FROM clock_timestamp() - prepared)::bigint FROM pg_prepared_xacts
      WHERE prepared < clock_timestamp() - interval '5 s' ORDER BY prepared LIMIT 5
      """
    ) { row in
      let quoted = Visible.excerpt(row.text(0)).replacing("'", with: "''")
      return HubFinding(
        "transactions", .warning,
        "a prepared one has been open for \(row.integer(3)) s (\(Visible.excerpt(row.text(0))), database "
          + "\(Visible.excerpt(row.text(1))), of \(Visible.excerpt(row.text(2)))): joined messages behind it cannot be read, "
          + "and VACUUM removes no row that was deleted since",
        "End it where it comes from, or in its database: `ROLLBACK PREPARED '\(quoted)'`.")
    }
  }

  private func bloat() throws(HubDatabaseError) -> [HubFinding] {
    try database.rows(
      """
      SELECT relname, n_live_tup, n_dead_tup FROM pg_stat_user_tables
      WHERE schemaname = current_schema() AND n_dead_tup > 100000 AND n_dead_tup > n_live_tup / 2 ORDER BY n_dead_tup DESC LIMIT 5
      """
    ) { row in
      HubFinding(
        "bloat", .warning, "\(row.text(0)) has \(row.integer(2)) dead rows beside \(row.integer(1))",
        "`VACUUM (ANALYZE) \(row.text(0))`; see whether autovacuum is on.")
    }
  }
}

/// A result of the doctor, and its remedy.
public struct HubFinding: Sendable, Equatable {
  public enum State: String, Sendable {
    case ok
    case warning
    case failed
  }

  public var name: String
  public var state: State
  public var message: String
  public var remedy: String?

  public init(_ name: String, _ state: State, _ message: String, _ remedy: String? = nil) {
    (self.name, self.state, self.message, self.remedy) = (name, state, message, remedy)
  }

  /// The finding about a hub that serves, and is ready. `isLocked`: by its answer another program has locked the database; `isHiding`: a transaction
  /// hides new messages from readers.
  public static func ready(on place: String, isLocked: Bool, isHiding: Bool) -> HubFinding {
    let ready = "it is ready on \(place)"
    if isLocked { return HubFinding("hub", .failed, "\(ready), but \(LockedFile.words)", LockedFile.remedy) }
    guard isHiding else { return HubFinding("hub", .ok, ready) }
    return HubFinding(
      "hub", .failed, "\(ready), but another transaction hides what gateways have sent since then from readers",
      "See the findings about transactions, and the alert `hub_database`.")
  }

  /// The finding about a hub that serves, and is not ready. `reason`: of its answer to `/readyz`.
  public static func notReady(_ reason: String, on place: String) -> HubFinding {
    if DatabaseProbe.Problem(rawValue: reason) == .lost {
      return HubFinding("hub", .failed, "not ready on \(place): \(DatabaseProbe.lostFile)", DatabaseProbe.lostRemedy)
    }
    return HubFinding(
      "hub", .failed, "not ready on \(place): \(reason)", "See the findings about the database, and the hub's log.")
  }

  /// Findings as `{"ok", "findings": [{"check", "state", "words", "remedy"}]}`.
  public static func json(_ findings: [HubFinding]) -> [UInt8] {
    JSONWriter.object([
      "ok": findings.allSatisfy { $0.state == .ok },
      "findings": findings.map {
        ["check": $0.name, "state": $0.state.rawValue, "words": $0.message, "remedy": $0.remedy] as JSONObject
      },
    ])
  }
}

extension [HubFinding] {
  fileprivate mutating func add(_ name: String, _ state: HubFinding.State, _ message: String, _ remedy: String? = nil) {
    append(HubFinding(name, state, message, remedy))
  }
}

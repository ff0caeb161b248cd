// SPDX-License-Identifier: MIT

import Glibc

extension HubStore {
  /// Opens a hub's database for a command, also while the hub serves. It neither creates nor upgrades tables.
  public static func existing(_ configuration: HubConfiguration, writes: Bool) throws -> HubStore {
    if isServer(configuration.location) {
      let database = try PostgresHubDatabase(
        address: configuration.location, password: configuration.password, migrates: false)
      try database.requireVersion()
      return HubStore(database)
    }
    return HubStore(try SQLiteHubDatabase(existing: configuration.location, writes: writes))
  }
}

extension PostgresHubDatabase {
  fileprivate func requireVersion() throws(HubDatabaseError) {
    let exists = try first("SELECT to_regclass('schema_version')::text") { $0.textIfAny(0) } ?? nil
    try HubSchema.require(exists == nil ? 0 : try number("SELECT coalesce(max(version), 0) FROM schema_version"))
  }
}

extension HubSchema {
  /// Throws unless the tables have this program's version.
  static func require(_ version: Int64) throws(HubDatabaseError) {
    let own = Int64(newest)
    guard version != own else { return }
    let message =
      version == 0
      ? "it has no tables of a hub yet: start the hub once"
      : "its tables have version \(version), this program's \(own): use the program of the hub that serves, or restart it"
    throw HubDatabaseError(kind: .other, message: message)
  }
}

// SPDX-License-Identifier: MIT

import Alerts
import UntrustedText

/// On a server a message is shown when all transactions that began before have ended. One that somebody has forgotten, in any database of the server,
/// hides all that come later, while gateways get acknowledgements. Source: decision 0018.
extension HubStore {
  /// What is known of such a transaction, and a statement that ends it.
  struct TransactionFacts: Equatable {
    let words: String
    let remedy: String
  }

  /// The oldest running transaction that writes, if a stored message waits for its end.
  func hidingTransaction() throws(HubDatabaseError) -> Int64? {
    guard let unsettled = database.unsettledPosition else { return nil }
    let found = try database.number(
      """
      SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint
      WHERE EXISTS (SELECT 1 FROM messages WHERE position >= \(unsettled))
      """)
    return found > 0 ? found : nil
  }

  /// Of locks the server tells every role, also whose transaction it is; of the activity of others only the name, unless the role is in `pg_monitor`.
  func facts(ofTransaction number: Int64) throws(HubDatabaseError) -> TransactionFacts {
    let found = try database.first(
      """
      SELECT coalesce(l.pid, 0), coalesce(a.application_name, ''), coalesce(a.datname, p.database, ''),
      coalesce(a.state, ''), coalesce(p.gid, ''),
      extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::bigint
      FROM (SELECT CAST(CAST(mod(CAST(?1 AS BIGINT), 4294967296) AS TEXT) AS xid) AS id) x
      LEFT JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = x.id AND l.granted
      AND l.mode = 'ExclusiveLock'
      LEFT JOIN pg_stat_activity a ON a.pid = l.pid
      LEFT JOIN pg_prepared_xacts p ON p.transaction = x.id LIMIT 1
      """, number
    ) { row in
      (
        pid: row.integer(0), program: row.text(1), database: row.text(2), state: row.text(3), prepared: row.text(4),
        seconds: row.textIfAny(5).flatMap { Int64($0) }
      )
    }
    guard let found, found.pid > 0 || !found.prepared.isEmpty else {
      return TransactionFacts(words: "number \(number)", remedy: "SELECT pg_terminate_backend(…)")
    }
    let facts = [
      Self.named("program", found.program), Self.named("database", found.database), found.state,
      found.seconds.map { "open for \(AlertRule.words(.seconds($0 < 60 ? $0 : $0 / 60 * 60)))" } ?? "",
    ].filter { !$0.isEmpty }.joined(separator: ", ")
    guard found.prepared.isEmpty else {
      let quoted = Visible.excerpt(found.prepared).replacing("'", with: "''")
      return TransactionFacts(words: "a prepared one (\(facts))", remedy: "ROLLBACK PREPARED '\(quoted)'")
    }
    return TransactionFacts(
      words: "process \(found.pid) (\(facts))", remedy: "SELECT pg_terminate_backend(\(found.pid))")
  }

  private static func named(_ what: String, _ name: String) -> String {
    name.isEmpty ? "" : "\(what) \(Visible.excerpt(name))"
  }
}

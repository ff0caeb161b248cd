// SPDX-License-Identifier: MIT

import SQLite

/// Losses that are found as the database is opened, until the operator has an alert of each.
extension Store {
  private static let lossForAlert = "loss_for_alert/"

  /// The loss has an alert at the next start that has alerts: a restoration has none, and a start may be killed before it.
  public func keepForAlert(_ loss: StoreLoss) throws(StoreError) {
    let words = provenance.lossWords ?? "\(loss)"
    write { store throws(SQLiteError) in try store.setMeta(Self.lossForAlert + loss.cause.rawValue, .text(words)) }
    try commitNow()
  }

  /// Losses that have no alert yet, in words.
  public func lossesForAlerts() throws(StoreError) -> [(cause: StoreLoss.Cause, words: String)] {
    try rows(
      "SELECT substr(name, ?2), value FROM meta WHERE name GLOB ?1 ORDER BY name",
      [.text(Self.lossForAlert + "*"), .integer(Int64(Self.lossForAlert.utf8.count + 1))]
    ) { row in StoreLoss.Cause(rawValue: row.text(0)).map { (cause: $0, words: row.text(1)) } }
  }

  /// Within a `write`: the losses have alerts.
  public func forgetLossesForAlerts() throws(SQLiteError) {
    try database.run("DELETE FROM meta WHERE name GLOB ?", .text(Self.lossForAlert + "*"))
  }

  /// The mark names a loss as soon as it is stored: another loss soon after must not hide it.
  func markLoss() {
    guard !transactions.hasUncommitted, transactions.failure == nil else { return }
    do throws(StoreError) { try markProgress() } catch {
      transactions.tell("the end of the journal is not marked beside the database, until the hour's mark: \(error)")
    }
  }
}

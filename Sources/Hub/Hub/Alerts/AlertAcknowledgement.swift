// SPDX-License-Identifier: MIT

/// People acknowledge alerts: one, or those of one outage together.
extension HubStore {
  /// `nil`: there is none with this id.
  func acknowledgeAlert(
    _ id: Int64, by person: String, note: String?, at now: Int64
  ) throws(HubDatabaseError) -> HubAlert? {
    try acknowledgeAlerts([id], by: person, note: note, at: now).first
  }

  /// Returns those that there are, as they are then. A second acknowledgement changes nothing.
  func acknowledgeAlerts(
    _ ids: [Int64], by person: String, note: String?, at now: Int64
  ) throws(HubDatabaseError) -> [HubAlert] {
    try transaction { () throws(HubDatabaseError) -> [HubAlert] in
      var found: [HubAlert] = []
      for id in ids {
        let count = try database.run(
          """
          UPDATE alerts SET acknowledged_at = ?2, acknowledged_by = ?3, note = ?4
          WHERE id = ?1 AND acknowledged_at IS NULL
          """, id, now, person, note)
        if count > 0 { announce(Self.alertChange(id)) }
        if let alert = try alert(id) { found.append(alert) }
      }
      return found
    }
  }
}

// SPDX-License-Identifier: MIT

import Delivery
import Store
import Timing

/// The air time of packets that the radio hears, by the hour. It is in memory, and comes to disk with other transactions, each ten minutes in which
/// packets come, and at the hour's turn: a kill loses no more of it than that.
struct HeardAirtime {
  private static let interval: Duration = .seconds(600)
  private static let nothing = Store.AirtimeEntry(milliseconds: 0, packets: 0)

  private var hour: Int64?
  /// What the database had of this hour when it was read first; `nil`: it could not be read yet.
  private var stored: Store.AirtimeEntry?
  /// What was heard since.
  private var sum = HeardAirtime.nothing
  private var posted: MonotonicTime?

  /// Another database, or a restart: what it has of this hour is read again.
  mutating func forget() { hour = nil }

  mutating func note(_ milliseconds: Int64, _ store: Store, at moment: Moment, now: MonotonicTime) {
    let present = Store.hour(of: moment)
    var isDue = posted.map { now - $0 >= Self.interval } ?? false
    if hour != present {
      if hour != nil { isDue = true }
      (hour, stored, sum) = (present, nil, Self.nothing)
    }
    if posted == nil { posted = now }
    sum.milliseconds += milliseconds
    sum.packets += 1
    if stored == nil {
      stored = store.ifReadable {
        try store.storedAirtime(for: AirtimePurpose.heard.rawValue, in: present) ?? Self.nothing
      }
    }
    // A smaller sum must not replace what cannot be read: it is counted on, and written when it can.
    guard let stored else { return }
    let whole = Store.AirtimeEntry(
      milliseconds: stored.milliseconds + sum.milliseconds, packets: stored.packets + sum.packets)
    let elapsed = store.elapsed(at: moment)
    // Under the hour's own name: the last value of an hour is written even if the next one begins first.
    store.transactions.writeAlong("air time heard in hour \(present)") { store throws(SQLiteError) in
      try store.setAirtime(whole, for: AirtimePurpose.heard.rawValue, in: present, elapsed: elapsed)
    }
    if isDue {
      posted = now
      store.post(when: .heard, "air time heard") { _ in }
    }
  }
}

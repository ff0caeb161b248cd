// SPDX-License-Identifier: MIT

import Delivery
import Store
import Timing

/// The air time of packets that the radio hears, by the hour. It is in memory, and comes to disk with other transactions, each ten minutes in which
/// packets come, and at the hour's turn: a kill loses no more of it than that.
struct HeardAirtime {
  private static let interval: Duration = .seconds(600)

  private var hour: Int64?
  private var sum = Store.AirtimeEntry(milliseconds: 0, packets: 0)
  private var posted: MonotonicTime?

  /// Another database, or a restart: what it has of this hour is read again.
  mutating func forget() { hour = nil }

  mutating func note(_ milliseconds: Int64, _ store: Store, at moment: Moment, now: MonotonicTime) {
    let present = Store.hour(of: moment)
    var isDue = posted.map { now - $0 >= Self.interval } ?? false
    if hour != present {
      if hour != nil { isDue = true }
      hour = present
      // If it cannot be read, nothing can be written, either.
      let stored = store.ifReadable { try store.storedAirtime(for: AirtimePurpose.heard.rawValue, in: present) }
      sum = (stored ?? nil) ?? Store.AirtimeEntry(milliseconds: 0, packets: 0)
    }
    if posted == nil { posted = now }
    sum.milliseconds += milliseconds
    sum.packets += 1
    let elapsed = store.elapsed(at: moment)
    // Under the hour's own name: the last value of an hour is written even if the next one begins first.
    store.transactions.writeAlong("air time heard in hour \(present)") { [sum] store throws(SQLiteError) in
      try store.setAirtime(sum, for: AirtimePurpose.heard.rawValue, in: present, elapsed: elapsed)
    }
    if isDue {
      posted = now
      store.post(when: .heard, "air time heard") { _ in }
    }
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import Store

/// What a batch is read by, and what goes before it.
extension JournalUpstream {
  /// By what events are judged for their age; `nil`: they are not.
  var present: AgeLimit.Present? {
    guard settings.filter.age != nil else { return nil }
    let wall = Moment(clock)
    return AgeLimit.Present(wall: wall, now: loop.now, times: times)
  }

  func nextDeadLetter() throws(StoreError) -> JournalEvent? {
    guard hasMarkedDeadLetters, flights.isEmpty else { return nil }
    var found: JournalEvent?
    try store.eachDeadLetter(of: name, marked: true, limit: 1) { letter in
      found = letter.event
      return false
    }
    hasMarkedDeadLetters = found != nil
    return found
  }
}

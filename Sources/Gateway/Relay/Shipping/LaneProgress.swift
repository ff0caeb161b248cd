// SPDX-License-Identifier: MIT

import Store
import Timing

/// An upstream's position in a lane of the journal.
struct LaneProgress {
  /// Acknowledged up to here, and on disk or about to be written along with something else.
  var cursor: Int64
  /// Acknowledged, or not for this server, up to here; the cursor follows.
  var taken: Int64
  /// The server has taken events since the cursor was written last.
  var isAhead = false
  /// Events up to here are under way; 0: none are.
  var underWay: Int64 = 0
  /// The last event that the server has by its own count, and the last one sent to it.
  var serverHas: Int64 = 0
  var lastSent: Int64 = 0
  /// The newest event that the server has acknowledged, and its epoch; the epoch is empty if that was in an earlier run of the program.
  var told: (seq: Int64, epoch: String) = (0, "")
  /// The batch that is under way or was last, for a server that recognises it by what it contains; and the events of the one on disk.
  var named: NamedBatch?
  var keptName: [Int64] = []
  /// The lane's position before it went back for a server that was emptied, or is an older copy of itself.
  var wasTaken: Int64 = 0
  var suspicion = Suspicion()
  /// The server failed over what follows this position, first at this time. Other lanes may move meanwhile.
  var failure: (after: Int64, since: MonotonicTime, reason: String)?
  /// Events after `taken`, and their epoch, that the server took out of turn as a proof that it takes any.
  var ahead: (seqs: Set<Int64>, epoch: String) = ([], "")
  /// Sent up to here; and for each gap that is not acknowledged, the number of its events.
  var sent: Int64 = 0
  var gapsSent: [Int64: Int64] = [:]
  /// The part of `Store.journaled` up to `taken`, for people.
  var passed = LaneAmount()
  /// `passed` is outdated, and is counted on demand.
  var isMiscounted = true
  /// The journal had deleted the lane up to here when `passed` was counted.
  var countedFrom: Int64 = 0

  init(cursor: Int64) { (self.cursor, taken) = (cursor, cursor) }

  mutating func failed(_ reason: String, at now: MonotonicTime) {
    if failure?.after != taken { failure = (taken, now, reason) }
  }

  /// Since when the server fails over the next event, and why; `nil`: it does not.
  var standsStill: (since: MonotonicTime, reason: String)? {
    failure.flatMap { $0.after == taken ? ($0.since, $0.reason) : nil }
  }

  /// The journal has been read up to here.
  var readThrough: Int64 { max(taken, underWay) }
}

// SPDX-License-Identifier: MIT

import Store

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
  /// The lane's position before it went back for a server that was emptied, or is an older copy of itself.
  var wasTaken: Int64 = 0
  var suspicion = Suspicion()
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

  /// The journal has been read up to here.
  var readThrough: Int64 { max(taken, underWay) }
}

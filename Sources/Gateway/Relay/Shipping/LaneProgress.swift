// SPDX-License-Identifier: MIT

import Store

/// How far a lane of the journal is at an upstream.
struct LaneProgress {
  /// Acknowledged up to here, and on disk or on its way along with something else.
  var cursor: Int64
  /// Acknowledged, or not for this server, up to here; the cursor follows.
  var taken: Int64
  /// The server has taken some since the cursor was written last.
  var isAhead = false
  /// Read and under way up to here; 0: nothing is.
  var underWay: Int64 = 0
  /// The last event that the server has by its own count, and the last one that it was sent.
  var serverHas: Int64 = 0
  var lastSent: Int64 = 0
  /// The newest event for this server that it has acknowledged; in which epoch, if that was to this program.
  var told: (seq: Int64, epoch: String) = (0, "")
  /// Before it went back to what a server has that was emptied, or is an older copy, it was here.
  var wasTaken: Int64 = 0
  var suspicion = Suspicion()
  /// Taken out of turn, to show that the server takes any: behind `taken`, in this epoch.
  var ahead: (seqs: Set<Int64>, epoch: String) = ([], "")
  /// It was read and sent up to here; the gaps among that, how many events each stands for, until they are acknowledged.
  var sent: Int64 = 0
  var gapsSent: [Int64: Int64] = [:]
  /// Of `Store.journaled`, what is behind `taken`: for people.
  var passed = LaneAmount()
  /// `passed` is out of date: it is counted on demand.
  var isMiscounted = true
  /// The journal had deleted the lane up to here when it was counted.
  var countedFrom: Int64 = 0

  init(cursor: Int64) { (self.cursor, taken) = (cursor, cursor) }

  /// The journal was read up to here.
  var readThrough: Int64 { max(taken, underWay) }
}

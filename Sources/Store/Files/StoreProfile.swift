// SPDX-License-Identifier: MIT

/// How soon a write is to be on disk.
public enum When: Sendable {
  /// At the end of this turn: what is acknowledged, or would be lost.
  case now
  /// What comes again by itself, or is only of interest: adverts, packets, readings, places of clients and of upstreams.
  case soon
  /// A message that the radio has handed over and forgotten.
  case message
}

/// What a flash card is spared, and what that costs when the power goes. What each promises stands in docs/flash.md.
public enum StoreProfile: String, Sendable, CaseIterable {
  /// Everything is on disk at once.
  case durable
  /// Messages are on disk at once, everything else within half a minute.
  case balanced
  /// Everything is on disk within a quarter of a minute, messages too.
  case wear

  /// What may wait waits so long at most.
  var gathering: Duration { self == .wear ? .seconds(15) : .seconds(30) }

  /// A page that changes often is folded into the database once in so many pages of the log.
  var pagesToCheckpoint: Int { self == .durable ? 200 : 1000 }

  func isUrgent(_ when: When) -> Bool {
    switch when {
    case .now: true
    case .soon: self == .durable
    case .message: self != .wear
    }
  }
}

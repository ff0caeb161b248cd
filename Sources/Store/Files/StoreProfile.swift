// SPDX-License-Identifier: MIT

/// How soon a write is to be on disk.
public enum When: Sendable {
  /// At the end of this turn: data that is acknowledged, or would be lost otherwise.
  case now
  /// Data that is repeated or only informative: adverts, packets, readings, positions of clients and of upstreams.
  case soon
  /// A message that the radio has handed over and forgotten.
  case message
}

/// Trades writes to a flash card for data that a power cut can lose. Described in docs/flash.md.
public enum StoreProfile: String, Sendable, CaseIterable {
  /// Everything is on disk at once.
  case durable
  /// Messages are on disk at once, everything else within half a minute.
  case balanced
  /// Everything is on disk within a quarter of a minute, messages too.
  case wear

  /// What may wait waits so long at most.
  var gathering: Duration { self == .wear ? .seconds(15) : .seconds(30) }

  /// Pages of the write-ahead log between checkpoints, each of which writes a page that changes often only once.
  var pagesToCheckpoint: Int { self == .durable ? 200 : 1000 }

  func isUrgent(_ when: When) -> Bool {
    switch when {
    case .now: true
    case .soon: self == .durable
    case .message: self != .wear
    }
  }
}

// SPDX-License-Identifier: MIT

/// How soon a write is to be on disk.
public enum When: Sendable {
  /// At the end of this turn: data that is acknowledged, or would be lost otherwise.
  case now
  /// What no power cut may take from who trusts in `durable`, and others can do without: positions of clients, messages that upstreams have had,
  /// what nodes answer.
  case soon
  /// What the mesh says again, or what only informs: packets, adverts of known nodes, and that upstreams have had those. It comes all
  /// the time, so it waits in every profile.
  case heard
  /// A message that the radio has handed over and forgotten.
  case message
}

/// Trades writes to a flash card for data that a power cut can lose. Described in docs/flash.md.
///
/// `When.heard` is on disk within a minute in all of them.
public enum StoreProfile: String, Sendable, CaseIterable {
  /// Everything else is on disk at once.
  case durable
  /// Messages are on disk at once, everything else within a minute.
  case balanced
  /// Everything is on disk within a quarter of a minute, messages too.
  case wear

  /// What may wait waits so long at most, and is not committed by itself more often than that.
  var gathering: Duration { self == .wear ? .seconds(15) : .seconds(60) }

  /// What comes after a quiet time waits so long for company.
  private var company: Duration { self == .wear ? gathering : .seconds(2) }

  /// How long something that may wait does. `since`: since the last time that something had waited; `nil`: never.
  func pause(since: Duration?) -> Duration { max(company, gathering - (since ?? gathering)) }

  /// Pages of the write-ahead log between checkpoints, each of which writes a page that changes often only once.
  var pagesToCheckpoint: Int { self == .durable ? 200 : 1000 }

  func isUrgent(_ when: When) -> Bool {
    switch when {
    case .now: true
    case .soon: self == .durable
    case .heard: false
    case .message: self != .wear
    }
  }
}

extension Store {
  /// Received messages may wait for a later commit.
  public var gathersMessages: Bool { !settings.profile.isUrgent(.message) }
}

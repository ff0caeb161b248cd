// SPDX-License-Identifier: MIT

/// How soon a write must be on disk.
public enum When: Sendable {
  /// At the end of this turn: data that is acknowledged, or would otherwise be lost.
  case now
  /// At once with `durable`, later in the other profiles: positions of clients, messages that upstreams have received,
  /// answers of nodes.
  case soon
  /// Within a minute: data that the mesh repeats or that only informs, such as packets and adverts of known nodes, and
  /// upstreams' positions in these. It arrives all the time, so it waits in every profile.
  case heard
  /// A message that the radio has handed over and forgotten.
  case message
}

/// Trades writes to a flash card for data that a power cut can lose. Described in docs/flash.md.
///
/// In all profiles, `When.heard` is on disk within a minute.
public enum StoreProfile: String, Sendable, CaseIterable {
  /// Everything but `When.heard` is on disk at once.
  case durable
  /// `When.now` and messages are on disk at once, everything else within a minute.
  case balanced
  /// `When.now` is on disk at once, everything else, including messages, within a quarter of a minute.
  case wear

  /// The longest wait of a deferred write, and the shortest time between commits of only deferred writes.
  var gathering: Duration { self == .wear ? .seconds(15) : .seconds(60) }

  /// How long the first deferred write after a quiet time waits for others.
  private var company: Duration { self == .wear ? gathering : .seconds(2) }

  /// How long a deferred write waits. `since`: the time since the last deferred write; `nil`: there was none.
  func pause(since: Duration?) -> Duration { max(company, gathering - (since ?? gathering)) }

  /// Pages of the write-ahead log between checkpoints; a checkpoint writes a page that has changed often only once.
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
  /// Whether received messages may wait for a later commit.
  public var gathersMessages: Bool { !settings.profile.isUrgent(.message) }
}

// SPDX-License-Identifier: MIT

import Store
import Timing

/// The state of the sync with the radio, for `status` and `sync`.
public enum SyncState: Equatable, Sendable {
  public enum Phase: String, Sendable { case handshake, time, contacts, channels, messages }

  /// No link to the radio.
  case idle
  /// `total` is 0 if it is unknown.
  case syncing(Phase, current: Int, total: Int)
  case synced
  /// The reason, and the part that failed; `nil`: the store failed. The sync retries automatically.
  case failed(String, Phase? = nil)

  public static let names = ["idle", "syncing", "synced", "failed"]

  /// The sync requests nothing now: it is complete, or waits for a retry.
  public var isSettled: Bool {
    switch self {
    case .synced, .failed: true
    case .idle, .syncing: false
    }
  }

  public var name: String {
    switch self {
    case .idle: "idle"
    case .syncing: "syncing"
    case .synced: "synced"
    case .failed: "failed"
    }
  }
}

/// Why, and since when, a connected radio does not hand over its messages.
public struct Withheld: Equatable, Sendable {
  /// The reason.
  public let why: String
  public let since: MonotonicTime

  /// A sentence for the operator.
  public var words: String { "\(why): nothing more is received from it" }
}

/// Why the sync does not continue; it retries automatically.
struct SyncFailure: Error, Equatable {
  let message: String
  let remedy: String

  init(_ message: String, remedy: String = "") {
    self.message = message
    self.remedy = remedy
  }

  init(_ error: any Error) {
    switch error {
    case let failure as SyncFailure: self = failure
    case let failure as StoreError: self.init("\(failure)", remedy: failure.remedy)
    default: self.init("\(error)")
    }
  }
}

/// Counts since the daemon's start; never reset.
public struct SyncCounters: Equatable, Sendable {
  public var connections = 0
  public var messagesStored = 0
  public var duplicates = 0
  /// Messages on a slot that the radio reports as empty: traffic under a key of zeros, not for this radio.
  public var emptySlotMessages = 0
  public var adverts = 0
  public var contactsChanged = 0
  public var fullContactLists = 0
  public var incrementalContactLists = 0
  public var timeouts = 0
  public var unaskedReplies = 0
}

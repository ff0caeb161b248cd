// SPDX-License-Identifier: MIT

import Timing

/// Finds the MQTT version of a broker: 5 first, 3.1.1 if the broker does not support 5. Some brokers say so; others hang up
/// on a CONNECT that they do not understand, or keep silent. A version that worked stays.
struct VersionSearch: Equatable {
  /// Why CONNECT failed.
  enum Failure: Equatable {
    /// The broker refused the version.
    case refused
    case hungUp
    case silent
  }

  /// After so many failures in a row a version that worked is in doubt.
  private static let patience = 3
  /// Pause before version 5 is tried again at a broker that seemed not to support it.
  private static let askAgain: Duration = .seconds(86_400)

  /// The only version to use; `nil`: there is a choice.
  let wish: MQTTVersion?
  private(set) var version: MQTTVersion
  private var isProven = false
  private var failures = 0
  private var again: MonotonicTime?

  init(_ wish: MQTTVersion?) {
    self.wish = wish
    version = wish ?? .v5
  }

  /// Whether silence may be caused by the version: then the time-out is shorter.
  var isGuess: Bool { wish == nil && version == .v5 && !isProven }

  /// A connection begins.
  mutating func begins(now: MonotonicTime) {
    guard wish == nil, let due = again, now >= due else { return }
    self = VersionSearch(nil)
  }

  /// The broker accepted the client, or refused it for another reason: it supports this version.
  mutating func answered() {
    isProven = true
    failures = 0
  }

  /// True: try the other version at once.
  mutating func failed(_ failure: Failure, now: MonotonicTime) -> Bool {
    guard wish == nil else { return false }
    if failure == .refused {
      let goesOn = version == .v5
      self = VersionSearch(nil)
      version = goesOn ? .v3 : .v5
      return goesOn
    }
    failures += 1
    if isProven, failures < Self.patience { return false }
    // Neither has worked: the next connection begins with 5 again.
    guard isGuess else {
      self = VersionSearch(nil)
      return false
    }
    version = .v3
    again = now + Self.askAgain
    return true
  }
}

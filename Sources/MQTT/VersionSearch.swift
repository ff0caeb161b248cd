// SPDX-License-Identifier: MIT

import Timing

/// Which version of MQTT a broker is spoken to in: 5 first, 3.1.1 where the broker does not know 5. Some say so; others hang up
/// on a hello that they do not understand, or keep silent. What has worked is kept to.
struct VersionSearch: Equatable {
  /// How a hello was not answered.
  enum Failure: Equatable {
    /// The broker said that it does not know the version.
    case refused
    case hungUp
    case silent
  }

  /// A version that worked and then fails so often is doubted.
  private static let patience = 3
  /// A broker that only seemed not to know 5 is asked again.
  private static let askAgain: Duration = .seconds(86_400)

  /// `nil`: whichever works.
  let wish: MQTTVersion?
  private(set) var version: MQTTVersion
  private var isProven = false
  private var failures = 0
  private var again: MonotonicTime?

  init(_ wish: MQTTVersion?) {
    self.wish = wish
    version = wish ?? .v5
  }

  /// Whether silence may mean that the version is not known: then less of it is waited for.
  var isGuess: Bool { wish == nil && version == .v5 && !isProven }

  /// A connection begins.
  mutating func begins(now: MonotonicTime) {
    guard wish == nil, let due = again, now >= due else { return }
    self = VersionSearch(nil)
  }

  /// The broker took us, or refused us for another reason: it knows this version.
  mutating func answered() {
    isProven = true
    failures = 0
  }

  /// True: the other version is to be tried at once.
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
    // Nothing has worked: the next connection begins with 5 again.
    guard isGuess else {
      self = VersionSearch(nil)
      return false
    }
    version = .v3
    again = now + Self.askAgain
    return true
  }
}

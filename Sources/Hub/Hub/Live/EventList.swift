// SPDX-License-Identifier: MIT

import UntrustedText

/// The newest encoded events for readers. A reader is a position in the list, so memory does not depend on the number or
/// the speed of readers. Pure.
struct EventList {
  static let mostEvents = 4096
  static let mostBytes = 4 << 20

  private var events: [[UInt8]] = []
  private var first = 0
  private var bytes = 0

  var end: Int { first + events.count }

  mutating func append(_ event: [UInt8]) {
    events.append(event)
    bytes += event.count
    while events.count > Self.mostEvents || bytes > Self.mostBytes {
      bytes -= events.removeFirst().count
      first += 1
    }
  }

  /// Returns about `most` bytes of whole events, at least one if there is one, and moves the position behind them.
  /// `nil`: the position is no longer in the list.
  func read(from position: inout Int, most: Int) -> [UInt8]? {
    guard position >= first else { return nil }
    var out: [UInt8] = []
    while position < end {
      let event = events[position - first]
      guard out.isEmpty || out.count + event.count <= most else { break }
      out += event
      position += 1
    }
    return out
  }

  mutating func clear() { (first, events, bytes) = (end, [], 0) }
}

/// Changes that hubs on this database announced and the feed has not read yet. Pure.
struct AnnouncedChanges {
  static let most = 200

  /// Whether changes were left out. Readers have to come again, for they would never learn of them.
  private(set) var isOverflowing = false
  /// Ended commands, and gateways with new commands.
  private var endedCommands: Set<[String]> = []
  private var queueChanged: Set<String> = []
  private var alerts: Set<Int64> = []

  /// Returns false if readers get nothing of this kind.
  mutating func add(_ change: HubChange) -> Bool {
    if change.bucket == "commands" {
      if !Self.add(change.gateway, to: &queueChanged) { isOverflowing = true }
    } else if change.bucket.begins(with: LinkRegistry.resultPrefix) {
      let id = String(change.bucket.utf8.dropFirst(LinkRegistry.resultPrefix.utf8.count))
      if let id, !Self.add([change.gateway, id], to: &endedCommands) { isOverflowing = true }
    } else if change.bucket.begins(with: "alert/") {
      guard let id = Int64(change.bucket.dropFirst("alert/".count)) else { return false }
      if !Self.add(id, to: &alerts) { isOverflowing = true }
    } else {
      return HubStore.isShared(change.bucket)
    }
    return true
  }

  /// False: there is no room.
  private static func add<Value>(_ value: Value, to values: inout Set<Value>) -> Bool {
    guard values.count < most || values.contains(value) else { return false }
    values.insert(value)
    return true
  }

  /// Puts back changes that could not be read.
  mutating func putBack(ended: Set<[String]> = [], begun: Set<String> = [], alerts: [Int64] = []) {
    endedCommands.formUnion(ended)
    queueChanged.formUnion(begun)
    self.alerts.formUnion(alerts)
  }

  mutating func takeCommands() -> (ended: Set<[String]>, begun: Set<String>) {
    defer { (endedCommands, queueChanged) = ([], []) }
    return (endedCommands, queueChanged)
  }

  mutating func takeAlerts() -> [Int64] {
    defer { alerts = [] }
    return alerts.sorted()
  }
}

/// A gateway as live readers know it. Pure.
///
/// The hub's clock may be set back, so another time is news, whether later or earlier. Milliseconds since 1970.
struct LiveGateway {
  /// Between two rows of a gateway if only its last contact is new.
  private static let pause: Int64 = 30_000

  var linkedAt: Int64?
  private var lastSeen: Int64 = 0
  private var state: Int64 = 0
  /// The last contact that readers know, and when they learnt it; 0: they know nothing yet.
  private var publishedSeen: Int64 = 0
  private var publishedAt: Int64 = 0

  init(linkedAt: Int64? = nil) { self.linkedAt = linkedAt }

  /// Notes the last contact and the arrival of the last state; 0: unchanged. Returns whether the state is another one.
  mutating func note(seen: Int64, state: Int64) -> Bool {
    if seen > 0 { lastSeen = seen }
    guard state > 0, state != self.state else { return false }
    self.state = state
    return true
  }

  /// Whether readers are to get a contact that they do not know.
  func hasNewContact(at now: Int64) -> Bool {
    lastSeen != publishedSeen && (publishedAt == 0 || abs(now - publishedAt) >= Self.pause)
  }

  /// Readers know it with this last contact, as its row has it; `nil`: with the noted one. The row may have the time of
  /// another hub, whose clock is far behind: a look at recent contacts never finds it.
  mutating func published(at now: Int64, seen: Int64? = nil) {
    if let seen { lastSeen = seen }
    (publishedSeen, publishedAt) = (lastSeen, now)
  }
}

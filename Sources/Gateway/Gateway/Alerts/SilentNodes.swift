// SPDX-License-Identifier: MIT

import Alerts
import Companion
import Documents
import EventLoop
import JSON
import Store
import Timing
import UntrustedText

/// The watched nodes, and when each was last heard, by time that has certainly passed.
///
/// A contact's `last_heard` follows the clock, which may be set, and is written up to ten minutes late. So only one
/// fact of it counts: whether it has changed between the last check before an end and the next start.
struct SilentNodes {
  /// The most nodes to watch.
  static let most = 256

  private let store: Store
  private let loop: EventLoop
  private var silence = Silence<PublicKey>()
  private var isRecalled = false
  /// `nil`: the rule is off.
  private var limit: Duration?
  /// The time of the last check: nodes that were late then are reported.
  private var looked: MonotonicTime
  /// A check is worthwhile after the next commit.
  private var hasNews = false
  /// When the next node is late, as the timer was set.
  private var armed: MonotonicTime?

  init(_ store: Store, on loop: EventLoop) { (self.store, self.loop, looked) = (store, loop, loop.now) }

  var keys: [PublicKey] { silence.names }
  /// When the next node is late, counted from the last check: a node that became late since then is not forgotten.
  var due: MonotonicTime? { silence.due(after: looked) }

  func heard(_ key: PublicKey) -> MonotonicTime? { silence.heard(key) }

  /// Checks all watched nodes, and returns each with whether it is late. `limit`: `nil` if the rule is off. `lastSign`: when a node that is watched from
  /// now on was heard, as far as that is known.
  mutating func look(
    _ names: [String], tag: String, limit: Duration?, lastSign: (PublicKey) -> MonotonicTime? = { _ in nil }
  ) -> [(key: PublicKey, isLate: Bool)] {
    self.limit = limit
    guard let limit, !names.isEmpty || !tag.isEmpty else {
      for key in silence.names { silence.ignore(key) }
      return []
    }
    let wanted = find(names, tag: tag)
    for key in silence.names where !wanted.contains(key) { silence.ignore(key) }
    recall(wanted, limit)
    for key in wanted {
      silence.listen(for: key, heard: silence.heard(key) ?? lastSign(key) ?? loop.now, limit: limit)
    }
    looked = loop.now
    keep()
    return wanted.map { ($0, silence.isLate($0, now: looked)) }
  }

  /// A node was heard, `ago`. A check is worthwhile if the node was late, or if a power cut would lose a good part of
  /// the limit.
  mutating func hear(_ node: KeyPrefix, ago: Duration) {
    guard let limit, let key = silence.names.first(where: { $0.prefix == node }) else { return }
    let wasLate = silence.isLate(key, now: loop.now)
    silence.hear(key, at: loop.now + (.zero - ago))
    if wasLate || loop.now - looked >= limit / 4 { hasNews = true }
  }

  /// The radio sent the record of a contact.
  mutating func came(_ contact: Contact, wanted names: [String]) {
    if heard(contact.key) != nil || names.contains(where: { Self.means($0, contact) }) { hasNews = true }
  }

  /// Whether a check is worthwhile since the last call.
  mutating func takeNews() -> Bool {
    defer { hasNews = false }
    return hasNews
  }

  mutating func arm() -> MonotonicTime? {
    armed = due
    return due
  }

  var isDue: Bool { armed.map { $0 <= loop.now } ?? false }

  /// Reads the stored times, once after the start.
  private mutating func recall(_ wanted: [PublicKey], _ limit: Duration) {
    guard !isRecalled else { return }
    isRecalled = true
    let elapsed = store.elapsed(at: Moment(loop.wallClock))
    for node in store.ifReadable({ try store.heardNodes() }) ?? [] {
      guard let key = PublicKey(bytes: node.key), wanted.contains(key) else { continue }
      // It was heard after that was stored, at an unknown time.
      let age = lastHeard(key) == node.lastHeard ? max(0, elapsed - node.elapsed) : 0
      silence.listen(for: key, heard: loop.now + .milliseconds(-age), limit: limit)
    }
  }

  private func lastHeard(_ key: PublicKey) -> Int64 { store.ifReadable { try store.contact(key)?.lastHeard ?? 0 } ?? 0 }

  /// Stores the times with the next write: they are not worth their own.
  func keep() {
    guard limit != nil else { return }
    let elapsed = store.elapsed(at: Moment(loop.wallClock))
    let nodes = silence.names.map { key in
      let age = silence.heard(key).map { Int64((loop.now - $0).inSeconds * 1000) } ?? 0
      return Store.HeardNode(key: key.bytes, elapsed: max(0, elapsed - age), lastHeard: lastHeard(key))
    }
    store.transactions.writeAlong("heard_nodes") { store throws(SQLiteError) in try store.setHeardNodes(nodes) }
  }

  // MARK: Watched nodes

  /// Finds nodes by name, key prefix or tag. Nodes that were never heard are left out: they may not exist.
  func find(_ names: [String], tag: String) -> [PublicKey] {
    var found = Set(tag.isEmpty ? [] : tagged(tag))
    if !names.isEmpty {
      _ = store.ifReadable {
        try store.eachContact { stored in
          if names.contains(where: { Self.means($0, stored.contact) }) { found.insert(stored.contact.key) }
          return found.count < Self.most
        }
      }
    }
    return Array(found.sorted { $0.hex < $1.hex }.prefix(Self.most))
  }

  /// The names to show: with a key prefix if another name is similar, and only that if the name is invisible.
  func called(_ keys: [PublicKey]) -> [PublicKey: String] {
    guard !keys.isEmpty else { return [:] }
    let wanted = Set(keys)
    var (names, bearers) = ([PublicKey: String](), [String: Int]())
    _ = store.ifReadable {
      for key in keys { names[key] = try store.contact(key)?.contact.name.string }
      for name in names.values { bearers[Visible.gist(name)] = 0 }
      try store.eachContact { stored in
        let gist = Visible.gist(stored.contact.name.string)
        if let count = bearers[gist] { bearers[gist] = count + 1 }
        return true
      }
    }
    return Dictionary(
      uniqueKeysWithValues: wanted.map { key in
        let (name, beginning) = (names[key] ?? "", String(key.hex.prefix(12)))
        let gist = Visible.gist(name)
        if gist.isEmpty { return (key, beginning) }
        return (key, Visible.line(name) + (bearers[gist] ?? 0 > 1 ? " (\(beginning))" : ""))
      })
  }

  static func means(_ name: String, _ contact: Contact) -> Bool {
    if name.isExactly(contact.name.string) { return true }
    return name.utf8.count >= 8 && contact.key.hex.begins(with: name.lowercased())
  }

  private func tagged(_ tag: String) -> [PublicKey] {
    var keys: [PublicKey] = []
    _ = store.ifReadable {
      try store.eachDocument("node/") { document in
        guard case .node(let key, .tags)? = DocumentKey(document.key), let value = document.value,
          // `try?`: stored values were valid JSON when they arrived.
          let tags = (try? JSONValue(parsing: value))?.array,
          tags.contains(where: { $0.string?.isExactly(tag) ?? false }),
          let node = PublicKey(hex: key)
        else { return true }
        keys.append(node)
        return keys.count < Self.most
      }
    }
    // Tagged nodes that were never heard have no record, or one without a time.
    return keys
  }
}

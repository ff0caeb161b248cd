// SPDX-License-Identifier: MIT

import Alerts
import Companion
import Documents
import EventLoop
import Escaping
import JSON
import Store
import Timing

/// Nodes that are listened for, and when each was heard last, by time that has surely passed.
///
/// A contact's `last_heard` is of the clock, which may be set: only that it has changed counts here, and when that was seen.
struct SilentNodes {
  /// More are not listened for.
  static let most = 256

  private let store: Store
  private let loop: EventLoop
  private var silence = Silence<PublicKey>()
  /// `last_heard` as it was at the last look.
  private var seen: [PublicKey: Int64] = [:]
  private var isRecalled = false
  /// Who is late was told as of this time.
  private var looked: MonotonicTime

  init(_ store: Store, on loop: EventLoop) { (self.store, self.loop, looked) = (store, loop, loop.now) }

  var keys: [PublicKey] { silence.names }
  /// When the next one is late. Measured from the last look, never from now: who became late in between is not forgotten.
  var due: MonotonicTime? { silence.due(after: looked) }

  func heard(_ key: PublicKey) -> MonotonicTime? { silence.heard(key) }

  /// Looks at all: who is listened for, who was heard, and who is late. `limit` `nil`: the rule is off.
  mutating func look(_ names: [String], tag: String, limit: Duration?) -> [(key: PublicKey, isLate: Bool)] {
    guard let limit, !names.isEmpty || !tag.isEmpty else {
      for key in silence.names { silence.ignore(key) }
      return []
    }
    let wanted = find(names, tag: tag)
    for key in silence.names where !wanted.contains(key) {
      silence.ignore(key)
      seen[key] = nil
    }
    recall(wanted, limit)
    for key in wanted {
      silence.listen(for: key, heard: silence.heard(key) ?? loop.now, limit: limit)
      hearIfNew(key)
    }
    keep()
    looked = loop.now
    return wanted.map { ($0, silence.isLate($0, now: looked)) }
  }

  /// It was heard since the last look, if its record says another time than then, whatever time that is.
  private mutating func hearIfNew(_ key: PublicKey) {
    guard let heard = store.ifReadable({ try store.contact(key)?.lastHeard }) else { return }
    if let before = seen.updateValue(heard, forKey: key), before != heard { silence.hear(key, at: loop.now) }
  }

  /// What was known before the daemon was started.
  private mutating func recall(_ wanted: [PublicKey], _ limit: Duration) {
    guard !isRecalled else { return }
    isRecalled = true
    let elapsed = store.elapsed(at: Moment(loop.wallClock))
    for node in store.ifReadable({ try store.heardNodes() }) ?? [] {
      guard let key = PublicKey(bytes: node.key), wanted.contains(key) else { continue }
      seen[key] = node.lastHeard
      silence.listen(for: key, heard: loop.now + .milliseconds(-max(0, elapsed - node.elapsed)), limit: limit)
    }
  }

  /// Along with the next thing that is written: it is not worth a write of its own.
  private func keep() {
    let elapsed = store.elapsed(at: Moment(loop.wallClock))
    let nodes = silence.names.map { key in
      let age = silence.heard(key).map { Int64((loop.now - $0).inSeconds * 1000) } ?? 0
      return Store.HeardNode(key: key.bytes, elapsed: max(0, elapsed - age), lastHeard: seen[key] ?? 0)
    }
    store.writeAlong("heard_nodes") { store throws(SQLiteError) in try store.setHeardNodes(nodes) }
  }

  // MARK: Who is listened for

  /// By name, by the beginning of a key, by a tag. Who was never heard is not among them: nobody knows whether it exists.
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
    // Who is tagged and was never heard has no record, or one without a time.
    return keys
  }
}

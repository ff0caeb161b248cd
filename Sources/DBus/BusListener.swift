// SPDX-License-Identifier: MIT

import EventLoop

/// Signals, and who owns names, in the order in which the bus sends them, for one task. It stays when the bus goes away and comes back.
///
/// The task takes each event at once and awaits nothing else: then it runs before whoever waits for an answer that the bus sent later, and
/// after whoever waits for one that it sent before. One that falls behind by more than `bound` events ends the connection: what it knows
/// is outdated then, and the next connection begins anew.
public final class BusListener {
  public enum Event: Equatable {
    case signal(BusMessage)
    case owner(Bus.Owner, of: String)
  }

  /// Several times what the bus hands over in one turn.
  private static let bound = 256

  private let events = Mailbox<Event>(bound: bound)
  private var rules: [MatchRule] = []
  private(set) var names: [String] = []

  /// The event that comes next; `nil`: the bus was closed.
  public func next() async throws(CancellationError) -> Event? { try await events.next() }

  /// The rules that the bus has to know for it.
  var allRules: [MatchRule] { rules + names.map(MatchRule.init(ownerOf:)) }

  func add(_ rule: MatchRule) { if !rules.contains(rule) { rules.append(rule) } }
  func remove(_ rule: MatchRule) { rules.removeAll { $0 == rule } }
  func watch(_ name: String) { if !names.contains(name) { names.append(name) } }
  func finish() { events.finish() }

  /// False: it has fallen behind.
  func take(_ event: Event) -> Bool { events.put(event) }

  /// As above. Does nothing with a signal that is not for it.
  func take(signal message: BusMessage) -> Bool {
    if let (name, owner) = message.changedOwner, names.contains(name), !take(.owner(owner, of: name)) { return false }
    return !rules.contains { $0.matches(message) } || take(.signal(message))
  }
}

extension MatchRule {
  /// The bus's own signal about a name.
  fileprivate init(ownerOf name: String) {
    self.init(sender: Bus.name, interface: Bus.name, member: "NameOwnerChanged", argument: name)
  }
}

extension BusMessage {
  /// The bus says that a name has another owner, or none.
  fileprivate var changedOwner: (name: String, owner: Bus.Owner)? {
    guard sender == Bus.name, interface == Bus.name, member == "NameOwnerChanged", body.count == 3,
      let name = body[0].string, let owner = body[2].string
    else { return nil }
    return (name, owner.isEmpty ? .nobody : .name(owner))
  }
}

// SPDX-License-Identifier: MIT

import EventLoop

/// Signals and owners of names, in the bus's order, for one task. It persists when the bus goes away and returns.
///
/// The task handles each event without awaiting anything else: then it runs before tasks whose answers the bus sent later, and
/// after those whose answers it sent earlier. A listener more than `bound` events behind ends the connection: its state is
/// outdated, and the next connection begins anew.
public final class BusListener {
  public enum Event: Equatable {
    case signal(BusMessage)
    case owner(Bus.Owner, of: String)
  }

  /// Several times the number of messages per turn.
  private static let bound = 256

  private let events = Mailbox<Event>(bound: bound)
  private var rules: [MatchRule] = []
  private(set) var names: [String] = []

  /// The next event; `nil`: the bus was closed.
  public func next() async throws(CancellationError) -> Event? { try await events.next() }

  /// The match rules that it needs.
  var allRules: [MatchRule] { rules + names.map(MatchRule.init(ownerOf:)) }

  func add(_ rule: MatchRule) { if !rules.contains(rule) { rules.append(rule) } }
  func remove(_ rule: MatchRule) { rules.removeAll { $0 == rule } }
  func watch(_ name: String) { if !names.contains(name) { names.append(name) } }
  func finish() { events.finish() }

  /// False: the listener is too far behind.
  func take(_ event: Event) -> Bool { events.put(event) }

  /// The same for a signal; ignores signals that the listener did not subscribe to.
  func take(signal message: BusMessage) -> Bool {
    if let (name, owner) = message.changedOwner, names.contains(name), !take(.owner(owner, of: name)) { return false }
    return !rules.contains { $0.matches(message) } || take(.signal(message))
  }
}

extension MatchRule {
  /// The rule for NameOwnerChanged of one name.
  fileprivate init(ownerOf name: String) {
    self.init(sender: Bus.name, interface: Bus.name, member: "NameOwnerChanged", argument: name)
  }
}

extension BusMessage {
  /// The name and its new owner, if this message reports one.
  fileprivate var changedOwner: (name: String, owner: Bus.Owner)? {
    guard sender == Bus.name, interface == Bus.name, member == "NameOwnerChanged", body.count == 3,
      let name = body[0].string, let owner = body[2].string
    else { return nil }
    return (name, owner.isEmpty ? .nobody : .name(owner))
  }
}

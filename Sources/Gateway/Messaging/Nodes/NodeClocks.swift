// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import Store
import UntrustedText

/// Compares and sets the clocks of nodes.
extension NodeService {
  /// Why this machine's clock judges and sets no other one.
  static func noTime(_ store: Store) -> String {
    store.clockDoubt?.words ?? "this machine's clock is not synchronised: it knows no time to compare with, or to set"
  }

  /// Compares a node's clock with this machine's: a login shows it, or without a password a repeater's answer.
  public func clock(
    of stored: StoredContact, _ priority: DeliveryPriority = .interactive
  ) async throws(Refusal) -> ClockDifference {
    guard stored.contact.type != .chat else {
      throw .invalid("\(stored.contact.name.string) is a companion: nobody but its app asks for its clock")
    }
    try await restore(stored)
    let before = messenger.store.judgingNow
    let question: NodeQuestion = password(stored.contact.key).map { .login(password: $0) } ?? .clock
    let time: UInt32
    switch try await askOnce(question, stored.contact, priority) {
    case .clock(let found): time = found
    case .login(let login):
      guard let found = login.serverTime else { throw .radio("\(stored.contact.name.string) does not tell its time") }
      time = found
    default: throw .radio("an unexpected answer")
    }
    let after = messenger.store.judgingNow
    guard before.trusted, after.trusted else { throw .invalid(Self.noTime(messenger.store)) }
    return ClockDifference(time: time, asked: before.milliseconds, answered: after.milliseconds)
  }

  /// Sets a node's clock, never ahead of true time. `mayReboot`: it may be started anew, if its clock is ahead.
  public func setClock(of stored: StoredContact, mayReboot: Bool) async throws(Refusal) -> ClockSetting.Action {
    guard messenger.store.judgingNow.trusted else { throw .invalid(Self.noTime(messenger.store)) }
    guard password(stored.contact.key) != nil else {
      throw .invalid("only an admin sets a clock: meshpost node login \(Escaping.argument(stored.contact.name.string))")
    }
    let key = stored.contact.key
    guard !mayReboot || messenger.store.mayBeUnderWay(key) else {
      throw .full(
        "the clocks of \(messenger.store.clocksUnderWay.count) nodes are being set: finish them first (meshpost doctor)"
      )
    }
    does(.setsClock, key)
    var last: ClockDifference?
    defer { does(.endsSettingClock(last), key) }
    do throws(Refusal) {
      let (end, found) = try await bringForward(stored, ClockSetting(mayReboot: mayReboot))
      last = found
      if case .done = end { try await note(isUnderWay: false, key) }
      return end
    } catch {
      guard messenger.store.clocksUnderWay.contains(key) else { throw error }
      throw .silence("\(error). \(Self.unfinished(stored.contact.name.string))")
    }
  }

  private func bringForward(
    _ stored: StoredContact, _ begun: ClockSetting
  ) async throws(Refusal) -> (ClockSetting.Action, ClockDifference) {
    var (setting, patience) = (begun, 1)
    while true {
      let found: ClockDifference
      do throws(Refusal) {
        found = try await clock(of: stored)
      } catch {
        guard case .silence = error, patience > 1 else { throw error }
        patience -= 1
        try await pause(ClockSetting.start)
        continue
      }
      switch setting.read(found) {
      case .set: try await tell(.setClock, stored)
      case .reboot:
        // On disk first: whoever ends the gateway now leaves the node in May 2024.
        try await note(isUnderWay: true, stored.contact.key)
        try await tell(.cli("clkreboot"), stored)
        loggedIn.remove(stored.contact.key)
        patience = 4
        try await pause(ClockSetting.start)
      case let end: return (end, found)
      }
    }
  }

  private func note(isUnderWay: Bool, _ key: PublicKey) async throws(Refusal) {
    guard messenger.store.clocksUnderWay.contains(key) != isUnderWay else { return }
    try await Refusal.saving(in: messenger.store) { store throws(SQLiteError) in
      try store.setClockUnderWay(isUnderWay, of: key)
    }
  }

  /// Somebody has removed the node from the radio's contacts.
  public func wasRemoved(_ key: PublicKey) async throws(Refusal) { try await note(isUnderWay: false, key) }

  /// The gateway was ended while it set clocks.
  func sayWhatIsUnderWay() {
    for key in messenger.store.clocksUnderWay {
      // Without the store there is no name.
      let name = messenger.store.ifReadable { try messenger.store.contact(key)?.contact.name.string } ?? nil
      log.warning("\(name ?? key.hex): \(Self.unfinished(name ?? key.hex))")
    }
  }

  /// For people.
  public static func unfinished(_ name: String) -> String {
    "It may have been started anew to set its clock, which is not done yet: meshpost node clock \(Escaping.argument(name)) --set --reboot finishes it"
  }

  /// A command whose reply may be missing.
  private func tell(_ question: NodeQuestion, _ stored: StoredContact) async throws(Refusal) {
    do throws(Refusal) {
      _ = try await askOnce(question, stored.contact, .interactive)
    } catch {
      guard case .silence = error else { throw error }
    }
  }

  private func pause(_ duration: Duration) async throws(Refusal) {
    do { try await messenger.loop.sleep(for: duration) } catch { throw .cancelled }
  }
}

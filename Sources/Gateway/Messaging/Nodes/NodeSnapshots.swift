// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import Delivery
import EventLoop
import JSON
import Store
import UntrustedText

/// All settings of a node, as its command line tells them to an admin, one after the other.
extension NodeService {
  /// What comes while a snapshot is taken.
  public enum SnapshotProgress: Sendable {
    /// `value` nil: the firmware does not know it.
    case told(setting: String, value: String?, done: Int, of: Int)
    /// Why it waits.
    case waits(String)
  }

  /// The hour's air time for background work is used up: it goes on later.
  private static let (pause, mostPauses): (Duration, Int) = (.seconds(60), 360)
  /// Milliseconds within which a snapshot that was cut off is gone on with.
  private static let recent: Int64 = 3_600_000

  /// Refuses at once what cannot be asked.
  public func maySnapshot(_ stored: StoredContact) throws(Refusal) {
    let name = stored.contact.name.string
    guard stored.contact.type != .chat else { throw .invalid("\(name) is a companion: it has no command line") }
    guard password(stored.contact.key) != nil else {
      throw .invalid("only an admin is told the settings: meshpost node login \(Escaping.argument(name))")
    }
    guard !snapshotting.contains(stored.contact.key) else { throw .full("a snapshot of \(name) is under way") }
  }

  /// Logs in: a node leaves a guest's commands without an answer. Old firmware does not say what it takes us for.
  private func logInAsAdmin(_ stored: StoredContact) async throws(Refusal) {
    try await restore(stored)
    let (contact, name) = (stored.contact, stored.contact.name.string)
    guard let password = password(contact.key),
      case .login(let login) = try await askOnce(.login(password: password), contact, .bulk), !login.isGuest
    else {
      throw .invalid(
        "\(name) takes this gateway for a guest, and tells its settings to an admin: meshpost node login \(Escaping.argument(name))"
      )
    }
  }

  /// What the newest snapshot has told, if it was cut off lately.
  private func toldLately(_ key: PublicKey) -> [String: SnapshotTaking.Value] {
    let now = messenger.synchronizer.now.milliseconds
    guard let newest = messenger.store.ifReadable({ try messenger.store.snapshots(of: key).last }) ?? nil,
      // `try?`: a damaged one is not gone on with.
      let body = try? JSONValue(parsing: newest), body["missing"]?.array != nil,
      let at = body["at"]?.integer, (0...Self.recent).contains(now - at)
    else { return [:] }
    var told: [String: SnapshotTaking.Value] = [:]
    for setting in NodeSetting.all {
      if let value = body["settings"]?[setting.name]?.string { told[setting.name] = .known(value) }
      if body["unknown"]?.array?.contains(.string(setting.name)) == true { told[setting.name] = .unknown }
    }
    return told
  }

  /// Asks in the background's air time, and keeps what the node has told, even if that is not all. After a snapshot that was cut off within the last hour
  /// it asks for the firmware and for what that one lacks. Returns the snapshot's JSON; throws if the node has told nothing.
  public func snapshot(
    of stored: StoredContact, _ progress: (SnapshotProgress) -> Void
  ) async throws(Refusal) -> [UInt8] {
    try maySnapshot(stored)
    // The radio keeps the answers while the disk takes no messages.
    if let failure = messenger.store.transactions.failure { throw .store(failure) }
    let key = stored.contact.key
    snapshotting.insert(key)
    defer { snapshotting.remove(key) }
    var taking = SnapshotTaking(before: toldLately(key))
    var (isAdmin, pauses, trouble): (Bool, Int, Refusal?) = (false, 0, nil)
    while let setting = taking.next, trouble == nil {
      do throws(Refusal) {
        if !isAdmin { try await logInAsAdmin(stored) }
        isAdmin = true
        guard case .cli(let reply) = try await ask(.cli(Text(setting.command)), of: stored, .bulk) else {
          throw .radio("an unexpected answer")
        }
        taking.took(reply)
        let (value, done) = (taking.values[setting.name], taking.values.count)
        let text: String? = if case .known(let text)? = value { text } else { nil }
        progress(.told(setting: setting.name, value: text, done: done, of: taking.count))
      } catch {
        switch error {
        case .silence:
          taking.silence()
          if taking.next == nil { trouble = error }
        case .full where pauses < Self.mostPauses:
          pauses += 1
          progress(.waits("\(error)"))
          do { try await messenger.loop.sleep(for: Self.pause) } catch { trouble = .cancelled }
        default: trouble = error
        }
      }
    }
    guard !taking.values.isEmpty else { throw trouble ?? .radio("\(stored.contact.name.string) tells nothing") }
    return try await keep(taking, stored.contact, trouble)
  }

  private func keep(_ taking: SnapshotTaking, _ contact: Contact, _ trouble: Refusal?) async throws(Refusal) -> [UInt8]
  {
    let moment = messenger.synchronizer.now
    let body = JSONWriter.object { json in
      let row = Shape.Snapshot()
      json.field(row.node, contact.key.hex)
      json.field(row.name, contact.name.string)
      json.field(row.at, moment.milliseconds)
      json.object(row.settings) { json in
        // In the order in which they are asked for.
        for setting in NodeSetting.all {
          if case .known(let value) = taking.values[setting.name] { json.field(setting.name, value) }
        }
      }
      let unknown = NodeSetting.all.map(\.name).filter { taking.values[$0] == .unknown }
      json.field(row.unknown, unknown)
      if !taking.missing.isEmpty {
        json.field(row.missing, taking.missing)
        json.field(row.trouble, trouble?.description)
      }
    }
    // What the air time was spent on is kept, even if nobody waits for it any more.
    try await Refusal.saving(in: messenger.store) { store throws(SQLiteError) in
      try store.keepSnapshot(of: contact.key, body: body, at: moment)
    }
    if case .cancelled? = trouble { throw .cancelled }
    return body
  }
}

// SPDX-License-Identifier: MIT

import Companion
import Delivery
import Store
import Sync

/// Which regions repeaters carry.
extension NodeService {
  /// Asks a repeater, without a login, which regions it carries. It ignores a flooded question, so if the radio has no
  /// path, that of the repeater's last advert is tried in reverse.
  public func regions(
    of stored: StoredContact, _ priority: DeliveryPriority = .interactive
  ) async throws(Refusal) -> NodeAnswer {
    var contact = stored.contact
    guard contact.type == .repeater else { throw .invalid("\(contact.name.string) is not a repeater") }
    try await restore(stored)
    if let path = contact.outPath { return try await askOnce(.regions(replyPath: path.reversed), contact, priority) }
    let table = RadioTable(messenger.synchronizer, store: messenger.store)
    let heard: Path
    do throws(Refusal) {
      heard = try await table.wayOfAdvert(of: contact).path
    } catch {
      // A radio that does not answer may know a path.
      guard case .radio = error else { throw error }
      throw .invalid(
        "no path to \(contact.name.string) is known, and it ignores a flooded question. A login finds one: meshpost node login"
      )
    }
    contact.outPath = heard.reversed
    do throws(Refusal) {
      try await table.add(contact)
      return try await askOnce(.regions(replyPath: heard), contact, priority)
    } catch {
      // The way of an advert need not work in reverse: without an answer along it messages are flooded again.
      _ = await messenger.synchronizer.connection.ask(.resetPath(contact.key), .interactive)
      messenger.synchronizer.refresh(contact.key)
      throw error
    }
  }

  /// A repeater's answer, or why there is none.
  public struct CarriedRegions: Sendable {
    public var contact: Contact
    public var answer: Result<[String], Refusal>
  }

  /// Repeaters that are asked at once, and how long ago they were heard at most, in milliseconds.
  private static let (mostAsked, recent): (Int, Int64) = (8, 86_400_000)

  /// Asks repeaters around, the last heard first, within the air time for background work.
  public func regionsAround() async throws(Refusal) -> [CarriedRegions] {
    let since = messenger.synchronizer.now.milliseconds - Self.recent
    let heard = try Refusal.translating { () throws(StoreError) in try messenger.store.contactsHeard(limit: 1000) }
    let repeaters = heard.filter { $0.contact.type == .repeater && $0.onRadio && $0.lastHeard ?? 0 >= since }
    var found: [CarriedRegions] = []
    for stored in repeaters.prefix(Self.mostAsked) {
      do throws(Refusal) {
        guard case .regions(let names) = try await regions(of: stored, .bulk) else { continue }
        found.append(CarriedRegions(contact: stored.contact, answer: .success(names)))
      } catch {
        switch error {
        case .linkDown, .unknown, .cancelled: throw error
        default: found.append(CarriedRegions(contact: stored.contact, answer: .failure(error)))
        }
      }
    }
    return found
  }

  func keep(_ regions: [String], _ contact: Contact) {
    let moment = messenger.synchronizer.now
    messenger.store.post(when: .soon, "the regions of \(contact.name.string)") { store throws(SQLiteError) in
      try store.setCarried(regions.joined(separator: ","), by: contact.key, at: moment.milliseconds)
    }
  }
}

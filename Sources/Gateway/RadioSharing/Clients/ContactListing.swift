// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

/// The contact list.
extension ClientSession {
  private static let page = 50
  /// Unread bytes after which listing pauses.
  private static let maxPending = 16 * 1024

  /// From the store if it matches the radio; otherwise from the radio.
  func contacts(since: UInt32) async throws -> ClientAnswer {
    guard gateway.synchronizer.knowsAllContacts else { return try await contactsOfRadio(since) }
    do {
      return try await contactsOfStore(since)
    } catch is StoreError {
      return .reply(.error(.fileError))
    }
  }

  /// Lists at the client's speed, without a copy of the list.
  private func contactsOfStore(_ since: UInt32) async throws -> ClientAnswer {
    let total = try gateway.store.contactCount(onRadio: true)
    outlet.write(Reply.contactsStart(total: UInt32(clamping: total)).encode())
    var after: [UInt8] = []
    var newest: UInt32 = 0
    var count = 0
    repeat {
      try await outlet.hasRoom(Self.maxPending)
      count = 0
      try gateway.store.eachContact(after: after, onRadioOnly: true) { stored in
        let contact = stored.contact
        after = contact.key.bytes
        let modified = contact.lastModified ?? 0
        if modified > since || since == 0 {
          newest = max(newest, modified)
          outlet.write(Reply.contact(contact).encode())
        }
        count += 1
        return count < Self.page
      }
    } while count == Self.page
    return .reply(.endOfContacts(lastModified: newest))
  }

  private func contactsOfRadio(_ since: UInt32) async throws -> ClientAnswer {
    let question = [RadioSession.Submission(.getContacts(since: since))]
    let answer = try await ask(question, own: 0, part: { [outlet] frame in outlet.write(frame) })
    if case .contacts = answer.outcome { return .frame(answer.frame) }
    return .reply(.error(.badState))
  }
}

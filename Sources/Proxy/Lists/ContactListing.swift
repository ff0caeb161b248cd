// SPDX-License-Identifier: MIT

import Companion
import RadioSession
import Store

/// A contact list on its way to a client, from the store, as fast as it reads: nothing is collected.
final class ContactListing {
  private static let page = 50
  private static let maxPending = 16 * 1024

  private unowned let client: ClientSession
  private let since: UInt32
  private var after: [UInt8] = []
  private var newest: UInt32 = 0
  private var isOver = false

  init(_ client: ClientSession, since: UInt32) {
    self.client = client
    self.since = since
  }

  func begin() {
    do throws(StoreError) {
      let total = try client.parts.store.contactCount(onRadio: true)
      client.send(Reply.contactsStart(total: UInt32(clamping: total)).encode())
      writePages()
    } catch {
      finish(.error(.fileError))
    }
  }

  func writePages() {
    while !isOver, !client.isOver, client.stream.pendingBytes < Self.maxPending {
      do throws(StoreError) {
        if try !writePage() { finish(.endOfContacts(lastModified: newest)) }
      } catch {
        finish(.error(.fileError))
      }
    }
  }

  /// False: that was the last.
  private func writePage() throws(StoreError) -> Bool {
    var count = 0
    try client.parts.store.eachContact(after: after, onRadioOnly: true) { stored in
      let contact = stored.contact
      after = contact.key.bytes
      let modified = contact.lastModified ?? 0
      if modified > since || since == 0 {
        newest = max(newest, modified)
        client.send(Reply.contact(contact).encode())
      }
      count += 1
      return count < Self.page
    }
    return count == Self.page
  }

  private func finish(_ reply: Reply) {
    isOver = true
    client.listing = nil
    client.reply(reply)
  }
}

extension ClientSession {
  /// From the store, while that is what the radio has; from the radio while it may have changed.
  func list(since: UInt32) {
    guard parts.synchronizer.knowsAllContacts else { return listFromRadio(since) }
    let listing = ContactListing(self, since: since)
    self.listing = listing
    listing.begin()
  }

  private func listFromRadio(_ since: UInt32) {
    let isTaken = parts.connection.pass(
      [RadioSession.Submission(.getContacts(since: since))], part: { [weak self] frame in self?.send(frame) }
    ) { [weak self] _, answer in
      guard let self else { return }
      if case .contacts = answer.outcome { self.reply(raw: answer.frame) } else { self.reply(.error(.badState)) }
    }
    if !isTaken { reply(.error(.badState)) }
  }
}

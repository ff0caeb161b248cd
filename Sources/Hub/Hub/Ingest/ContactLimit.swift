// SPDX-License-Identifier: MIT

/// A limit for the contacts of a gateway: whoever has its token can report any number of keys.
extension HubStore {
  /// Most contacts of a gateway. A radio has some hundreds, and a gateway may hear some thousands.
  static let mostContacts = 10_000
  /// New contacts of a gateway between two checks.
  static let contactsUnchecked = 256

  /// The calls that delete the oldest contacts of gateways with more than the limit. A gateway is checked now and then.
  func trimmingContacts(_ stored: some Sequence<ContactKey>) -> [HubCall] {
    var due: Set<String> = []
    for contact in stored where contactInterval.isDue(contact.gateway) { due.insert(contact.gateway) }
    return due.sorted().map { gateway in
      HubCall(
        """
        DELETE FROM contacts WHERE gateway = @1 AND key IN (SELECT c.key FROM contacts c WHERE c.gateway = @1
        ORDER BY c.at DESC, c.key LIMIT 100000 OFFSET \(Self.mostContacts))
        """, values: [gateway])
    }
  }
}

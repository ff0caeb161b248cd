// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import MeshCrypto

extension VirtualRadio {
  func index(of key: PublicKey) -> Int? { stored.contacts.firstIndex { $0.key == key } }

  /// Commands about the contact table.
  func carryOutContact(_ command: Command) -> Bool {
    switch command {
    case .getContacts(let since): startIteration(since: since ?? 0)
    case .getContactByKey(let key) where key.isZero:
      reply(.contact(Contact(key: key, name: "")))  // a blank slot of 1.17 that looks like a contact
    case .getContactByKey(let key):
      guard let index = index(of: key) else { return refuse(.notFound) }
      reply(.contact(stored.contacts[index]))
    case .addUpdateContact(let contact): addOrUpdate(contact)
    case .removeContact(let key):
      guard let index = index(of: key) else { return refuse(.notFound) }
      stored.contacts.remove(at: index)
      stored.cards[key] = nil
      reply(.ok)
    case .resetPath(let key):
      guard let index = index(of: key) else { return refuse(.notFound) }
      stored.contacts[index].outPath = nil
      reply(.ok)
    case .shareContact(let key): return share(key)
    case .exportContact(let key): exportCard(of: key)
    case .importContact(let card): importCard(card)
    case .getAdvertPath(let key):
      guard let heard = volatile.advertPaths.first(where: { $0.key.bytes.prefix(7) == key.bytes.prefix(7) }) else {
        return refuse(.notFound)
      }
      reply(.advertPath(time: heard.time, path: heard.path))
    default: return false
    }
    return true
  }

  private func startIteration(since: UInt32) {
    guard volatile.iteration == nil else { return reply(.error(.badState)) }
    reply(.contactsStart(total: UInt32(stored.contacts.count)))
    volatile.iteration = loop.begin { [self] in
      do { try await iterate(since) } catch { return }  // rebooted
    }
  }

  /// Sends a few records at a time, so that commands that arrive meanwhile are answered in between.
  private func iterate(_ since: UInt32) async throws {
    try Task.checkCancellation()
    var (next, highest): (Int, UInt32) = (0, 0)
    while true {
      var budget = port?.contactsAtOnce ?? 8
      while next < stored.contacts.count, budget > 0 {
        let contact = stored.contacts[next]
        next += 1
        guard let modified = contact.lastModified, modified > since else { continue }
        highest = max(highest, modified)
        reply(.contact(contact))
        budget -= 1
      }
      guard next < stored.contacts.count else { break }
      try await loop.sleep(for: .microseconds(200))
    }
    volatile.iteration = nil
    reply(.endOfContacts(lastModified: highest))
  }

  private func addOrUpdate(_ contact: Contact) {
    var record = contact
    record.lastModified = contact.lastModified ?? clock
    let known = index(of: contact.key)
    record.latitude = contact.latitude ?? known.flatMap { stored.contacts[$0].latitude } ?? 0
    record.longitude = contact.longitude ?? known.flatMap { stored.contacts[$0].longitude } ?? 0
    if let index = known {
      stored.contacts[index] = record
    } else if stored.contacts.count < settings.maxContacts {
      stored.contacts.append(record)
    } else {
      return reply(.error(.tableFull))
    }
    reply(.ok)
  }

  /// The radio exports only received adverts: a node that was added by its key has none.
  private func share(_ key: PublicKey) -> Bool {
    guard index(of: key) != nil else { return refuse(.notFound) }
    guard var card = stored.cards[key] else { return refuse(.tableFull) }
    card.route = .transportDirect
    card.transportCodes = Packet.TransportCodes(first: 0, second: 0)  // shared by hand: not heard from the node itself
    (card.pathLength, card.path) = (PathLength(raw: 0), [])
    transmit(card)
    reply(.ok)
    return true
  }

  private func exportCard(of key: PublicKey?) {
    guard let key else { return reply(.exportContact(card: selfAdvert().encode())) }
    guard index(of: key) != nil, let card = stored.cards[key] else { return reply(.error(.notFound)) }
    reply(.exportContact(card: card.encode()))
  }

  private func importCard(_ card: [UInt8]) {
    guard let packet = try? Packet(decoding: card), packet.type == .advert else {
      return reply(.error(.illegalArgument))  // `try?`: the reason does not matter
    }
    reply(.ok)
    heard(packet, isImported: true)
  }

  // MARK: Adverts

  /// Our own advert, signed.
  func selfAdvert() -> Packet {
    let shares = stored.other.locationPolicy == 1 && (stored.latitude != 0 || stored.longitude != 0)
    let content = AdvertContent(
      type: .chat, position: shares ? (stored.latitude, stored.longitude) : nil, name: stored.name)
    var advert = Advert(key: key, time: uniqueTime(), signature: [], appData: content.encode())
    advert.signature = stored.identity.sign(advert.signedBytes)
    return Packet(route: .flood, type: .advert, payload: advert.encode())
  }

  /// Handles a received advert like the firmware (docs/protocol/companion.md § 9.1).
  func hearAdvert(_ packet: Packet) {
    guard let advert = try? Advert(decoding: packet.payload), advert.key != key, advert.isSignatureValid,
      let content = try? advert.content(), let name = content.name, !name.isEmpty
    else { return }  // `try?`: malformed adverts are dropped without a push
    let path = Path(bytes: packet.path, bytesPerHop: packet.pathLength.bytesPerHop) ?? .direct
    volatile.advertPaths.removeAll { $0.key == advert.key }
    volatile.advertPaths.insert((advert.key, clock, path), at: 0)
    if volatile.advertPaths.count > 16 { volatile.advertPaths.removeLast() }
    stored.cards[advert.key] = packet
    if let index = index(of: advert.key) {
      guard advert.time > stored.contacts[index].lastAdvert else { return }
      update(&stored.contacts[index], from: advert, content, name)
      push(.advert(advert.key))
    } else {
      var contact = Contact(key: advert.key, name: name)
      update(&contact, from: advert, content, name)
      discovered(contact, hops: path.hops)
    }
  }

  private func update(_ contact: inout Contact, from advert: Advert, _ content: AdvertContent, _ name: Text) {
    contact.type = content.type
    contact.name = Text(bytes: Array(name.bytes.prefix(31)))
    contact.lastAdvert = advert.time
    if let position = content.position {
      (contact.latitude, contact.longitude) = (position.latitude, position.longitude)
    }
    contact.lastModified = clock
  }

  private func discovered(_ contact: Contact, hops: Int) {
    guard mayAdd(contact.type, hops: hops) else {
      stored.cards[contact.key] = nil
      return push(.newAdvert(contact))
    }
    if stored.contacts.count >= settings.maxContacts {
      guard stored.autoAdd.flags & 1 != 0, let oldest = oldestContact() else {
        stored.cards[contact.key] = nil
        push(.newAdvert(contact))
        return push(.contactsFull)
      }
      push(.contactDeleted(stored.contacts[oldest].key))
      stored.cards[stored.contacts[oldest].key] = nil
      stored.contacts.remove(at: oldest)
    }
    stored.contacts.append(contact)
    push(.advert(contact.key))
  }

  private func mayAdd(_ type: NodeType, hops: Int) -> Bool {
    let limit = Int(stored.autoAdd.maxHops ?? 0)
    guard limit == 0 || hops < limit else { return false }
    guard stored.other.manualAddContacts & 1 != 0 else { return true }
    return (1...4).contains(type.rawValue) && stored.autoAdd.flags & (1 << type.rawValue) != 0
  }

  private func oldestContact() -> Int? {
    stored.contacts.indices.filter { !stored.contacts[$0].isFavourite }
      .min { (stored.contacts[$0].lastModified ?? 0) < (stored.contacts[$1].lastModified ?? 0) }
  }
}

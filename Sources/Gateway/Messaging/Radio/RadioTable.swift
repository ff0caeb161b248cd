// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import RadioSession
import Store
import Sync
import UntrustedText

/// Changes the radio's own tables: contacts, paths, channels. The store follows the radio's reports.
public final class RadioTable {
  private let synchronizer: Synchronizer
  private let store: Store
  /// The radio has refused a contact beside so many, although it says that it has more places.
  private var refusedBeside: (count: Int, most: Int)?

  public init(_ synchronizer: Synchronizer, store: Store) {
    self.synchronizer = synchronizer
    self.store = store
  }

  private func ask(_ command: Command) async throws(Refusal) -> Reply {
    let question = synchronizer.connection.submit(command, .interactive)
    let outcome = await question?.outcome() ?? .failed(.linkLost)
    if outcome.leavesDoubt { synchronizer.doubtEffect(of: command) }
    switch outcome {
    case .replied(let reply): return reply
    case .failed(.refused(let error)):
      if error == .notFound, case .removeContact(let key) = command { synchronizer.radioDidNotKnow(key) }
      if error == .tableFull, case .addUpdateContact = command, let count, let most { refusedBeside = (count, most) }
      throw Self.refusal(error, of: command)
    case .failed(.linkLost) where question?.answer?.wasSent == true:
      throw .silence("the radio's link was lost; it may have done it anyway")
    case .failed(.linkLost): throw .linkDown
    case .failed(.timedOut): throw .silence("the radio does not answer; it may have done it anyway")
    case .failed(.notSent): throw .silence("the radio does not answer; nothing was changed")
    default: throw .unexpectedAnswer
    }
  }

  private static func refusal(_ error: RadioError?, of command: Command) -> Refusal {
    switch (error, command) {
    case (.tableFull, .addUpdateContact): .radio("the radio's contact table is full; remove a contact first")
    case (.notFound, .shareContact), (.tableFull, .shareContact), (.notFound, .exportContact),
      (.tableFull, .exportContact):
      .radio("the radio has no advert of it: it must be heard first")
    case (.notFound, .getAdvertPath):
      .radio("the radio remembers no advert of it: it has the last 16, since it was started")
    case (.notFound, .setChannel): .radio("the radio has no such channel slot")
    case (.notFound, _): .radio("the radio does not have it")
    case (let error?, _): .radio("the radio refuses: \(error)")
    case (nil, _): .radio("the radio refuses, without a reason")
    }
  }

  // MARK: Contacts

  /// Whether the radio has as many contacts as it has places. An unreadable store knows no number.
  var isFull: Bool {
    guard let most, let count else { return false }
    return count >= most || refusedBeside.map { $0.most == most && count >= $0.count } ?? false
  }

  private var most: Int? { synchronizer.connection.identity?.device?.maxContacts }
  private var count: Int? { store.ifReadable { try store.contactCount(onRadio: true) }.map { Int($0) } }

  /// Adds a node, or changes its record in the radio, and then fetches the record as the radio has it.
  public func add(_ contact: Contact) async throws(Refusal) {
    guard !contact.key.isZero, !contact.key.prefix.isZero else { throw .invalid("a key must not be all zeros") }
    try refuseItself(contact.key)
    var whole = contact
    whole.lastModified = synchronizer.radioTime ?? contact.lastModified
    let others = count ?? 0
    _ = try await ask(.addUpdateContact(whole))
    if let refused = refusedBeside, others >= refused.count { refusedBeside = nil }
    synchronizer.refresh(contact.key)
  }

  /// The radio takes its own key as a contact, and would send messages to itself.
  private func refuseItself(_ key: PublicKey) throws(Refusal) {
    guard key == synchronizer.connection.identity?.info.key else { return }
    throw .invalid("this is the radio itself, which cannot be its own contact")
  }

  /// Sets or clears the favourite bit. The radio's own record is read first: its other bits and its path may be newer than the store's.
  public func setFavourite(_ isFavourite: Bool, of key: PublicKey) async throws(Refusal) {
    try await change(key) { $0.isFavourite = isFavourite }
  }

  /// Lets a node run commands on the radio, or not. What is granted here is not reported as another program's doing: the grant is on disk before the
  /// radio has the right, and until the store has the record without it.
  public func setMayCommand(_ mayCommand: Bool, of key: PublicKey) async throws(Refusal) {
    if mayCommand { try await grant(true, to: key) }
    let changed = try await change(key) { $0.mayCommand = mayCommand }
    guard !mayCommand else { return }
    synchronizer.keepChanged(changed)
    try await grant(false, to: key)
  }

  private func grant(_ isGranted: Bool, to key: PublicKey) async throws(Refusal) {
    try await Refusal.saving(in: store) { store throws(SQLiteError) in try store.setGranted(isGranted, to: key) }
  }

  @discardableResult
  private func change(_ key: PublicKey, _ change: (inout Contact) -> Void) async throws(Refusal) -> Contact {
    guard case .contact(let contact) = try await ask(.getContactByKey(key)) else { throw .unexpectedAnswer }
    var changed = contact
    change(&changed)
    if changed != contact {
      try await add(changed)
    } else {
      // The record is read again in any case, and the alerts look at it.
      synchronizer.refresh(key)
    }
    return changed
  }

  /// Puts a node back that left the table. A right to run commands does not come back with it: somebody may have taken it away.
  public func putBack(_ contact: Contact) async throws(Refusal) {
    var whole = contact
    whole.mayCommand = false
    try await add(whole)
  }

  /// When the radio heard the node's last advert, by its own clock, and the way that it came, beginning at the node.
  public func wayOfAdvert(of contact: Contact) async throws(Refusal) -> (time: UInt32, path: Path) {
    guard case .advertPath(let time, let path) = try await ask(.getAdvertPath(contact.key)) else {
      throw .unexpectedAnswer
    }
    return (time, path)
  }

  public func remove(_ key: PublicKey) async throws(Refusal) {
    _ = try await ask(.removeContact(key))
    synchronizer.forget(key)
  }

  /// A node's card as a link; `nil`: this radio's own.
  public func export(_ key: PublicKey?) async throws(Refusal) -> String {
    guard case .exportContact(let card) = try await ask(.exportContact(key)) else { throw .unexpectedAnswer }
    return "meshcore://\(Hex.string(card))"
  }

  /// Imports a link. The radio gets a card as if it had heard it, so that its position and clock count. If the radio does not add the node by itself
  /// (manual mode, an older advert), this adds it.
  public func importLink(_ link: SharedLink) async throws(Refusal) -> PublicKey {
    switch link {
    case .channel: throw .invalid("this is a channel's link: use meshpost channel add")
    case .contact(let key, let name, let type):
      try await add(Contact(key: key, type: type, name: name))
      return key
    case .card(let card, let advert):
      try refuseItself(advert.key)
      _ = try await ask(.importContact(card: card))
      try await makeSure(of: advert)
      return advert.key
    }
  }

  private func makeSure(of advert: Advert) async throws(Refusal) {
    do throws(Refusal) {
      if case .contact(let contact) = try await ask(.getContactByKey(advert.key)) {
        synchronizer.contactCame(by: contact)
      }
      synchronizer.refresh(advert.key)
    } catch {
      // `try?`: a card that cannot be read has no name either
      guard let content = try? advert.content(), let name = content.name else {
        throw .invalid("the card has no name, and the radio does not accept it")
      }
      try await add(
        Contact(
          key: advert.key, type: content.type, name: name, lastAdvert: advert.time,
          latitude: content.position?.latitude ?? 0, longitude: content.position?.longitude ?? 0))
    }
  }

  /// Sends a node's advert on to direct neighbours.
  public func share(_ key: PublicKey) async throws(Refusal) { _ = try await ask(.shareContact(key)) }

  public func resetPath(_ key: PublicKey) async throws(Refusal) {
    _ = try await ask(.resetPath(key))
    synchronizer.refresh(key)
  }

  // MARK: Channels

  /// Joins a channel: in its present slot if it has one, otherwise in the first free slot. `region`: of its messages;
  /// `nil`: as before.
  public func add(name: Text, secret: ChannelSecret, region: Region? = nil) async throws(Refusal) -> Channel {
    if let fault = GivenName.channelFault(name.bytes) { throw .invalid(fault) }
    guard !secret.isZero else { throw .invalid("a secret must not be all zeros") }
    let used = try Refusal.translating { () throws(StoreError) in try store.channels() }
    if let there = used.first(where: { $0.secret == secret }) {
      guard there.name != name else {
        if let region { try await setRegion(region, of: there) }
        return there
      }
      throw .invalid("the radio has this channel as \(there.name.string) in slot \(there.slot)")
    }
    if let other = used.first(where: { $0.name == name }) {
      throw .invalid("slot \(other.slot) has another channel of that name")
    }
    let slots = synchronizer.connection.identity?.device?.details.map { Int($0.channelSlots) } ?? 8
    guard let free = (0..<slots).first(where: { slot in !used.contains { Int($0.slot) == slot } }) else {
      throw .full("all \(slots) channel slots of the radio are in use; remove one first")
    }
    let channel = Channel(slot: UInt8(clamping: free), name: name, secret: secret)
    if let region { try await put(channel, in: region) } else { try await put(channel) }
    return channel
  }

  /// Puts a channel into its slot; its messages go to this region, or to the radio's default. The region is on disk first: a text that the radio gets
  /// before that, or after a failure in between, would go out in another one.
  public func put(_ channel: Channel, in region: Region?) async throws(Refusal) {
    let digest = channel.secret.digest
    let before = try Refusal.translating { () throws(StoreError) in try store.region(ofChannel: digest) }
    try await setRegion(region, of: channel)
    do throws(Refusal) {
      try await put(channel)
    } catch {
      let isDoubtful = if case .silence = error { !synchronizer.isReported(channel.slot) } else { false }
      switch error {
      // The slot shows whether the radio has the channel: nothing is sent there until it is read.
      case .silence where isDoubtful: synchronizer.doubt(channel, otherwise: before)
      // The radio does not have the channel. `try?`: what has failed is told already.
      case .radio, .linkDown, .silence: try? await setRegion(before.flatMap { Region($0) }, of: channel)
      default: break
      }
      throw error
    }
  }

  /// Puts a channel into its slot, whatever was there. If the radio does not say whether it did, its slot is asked for; without an answer to that, nothing
  /// is sent to the slot until it is read again.
  public func put(_ channel: Channel) async throws(Refusal) {
    await synchronizer.willPut(channel, within: Self.longestRead)
    do throws(Refusal) {
      _ = try await ask(.setChannel(channel))
    } catch {
      guard case .silence = error, let present = await self.channel(in: channel.slot) else { throw error }
      guard present == channel else { throw .radio("the radio has not done it: try again") }
    }
    do throws(StoreError) { try await synchronizer.changed(channel) } catch { throw .store(error) }
  }

  /// What the radio has in a slot; `nil`: it does not say.
  private func channel(in slot: UInt8) async -> Channel? {
    // `try?`: without an answer, the slot stays in doubt.
    guard case .channelInfo(let channel)? = try? await ask(.getChannel(slot: slot)) else { return nil }
    return channel
  }

  private static let longestRead: Duration = .seconds(10)

  /// Empties the channel's slot, and returns it. The channel's region is deleted, too: it would count if the channel were joined again.
  public func remove(_ channel: Channel) async throws(Refusal) -> Channel {
    let empty = Channel(slot: channel.slot, name: "", secret: .zero)
    do throws(Refusal) {
      try await put(empty)
    } catch {
      // The slot shows whether the radio has emptied it all the same.
      if case .silence = error, !synchronizer.isReported(channel.slot) { synchronizer.doubt(channel, otherwise: nil) }
      throw error
    }
    try await setRegion(nil, of: channel)
    return empty
  }

  /// Sets the region of messages to this channel; `nil`: the radio's default. The store keeps it: the radio does not.
  public func setRegion(_ region: Region?, of channel: Channel) async throws(Refusal) {
    try await Refusal.saving(in: store) { store throws(SQLiteError) in
      try store.setRegion(region?.text, ofChannel: channel.secret.digest)
    }
  }

  /// Sets the region of messages to this node, as `RegionChoice.text`; `nil`: the radio's default.
  public func setRegion(_ region: String?, of contact: Contact) async throws(Refusal) {
    try await Refusal.saving(in: store) { store throws(SQLiteError) in
      try store.setRegion(region, ofNode: contact.key)
    }
  }
}

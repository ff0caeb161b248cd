// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import RadioSession
import Store
import Sync

/// Changes to the radio's own tables: contacts, paths, channels. The store follows what the radio then says.
public final class RadioTable {
  public typealias Done = (Refusal?) -> Void

  private let synchronizer: Synchronizer
  private let store: Store

  public init(_ synchronizer: Synchronizer, store: Store) {
    self.synchronizer = synchronizer
    self.store = store
  }

  private func submit(_ command: Command, _ done: @escaping (Result<Reply, Refusal>) -> Void) {
    let id = synchronizer.connection.submit(command, .interactive) { outcome in
      switch outcome {
      case .replied(let reply): done(.success(reply))
      case .failed(.refused(let error)): done(.failure(Self.refusal(error, of: command)))
      case .failed(.linkLost): done(.failure(.linkDown))
      case .failed(.timedOut): done(.failure(.silence("the radio does not answer; it may have done it all the same")))
      default: done(.failure(.radio("the radio gave an answer of another kind")))
      }
    }
    if id == nil { done(.failure(.linkDown)) }
  }

  private static func refusal(_ error: RadioError?, of command: Command) -> Refusal {
    switch (error, command) {
    case (.tableFull, .addUpdateContact): .radio("the radio's contact table is full; remove a contact first")
    case (.notFound, .shareContact), (.tableFull, .shareContact), (.notFound, .exportContact),
      (.tableFull, .exportContact):
      .radio("the radio has no advert of it: it must be heard first")
    case (.notFound, _): .radio("the radio does not have it")
    case (let error?, _): .radio("the radio refuses: \(error)")
    case (nil, _): .radio("the radio refuses, without a reason")
    }
  }

  // MARK: Contacts

  /// Adds a node, or changes what the radio has of it.
  public func add(_ contact: Contact, _ done: @escaping Done) {
    guard !contact.key.isZero, !contact.key.prefix.isZero else { return done(.invalid("a key of zeros is nobody")) }
    var whole = contact
    whole.lastModified = synchronizer.radioTime ?? contact.lastModified
    submit(.addUpdateContact(whole)) { [weak self] result in
      self?.ended(result, contact.key, done)
    }
  }

  /// The answer is believed, and the record fetched: it is what the radio made of it.
  private func ended(_ result: Result<Reply, Refusal>, _ key: PublicKey, _ done: @escaping Done) {
    switch result {
    case .failure(let refusal): done(refusal)
    case .success:
      synchronizer.refresh(key)
      done(nil)
    }
  }

  public func remove(_ key: PublicKey, _ done: @escaping Done) {
    submit(.removeContact(key)) { [weak self] result in
      switch result {
      case .failure(let refusal): done(refusal)
      case .success:
        self?.synchronizer.forget(key)
        done(nil)
      }
    }
  }

  /// A node's card as a link; `nil`: this radio's own.
  public func export(_ key: PublicKey?, _ done: @escaping (Result<String, Refusal>) -> Void) {
    submit(.exportContact(key)) { result in
      switch result {
      case .success(.exportContact(let card)): done(.success("meshcore://\(Hex.string(card))"))
      case .success: done(.failure(.radio("the radio gave an answer of another kind")))
      case .failure(let refusal): done(.failure(refusal))
      }
    }
  }

  /// Takes a link in: a card is given to the radio as if heard, so that its position and clock count. A radio that
  /// does not add it by itself (manual mode, an older advert) is told to.
  public func importLink(_ link: MeshLink, _ done: @escaping (Result<PublicKey, Refusal>) -> Void) {
    switch link {
    case .channel: done(.failure(.invalid("that is a channel's link: meshpost channel add takes it")))
    case .contact(let key, let name, let type):
      add(Contact(key: key, type: type, name: name)) { done($0.map { .failure($0) } ?? .success(key)) }
    case .card(let card, let advert):
      submit(.importContact(card: card)) { [weak self] result in
        if case .failure(let refusal) = result { return done(.failure(refusal)) }
        self?.makeSure(of: advert, done)
      }
    }
  }

  private func makeSure(of advert: Advert, _ done: @escaping (Result<PublicKey, Refusal>) -> Void) {
    submit(.getContactByKey(advert.key)) { [weak self] result in
      guard let self else { return }
      if case .success = result {
        self.synchronizer.refresh(advert.key)
        return done(.success(advert.key))
      }
      guard let content = try? advert.content(), let name = content.name else {
        return done(.failure(.invalid("the card has no name, and the radio does not take it")))
      }  // `try?`: a card that cannot be read has no name either
      let contact = Contact(
        key: advert.key, type: content.type, name: name, lastAdvert: advert.time,
        latitude: content.position?.latitude ?? 0, longitude: content.position?.longitude ?? 0)
      self.add(contact) { done($0.map { .failure($0) } ?? .success(advert.key)) }
    }
  }

  /// Sends a node's advert on to direct neighbours.
  public func share(_ key: PublicKey, _ done: @escaping Done) {
    submit(.shareContact(key)) { result in
      if case .failure(let refusal) = result { done(refusal) } else { done(nil) }
    }
  }

  public func resetPath(_ key: PublicKey, _ done: @escaping Done) {
    submit(.resetPath(key)) { [weak self] result in self?.ended(result, key, done) }
  }

  // MARK: Channels

  /// Joins a channel: in its slot if it has one already, else in the first that is free.
  public func add(name: Text, secret: ChannelSecret, _ done: @escaping (Result<Channel, Refusal>) -> Void) {
    guard (1...31).contains(name.bytes.count), !name.bytes.contains(0) else {
      return done(.failure(.invalid("a channel's name has 1 to 31 bytes")))
    }
    guard !secret.isZero else { return done(.failure(.invalid("a key of zeros is no secret"))) }
    var used: [Channel] = []
    do {
      try store.eachChannel { used.append($0) }
    } catch {
      return done(.failure(.store(error)))
    }
    if let there = used.first(where: { $0.secret == secret }) {
      guard there.name != name else { return done(.success(there)) }
      return done(.failure(.invalid("the radio has this channel as \(there.name.string) in slot \(there.slot)")))
    }
    if let other = used.first(where: { $0.name == name }) {
      return done(.failure(.invalid("slot \(other.slot) has another channel of that name")))
    }
    let slots = synchronizer.connection.identity?.device?.details.map { Int($0.channelSlots) } ?? 8
    guard let free = (0..<slots).first(where: { slot in !used.contains { Int($0.slot) == slot } }) else {
      return done(.failure(.full("all \(slots) channel slots of the radio are taken; remove one first")))
    }
    set(Channel(slot: UInt8(clamping: free), name: name, secret: secret), done)
  }

  /// Puts a channel into its slot, whatever was there.
  public func put(_ channel: Channel, _ done: @escaping (Result<Channel, Refusal>) -> Void) { set(channel, done) }

  public func remove(_ channel: Channel, _ done: @escaping (Result<Channel, Refusal>) -> Void) {
    set(Channel(slot: channel.slot, name: "", secret: .zero)) { [weak self] result in
      guard let self, case .success = result else { return done(result) }
      self.setRegion(nil, of: channel) { _ in done(result) }
    }
  }

  /// Where messages to this channel go from now on; `nil`: as the radio's default says. The radio does not keep that.
  public func setRegion(_ region: Region?, of channel: Channel, _ done: @escaping Done) {
    store.write({ store throws(SQLiteError) in
      try store.setRegion(region?.text, ofChannel: channel.secret.digest)
    }) { failure in done(failure.map { .store($0) }) }
  }

  private func set(_ channel: Channel, _ done: @escaping (Result<Channel, Refusal>) -> Void) {
    submit(.setChannel(channel)) { [weak self] result in
      switch result {
      case .failure(let refusal): done(.failure(refusal))
      case .success: self?.synchronizer.changed(channel) { done(.success(channel)) }
      }
    }
  }
}

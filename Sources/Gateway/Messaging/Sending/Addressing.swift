// SPDX-License-Identifier: MIT

import Companion
import JSON
import MeshCrypto
import Store
import UntrustedText

/// The node or channel that an operator's text names.
public enum Addressee: Equatable, Sendable {
  case contact(StoredContact)
  case channel(Channel)
}

/// Finds nodes and channels by name, unique beginning, key, or a channel's digest. An ambiguous text is refused, with the candidates.
public struct Addressing {
  private let store: Store

  public init(_ store: Store) { self.store = store }

  /// Candidates that are named in a refusal.
  private static let maxCandidates = 8
  /// The fewest digits of a key's beginning: a shorter text is more likely a name.
  private static let fewestDigits = 4
  /// So few digits name no node, but nodes whose keys begin with them are the candidates.
  private static let fewestOfSeveral = 2
  /// The length of the key prefix by which messages name their sender: such a prefix means that node, even if another node has it as its name.
  private static let digitsOfPrefix = 12

  /// How well a candidate fits: only the best rank counts. A channel of the radio ranks before a name from the air, which any node may take. `local`:
  /// exactly what somebody here has named so, a channel or a node by its alias; neither takes the messages of the other.
  private enum Rank: Int, Comparable {
    case key, keyPrefix, local, channelInAnyCase, name, nameInAnyCase, beginning, keyBeginning, shortKeyBeginning

    /// The rank of a channel whose name fits like this.
    var ofChannel: Self {
      switch self {
      case .name: .local
      case .nameInAnyCase: .channelInAnyCase
      default: self
      }
    }

    /// The text is all of a name or a key, as it is written.
    var isWhole: Bool {
      switch self {
      case .key, .keyPrefix, .local, .name: true
      case .channelInAnyCase, .nameInAnyCase, .beginning, .keyBeginning, .shortKeyBeginning: false
      }
    }

    static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
  }

  private struct Found {
    var best: Rank?
    var fitting: [Addressee] = []
    var isCut = false

    mutating func add(_ addressee: Addressee, _ rank: Rank) {
      if let best, rank > best { return }
      if rank != best { (best, fitting) = (rank, []) }
      guard fitting.count < Addressing.maxCandidates else {
        isCut = true
        return
      }
      fitting.append(addressee)
    }
  }

  private enum Kind {
    case any, contact, channel
  }

  /// Finds a node or a channel.
  public func find(_ text: String) throws(Refusal) -> Addressee { try find(text, .any) }

  /// Finds the node or the channel of which this is the whole name or key: for what cannot be taken back. Otherwise the refusal names what it would be.
  public func findWhole(_ text: String) throws(Refusal) -> Addressee {
    let found = try candidates(text, .any)
    guard found.best?.isWhole == true, found.fitting.count == 1, let only = found.fitting.first else {
      let meant = Self.describe(try choose(found, text, .any))
      throw .invalid("this needs a whole name or key, as it is written: \"\(text)\" would be \(meant)")
    }
    return only
  }

  private func find(_ text: String, _ kind: Kind) throws(Refusal) -> Addressee {
    try choose(try candidates(text, kind), text, kind)
  }

  private func candidates(_ text: String, _ kind: Kind) throws(Refusal) -> Found {
    guard !text.isEmpty else { throw .invalid("expected a name, a key or a #channel") }
    var found = Found()
    try Refusal.translating { () throws(StoreError) in
      if kind != .contact {
        for channel in try store.channels() {
          if channel.secret.digest == text {
            found.add(.channel(channel), .key)
            continue
          }
          // The secret of a `#channel` follows from its exact name: what looks like it is another channel, with other people.
          guard let rank = Self.rank(channel.name.string, "", text), rank == .name || !text.begins(with: "#") else {
            continue
          }
          found.add(.channel(channel), rank.ofChannel)
        }
      }
      if kind != .channel, !text.begins(with: "#") {
        let aliases = try self.aliases()
        try store.eachContact { stored in
          let key = stored.contact.key.hex
          let byName = Self.rank(stored.contact.name.string, key, text)
          let byAlias = aliases[key].flatMap { Self.rank(ofAlias: $0, text) }
          if let rank = [byName, byAlias].compactMap({ $0 }).min() { found.add(.contact(stored), rank) }
          return true
        }
      }
    }
    return found
  }

  private func choose(_ found: Found, _ text: String, _ kind: Kind) throws(Refusal) -> Addressee {
    // Nodes outside of the radio's table count only if no other fits.
    let reachable = found.fitting.filter { if case .contact(let stored) = $0 { stored.onRadio } else { true } }
    // What is meant for such a node is not for all who have the channel that somebody here has named the same.
    let hasChannel = found.fitting.contains { if case .channel = $0 { true } else { false } }
    let isShort = found.best == .shortKeyBeginning
    let countsAll = reachable.isEmpty || isShort || found.best == .local && hasChannel
    let fitting = countsAll ? found.fitting : reachable
    guard let first = fitting.first, !isShort || fitting.count > 1 else { throw try missing(text, kind) }
    guard fitting.count == 1 else {
      throw .ambiguous(text, candidates: fitting.map(Self.describe) + (found.isCut ? ["…"] : []))
    }
    return first
  }

  /// `#Public` and `Public` are two channels, and so are `#test` and `#Test`: the refusal names a channel that differs only so little.
  private func missing(_ text: String, _ kind: Kind) throws(Refusal) -> Refusal {
    let thing: Missing =
      switch kind {
      case .any: .addressee(text)
      case .contact: .node(text)
      case .channel: .channel(text)
      }
    guard kind != .contact, text.begins(with: "#") else { return .notFound(thing) }
    let names = try Refusal.translating { () throws(StoreError) in try store.channels().map(\.name.string) }
    let near = names.first { $0.bare == text.bare }
    return near.map { .otherChannel(text, known: $0) } ?? .notFound(thing)
  }

  /// Finds a node. It considers channels only to explain a refusal.
  public func contact(_ text: String) throws(Refusal) -> StoredContact {
    guard case .contact(let stored) = try find(text, asked: .contact) else {
      throw .invalid("\(text) is a channel; expected a node")
    }
    return stored
  }

  /// Finds a channel of the radio. It considers nodes only to explain a refusal.
  public func channel(_ text: String) throws(Refusal) -> Channel {
    guard case .channel(let channel) = try find(text, asked: .channel) else {
      throw .invalid("\(text) is a node; expected a channel")
    }
    return channel
  }

  /// Finds something of this kind or, without one, of any kind.
  private func find(_ text: String, asked kind: Kind) throws(Refusal) -> Addressee {
    do {
      return try find(text, kind)
    } catch let missing {
      guard case .notFound = missing else { throw missing }
      do {
        return try find(text, .any)
      } catch {
        guard case .notFound = error else { throw error }
        throw missing
      }
    }
  }

  private static func rank(_ name: String, _ key: String, _ text: String) -> Rank? {
    let typed = text.lowercased()
    if !key.isEmpty, key == typed { return .key }
    if typed.utf8.count >= digitsOfPrefix, key.hasPrefix(typed) { return .keyPrefix }
    // Two names that look the same (é, and e with an accent) are two nodes: the typed bytes decide.
    if name.isExactly(text) { return .name }
    let lower = name.lowercased()
    if lower == typed { return .nameInAnyCase }
    if lower.hasPrefix(typed) { return .beginning }
    guard typed.utf8.count >= fewestOfSeveral, key.hasPrefix(typed) else { return nil }
    return typed.utf8.count >= fewestDigits ? .keyBeginning : .shortKeyBeginning
  }

  /// A local name ranks before a name from the air, which any node may take.
  private static func rank(ofAlias alias: String, _ text: String) -> Rank? {
    alias.isExactly(text) ? .local : rank(alias, "", text)
  }

  /// The local names of nodes, by key.
  private func aliases() throws(StoreError) -> [String: String] {
    var aliases: [String: String] = [:]
    try store.eachDocument("node/") { document in
      let parts = document.key.pieces(at: "/")
      // `try?`: the store has accepted only JSON.
      if parts.count == 3, parts[2] == "alias", let value = document.value.flatMap({ try? JSONValue(parsing: $0) }) {
        aliases[parts[1]] = value.string
      }
      return true
    }
    return aliases
  }

  private static func describe(_ addressee: Addressee) -> String {
    switch addressee {
    case .contact(let stored):
      "\(stored.contact.name.string) (\(stored.contact.type.name) \(stored.contact.key.prefix.hex))"
    case .channel(let channel): "\(channel.name.string) (channel \(channel.slot) \(channel.secret.digest))"
    }
  }
}

extension String {
  /// The text without differences that people overlook: a `#`, and upper and lower case.
  fileprivate var bare: String { (begins(with: "#") ? String(unicodeScalars.dropFirst()) : self).lowercased() }
}

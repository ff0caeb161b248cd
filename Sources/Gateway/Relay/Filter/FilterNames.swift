// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import Store

/// A node as a filter names it. Texts are compared byte by byte.
enum NodeName: Equatable, Sendable {
  /// The whole public key, which is the node's identity.
  case key(PublicKey)
  /// A name, or at least four digits of a key's beginning: anybody can take that name, or make such a key.
  case loose(Text)

  private static let fewestDigits = 4

  init(_ text: String) { self = PublicKey(hex: text).map { .key($0) } ?? .loose(Text(text)) }

  var isWeak: Bool { if case .loose = self { true } else { false } }

  /// Whether one of the names is the node with this prefix of a key, six bytes long. A whole key matches only if no other known key begins with the
  /// prefix.
  static func any(
    _ names: [NodeName], are prefix: KeyPrefix, name: String?, _ store: Store
  ) throws(StoreError) -> Bool {
    guard !names.isEmpty else { return false }
    let known = try store.contactKeys(beginningWith: prefix)
    let hex = known.count == 1 ? known[0].hex : prefix.hex
    return names.contains {
      switch $0 {
      case .key(let key): known == [key]
      case .loose(let text): text.bytes == name.map { Array($0.utf8) } || begins(hex, with: text)
      }
    }
  }

  static func any(
    _ names: [NodeName], are key: PublicKey, name: String?, _ store: Store
  ) throws(StoreError) -> Bool {
    guard !names.isEmpty else { return false }
    var name = name.map { Array($0.utf8) }
    if name == nil, names.contains(where: \.isWeak) { name = try store.contact(key)?.contact.name.bytes }
    return names.contains {
      switch $0 {
      case .key(let wanted): wanted == key
      case .loose(let text): text.bytes == name || begins(key.hex, with: text)
      }
    }
  }

  private static func begins(_ hex: String, with text: Text) -> Bool {
    text.bytes.count >= fewestDigits && hex.utf8.starts(with: text.string.lowercased().utf8)
  }
}

/// A channel as a configuration names it.
///
/// A name is not a secret, and two channels may have the same one. `#name` is the channel whose secret follows from the name. Any other name counts
/// while only one channel of the radio has it.
public enum ChannelName: Equatable, Sendable {
  /// The digest of its secret, 16 lower-case hex digits.
  case digest(String)
  case name(Text)

  public init(_ text: String) {
    self = Hex.bytes(text)?.count == 8 ? .digest(text.lowercased()) : .name(Text(text))
  }

  /// The text as it was written, but with small digits.
  public var text: String {
    switch self {
    case .digest(let digest): digest
    case .name(let name): name.string
    }
  }

  /// Whether it is the `#channel` of this digest: its secret follows from the name.
  public func isHashtag(of digest: String) -> Bool {
    guard case .name(let name) = self, name.bytes.first == UInt8(ascii: "#") else { return false }
    return ChannelSecret.hashtag(name.string).digest == digest
  }

  /// `name`: the channel's name at the time of the event; `nil`: the event does not contain it.
  public func means(_ digest: String, name: String?, _ store: Store) throws(StoreError) -> Bool {
    let wanted: Text
    switch self {
    case .digest(let own): return own == digest
    case .name(let text): wanted = text
    }
    if isHashtag(of: digest) { return true }
    var isCalledSo = name.map { Array($0.utf8) } == wanted.bytes
    var isAnother = false
    for channel in try store.channels() where channel.name == wanted {
      if channel.secret.digest != digest { isAnother = true } else if name == nil { isCalledSo = true }
    }
    return isCalledSo && !isAnother
  }
}

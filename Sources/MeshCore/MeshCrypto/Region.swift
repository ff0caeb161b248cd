// SPDX-License-Identifier: MIT

import Companion

/// The scope of a flooded packet: one region, or none. Source: docs/protocol/app-conventions.md § 6; firmware
/// `RegionMap.cpp`.
public enum Region: Hashable, Sendable {
  /// A public region, by its name without `#`. The key is derived from the name.
  case named(String)
  /// No region: repeaters may refuse such floods, or pass them on for only a few hops.
  case unscoped

  /// `unscoped` in links and commands.
  public static let unscopedMark = "*"
  /// The longest name that radios keep, in bytes (docs/protocol/companion.md § 10).
  static let longestName = 30

  /// Parses `ottawa`, `#ottawa` or `*`. `nil`: not the name of a public region. A name that begins with `$` is private,
  /// with its own key.
  public init?(_ text: String) {
    guard text != Self.unscopedMark else {
      self = .unscoped
      return
    }
    let name = text.utf8.first == UInt8(ascii: "#") ? Array(text.utf8.dropFirst()) : Array(text.utf8)
    guard (1...Self.longestName).contains(name.count), name.allSatisfy(Self.isAllowed) else { return nil }
    self = .named(String(decoding: name, as: UTF8.self))
  }

  /// Letters and digits of any language, and `-`. Repeaters also allow `$` and `#`, which have a meaning at the start
  /// of a name.
  private static func isAllowed(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "_"), UInt8(ascii: "a")...UInt8(ascii: "z"), 0x80...0xFF:
      true
    default: false
    }
  }

  /// The stored and displayed form: the name, or `*`.
  public var text: String {
    switch self {
    case .named(let name): name
    case .unscoped: Self.unscopedMark
    }
  }

  /// The first 16 bytes of SHA-256 of the name **with** `#`; `nil` for `unscoped`.
  public var key: ChannelSecret? {
    switch self {
    case .named(let name): .hashtag("#" + name)
    case .unscoped: nil
    }
  }

  /// The parameter of the command that sets the scope of the radio's following floods.
  public var scopeOverride: FloodScopeOverride { key.map { .key($0) } ?? .unscoped }
}

/// The region of one message, of a node or of a channel, where one is chosen.
public enum RegionChoice: Hashable, Sendable {
  /// The radio's default region.
  case radioDefault
  case region(Region)

  private static let (defaultWord, noneWord) = ("default", "none")

  /// Parses a region, `none` (or `*`) or `default`. `nil`: none of these. A region of that name has a `#` before it.
  public init?(_ text: String) {
    switch text {
    case Self.defaultWord: self = .radioDefault
    case Self.noneWord: self = .region(.unscoped)
    default:
      guard let region = Region(text) else { return nil }
      self = .region(region)
    }
  }

  /// A public region with this name, whatever it is.
  public init?(named name: String) {
    guard case .named? = Region(name), let region = Region(name) else { return nil }
    self = .region(region)
  }

  /// The stored and displayed form.
  public var text: String {
    switch self {
    case .radioDefault: Self.defaultWord
    case .region(.named(let name)) where name == Self.defaultWord || name == Self.noneWord: "#" + name
    case .region(let region): region.text
    }
  }

  public var key: ChannelSecret? { if case .region(let region) = self { region.key } else { nil } }

  public var scopeOverride: FloodScopeOverride {
    switch self {
    case .radioDefault: .useDefault
    case .region(let region): region.scopeOverride
    }
  }
}

// SPDX-License-Identifier: MIT

import UntrustedText

/// A version of a document. Each field is a separate document, so that edits conflict only if they change the same field.
public struct Document: Equatable, Sendable {
  public var key: String
  /// JSON; `nil`: the document is deleted. The other fields remain, so that an older edit does not restore it.
  public var value: String?
  /// Milliseconds since 1970 by the editor's clock, but always later than the replaced version.
  public var updatedAt: Int64
  /// Whether the hub has edited it; otherwise the gateway.
  public var byHub: Bool

  public init(key: String, value: String?, updatedAt: Int64, byHub: Bool) {
    self.key = key
    self.value = value
    self.updatedAt = updatedAt
    self.byHub = byHub
  }

  /// The last writer wins; at a tie, the hub. An equal version does not win.
  public func wins(over known: Document) -> Bool {
    if updatedAt != known.updatedAt { return updatedAt > known.updatedAt }
    if byHub != known.byHub { return byHub }
    // A comparison by bytes: both ends choose the same of two values that look the same.
    return (known.value ?? "").utf8.lexicographicallyPrecedes((value ?? "").utf8)
  }

  /// Compares by bytes, like databases: é as one scalar and as a letter with an accent are two values.
  public static func == (left: Document, right: Document) -> Bool {
    left.key.isExactly(right.key) && left.updatedAt == right.updatedAt && left.byHub == right.byHub
      && left.hasSameValue(as: right)
  }

  /// Whether the content is equal, byte for byte.
  public func hasSameValue(as other: Document) -> Bool {
    switch (value, other.value) {
    case (nil, nil): true
    case (let mine?, let theirs?): mine.isExactly(theirs)
    default: false
    }
  }

  /// An edit of a known version. Its time is later than that of the known version, also with a clock that is behind.
  public static func edit(
    _ key: String, _ value: String?, of known: Document?, at now: Int64, byHub: Bool
  ) -> Document {
    let after = known.map { $0.updatedAt == .max ? .max : $0.updatedAt + 1 } ?? 0
    return Document(key: key, value: value, updatedAt: max(now, after), byHub: byHub)
  }
}

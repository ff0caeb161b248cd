// SPDX-License-Identifier: MIT

/// What one end of a link has said, as far as a window reaches back: all that must be known to go on with the link's compression. So a
/// link that says nothing keeps these bytes, and none of zlib's state, which is some times as much.
///
/// In front of what was said stands the dictionary, which all links share.
public struct LinkContext: Sendable {
  private let dictionary: [UInt8]
  private let reach: Int
  private var said: [UInt8] = []

  /// `reach`: bytes that a message may refer back to.
  public init(reach: Int, dictionary: [UInt8] = []) { (self.reach, self.dictionary) = (reach, dictionary) }

  /// A whole message, as it is when nothing compresses it; messages that go out uncompressed are not in the window.
  public mutating func add(_ message: [UInt8]) {
    let old = said.suffix(reach - min(message.count, reach))
    var next: [UInt8] = []
    // No more than is needed: there are many of these.
    next.reserveCapacity(min(old.count + message.count, reach))
    next += old
    next += message.suffix(reach)
    said = next
  }

  /// The bytes in their order, in one part or two.
  func each(_ part: (UnsafePointer<UInt8>, Int) -> Void) {
    for bytes in [dictionary.suffix(reach - said.count), said[...]] where !bytes.isEmpty {
      bytes.withUnsafeBufferPointer { buffer in
        if let first = buffer.baseAddress { part(first, buffer.count) }
      }
    }
  }
}

// SPDX-License-Identifier: MIT

/// The last bytes that one end of a link has sent, as far as the window reaches back. Compression can continue from
/// them, so a quiet link keeps only these bytes and not zlib's state, which is several times as large.
///
/// The dictionary, which all links share, precedes them.
public struct LinkContext: Sendable {
  private let dictionary: [UInt8]
  private let reach: Int
  private var said: [UInt8] = []

  /// `reach`: how many bytes a message may refer back.
  public init(reach: Int, dictionary: [UInt8] = []) { (self.reach, self.dictionary) = (reach, dictionary) }

  /// Adds a whole message in its uncompressed form. Messages that were sent uncompressed do not belong to the window.
  public mutating func add(_ message: [UInt8]) {
    let old = said.suffix(reach - min(message.count, reach))
    var next: [UInt8] = []
    // Exactly as many bytes as needed: there are many contexts.
    next.reserveCapacity(min(old.count + message.count, reach))
    next += old
    next += message.suffix(reach)
    said = next
  }

  /// Passes on the bytes in order, in one part or two.
  func each(_ part: (UnsafePointer<UInt8>, Int) -> Void) {
    for bytes in [dictionary.suffix(reach - said.count), said[...]] where !bytes.isEmpty {
      bytes.withUnsafeBufferPointer { buffer in
        if let first = buffer.baseAddress { part(first, buffer.count) }
      }
    }
  }
}

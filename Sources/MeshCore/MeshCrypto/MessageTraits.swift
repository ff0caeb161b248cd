// SPDX-License-Identifier: MIT

/// What makes a message another one than those of the same second. Programs that receive the same message compute the
/// same identity. Source: docs/protocol/app-conventions.md § 8.
public struct MessageTraits: Sendable {
  /// `direct`, `room`, `cli`, `channel` or `datagram`.
  public var kind: String
  /// The sender's key prefix; empty: the message does not name it.
  public var sender: [UInt8] = []
  /// The channel's digest; `nil`: there is none, or only its slot is known.
  public var channel: String?
  public var slot: UInt8 = 0
  /// The name in a message of a channel.
  public var senderName: [UInt8] = []
  /// The radio that received it, of several that a gateway has had; 1 is left out.
  public var radio: Int64 = 1
  /// Of a room's post.
  public var author: [UInt8] = []
  /// Seconds since 1970 by the sender's clock.
  public var time: UInt32
  public var dataType: UInt16 = 0
  public var text: [UInt8]

  public init(kind: String, time: UInt32, text: [UInt8]) { (self.kind, self.time, self.text) = (kind, time, text) }

  /// 16 bytes: the time, and 12 of a SHA-256.
  public var identity: [UInt8] {
    var key: [UInt8] = Array(kind.utf8) + [0] + sender
    key += Array((channel ?? "").utf8) + [0, channel == nil ? slot : 0] + senderName
    if !sender.isEmpty, radio > 1 { withUnsafeBytes(of: radio.littleEndian) { key.append(contentsOf: $0) } }
    key += [0] + author + [0]
    let moment = withUnsafeBytes(of: time.bigEndian) { Array($0) }
    key += moment
    withUnsafeBytes(of: dataType.littleEndian) { key.append(contentsOf: $0) }
    return moment + Digest.sha256(key + text).prefix(12)
  }
}

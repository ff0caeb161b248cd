// SPDX-License-Identifier: MIT

import Companion
import Timing

/// Texts for this radio that it could not read, because it did not have their senders, and that did not come again. All
/// that is known of a sender is the first byte of its key, and the packets may have been for another radio whose key
/// begins as ours: so this is a guess.
///
/// The first is told at once, others together. Pure: time is an argument.
public struct UnreadTexts: Equatable {
  /// What is told at once.
  struct News: Equatable, CustomStringConvertible {
    let count: Int
    let senders: [UInt8]

    var description: String {
      "\(count == 1 ? "a text" : "\(count) texts") for this radio could not be read, and did not come again readably: from nodes that the radio does "
        + "not have, whose keys begin with \(UnreadTexts.words(senders).joined(separator: ", "))"
    }
  }

  static let pause: Duration = .seconds(600)
  static let mostSenders = 8

  /// Since the start.
  public private(set) var count = 0
  /// The first bytes of their senders' keys, the last one last.
  public private(set) var senders: [UInt8] = []
  private var untold: [UInt8] = []
  private var untoldCount = 0
  private var toldAt: MonotonicTime?

  public init() {}

  /// When what is held back can be told; `nil`: there is nothing.
  var nextNews: MonotonicTime? { untoldCount > 0 ? toldAt.map { $0 + Self.pause } : nil }

  mutating func add(_ more: [UInt8], now: MonotonicTime) -> News? {
    count += more.count
    untoldCount += more.count
    for sender in more {
      senders.removeAll { $0 == sender }
      senders = senders.suffix(Self.mostSenders - 1) + [sender]
      if !untold.contains(sender) { untold.append(sender) }
    }
    guard untoldCount > 0, toldAt.map({ now - $0 >= Self.pause }) ?? true else { return nil }
    defer { (untold, untoldCount, toldAt) = ([], 0, now) }
    return News(count: untoldCount, senders: untold.sorted())
  }

  private static func words(_ senders: [UInt8]) -> [String] { senders.map { Hex.string([$0]) } }

  /// The bytes in hexadecimal.
  public var senderBytes: [String] { Self.words(senders) }
}

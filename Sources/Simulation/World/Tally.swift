// SPDX-License-Identifier: MIT

import JSON
import MeshCrypto

/// Which numbered texts have come, in a place that does not grow: a bit for each number, and a digest of all texts that does not depend on their order.
struct Tally {
  private var bits: [UInt64]
  private(set) var count = 0
  private(set) var digest: UInt64 = 0
  /// Texts that had come before.
  private(set) var copies = 0

  /// `most`: the highest number that may come.
  init(most: Int) { bits = [UInt64](repeating: 0, count: most / 64 + 1) }

  /// `true`: the text has a number, which has not come before.
  @discardableResult
  mutating func add(_ text: String) -> Bool {
    guard let number = Self.number(text), number / 64 < bits.count else { return false }
    guard bits[number / 64] >> UInt64(number % 64) & 1 == 0 else {
      copies += 1
      return false
    }
    bits[number / 64] |= 1 << UInt64(number % 64)
    count += 1
    digest &+= Digest.sha256(Array(text.utf8)).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    return true
  }

  /// How many that have come here have not come there.
  func missing(in other: Tally) -> Int { zip(bits, other.bits).reduce(0) { $0 + ($1.0 & ~$1.1).nonzeroBitCount } }

  /// The number of `m17 and so on`.
  private static func number(_ text: String) -> Int? {
    guard text.utf8.first == UInt8(ascii: "m") else { return nil }
    return text.utf8.firstIndex(of: UInt8(ascii: " ")).flatMap { Int(text[text.index(after: text.startIndex)..<$0]) }
  }

  var words: String {
    let hex = String(digest, radix: 16)
    return "\(count), digest \(String(repeating: "0", count: 16 - hex.count))\(hex)"
  }
}

/// What a server has received, as far as a run of weeks needs it: messages as a tally, and the losses that it was told of.
final class TallyLedger: Ledger {
  var messages: Tally
  /// By `radio_gap`, and by `gap`.
  private(set) var toldOfRadio: Int64 = 0
  private(set) var told: Int64 = 0
  private(set) var wrong = 0

  init(most: Int) { messages = Tally(most: most) }

  override func take(_ bytes: [UInt8], of gateway: String) {
    // `try?`: it is counted.
    guard let json = try? JSONValue(parsing: bytes), let kind = json["kind"]?.string, let body = json["body"] else {
      wrong += 1
      return
    }
    take(kind, body)
  }

  func take(_ kind: String, _ body: JSONValue) {
    switch kind {
    case "message": messages.add(body["text"]?.string ?? "")
    case "radio_gap": toldOfRadio += (body["lost"]?.integer ?? 0) + (body["at_most"]?.integer ?? 0)
    case "gap": told += body["at_most"]?.integer ?? body["count"]?.integer ?? 0
    default: break
    }
  }
}

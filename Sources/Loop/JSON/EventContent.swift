// SPDX-License-Identifier: MIT

/// The content of an event without its number. Both ends compare it to see whether a number means the same event at
/// both. Pure. Source: docs/hub-protocol.md, "Identity".
///
/// The content is the time, the kind and the body. Of a message's body and of the ways of one, only the members that
/// identify it count, so that a newer program can add members, and the names of nodes can change, without changing the
/// content.
public enum EventContent {
  /// Members of a message that never change.
  private static let ofMessages = ["channel", "data", "kind", "sender", "sender_name", "sender_time", "text"]
  private static let ofWays = ["channel", "heard_by", "id", "identity", "kind", "recipient", "sender", "ways"]
  /// How many older states one state replaces: it differs from one transmission to the next.
  private static let ofSending = "folded"
  /// The kind that stands in the place of a missing event; it does not count as a different event.
  public static let gap = "gap"

  /// Bytes that are equal for equal events, whichever program has written them.
  public static func canonical(at: Int64, kind: String, body: JSONValue) -> [UInt8] {
    var writer = JSONWriter()
    writer.object { json in
      json.field("at", at)
      json.field("kind", kind)
      for (name, value) in body.fields ?? [] where name != ofSending {
        let counting = kind == "message" ? ofMessages : kind == "ways" ? ofWays : nil
        if counting?.contains(name) ?? true { json.field(name, value) }
      }
    }
    return writer.bytes
  }

  /// 16 hex digits: FNV-1a, 64 bit. It detects histories that have diverged by chance; it is no protection against a
  /// forger, who would have to know the content of the original, though.
  public static func digest(at: Int64, kind: String, body: JSONValue) -> String {
    var value: UInt64 = 0xCBF2_9CE4_8422_2325
    for byte in canonical(at: at, kind: kind, body: body) { value = (value ^ UInt64(byte)) &* 0x100_0000_01B3 }
    let digits = String(value, radix: 16)
    return String(repeating: "0", count: 16 - digits.utf8.count) + digits
  }
}

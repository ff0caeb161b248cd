// SPDX-License-Identifier: MIT

/// What an event says, beside its number: by this both ends see whether a number stands for the same event at both. Pure.
/// Source: docs/hub-protocol.md, "Identity".
///
/// When and of which kind, and the body; of a message only what makes it this message, so that a newer program that says more of
/// it has said nothing else.
public enum EventContent {
  /// Members of a message that never change.
  private static let ofMessages = ["channel", "data", "kind", "sender", "sender_name", "sender_time", "text"]
  /// Says for how many older states a state stands, which differs from one sending to the next.
  private static let ofSending = "folded"
  /// What stands in an event's place is no other event.
  public static let gap = "gap"

  /// The same for the same event, whatever program has written it.
  public static func canonical(at: Int64, kind: String, body: JSONValue) -> [UInt8] {
    var writer = JSONWriter()
    writer.object { json in
      json.field("at", at)
      json.field("kind", kind)
      for (name, value) in body.fields ?? [] where name != ofSending {
        if kind != "message" || ofMessages.contains(name) { json.field(name, value) }
      }
    }
    return writer.bytes
  }

  /// 16 hex digits: FNV-1a, 64 bit. It tells histories apart that chance has parted; nobody can know the content that he would have to
  /// find another one for.
  public static func digest(at: Int64, kind: String, body: JSONValue) -> String {
    var value: UInt64 = 0xCBF2_9CE4_8422_2325
    for byte in canonical(at: at, kind: kind, body: body) { value = (value ^ UInt64(byte)) &* 0x100_0000_01B3 }
    let digits = String(value, radix: 16)
    return String(repeating: "0", count: 16 - digits.utf8.count) + digits
  }
}

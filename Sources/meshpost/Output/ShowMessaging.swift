// SPDX-License-Identifier: MIT

import Console
import JSON

extension Show {
  // MARK: Ours among what came

  static func isOurs(_ message: JSONValue) -> Bool { message["direction"]?.string == "sent" }

  /// Who said it to whom; on a channel to all.
  static func ours(_ message: JSONValue) -> String {
    guard message["channel"] == nil else { return "me" }
    return
      "me → \(clean(message["recipient_name"]?.string ?? message["recipient"]?.string.map { String($0.prefix(12)) }))"
  }

  /// How far it is, in a sign.
  static func mark(_ message: JSONValue) -> String {
    switch message["state"]?.string {
    case "pending", "retrying": return "…"
    case "sent" where message["kind"]?.string == "channel":
      let heard = message["heard"]?.integer ?? 0
      return heard > 0 ? "✓\(heard)" : "✓"
    case "sending", "sent": return "→"
    case "delivered": return "✓"
    default: return "✗ \(clean(message["reason"]?.string))"
    }
  }

  static func ourMessage(_ message: JSONValue, _ at: String) -> Styled {
    let channel = message["channel_name"]?.string ?? message["channel"]?.string
    let place = channel.map { " [\(clean($0))]" } ?? ""
    // Who had it said, unless it was somebody here.
    let origin = message["origin"]?.string.flatMap { $0 == "control" ? nil : " by \(clean($0))" } ?? ""
    let reactions = (message["reactions"]?.array ?? []).compactMap { $0["emoji"]?.string }.joined()
    let state = "  \(mark(message)) (\(message["state"]?.string ?? "?")\(origin))"
    let tail = reactions.isEmpty ? "" : "  \(clean(reactions))"
    return "\(at)\(place) \(ours(message)): \(clean(message["text"]?.string))\(state)\(tail)"
  }

  static func knownRadio(_ radio: JSONValue) -> Styled {
    func number(_ name: String) -> Int64 { radio[name]?.integer ?? 0 }
    let there =
      radio["present"]?.bool == true ? "attached, or was last" : "last seen \(time(radio["last_seen"]?.integer))"
    let held = number("held") > 0 ? ", \(number("held")) held for it" : ""
    let counts = "\(number("messages")) messages, \(number("nodes")) nodes"
    return "\(radio["radio"]?.string ?? "?")  \(clean(radio["name"]?.string).padding(20))\(there): \(counts)\(held)"
  }

  static func outgoing(_ message: JSONValue) -> Styled {
    let to =
      message["recipient"]?.string.map { String($0.prefix(12)) } ?? "channel \(message["channel"]?.string ?? "?")"
    var state = message["state"]?.string ?? "?"
    if let reason = message["reason"]?.string { state += " (\(reason))" }
    let attempts = message["attempts"]?.integer ?? 0
    if attempts > 1 { state += ", \(attempts) attempts" }
    if let trip = message["round_trip_ms"]?.integer { state += ", \(trip) ms" }
    if let heard = message["heard"]?.integer, heard > 0 { state += ", heard \(heard) repeats" }
    if let name = message["held_for"]?.string {
      state += ", held for \(clean(name)) (\((message["radio"]?.string ?? "?").prefix(4))…)"
    }
    let id = message["id"]?.string ?? "?"
    return "\(time(message["created_at"]?.integer)) \(id) to \(to): \(state): \(clean(message["text"]?.string))"
  }

  /// What a reason means, and what to do: a word alone helps nobody.
  static func hint(_ reason: String?) -> String? {
    switch reason {
    case nil: nil
    case "no_acknowledgement":
      "no_acknowledgement: nobody answered. It is out of range, or it does not know this radio: `meshpost radio advert --flood` tells it. "
        + "Then `meshpost retry ID`"
    case "read_only":
      "read_only: the room lets us read and ignores posts. Log in with a password that lets post: `meshpost room login ROOM`"
    case "expired":
      "expired: its time was over before it could be sent, or was acknowledged. Is the radio up, is there air time: `meshpost status`; "
        + "more time: `meshpost send --expires`"
    case "unknown_to_radio":
      "unknown_to_radio: the radio has no such contact or channel any more. Add it (`meshpost contact add`, `meshpost channel add`), "
        + "then `meshpost retry ID`"
    case "refused":
      "refused: the radio does not take it, in a channel perhaps because its name has grown and the text no longer fits. "
        + "`journalctl -u meshpost` has more"
    case "cancelled": "cancelled: somebody did not want it any more. `meshpost retry ID` sends it after all"
    case let other?: "\(clean(other)): see `meshpost doctor`"
    }
  }

  static func path(_ answer: JSONValue) -> String {
    if answer["ok"] != nil { return "done" }
    if let out = answer["out"]?.string {
      return "out \(out.isEmpty ? "direct" : out), in \(answer["in"]?.string ?? "?")"
    }
    guard let path = answer["path"]?.string else { return "no path is known: messages are flooded" }
    return path.isEmpty ? "direct neighbour" : "\(path) (\(answer["hops"]?.integer ?? 0) hops)"
  }

  /// One field a line.
  static func fields(_ answer: JSONValue) -> [Styled] {
    (answer.fields ?? []).map { name, value in
      var writer = JSONWriter()
      writer.value(value)
      return "\(name.padding(20))\(clean(writer.string))"
    }
  }

  static func telemetry(_ answer: JSONValue) -> [Styled] {
    let readings = answer["readings"]?.array ?? []
    if readings.isEmpty { return ["no readings"] }
    return readings.map { reading in
      let values = reading["values"]?.array ?? [reading["value"] ?? .null]
      let numbers = values.map { "\($0.number ?? 0)" }.joined(separator: " ")
      return "channel \(reading["channel"]?.integer ?? 0)  \((reading["type"]?.string ?? "?").padding(16))\(numbers)"
    }
  }

  static func neighbours(_ answer: JSONValue) -> [Styled] {
    let entries = answer["neighbours"]?.array ?? []
    if entries.isEmpty { return ["no neighbours"] }
    return entries.map { entry in
      let name = clean(entry["name"]?.string ?? "").padding(26)
      let heard = "\(entry["snr"]?.number ?? 0) dB, \(entry["heard_s"]?.integer ?? 0) s ago"
      return "\(entry["key"]?.string ?? "?")  \(name)\(heard)"
    }
  }

  static func trace(_ answer: JSONValue) -> [Styled] {
    let hops = (answer["hops"]?.array ?? []).map { "\($0["node"]?.string ?? "?") \($0["snr"]?.number ?? 0) dB" }
    return [Styled((hops + ["here \(answer["snr_here"]?.number ?? 0) dB"]).joined(separator: " → "))]
  }

  static func reading(_ reading: JSONValue) -> Styled {
    var body = JSONWriter()
    body.value(reading["body"] ?? .null)
    return "\(time(reading["at"]?.integer)) \((reading["kind"]?.string ?? "?").padding(12))\(clean(body.string))"
  }

  static func messaging(_ messaging: JSONValue) {
    func number(_ name: String) -> Int64 { messaging[name]?.integer ?? 0 }
    let used = "\(number("airtime_used_ms") / 1000) of \(number("airtime_limit_ms") / 1000) s on the air this hour"
    print(
      "sending   \(number("waiting")) waiting, \(number("in_flight")) in flight, \(number("delivered")) delivered, "
        + "\(number("failed")) failed; \(used)")
    if messaging["waits_for_airtime"]?.bool == true { print("          waits for air time") }
    if number("held") > 0 {
      print("          \(number("held")) held for another radio than the one that is attached: meshpost outgoing")
    }
    for poll in messaging["polls"]?.array ?? [] {
      guard let trouble = poll["trouble"]?.string else { continue }
      print("          poll of \(clean(poll["node"]?.string)): \(clean(trouble))")
    }
  }
}

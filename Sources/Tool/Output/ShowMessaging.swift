// SPDX-License-Identifier: MIT

import Console
import JSON

extension Show {
  // MARK: Sent messages

  static func isOurs(_ message: JSONValue) -> Bool { message["direction"]?.string == "sent" }

  /// Sender and recipient of a sent message; on a channel only the sender.
  static func ours(_ message: JSONValue) -> String {
    guard message["channel"] == nil else { return "me" }
    return
      "me → \(clean(message["recipient_name"]?.string ?? message["recipient"]?.string.map { String($0.prefix(12)) }))"
  }

  /// The state as a mark.
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
    // Its origin, unless that is the control socket.
    let origin = message["origin"]?.string.flatMap { $0 == "control" ? nil : " by \(clean($0))" } ?? ""
    let reactions = (message["reactions"]?.array ?? []).compactMap { $0["emoji"]?.string }.joined()
    let state = "  \(mark(message)) (\(message["state"]?.string ?? "?")\(origin))"
    let tail = reactions.isEmpty ? "" : "  \(clean(reactions))"
    return "\(at)\(place) \(ours(message)): \(clean(message["text"]?.string))\(state)\(tail)"
  }

  static func knownRadio(_ radio: JSONValue) -> Styled {
    func number(_ name: String) -> Int64 { radio[name]?.integer ?? 0 }
    let there =
      radio["present"]?.bool == true ? "attached, or the last one" : "last seen \(time(radio["last_seen"]?.integer))"
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
    if let refusals = message["refusals"]?.integer {
      state += ", the radio's table is full: refused \(refusals == 1 ? "once" : "\(refusals) times")"
      if let next = message["next_attempt_at"]?.integer { state += ", next attempt \(time(next))" }
    }
    if message["waits_for"]?.string == "channel" {
      state += ", waits until the radio has said what is in the channel's slot (see `meshpost status`)"
    }
    if let trip = message["round_trip_ms"]?.integer { state += ", \(trip) ms" }
    if let heard = message["heard"]?.integer, heard > 0 { state += ", heard \(heard) repeats" }
    if let name = message["held_for"]?.string {
      state += ", held for \(clean(name)) (\((message["radio"]?.string ?? "?").prefix(4))…)"
    }
    let id = message["id"]?.string ?? "?"
    let upstreams = standings(message["upstreams"]?.array ?? [])
    let text = "\(clean(message["text"]?.string))\(upstreams)"
    return "\(time(message["created_at"]?.integer)) \(id) to \(to): \(state): \(text)"
  }

  /// The upstreams that have a message. It leaves out upstreams whose filter excludes the message.
  private static func standings(_ upstreams: [JSONValue]) -> String {
    let words = upstreams.compactMap { upstream -> String? in
      let state: String
      switch upstream["state"]?.string {
      case "filtered", nil: return nil
      case "acknowledged":
        state = upstream["up_to_date"]?.bool == false ? "acknowledged, not its newest state" : "acknowledged"
      case "dead_letter": state = "dead letter \(upstream["seq"]?.integer ?? 0)"
      case let other?: state = clean(other)
      }
      return "\(clean(upstream["name"]?.string)) \(state)"
    }
    return words.isEmpty ? "" : "  [\(words.joined(separator: "; "))]"
  }

  /// The meaning of a reason, and the remedy.
  static func hint(_ reason: String?) -> String? {
    switch reason {
    case nil: nil
    case "no_acknowledgement":
      "no_acknowledgement: no answer. The node is out of range, or does not know this radio: run `meshpost radio advert --flood`, "
        + "then `meshpost retry ID`"
    case "read_only":
      "read_only: the room allows reading and ignores posts. Log in with a password that allows posting: `meshpost room login ROOM`"
    case "expired":
      "expired: not sent or not acknowledged in time. Check the radio and the air time with `meshpost status`; allow more time with "
        + "`meshpost send --expires`"
    case "radio_table_full":
      "radio_table_full: the radio had no room for it until it expired: nothing was sent. Restart the radio (`meshpost radio reboot`), "
        + "then `meshpost retry ID`"
    case "unknown_to_radio":
      "unknown_to_radio: the radio no longer has this contact or channel. Add it (`meshpost contact add`, `meshpost channel add`), "
        + "then `meshpost retry ID`"
    case "region_unknown":
      "region_unknown: the radio's firmware cannot send to the channel's region, and it was not sent. Update the firmware (regions need "
        + "1.10, * needs 1.16), or run `meshpost channel region CHANNEL default`; or it does not go back to its default region "
        + "(`meshpost status`): power-cycle it. Then `meshpost retry ID`"
    case "heard_by_radio":
      "heard_by_radio: the radio has received this message of another place itself, and it was not sent again"
    case "refused":
      "refused: the radio does not accept it; on a channel, perhaps because its name is longer now and the text no longer fits. "
        + "See `journalctl -u meshpost`"
    case "cancelled": "cancelled: on request. `meshpost retry ID` sends it again"
    case let other?: "\(clean(other)): see `meshpost doctor`"
    }
  }

  static func path(_ answer: JSONValue) -> String {
    if answer["ok"] != nil { return "done" }
    if let out = answer["out"]?.string {
      return "out \(out.isEmpty ? "direct" : out), in \(answer["in"]?.string ?? "?")"
    }
    guard let path = answer["path"]?.string else { return "no known path: messages are flooded" }
    return path.isEmpty ? "direct neighbour" : "\(path) (\(answer["hops"]?.integer ?? 0) hops)"
  }

  /// Formats an answer with one field a line.
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
    let used = "\(number("airtime_used_ms") / 1000) of \(number("airtime_limit_ms") / 1000) s of air time this hour"
    print(
      "sending   \(number("waiting")) waiting, \(number("in_flight")) in flight, \(number("delivered")) delivered, "
        + "\(number("failed")) failed; \(used)")
    if messaging["waits_for_airtime"]?.bool == true { print("          waiting for air time") }
    if number("held") > 0 {
      print("          \(number("held")) held for a radio that is not attached: meshpost sent")
    }
    for poll in messaging["polls"]?.array ?? [] {
      guard let trouble = poll["trouble"]?.string else { continue }
      print("          poll of \(clean(poll["node"]?.string)): \(clean(trouble))")
    }
  }
}

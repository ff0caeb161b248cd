// SPDX-License-Identifier: MIT

import Console
import JSON

extension Show {
  static func outgoing(_ message: JSONValue) -> Styled {
    let to =
      message["recipient"]?.string.map { String($0.prefix(12)) } ?? "channel \(message["channel"]?.string ?? "?")"
    var state = message["state"]?.string ?? "?"
    if let reason = message["reason"]?.string { state += " (\(reason))" }
    let attempts = message["attempts"]?.integer ?? 0
    if attempts > 1 { state += ", \(attempts) attempts" }
    if let trip = message["round_trip_ms"]?.integer { state += ", \(trip) ms" }
    if let heard = message["heard"]?.integer, heard > 0 { state += ", heard \(heard) repeats" }
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
        + "`journalctl -u meshpostd` has more"
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
    for poll in messaging["polls"]?.array ?? [] {
      guard let trouble = poll["trouble"]?.string else { continue }
      print("          poll of \(clean(poll["node"]?.string)): \(clean(trouble))")
    }
  }
}

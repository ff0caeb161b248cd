// SPDX-License-Identifier: MIT

import Console
import ControlShapes
import JSON
import UntrustedText

extension Show {
  // MARK: Sent messages

  static func isOurs(_ message: JSONValue) -> Bool { message[Shape.Message().direction] == "sent" }

  /// Sender and recipient of a sent message; on a channel only the sender.
  static func ours(_ message: JSONValue) -> String {
    let row = Shape.Message()
    guard message[row.channel] == nil else { return "me" }
    return "me → \(clean(shownName(message[row.recipientName], key: message[row.recipient])))"
  }

  /// The state as a mark.
  static func mark(_ message: JSONValue) -> String {
    let row = Shape.Message()
    switch message[row.state] {
    case "pending", "retrying", "held_for_recipient": return "…"
    case "sent" where message[row.kind] == "channel":
      let heard = message[row.heard] ?? 0
      return heard > 0 ? "✓\(heard)" : "✓"
    case "sending", "sent": return "→"
    case "delivered": return "✓"
    default: return "✗ \(clean(message[row.reason]))"
    }
  }

  static func ourMessage(_ message: JSONValue, _ at: String) -> Styled {
    let row = Shape.Message()
    let channel = message[row.channelName] ?? message[row.channel]
    let place = channel.map { " [\(clean($0))]" } ?? ""
    // Who sent it, unless it came from the control socket.
    let origin = message[row.origin].flatMap { $0 == "control" ? nil : " by \(clean($0))" } ?? ""
    let state = "  \(mark(message)) (\(message[row.state] ?? "?")\(origin))"
    return "\(at)\(place) \(ours(message)): \(clean(message[row.text]))\(state)\(reactions(to: message))"
  }

  /// A channel, or a node with which messages were exchanged: what is unread there, and the newest message.
  static func conversation(_ conversation: JSONValue) -> Styled {
    let (row, state) = (Shape.Conversation(), Shape.Unread())
    let (unread, level) = (conversation[state.unread] ?? 0, conversation[state.level] ?? "all")
    let marks = [
      unread > 0 ? "\(unread) new" : nil, conversation[state.mentioned] == true ? "@" : nil,
      level == "all" ? nil : level == "none" ? "muted" : clean(level),
    ]
    let names = shownName(conversation[row.alias], conversation[row.name], key: conversation[row.key])
    let name = clean(names ?? conversation[row.conversation])
    let newest = conversation[row.newest].map(newest) ?? "no messages"
    return "\(name.padding(26))\(marks.compactMap { $0 }.joined(separator: " ").padding(10))\(newest)"
  }

  /// The newest message of a conversation, which the line names already.
  private static func newest(_ message: JSONValue) -> String {
    let row = Shape.Message()
    let author = shownName(message[row.authorName], key: message[row.author])
    let sender = isOurs(message) ? "me" : speaker(author ?? sender(of: message))
    let text = message[row.text].map { clean($0) } ?? "data \(message[row.data] ?? "")"
    return "\(time(message[row.receivedAt])) \(sender): \(text)"
  }

  static func knownRadio(_ radio: JSONValue) -> Styled {
    let row = Shape.KnownRadio()
    let there =
      radio[row.present] == true ? "attached, or the last one" : "last seen \(time(radio[row.lastSeen]))"
    let held = (radio[row.held] ?? 0) > 0 ? ", \(radio[row.held] ?? 0) held for it" : ""
    let (messages, nodes) = (counted(radio[row.messages] ?? 0, "message"), counted(radio[row.nodes] ?? 0, "node"))
    let counts = "\(messages), \(nodes)"
    return "\(radio[row.radio] ?? "?")  \(clean(radio[row.name]).padding(20))\(there): \(counts)\(held)"
  }

  /// `at`: when it came into its state, for somebody who follows it; otherwise the time of its creation is shown.
  static func outgoing(_ message: JSONValue, at: Int64? = nil) -> Styled {
    let row = Shape.Outgoing()
    let node = shownName(message[row.recipientName], key: message[row.recipient])
    let to = node.map { clean($0) } ?? "channel \(clean(message[row.channelName] ?? message[row.channel]))"
    var state = message[row.state] ?? "?"
    if let reason = message[row.reason] { state += " (\(reason))" }
    let attempts = message[row.attempts] ?? 0
    if attempts > 1 { state += ", \(attempts) attempts" }
    if let refusals = message[row.refusals] {
      state += ", the radio has no room for another packet: refused \(refusals == 1 ? "once" : "\(refusals) times")"
      if let next = message[row.nextAttemptAt] { state += ", next attempt \(time(next))" }
    }
    if message[row.state] == "held_for_recipient", let next = message[row.nextAttemptAt] {
      state += ", next attempt \(time(next)) at the latest"
    }
    if message[row.waitsFor] == "channel" {
      state += ", waits until the radio has said what is in the channel's slot (see `meshpost status`)"
    }
    if message[row.waitsFor] == "airtime" { state += ", waits for air time (see `meshpost airtime`)" }
    if message[row.waitsFor] == "place" { state += ", waits for a place in the radio's contact table (docs/care.md)" }
    if let trip = message[row.roundTripMs] { state += ", \(trip) ms" }
    if let heard = message[row.heard], heard > 0 { state += ", heard \(counted(heard, "repeat"))" }
    if let name = message[row.heldFor] {
      state += ", held for \(clean(name)) (\((message[row.radio] ?? "?").prefix(4))…)"
    }
    let id = message[row.id] ?? "?"
    let upstreams = standings(message[row.upstreams])
    let text = "\(clean(message[row.text]))\(upstreams)"
    return "\(time(at ?? message[row.createdAt])) \(id) to \(to): \(state): \(text)"
  }

  /// The upstreams that have a message. It leaves out upstreams whose filter excludes the message.
  private static func standings(_ upstreams: [JSONValue]) -> String {
    let row = Shape.Standing()
    let words = upstreams.compactMap { upstream -> String? in
      let state: String
      switch upstream[row.state] {
      case "filtered", nil: return nil
      case "acknowledged":
        state = upstream[row.upToDate] == false ? "acknowledged, not its newest state" : "acknowledged"
      case "dead_letter": state = "dead letter \(upstream[row.seq] ?? 0)"
      case "waiting" where upstream[row.awaitsEnd] == true: state = "gets it when it has ended"
      case let other?: state = clean(other)
      }
      return "\(clean(upstream[row.name])) \(state)"
    }
    return words.isEmpty ? "" : "  [\(words.joined(separator: "; "))]"
  }

  /// The meaning of the state of a message that was not delivered, and the remedy.
  static func hint(of message: JSONValue) -> String? {
    let row = Shape.Outgoing()
    let isHeld = message[row.state] == "held_for_recipient"
    let isPost = message[row.kind] == "room"
    let room = isPost ? shownName(message[row.recipientName], key: message[row.recipient]) : nil
    let reason = isHeld ? "held_for_recipient" : message[row.reason]
    let wasTried = message[row.attempts].map { $0 > 0 } ?? false
    return hint(reason == "cancelled" && wasTried ? "cancelled after an attempt" : reason, room: room)
  }

  /// `room`: of a post.
  private static func hint(_ reason: String?, room: String?) -> String? {
    let login = "`meshpost room login \(clean(Escaping.argument(room ?? "ROOM")))`"
    return switch reason {
    case nil: nil
    // A room ignores whom it does not know, and needs no advert for it.
    case "held_for_recipient" where room != nil:
      "held_for_recipient: not acknowledged yet. The gateway sends the post again from time to time, until it expires, and logs in to "
        + "the room if its password is stored. The room may be out of range, or not know this radio any more: \(login)"
    case "no_acknowledgement" where room != nil:
      "no_acknowledgement: it was sent, and not acknowledged in its time, which ends with a later login; whether it has arrived is "
        + "not known. The room is out of range, or does not know this radio: \(login), then `meshpost retry ID`"
    case "held_for_recipient":
      "held_for_recipient: not acknowledged yet. The gateway sends it again at a sign of life of the recipient, and from time to time, "
        + "until it expires. The recipient may not know this radio: run `meshpost radio advert --flood`"
    case "no_acknowledgement":
      "no_acknowledgement: it was sent, and not acknowledged within its lifetime; whether it has arrived is not known. The node is out of "
        + "range, or does not know this radio: run `meshpost radio advert --flood`, then `meshpost retry ID`"
    case "read_only":
      "read_only: the room allows reading and ignores posts. Log in with a password that allows posting: \(login)"
    case "expired":
      "expired: not sent in time. Earlier messages for this recipient were not acknowledged (`meshpost sent`), or the radio "
        + "or the air time was missing (`meshpost status`). Allow more time with `meshpost send --expires`"
    case "radio_table_full":
      "radio_table_full: the radio had no room for it until it expired: nothing was sent. Restart the radio (by its power or its button), "
        + "then `meshpost retry ID`"
    case "unknown_to_radio":
      "unknown_to_radio: the radio no longer has this contact or channel. Add it (`meshpost contact add`, `meshpost channel add`), "
        + "then `meshpost retry ID`"
    case "region_unknown":
      "region_unknown: the radio's firmware cannot send to the message's region, and it was not sent. Update the firmware (regions need "
        + "1.10, none needs 1.16), or choose the radio's default: `meshpost send --region default`, `meshpost channel region CHANNEL "
        + "default`, `meshpost node region NODE default`; or it does not go back to its default region (`meshpost status`): "
        + "power-cycle it. Then `meshpost retry ID`"
    case "heard_by_radio":
      "heard_by_radio: the radio has received this message of another place itself, and it was not sent again"
    case "before_restore":
      "before_restore: it waited when the database was put back, and another copy of it may have sent it: it was not sent again. `meshpost retry` sends it"
    case "refused":
      "refused: the radio does not accept it; on a channel, perhaps because its name is longer now and the text no longer fits. "
        + "See `journalctl -u meshpost`"
    case "cancelled": "cancelled: on request. `meshpost retry ID` sends it again"
    case "cancelled after an attempt":
      "cancelled: on request, after it was transmitted, or perhaps: whether it has arrived is not known. `meshpost retry ID` sends it again"
    case let other?: "\(clean(other)): see `meshpost doctor`"
    }
  }

  static func path(_ answer: JSONValue) -> String {
    let row = Shape.Path()
    if answer[row.ok] != nil { return "done" }
    if let out = answer[row.out] {
      return "out \(out.isEmpty ? "direct" : out), in \(answer[row.`in`] ?? "?")"
    }
    let hops = counted(answer[row.hops] ?? 0, "hop")
    if let heard = answer[row.heardAt], let path = answer[row.path] {
      let way = path.isEmpty ? "directly" : "by \(path) (\(hops))"
      return "its last advert came \(way), at \(time(heard * 1000)) by the radio's clock"
    }
    guard let path = answer[row.path] else { return "no known path: messages are flooded" }
    return path.isEmpty ? "direct neighbour" : "\(path) (\(hops))"
  }

  /// Formats an answer with one field a line.
  static func fields(_ answer: JSONValue) -> [Styled] {
    (answer.fields ?? []).map { name, value in "\(name.padding(20))\(clean(value.text))" }
  }

  static func telemetry(_ answer: JSONValue) -> [Styled] {
    let row = Shape.Sensor()
    let readings = answer[Shape.Telemetry().readings]
    if readings.isEmpty { return ["no readings"] }
    return readings.map { reading in
      let values = reading[row.value].map { [$0] } ?? reading[row.values].compactMap(\.number)
      let numbers = values.map { "\($0)" }.joined(separator: " ")
      return "channel \(reading[row.channel] ?? 0)  \((reading[row.type] ?? "?").padding(16))\(numbers)"
    }
  }

  static func neighbours(_ answer: JSONValue) -> [Styled] {
    let row = Shape.Neighbour()
    let entries = answer[Shape.Neighbours().neighbours]
    if entries.isEmpty { return ["no neighbours"] }
    return entries.map { entry in
      let name = clean(entry[row.name] ?? "").padding(26)
      let heard = "\(entry[row.snr] ?? 0) dB, \(entry[row.heardS] ?? 0) s ago"
      return "\(entry[row.key] ?? "?")  \(name)\(heard)"
    }
  }

  static func trace(_ answer: JSONValue) -> [Styled] {
    let hops = answer[Shape.Trace().hops].map { "\($0[Shape.Hop().node] ?? "?") \($0[Shape.Hop().snr] ?? 0) dB" }
    return [Styled((hops + ["here \(answer[Shape.Trace().snrHere] ?? 0) dB"]).joined(separator: " → "))]
  }

  static func reading(_ reading: JSONValue) -> Styled {
    let body = reading[Shape.Reading().body] ?? .null
    return
      "\(time(reading[Shape.Reading().at])) \((reading[Shape.Reading().kind] ?? "?").padding(12))\(clean(body.text))"
  }

  static func messaging(_ messaging: JSONValue) {
    let row = Shape.Messaging()
    let packets = (used: messaging[row.hourMessages] ?? 0, limit: messaging[row.hourMessagesLimit] ?? 0)
    // From half of them on, some wait for them.
    let count = packets.used * 2 >= packets.limit ? " and \(packets.used) of \(packets.limit) packets" : ""
    let used =
      "\((messaging[row.airtimeUsedMs] ?? 0) / 1000) of \((messaging[row.airtimeLimitMs] ?? 0) / 1000) s of air time\(count) this hour"
    print(
      "sending   \(messaging[row.waiting] ?? 0) waiting, \(messaging[row.inFlight] ?? 0) in flight, \(messaging[row.delivered] ?? 0) delivered, "
        + "\(messaging[row.failed] ?? 0) failed; \(used)")
    let waiting = messaging[row.heldForRecipients] ?? 0
    if waiting > 0 {
      print(
        "          \(waiting) of them \(waiting == 1 ? "waits" : "wait") for a sign of life of the recipient: meshpost sent"
      )
    }
    if messaging[row.waitsForAirtime] == true { print("          waiting for air time") }
    if messaging[row.waitsForChannel] == true {
      print(
        "          the channel is busy (\(messaging[row.channelUsePercent] ?? 0) % of the last two minutes): what is not urgent waits: meshpost airtime"
      )
    }
    if (messaging[row.held] ?? 0) > 0 {
      print("          \(messaging[row.held] ?? 0) held for a radio that is not attached: meshpost sent")
    }
    let unread = messaging[row.unread] ?? 0
    if unread > 0 {
      print(
        "          \(counted(unread, "text")) could not be read, from nodes that the radio does not have, whose keys begin with "
          + "\(messaging[row.unreadSenders].map { clean($0) }.joined(separator: ", ")). It can read them once it has their senders: meshpost contact add"
      )
    }
    for poll in messaging[row.polls] {
      guard let trouble = poll["trouble"]?.string else { continue }
      print("          poll of \(clean(poll["node"]?.string)): \(clean(trouble))")
    }
  }
}

// SPDX-License-Identifier: MIT

// swift-format-ignore-file
// One line for each field, as in a table.

import JSON

/// Messages, readings and documents; and answers to what the gateway was told to do.
extension Shape {
  public struct Map: Sendable { @inlinable public init() {}
    public let at = Field<String?>("at", "when the map was made, RFC 3339")
    public let own = Field<JSONValue?>("own", "this radio, as in a radio event")
    public let nodes = Field<JSONValue>("nodes", "as contact; with --output, the number of nodes")
    public let background = Field<JSONValue?>("background", "GeoJSON")
  }
  public struct Chart: Sendable { @inlinable public init() {}
    public let title = Field<String?>("title")
    public let unit = Field<String?>("unit")
    public let series = Field<[Series]?>("series")
    public let points = Field<Int64?>("points", "with --output: number of points")
  }
  public struct Series: Sendable { @inlinable public init() {}
    public let name = Field<String>("name")
    public let points = Field<[Point]>("points")
  }
  public struct Point: Sendable { @inlinable public init() {}
    public let at = Field<Int64>("at")
    public let value = Field<Double>("value")
  }
  public struct Message: Sendable { @inlinable public init() {}
    public let conversation = Field<String?>("conversation", "`channel:DIGEST` or `node:PREFIX`; absent: answers of a command line, datagrams")
    public let id = Field<Int64>("id", "the message's number; negative: sent")
    public let kind = Field<String>("kind", "direct, room, cli, channel or datagram")
    public let command = Field<Bool?>("command", "true: a remote command to this radio, which nobody has said")
    public let sender = Field<String?>("sender", "the first 12 digits of the sender's key; in a room, the room's key; if sent, this radio's key")
    public let senderAlias = Field<String?>("sender_alias", "the sender's alias: `meshpost node alias`")
    public let senderName = Field<String?>("sender_name", "the contact's name, or the name given in a channel message; if sent, this radio's name")
    public let recipient = Field<String?>("recipient", "if sent: the recipient's key")
    public let recipientName = Field<String?>("recipient_name", "if sent: the contact's name")
    public let author = Field<String?>("author", "a room post's author: the first 8 digits of the key")
    public let authorName = Field<String?>("author_name", "the only matching contact")
    public let channel = Field<String?>("channel", "the channel's digest")
    public let channelName = Field<String?>("channel_name", "its name")
    public let senderTime = Field<Int64?>("sender_time", "seconds since 1970 by the sender's clock")
    public let text = Field<String?>("text", "the text")
    public let textHex = Field<String?>("text_hex", "its bytes, if they are not UTF-8")
    public let dataType = Field<Int64?>("data_type", "datagram: its type")
    public let data = Field<String?>("data", "datagram: its data, hexadecimal")
    public let mentions = Field<[String]?>("mentions", "names between @[ and ]")
    public let snr = Field<Double?>("snr", "dB")
    public let hops = Field<Int64?>("hops", "number of hops")
    public let direct = Field<Bool>("direct", "it was routed, not flooded")
    public let waited = Field<Bool?>("waited", "true: it was queued in the radio, or may have been")
    public let waitedS = Field<Int64?>("waited_s", "the longest time in seconds that it was queued, if known")
    public let ageS = Field<Int64?>("age_s", "seconds between sending and receiving, by the sender's clock; absent: new, or unknown")
    public let radio = Field<String?>("radio", "the first 12 digits of the key of the gateway's radio; absent: several radios received it")
    public let region = Field<String?>("region", "if received: the region in which a copy of it was heard, if its name is known here; `*`: without a region. If sent: the region that was chosen for it")
    public let regionCode = Field<String?>("region_code", "if received: the packet's code of an unknown region, 4 hex digits; each packet has a different one")
    public let direction = Field<String>("direction", "received or sent")
    public let cursor = Field<String>("cursor", "its position among both directions, for `after` and `before`")
    public let outgoing = Field<String?>("outgoing", "if sent: its id, as in outgoing")
    public let origin = Field<String?>("origin", "if sent: who sent it")
    public let state = Field<String?>("state", "if sent: as in outgoing")
    public let reason = Field<String?>("reason", "if sent: why it failed")
    public let attempts = Field<Int64?>("attempts", "if sent")
    public let floods = Field<Int64?>("floods", "if sent")
    public let roundTripMs = Field<Int64?>("round_trip_ms", "if sent")
    public let heard = Field<Int64?>("heard", "if sent: number of repeaters heard repeating it")
    public let airtimeMs = Field<Int64?>("airtime_ms", "if sent")
    public let endedAt = Field<Int64?>("ended_at", "if sent")
    public let ended = Field<Bool?>("ended", "if sent: the state is final")
    public let receivedAt = Field<Int64>("received_at", "when it was received; if sent, when it was accepted")
    public let clockTrusted = Field<Bool>("clock_trusted", "whether the clock was synchronised then")
    public let copies = Field<Int64>("copies", "how often it was received")
    public let reaction = Field<String?>("reaction", "the emoji, if the text is a reaction to another message")
    public let filtered = Field<String?>("filtered", "if received: why it concerns nobody here: its sender is blocked, or level: that of its conversation leaves it out; absent: it concerns somebody")
    public let reactions = Field<[Reaction]?>("reactions", "to it")
    public let upstreams = Field<[Standing]?>("upstreams", "`messages` and `search`: what each upstream has of it")
    public let ways = Field<[Way]?>("ways", "with `ways=1`: if received: the copies of it that the radio heard, 8 at most")
    public let waysMore = Field<Int64?>("ways_more", "further copies that were heard and not kept, counted up to 255; absent: none")
    public let wayNodes = Field<[WayNodes]?>("way_nodes", "the nodes that the hashes in it may mean, the first 32 hashes")
    public let heardBy = Field<[Way]?>("heard_by", "with `ways=1`, if sent: the copies of it that the radio heard from repeaters, 8 at most")
  }
  public struct Way: Sendable { @inlinable public init() {}
    public let at = Field<Int64>("at", "when the gateway heard of it from the radio")
    public let path = Field<[String]>("path", "the hash of each hop: the first 1, 2 or 3 bytes of a key, which several nodes can share. Flooded: the repeaters that passed it on, the last one next to the radio; `direct`: those that it still had to pass. A very long path is cut")
    public let hops = Field<Int64?>("hops", "the number of hops, if the path is cut")
    public let route = Field<String?>("route", "direct: it was routed; absent: flooded")
    public let region = Field<String?>("region", "the region, if a channel here has it")
    public let regionCode = Field<String?>("region_code", "the packet's code of another region, 4 hex digits; each packet has a different one")
    public let snr = Field<Double>("snr", "dB")
    public let rssi = Field<Int64>("rssi", "dBm")
    public let guess = Field<Bool?>("guess", "true: a direct message, recognised by both ends' hashes, size and time; it may be another message's")
  }
  public struct WayNodes: Sendable { @inlinable public init() {}
    public let hash = Field<String>("hash")
    public let nodes = Field<[WayNode]>("nodes", "the candidates: known nodes with this hash, repeaters and rooms first, 4 at most; even a single one is no fact, because unknown nodes can have the hash, too")
    public let more = Field<Int64?>("more", "number of further ones")
  }
  public struct WayNode: Sendable { @inlinable public init() {}
    public let key = Field<String>("key", "the first 12 digits")
    public let name = Field<String>("name")
  }
  public struct Reaction: Sendable { @inlinable public init() {}
    public let emoji = Field<String>("emoji")
    public let sender = Field<String>("sender", "who reacted; of ours `self`, which may also be the name of somebody else")
    public let ours = Field<Bool?>("ours", "`true`: we did")
  }
  public struct Accepted: Sendable { @inlinable public init() {}; public let messages = Field<[Outgoing]>("messages", "one for each part of the text; with --wait, in their final state") }
  public struct Outgoing: Sendable { @inlinable public init() {}
    public let id = Field<String>("id", "its id")
    public let number = Field<Int64>("number", "its number")
    public let origin = Field<String>("origin", "who sent it")
    public let kind = Field<String>("kind", "direct, room or channel")
    public let recipient = Field<String?>("recipient", "the recipient's key")
    public let recipientName = Field<String?>("recipient_name", "the contact's name")
    public let channel = Field<String?>("channel", "the channel's digest")
    public let channelName = Field<String?>("channel_name", "its name")
    public let text = Field<String>("text")
    public let region = Field<String?>("region", "the region that was chosen for this message; `*`: none; `default`: the radio's default. Absent: that of the recipient or channel")
    public let createdAt = Field<Int64>("created_at")
    public let state = Field<String>("state", "pending, sending, sent, held_for_recipient, retrying, delivered or failed")
    public let reason = Field<String?>("reason", "why it failed")
    public let senderTime = Field<Int64?>("sender_time", "seconds since 1970; the recipient recognises repetitions by it")
    public let attempts = Field<Int64?>("attempts")
    public let floods = Field<Int64?>("floods", "number of flooded attempts")
    public let refusals = Field<Int64?>("refusals", "while it waits: how often in a row the radio has refused it, because it had no room for another packet; nothing was sent")
    public let nextAttemptAt = Field<Int64?>("next_attempt_at", "if so, or if it is held for its recipient: when it is tried again at the latest")
    public let waitsFor = Field<String?>("waits_for", "channel: the radio has not said what is in the channel's slot since it was connected; nothing is sent there. place: the recipient has no place in the radio's contact table yet. airtime: the hour's air time is used up, or the half of it for what is sent again to a node that does not answer")
    public let roundTripMs = Field<Int64?>("round_trip_ms")
    public let heard = Field<Int64?>("heard", "number of repeaters heard repeating it")
    public let airtimeMs = Field<Int64?>("airtime_ms")
    public let endedAt = Field<Int64?>("ended_at")
    public let ended = Field<Bool>("ended", "the state is final")
    public let radio = Field<String?>("radio", "the first 12 digits of the key of the radio that sends it")
    public let heldFor = Field<String?>("held_for", "the name of the radio that it is held for, while another is attached")
    public let reaction = Field<String?>("reaction", "the emoji, if the text is a reaction to another message")
    public let reactions = Field<[Reaction]?>("reactions", "to it")
    public let upstreams = Field<[Standing]?>("upstreams", "`sent list`: what each upstream has of it")
    public let heardBy = Field<[Way]?>("heard_by", "with `ways=1`: the copies of it that the radio heard from repeaters, 8 at most")
    public let waysMore = Field<Int64?>("ways_more", "further copies that were heard and not kept, counted up to 255; absent: none")
    public let wayNodes = Field<[WayNodes]?>("way_nodes", "the nodes that the hashes in it may mean, the first 32 hashes")
  }
  public struct Attempts: Sendable { @inlinable public init() {}
    public let id = Field<String>("id")
    public let attempts = Field<[Attempt]>("attempts", "the oldest first")
    public let codes = Field<[String]>("codes", "of all attempts, hexadecimal")
  }
  public struct Attempt: Sendable { @inlinable public init() {}
    public let number = Field<Int64>("number")
    public let at = Field<Int64?>("at", "when it was handed to the radio")
    public let flood = Field<Bool?>("flood")
    public let ack = Field<String?>("ack", "the code that acknowledges it")
  }
  public struct Conversation: Sendable { @inlinable public init() {}
    public let conversation = Field<String>("conversation", "`channel:DIGEST` or `node:PREFIX`")
    public let kind = Field<String>("kind", "channel, direct or room")
    public let name = Field<String>("name")
    public let alias = Field<String?>("alias", "the node's")
    public let key = Field<String?>("key", "the node's")
    public let channel = Field<String?>("channel", "the channel's digest")
    public let onRadio = Field<Bool>("on_radio")
    public let unread = Unread()
    public let newest = Field<Message?>("newest")
  }
  public struct Unread: Sendable { @inlinable public init() {}
    public let unread = Field<Int64>("unread", "number of messages that concern somebody here: not of blocked senders, nor left out by the level")
    public let mentioned = Field<Bool>("mentioned", "one of them mentions us")
    public let read = Field<String>("read", "the position up to which it was read")
    public let level = Field<String>("level", "which messages concern somebody here: all, mentions, direct (those that begin with a mention of us, and direct messages) or none")
    public let muted = Field<Bool>("muted", "the level is none")
  }
  public struct Block: Sendable { @inlinable public init() {}
    public let key = Field<String?>("key", "the blocked key, or its beginning")
    public let name = Field<String?>("name", "without `channel`: the node's name, if it is known; with `channel`: the blocked name")
    public let channel = Field<String?>("channel", "the digest of the channel on which the name is blocked")
    public let channelName = Field<String?>("channel_name", "its name, if the radio has it")
  }
  public struct Standing: Sendable { @inlinable public init() {}
    public let name = Field<String>("name", "the upstream")
    public let state = Field<String>("state", "acknowledged, waiting, dead_letter, dropped, filtered, passed, lost or unknown: see control-socket.md")
    public let upToDate = Field<Bool?>("up_to_date", "if sent: it has the newest state, too")
    public let awaitsEnd = Field<Bool?>("awaits_end", "if waiting: the message has not ended, and the upstream gets only its end")
    public let seq = Field<Int64?>("seq", "the dead letter's seq, for `upstream retry`")
  }
  public struct Adopted: Sendable { @inlinable public init() {}
    public let messages = Field<[Outgoing]>("messages", "messages that were changed")
    public let refused = Field<[Refused]>("refused", "messages that were not, with the reason")
  }
  public struct Refused: Sendable { @inlinable public init() {}
    public let id = Field<String>("id")
    public let error = Field<String>("error")
  }
  public struct KnownRadio: Sendable { @inlinable public init() {}
    public let key = Field<String>("key", "64 hex digits")
    public let radio = Field<String>("radio", "its first 12 digits, as in rows")
    public let name = Field<String>("name")
    public let present = Field<Bool>("present", "attached, or attached last")
    public let firstSeen = Field<Int64?>("first_seen", "absent: before the gateway distinguished radios")
    public let lastSeen = Field<Int64?>("last_seen")
    public let messages = Field<Int64>("messages", "stored messages received by it, approximately")
    public let nodes = Field<Int64>("nodes", "nodes that it reported last")
    public let held = Field<Int64>("held", "messages held for it")
  }
  public struct Event: Sendable { @inlinable public init() {}
    public let seq = Field<Int64>("seq")
    public let at = Field<Int64>("at")
    public let trusted = Field<Bool>("trusted", "whether the clock was synchronised")
    public let kind = Field<String>("kind", "as in hub-protocol.md")
    public let sound = Field<Bool?>("sound", "false: damaged on disk")
    public let body = Field<JSONValue>("body", "as in hub-protocol.md")
  }
  public struct Reading: Sendable { @inlinable public init() {}
    public let at = Field<Int64>("at")
    public let kind = Field<String>("kind", "node_status, telemetry, node_neighbours, node_clock or node_owner")
    public let body = Field<JSONValue>("body", "the reading, with node and name")
  }
  public struct Snapshot: Sendable { @inlinable public init() {}
    public let node = Field<String>("node", "its key, 64 hex digits")
    public let name = Field<String>("name")
    public let at = Field<Int64>("at")
    public let settings = Field<JSONValue>("settings", "by name, as the node's command line tells them")
    public let unknown = Field<[String]?>("unknown", "settings that its firmware or its board does not know")
    public let missing = Field<[String]?>("missing", "settings that were not told; absent: all were")
    public let trouble = Field<String?>("trouble", "why")
  }
  public struct SnapshotProgress: Sendable { @inlinable public init() {}
    public let setting = Field<String?>("setting", "what the node has told just now")
    public let value = Field<String?>("value", "absent: it does not know the setting")
    public let done = Field<Int64?>("done")
    public let of = Field<Int64?>("of")
    public let waits = Field<String?>("waits", "why it waits")
    public let snapshot = Field<Snapshot?>("snapshot", "the last row: what is kept")
    public let error = Field<String?>("error", "the last row: why nothing is")
  }
  public struct SnapshotDiff: Sendable { @inlinable public init() {}
    public let earlierAt = Field<Int64>("earlier_at")
    public let newerAt = Field<Int64>("newer_at")
    public let changes = Field<[SettingsChange]>("changes")
  }
  public struct SettingsChange: Sendable { @inlinable public init() {}
    public let setting = Field<String>("setting")
    public let before = Field<String>("before")
    public let after = Field<String>("after")
  }
  public struct Document: Sendable { @inlinable public init() {}
    public let key = Field<String>("key")
    public let value = Field<JSONValue?>("value", "absent: deleted")
    public let updatedAt = Field<Int64>("updated_at")
    public let byHub = Field<Bool>("by_hub", "whether the hub wrote it last")
  }
  public struct Documents: Sendable { @inlinable public init() {}
    public let documents = Field<[Document]>("documents")
    public let next = Field<String?>("next", "more documents follow after this key")
  }
  public struct Refusal: Sendable { @inlinable public init() {}
    public let error = Field<String>("error", "for people")
    public let code = Field<String?>("code", "for programs")
    public let remedy = Field<String?>("remedy", "what to do")
    public let over = Field<Int64?>("over", "too_long: bytes beyond the limit")
    public let limit = Field<Int64?>("limit", "too_long: bytes")
    public let candidates = Field<[String]?>("candidates", "ambiguous: what it may be")
  }
  public struct Ok: Sendable { @inlinable public init() {}; public let ok = Field<Bool>("ok", "always true") }
  public struct Deletion: Sendable { @inlinable public init() {}
    public let conversation = Field<String?>("conversation", "of a conversation: as in its row")
    public let name = Field<String?>("name", "its whole name")
    public let received = Field<Int64>("received", "received messages that are deleted")
    public let sent = Field<Int64>("sent", "sent ones")
    public let waiting = Field<Int64>("waiting", "messages that have not been sent yet, and stay")
  }
  public struct SentDatagram: Sendable { @inlinable public init() {}
    public let channel = Field<String>("channel", "the channel's digest")
    public let channelName = Field<String>("channel_name")
    public let dataType = Field<Int64>("data_type")
    public let bytes = Field<Int64>("bytes", "of its data")
    public let region = Field<String>("region", "where it was sent: a name, `*` for none, or `default`")
    public let airtimeMs = Field<Int64>("airtime_ms", "on the air, computed from the radio's parameters")
  }
  public struct Advertised: Sendable { @inlinable public init() {}
    public let ok = Field<Bool>("ok", "always true")
    public let flood = Field<Bool>("flood", "through the mesh, or to direct neighbours")
  }
  public struct Added: Sendable { @inlinable public init() {}
    public let ok = Field<Bool>("ok", "always true")
    public let warnings = Field<[String]?>("warnings", "warnings about it")
  }
  public struct Link: Sendable { @inlinable public init() {}; public let link = Field<String>("link", "a meshcore:// link") }
  public struct Key: Sendable { @inlinable public init() {}; public let key = Field<String>("key", "the node's key, 64 hex digits") }
  public struct Reply: Sendable { @inlinable public init() {}
    public let reply = Field<String>("reply", "what the node printed")
    public let warning = Field<String?>("warning", "what `clock sync` has passed on")
  }
  public struct Retried: Sendable { @inlinable public init() {}
    public let retried = Field<Int64>("retried", "dead letters that were queued again")
    public let keptBack = Field<Int64?>("kept_back", "further ones that stay dead letters: the upstream's filter leaves them out now")
  }
  public struct Dropped: Sendable { @inlinable public init() {}; public let dropped = Field<Int64>("dropped", "dead letters that were deleted") }
  public struct Skipped: Sendable { @inlinable public init() {}; public let skipped = Field<Int64>("skipped", "the event's seq; it is a dead letter now") }
  public struct Paired: Sendable { @inlinable public init() {}; public let paired = Field<String>("paired", "the radio's address") }
  public struct Forgotten: Sendable { @inlinable public init() {}; public let forgotten = Field<String>("forgotten", "the radio's address") }
  public struct Report: Sendable { @inlinable public init() {}; public let report = Field<String>("report", "Markdown") }
  public struct Captured: Sendable { @inlinable public init() {}; public let captured = Field<Int64>("captured", "packets or frames") }
  public struct Bytes: Sendable { @inlinable public init() {}; public let bytes = Field<Int64>("bytes", "size of the copy") }
  public struct BackedUp: Sendable { @inlinable public init() {}
    public let channels = Field<Int64>("channels", "how many")
    public let contacts = Field<Int64>("contacts", "how many")
    public let privateKey = Field<Bool>("private_key", "whether the file contains it")
  }
  public struct Restored: Sendable { @inlinable public init() {}
    public let settings = Field<Bool>("settings", "whether they were restored")
    public let channels = Field<Int64>("channels", "how many")
    public let contacts = Field<Int64>("contacts", "how many")
    public let privateKey = Field<Bool>("private_key", "whether it was restored")
  }
}

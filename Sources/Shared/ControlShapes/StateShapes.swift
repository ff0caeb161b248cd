// SPDX-License-Identifier: MIT

// swift-format-ignore-file
// One line for each field, as in a table.

import JSON

/// States of the gateway, the radio and other nodes; and tables: of the radio, of upstreams, of what was found.
extension Shape {
  public struct Status: Sendable { @inlinable public init() {}
    public let version = Field<String>("version", "of the daemon")
    public let gateway = Field<String>("gateway", "its id")
    public let epoch = Field<String>("epoch", "of its journal")
    public let configurationError = Field<String?>("configuration_error", "the file is refused, and the gateway runs with the last one that worked")
    public let overrides = Field<[Override]?>("overrides", "settings that documents have set in place of the configuration file")
    public let afterRestart = Field<[String]?>("after_restart", "settings that are others in the file by now, and count from the next start on")
    public let withoutEffect = Field<[String]?>("without_effect", "settings that name a channel that the radio does not have, or need a hub that is not there")
    public let uptimeS = Field<Int64>("uptime_s")
    public let clockTrusted = Field<Bool>("clock_trusted")
    public let residentKib = Field<Int64?>("resident_kib")
    public let wakeups = Field<Int64>("wakeups")
    public let radio = Field<LinkState>("radio")
    public let sync = Field<SyncState>("sync")
    public let messaging = Field<Messaging>("messaging")
    public let store = Field<Store>("store")
    public let upstreams = Field<[Upstream]>("upstreams")
    public let leftOut = Field<[LeftOut]>("left_out", "messages of other places that were not sent here since the start, of upstreams that have some")
    public let removedUpstreams = Field<[RemovedUpstream]>("removed_upstreams", "not configured any more, with events waiting or deleted: one that comes back under its name goes on there")
    public let proxies = Field<[Proxy]>("proxies")
    public let web = Field<Web?>("web", "pages on the local network; absent: none")
    public let power = Field<Power>("power")
    public let alerts = Field<[Alert]>("alerts", "those that are open, 50 at most")
    public let listeners = Field<Int64>("listeners", "clients that capture packets and frames")
  }
  public struct Override: Sendable { @inlinable public init() {}
    public let setting = Field<String>("setting", "as in the file, such as `messaging.airtime_per_hour_s`")
    public let value = Field<String>("value")
    public let configured = Field<String>("configured", "what the file says, or the default")
    public let document = Field<String>("document", "the document's key")
  }
  public struct LeftOut: Sendable { @inlinable public init() {}
    public let upstream = Field<String>("upstream")
    public let notAccepted = Field<Int64?>("not_accepted", "of gateways that relay.gateways does not name")
    public let unknownAge = Field<Int64?>("unknown_age", "that waited in a radio for an unknown time")
    public let tooOld = Field<Int64?>("too_old")
    public let beforeRestore = Field<Int64?>("before_restore", "from before the database was put back")
    public let tooMany = Field<Int64?>("too_many", "of gateways that have too many")
  }
  public struct RemovedUpstream: Sendable { @inlinable public init() {}
    public let name = Field<String>("name")
    public let at = Field<Int64>("at", "when it was removed")
    public let pending = Field<Int64>("pending", "events that the journal still has for it")
    public let givenUp = Field<Int64?>("given_up", "events that were deleted before it had them")
  }
  public struct Alerts: Sendable { @inlinable public init() {}
    public let alerts = Field<[Alert]>("alerts", "the newest first")
    public let next = Field<Int64?>("next", "there are more, before this id")
  }
  public struct Alert: Sendable { @inlinable public init() {}
    public let id = Field<Int64>("id")
    public let rule = Field<String>("rule", "the rule's name")
    public let subject = Field<String?>("subject", "the upstream, the node's key, or the cause of a lost database; absent: there is only one")
    public let text = Field<String>("text", "for people")
    public let value = Field<Double?>("value")
    public let beganAt = Field<Int64>("began_at", "when it went wrong")
    public let endedAt = Field<Int64?>("ended_at", "absent: it is open")
    public let acknowledgedAt = Field<Int64?>("acknowledged_at")
    public let acknowledgedBy = Field<String?>("acknowledged_by")
    public let note = Field<String?>("note")
  }
  public struct AlertRules: Sendable { @inlinable public init() {}; public let rules = Field<[AlertRule]>("rules", "those that are on") }
  public struct AlertRule: Sendable { @inlinable public init() {}
    public let rule = Field<String>("rule")
    public let sentence = Field<String>("sentence", "what it means")
  }
  public struct Power: Sendable { @inlinable public init() {}
    public let batteryMv = Field<Int64?>("battery_mv", "the radio's battery; 0: not measured")
    public let batteryLow = Field<Bool>("battery_low")
    public let supplyLow = Field<Bool?>("supply_low", "this machine's supply, if it can be measured")
  }
  public struct LinkState: Sendable { @inlinable public init() {}
    public let link = Field<String>("link", "as configured")
    public let step = Field<String?>("step", "Bluetooth: the current step")
    public let rssi = Field<Int64?>("rssi", "Bluetooth: dBm")
    public let state = Field<String>("state", "connecting, handshaking, up or down")
    public let error = Field<String?>("error")
    public let remedy = Field<String?>("remedy")
    public let lastHeardS = Field<Int64?>("last_heard_s")
    public let unreadableFrames = Field<Int64>("unreadable_frames")
    public let regions = Field<[String]>("regions", "regions that are known here: the radio's default, those of channels and nodes, and those that repeaters say they carry; 65 at most")
    public let regionError = Field<String?>("region_error", "it does not go back to its default region: nothing is sent that would go to another")
    public let identity = Field<JSONValue?>("identity", "the body of a radio event")
    public let advert = Field<Advert?>("advert", "its last advert")
  }
  public struct Advert: Sendable { @inlinable public init() {}
    public let at = Field<Int64?>("at", "absent: none sent by this gateway")
    public let flood = Field<Bool>("flood", "through the mesh, or to direct neighbours")
    public let current = Field<Bool>("current", "name and position have not changed since")
  }
  public struct SyncState: Sendable { @inlinable public init() {}
    public let state = Field<String>("state", "idle, syncing, synced or failed")
    public let phase = Field<String?>("phase", "time, contacts, channels or messages; where it failed: the part that did")
    public let current = Field<Int64?>("current")
    public let total = Field<Int64?>("total")
    public let reason = Field<String?>("reason", "why it failed")
    public let lastSynced = Field<Int64?>("last_synced")
    public let counters = Field<JSONValue>("counters", "since the start")
  }
  public struct Sync: Sendable { @inlinable public init() {}
    public let state = SyncState()
    public let updates = Field<[JSONValue]>("updates", "data fetched from hubs")
  }
  public struct Messaging: Sendable { @inlinable public init() {}
    public let waiting = Field<Int64>("waiting")
    public let inFlight = Field<Int64>("in_flight")
    public let held = Field<Int64>("held", "messages held for a radio that is not attached")
    public let heldForRecipients = Field<Int64>("held_for_recipients", "waiting messages whose recipients have not acknowledged a round of attempts")
    public let delivered = Field<Int64>("delivered", "since the start")
    public let failed = Field<Int64>("failed", "since the start")
    public let sentOnChannels = Field<Int64>("sent_on_channels", "since the start")
    public let unread = Field<Int64>("unread", "texts for this radio that it could not read, since the start: a guess")
    public let unreadSenders = Field<[String]>("unread_senders", "first bytes of their senders' keys, the last 8")
    public let airtimeUsedMs = Field<Int64>("airtime_used_ms", "within the last hour")
    public let airtimeLimitMs = Field<Int64>("airtime_limit_ms")
    public let hourMessages = Field<Int64>("hour_messages")
    public let hourMessagesLimit = Field<Int64>("hour_messages_limit")
    public let waitsForAirtime = Field<Bool>("waits_for_airtime")
    public let channelUsePercent = Field<Double>("channel_use_percent", "of the last two minutes, heard and sent")
    public let busyPercent = Field<Int64>("busy_percent", "from this use on, what is not urgent waits; 100: it does not")
    public let waitsForChannel = Field<Bool>("waits_for_channel", "something waits until the channel is less in use")
    public let polls = Field<[JSONValue]>("polls")
  }
  public struct Store: Sendable { @inlinable public init() {}
    public let messages = Field<Int64>("messages")
    public let contacts = Field<Int64>("contacts")
    public let contactsOnRadio = Field<Int64>("contacts_on_radio")
    public let lastSeq = Field<Int64>("last_seq")
    public let oldestSeq = Field<Int64>("oldest_seq")
    public let journalBytes = Field<Int64>("journal_bytes")
    public let sizeBytes = Field<Int64>("size_bytes")
    public let deleting = Field<Int64?>("deleting", "a deletion is under way, and has deleted so many messages")
    public let unindexed = Field<Int64>("unindexed", "messages that the next search indexes first")
    public let givenUp = Field<Int64?>("given_up", "events that were deleted before every upstream had them, since the store was made")
    public let givenUpAt = Field<Int64?>("given_up_at", "when this last happened")
    public let setAside = Field<String?>("set_aside", "where a damaged database was saved")
    public let loss = Field<String?>("loss", "what was lost with the database that was here before, found at the start or since")
    public let error = Field<String?>("error")
    public let remedy = Field<String?>("remedy")
  }
  public struct Proxy: Sendable { @inlinable public init() {}
    public let name = Field<String>("name")
    public let address = Field<String>("address")
    public let error = Field<String?>("error")
    public let clients = Field<[JSONValue]>("clients")
  }
  public struct Web: Sendable { @inlinable public init() {}
    public let address = Field<String>("address")
    public let error = Field<String?>("error", "why nobody can use them")
    public let hasPassword = Field<Bool>("has_password")
    public let sessions = Field<Int64>("sessions", "browsers that are signed in")
  }
  public struct Radio: Sendable { @inlinable public init() {}
    public let key = Field<String>("key")
    public let model = Field<String?>("model")
    public let version = Field<String?>("version", "of its firmware")
    public let build = Field<String?>("build")
    public let batteryMv = Field<Int64?>("battery_mv")
    public let storageUsedKib = Field<Int64?>("storage_used_kib")
    public let storageTotalKib = Field<Int64?>("storage_total_kib")
    public let settings = Field<JSONValue>("settings", "by the names of `radio set`")
    public let stats = Field<JSONValue>("stats", "the radio's own counters")
  }
  public struct Login: Sendable { @inlinable public init() {}
    public let admin = Field<Bool>("admin")
    public let readOnly = Field<Bool?>("read_only", "a room: posts are ignored")
    public let permissions = Field<Int64?>("permissions")
    public let serverTime = Field<Int64?>("server_time", "seconds since 1970")
    public let firmwareLevel = Field<Int64?>("firmware_level")
  }
  public struct NodeStatus: Sendable { @inlinable public init() {}
    public let batteryMv = Field<Int64>("battery_mv")
    public let queue = Field<Int64>("queue")
    public let noiseFloorDbm = Field<Int64>("noise_floor_dbm")
    public let lastRssiDbm = Field<Int64>("last_rssi_dbm")
    public let lastSnr = Field<Double>("last_snr")
    public let received = Field<Int64>("received")
    public let sent = Field<Int64>("sent")
    public let airtimeS = Field<Int64>("airtime_s")
    public let uptimeS = Field<Int64>("uptime_s")
    public let sentFlood = Field<Int64>("sent_flood")
    public let sentDirect = Field<Int64>("sent_direct")
    public let receivedFlood = Field<Int64>("received_flood")
    public let receivedDirect = Field<Int64>("received_direct")
    public let errorFlags = Field<Int64>("error_flags")
    public let duplicatesDirect = Field<Int64>("duplicates_direct")
    public let duplicatesFlood = Field<Int64>("duplicates_flood")
    public let receivingS = Field<Int64?>("receiving_s", "of a repeater")
    public let receiveErrors = Field<Int64?>("receive_errors", "of a repeater")
    public let postsStored = Field<Int64?>("posts_stored", "of a room")
    public let postsPushed = Field<Int64?>("posts_pushed", "of a room")
  }
  public struct Telemetry: Sendable { @inlinable public init() {}
    public let readings = Field<[Sensor]>("readings")
    public let unreadHex = Field<String?>("unread_hex", "the part that could not be decoded")
  }
  public struct Sensor: Sendable { @inlinable public init() {}
    public let channel = Field<Int64>("channel")
    public let type = Field<String>("type")
    public let value = Field<Double?>("value")
    public let values = Field<[Double]?>("values")
  }
  public struct Carried: Sendable { @inlinable public init() {}
    public let carries = Field<[String]>("carries", "names without `#`; `*`: floods without a region")
  }
  public struct RegionsAround: Sendable { @inlinable public init() {}
    public let repeaters = Field<[RegionsOfRepeater]>("repeaters", "those that were asked, the last heard first, 8 at most")
  }
  public struct RegionsOfRepeater: Sendable { @inlinable public init() {}
    public let key = Field<String>("key")
    public let name = Field<String>("name")
    public let carries = Field<[String]?>("carries", "as above; absent: it gave no answer")
    public let error = Field<String?>("error", "why there is no answer")
  }
  public struct Neighbours: Sendable { @inlinable public init() {}
    public let total = Field<Int64>("total")
    public let neighbours = Field<[Neighbour]>("neighbours")
  }
  public struct Neighbour: Sendable { @inlinable public init() {}
    public let key = Field<String>("key", "a prefix of its key")
    public let name = Field<String?>("name")
    public let heardS = Field<Int64>("heard_s", "seconds ago")
    public let snr = Field<Double>("snr")
  }
  public struct NodeClock: Sendable { @inlinable public init() {}
    public let offsetS = Field<Int64>("offset_s", "seconds that the node's clock is ahead of this machine's")
    public let withinS = Field<Int64>("within_s", "how exactly that is known")
    public let result = Field<String>("result", "read; or with `set`: right (nothing had to be done, or it was set), ahead (it wants `reboot`), wrong (it still is)")
  }
  public struct Trace: Sendable { @inlinable public init() {}
    public let hops = Field<[Hop]>("hops")
    public let snrHere = Field<Double>("snr_here")
  }
  public struct Hop: Sendable { @inlinable public init() {}
    public let node = Field<String>("node")
    public let snr = Field<Double>("snr")
  }
  public struct Contact: Sendable { @inlinable public init() {}
    public let key = Field<String>("key", "64 hex digits")
    public let name = Field<String>("name")
    public let alias = Field<String?>("alias", "set here or at the hub")
    public let note = Field<String?>("note")
    public let tags = Field<[String]?>("tags")
    public let type = Field<String>("type", "chat, repeater, room, sensor or none")
    public let favourite = Field<Bool>("favourite")
    public let flags = Field<Int64>("flags", "the radio's flags")
    public let mayCommand = Field<Bool?>("may_command", "true: flag 0x10: with firmware from 1.18 on the node may run any command on the radio")
    public let hops = Field<Int64?>("hops", "of the known path; absent: messages are flooded")
    public let path = Field<String?>("path", "hexadecimal")
    public let lat = Field<Double?>("lat", "degrees")
    public let lon = Field<Double?>("lon", "degrees")
    public let lastAdvert = Field<Int64>("last_advert", "seconds since 1970 by the node's own clock")
    public let lastModified = Field<Int64?>("last_modified", "seconds since 1970 by the radio's clock")
    public let onRadio = Field<Bool>("on_radio", "whether it is in the radio's contact table")
    public let firstSeen = Field<Int64>("first_seen")
    public let lastHeard = Field<Int64?>("last_heard", "when the radio last received something that only this node can have sent, to about ten minutes")
    public let radio = Field<String?>("radio", "the first 12 digits of the key of the radio that reported it last")
    public let region = Field<String?>("region", "the region of messages to it, if not the radio's default; `*`: none")
    public let carries = Field<[String]?>("carries", "a repeater: the regions that it has said it carries; `*`: floods without a region, too")
    public let carriesAt = Field<Int64?>("carries_at", "when it said that")
    public let clockOffsetS = Field<Int64?>("clock_offset_s", "seconds that its clock is ahead of this machine's, by its last advert or answer; absent: unknown")
  }
  public struct Channel: Sendable { @inlinable public init() {}
    public let slot = Field<Int64>("slot")
    public let name = Field<String>("name", "empty: the slot is free")
    public let channel = Field<String?>("channel", "the channel's digest")
    public let region = Field<String?>("region", "the region of messages to it, if not the radio's default; `*`: none")
    public let link = Field<String?>("link", "of a channel that was just created; contains its secret")
  }
  public struct Path: Sendable { @inlinable public init() {}
    public let ok = Field<Bool?>("ok", "true: done")
    public let path = Field<String?>("path", "hexadecimal, empty: a direct neighbour")
    public let hops = Field<Int64?>("hops")
    public let out = Field<String?>("out", "discovered: from this radio to the node")
    public let outHops = Field<Int64?>("out_hops")
    public let `in` = Field<String?>("in", "discovered: from the node to this radio")
    public let inHops = Field<Int64?>("in_hops")
    public let heardAt = Field<Int64?>("heard_at", "of the last advert: seconds since 1970 by the radio's clock; `path`: from the node to this radio")
  }
  public struct Outbox: Sendable { @inlinable public init() {}
    public let upstreams = Field<[Upstream]>("upstreams")
    public let deadLetters = Field<[DeadLetter]>("dead_letters", "the first 500")
  }
  public struct Upstream: Sendable { @inlinable public init() {}
    public let name = Field<String>("name")
    public let kind = Field<String>("kind", "hub, webhook, mqtt or hook")
    public let url = Field<String>("url", "without secrets")
    public let link = Field<String?>("link", "of a hub: live or http")
    public let state = Field<String>("state", "idle, sending, waiting, stopped or paused")
    public let acknowledged = Field<Int64>("acknowledged", "every lane up to here")
    public let pending = Field<Int64>("pending", "events")
    public let lanes = Field<Lanes?>("lanes", "absent: the server gets the whole journal in order")
    public let inFlight = Field<Int64>("in_flight")
    public let bytesPerSecond = Field<Int64?>("bytes_per_second", "of events, before compression, as it acknowledged them; absent: not known")
    public let deadLetters = Field<Int64>("dead_letters")
    public let lost = Field<Int64>("lost", "events deleted before it had them, of which it has no gap yet")
    public let givenUp = Field<Int64?>("given_up", "events deleted before it had them, since it was added")
    public let tooOld = Field<Int64?>("too_old", "events that were left out as too old when their turn came, or of an unknown age (max_age_s, waited), since it was added")
    public let ageS = Field<Int64?>("age_s", "age of the oldest pending event")
    public let reason = Field<String?>("reason", "why it is waiting or stopped, or what is amiss although it takes events")
    public let nextAttemptS = Field<Int64?>("next_attempt_s", "if it waits: seconds until it tries again")
    public let lastSuccess = Field<Int64?>("last_success", "when it acknowledged an event last, or said first that it has all; reconnecting alone is none. Absent: not since the upstream began, with the gateway or with a change of its configuration")
    public let refusedCommands = Field<Int64?>("refused_commands", "unreadable, too many, or on another topic than the command topic, since the start")
    public let unpermitted = Field<[String]?>("unpermitted", "rights that its commands, and its edits of documents, have needed since the start, and that its allow does not name")
    public let permits = Field<String?>("permits", "the line of the configuration that would permit these")
    public let batches = Field<Int64>("batches")
    public let bytesSent = Field<Int64>("bytes_sent")
    public let certificateExpires = Field<Int64?>("certificate_expires", "seconds since 1970")
    public let allowance = Field<Allowance?>("allowance", "absent: any number of bytes at any hour")
  }
  public struct Allowance: Sendable { @inlinable public init() {}
    public let dayBytes = Field<Int64>("day_bytes", "used today, both ways")
    public let dailyBytes = Field<Int64?>("daily_bytes", "what a day has")
    public let monthBytes = Field<Int64>("month_bytes")
    public let monthlyBytes = Field<Int64?>("monthly_bytes")
    public let stopped = Field<[String]>("stopped", "lanes that wait for bytes")
    public let waitsForHours = Field<Bool>("waits_for_hours", "nodes and packets wait for the bulk hours")
    public let until = Field<Int64?>("until", "when a lane that waits may be sent")
  }
  public struct Lanes: Sendable { @inlinable public init() {}
    public let messages = Field<Lane>("messages", "messages, deliveries, commands, documents, alerts")
    public let nodes = Field<Lane>("nodes", "contacts, adverts, readings")
    public let packets = Field<Lane>("packets")
  }
  public struct Lane: Sendable { @inlinable public init() {}
    public let acknowledged = Field<Int64>("acknowledged", "the last seq of the lane")
    public let pending = Field<Int64>("pending", "events")
    public let pendingBytes = Field<Int64>("pending_bytes", "of their bodies")
    public let seconds = Field<Int64?>("seconds", "until it has them, at the present rate, after the lanes above; absent: not known")
  }
  public struct DeadLetter: Sendable { @inlinable public init() {}
    public let upstream = Field<String>("upstream")
    public let seq = Field<Int64>("seq")
    public let at = Field<Int64>("at")
    public let kind = Field<String>("kind")
    public let status = Field<Int64>("status")
    public let reason = Field<String>("reason", "the server's reason")
    public let body = Field<JSONValue>("body")
  }
  public struct Presets: Sendable { @inlinable public init() {}
    public let settings = Field<[Setting]>("settings", "what `radio set` takes")
    public let presets = Field<[Preset]>("presets")
  }
  public struct Setting: Sendable { @inlinable public init() {}
    public let name = Field<String>("name")
    public let allowed = Field<String>("allowed")
  }
  public struct Preset: Sendable { @inlinable public init() {}
    public let name = Field<String>("name")
    public let frequency = Field<Double>("frequency", "MHz")
    public let bandwidth = Field<Double>("bandwidth", "kHz")
    public let sf = Field<Int64>("sf")
    public let cr = Field<Int64>("cr")
    public let pathHashBytes = Field<Int64?>("path_hash_bytes")
  }
  public struct Probed: Sendable { @inlinable public init() {}; public let devices = Field<[ProbedDevice]>("devices", "one for each serial device") }
  public struct ProbedDevice: Sendable { @inlinable public init() {}
    public let device = Field<String>("device", "its location")
    public let result = Field<String>("result", "radio, other (sends other data), silent, or closed (cannot be opened)")
    public let name = Field<String?>("name", "the radio's")
    public let key = Field<String?>("key", "its public key, hex")
    public let model = Field<String?>("model", "board and version")
    public let error = Field<String?>("error", "why it cannot be opened")
  }
  public struct Scan: Sendable { @inlinable public init() {}; public let radios = Field<[FoundRadio]>("radios", "strongest first") }
  public struct FoundRadio: Sendable { @inlinable public init() {}
    public let address = Field<String>("address")
    public let name = Field<String?>("name")
    public let rssi = Field<Int64?>("rssi", "dBm")
    public let paired = Field<Bool>("paired")
    public let connected = Field<Bool>("connected")
  }
  public struct Findings: Sendable { @inlinable public init() {}; public let findings = Field<[Finding]>("findings") }
  public struct Finding: Sendable { @inlinable public init() {}
    public let subject = Field<String>("subject")
    public let state = Field<String>("state", "ok, warning or failed")
    public let words = Field<String>("words")
    public let remedy = Field<String?>("remedy", "what to do")
  }
}

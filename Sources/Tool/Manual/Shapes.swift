// SPDX-License-Identifier: MIT

/// The output of `--json` by command: the source of man pages, docs/json.md and tests.
///
/// A line is `NAME TYPE DESCRIPTION`. Types: `string`, `integer`, `number`, `bool`, `any`, or another shape's name; `[]` after it:
/// an array; `?` at the end: optional. Times are milliseconds since 1970 unless noted otherwise. Readers ignore unknown names; a
/// change to a listed field raises `Shapes.version`.
enum Shapes {
  static let version = 1

  /// The form of the output: one value, or rows, one a line.
  enum Form: String { case object, rows }

  struct Output {
    let form: Form
    let shape: String
  }

  private static func object(_ shape: String) -> Output { Output(form: .object, shape: shape) }
  private static func rows(_ shape: String) -> Output { Output(form: .rows, shape: shape) }

  /// By command. Missing commands have no JSON output of their own.
  static let commands: [String: Output] = [
    "overview": object("status"), "status": object("status"), "send": object("accepted"), "react": object("accepted"),
    "sent list": rows("outgoing"), "sent adopt": object("adopted"), "sent cancel": object("adopted"),
    "retry": object("outgoing"), "cancel": object("outgoing"), "messages": rows("message"), "search": rows("message"),
    "contacts": rows("contact"), "contact add": object("ok"), "contact remove": object("ok"),
    "contact export": object("link"), "contact import": object("key"), "contact share": object("ok"),
    "contact path": object("path"), "channels": rows("channel"), "channel add": object("channel"),
    "channel remove": object("channel"), "channel region": object("channel"),
    "channel relay": object("document"), "room login": object("login"),
    "room post": object("accepted"), "room read": rows("message"), "node login": object("login"),
    "node logout": object("ok"), "node status": object("node-status"), "node telemetry": object("telemetry"),
    "node neighbours": object("neighbours"), "node trace": object("trace"), "node cli": object("reply"),
    "node readings": rows("reading"), "node alias": object("document"), "node note": object("document"),
    "node tag": object("document"), "journal": rows("event"), "upstream pending": object("outbox"),
    "upstream dead": object("outbox"), "upstream retry": object("retried"), "upstream drop": object("dropped"),
    "upstream list": object("outbox"), "upstream add": object("added"),
    "upstream remove": object("ok"), "upstream forget": object("ok"), "upstream pause": object("upstream"),
    "upstream resume": object("upstream"),
    "upstream test": object("ok"), "documents list": object("documents"), "documents set": object("document"),
    "documents delete": object("document"), "sync": object("sync"), "radio info": object("radio"),
    "radio set": object("radio"), "radio advert": object("advertised"), "radio presets": object("presets"),
    "radio backup": object("backed-up"),
    "radio restore": object("restored"), "radio probe": object("probed"), "radio scan": object("scan"),
    "radio pair": object("paired"), "radio list": rows("known-radio"),
    "radio forget": object("forgotten"), "doctor all": object("findings"), "doctor bluetooth": object("findings"),
    "map": object("map"), "chart signal": object("chart"), "chart battery": object("chart"),
    "chart traffic": object("chart"), "report": object("report"), "capture": object("captured"),
    "backup": object("bytes"), "alerts list": object("alerts"), "alerts acknowledge": object("alert"),
    "alerts rules": object("alert-rules"),
  ]

  static let shapes: [String: String] = messages.merging(tables) { a, _ in a }.merging(states) { a, _ in a }
    .merging(small) { a, _ in a }

  private static let small = [
    "ok": "ok bool always true",
    "advertised": """
    ok bool always true
    flood bool through the mesh, or to direct neighbours
    """,
    "added": """
    ok bool always true
    warnings string[]? warnings about it
    """,
    "link": "link string a meshcore:// link",
    "key": "key string the node's key, 64 hex digits", "reply": "reply string what the node printed",
    "retried": "retried integer dead letters that were queued again",
    "dropped": "dropped integer dead letters that were deleted", "paired": "paired string the radio's address",
    "forgotten": "forgotten string the radio's address", "report": "report string Markdown",
    "captured": "captured integer packets or frames", "bytes": "bytes integer size of the copy",
    "backed-up": """
    channels integer how many
    contacts integer how many
    private_key bool whether the file contains it
    """,
    "restored": """
    settings bool whether they were restored
    channels integer how many
    contacts integer how many
    private_key bool whether it was restored
    """,
  ]

  private static let messages = [
    "map": """
    at string? when the map was made, RFC 3339
    own any? this radio, as in a radio event
    nodes any as contact; with --output, the number of nodes
    background any? GeoJSON
    """,
    "chart": """
    title string?
    unit string?
    series series[]?
    points integer? with --output: number of points
    """,
    "series": """
    name string
    points point[]
    """,
    "point": """
    at integer
    value number
    """,
    "message": """
    conversation string? `channel:DIGEST` or `node:PREFIX`; absent: answers of a command line, datagrams
    id integer the message's number; negative: sent
    kind string direct, room, cli, channel or datagram
    sender string? the first 12 digits of the sender's key; in a room, the room's key; if sent, this radio's key
    sender_alias string? the sender's alias: `meshpost node alias`
    sender_name string? the contact's name, or the name given in a channel message; if sent, this radio's name
    recipient string? if sent: the recipient's key
    recipient_name string? if sent: the contact's name
    author string? a room post's author: the first 8 digits of the key
    author_name string? the only matching contact
    channel string? the channel's digest
    channel_name string? its name
    sender_time integer? seconds since 1970 by the sender's clock
    text string? the text
    text_hex string? its bytes, if they are not UTF-8
    data_type integer? datagram: its type
    data string? datagram: its data, hexadecimal
    mentions string[]? names between @[ and ]
    snr number? dB
    hops integer? number of hops
    direct bool it was routed, not flooded
    waited bool? true: it was queued in the radio, or may have been
    waited_s integer? the longest time in seconds that it was queued, if known
    age_s integer? seconds between sending and receiving, by the sender's clock; absent: new, or unknown
    radio string? the first 12 digits of the key of the gateway's radio; absent: several radios received it
    direction string received or sent
    cursor string its position among both directions, for `after` and `before`
    outgoing string? if sent: its id, as in outgoing
    origin string? if sent: who sent it
    state string? if sent: as in outgoing
    reason string? if sent: why it failed
    attempts integer? if sent
    floods integer? if sent
    round_trip_ms integer? if sent
    heard integer? if sent: number of repeaters heard repeating it
    airtime_ms integer? if sent
    ended_at integer? if sent
    ended bool? if sent: the state is final
    received_at integer when it was received; if sent, when it was accepted
    clock_trusted bool whether the clock was synchronised then
    copies integer how often it was received
    reaction string? the emoji, if the text is a reaction to another message
    reactions reaction[]? to it
    upstreams standing[]? `messages` and `search`: what each upstream has of it
    """,
    "reaction": """
    emoji string
    sender string who reacted
    """,
    "accepted": "messages outgoing[] one for each part of the text; with --wait, in their final state",
    "outgoing": """
    id string its id
    number integer its number
    origin string who sent it
    kind string direct, room or channel
    recipient string? the recipient's key
    channel string? the channel's digest
    text string
    created_at integer
    state string pending, sending, sent, delivered or failed
    reason string? why it failed
    sender_time integer? seconds since 1970; the recipient recognises repetitions by it
    attempts integer?
    floods integer? number of flooded attempts
    refusals integer? while it waits: how often in a row the radio has refused it, because its table was full; nothing was sent
    next_attempt_at integer? if so: when it is tried again
    waits_for string? channel: the radio has not said what is in the channel's slot since it was connected; nothing is sent there
    round_trip_ms integer?
    heard integer? number of repeaters heard repeating it
    airtime_ms integer?
    ended_at integer?
    ended bool the state is final
    radio string? the first 12 digits of the key of the radio that sends it
    held_for string? the name of the radio that it is held for, while another is attached
    reaction string? the emoji, if the text is a reaction to another message
    reactions reaction[]? to it
    upstreams standing[]? `sent list`: what each upstream has of it
    """,
    "standing": """
    name string the upstream
    state string acknowledged, waiting, dead_letter, dropped, filtered, passed, lost or unknown: see control-socket.md
    up_to_date bool? if sent: it has the newest state, too
    seq integer? the dead letter's seq, for `upstream retry`
    """,
    "adopted": """
    messages outgoing[] messages that were changed
    refused refused[] messages that were not, with the reason
    """,
    "refused": """
    id string
    error string
    """,
    "known-radio": """
    key string 64 hex digits
    radio string its first 12 digits, as in rows
    name string
    present bool attached, or attached last
    first_seen integer? absent: before the gateway distinguished radios
    last_seen integer?
    messages integer stored messages received by it, approximately
    nodes integer nodes that it reported last
    held integer messages held for it
    """,
    "event": """
    seq integer
    at integer
    trusted bool whether the clock was synchronised
    kind string as in hub-protocol.md
    sound bool? false: damaged on disk
    body any as in hub-protocol.md
    """,
    "reading": """
    at integer
    kind string node_status or telemetry
    body any the reading, with node and name
    """,
    "document": """
    key string
    value any? absent: deleted
    updated_at integer
    by_hub bool whether the hub wrote it last
    """,
    "documents": """
    documents document[]
    next string? more documents follow after this key
    """,
  ]

  private static let tables = [
    "contact": """
    key string 64 hex digits
    name string
    alias string? set here or at the hub
    note string?
    tags string[]?
    type string chat, repeater, room, sensor or none
    favourite bool
    flags integer the radio's flags
    hops integer? of the known path; absent: messages are flooded
    path string? hexadecimal
    lat number? degrees
    lon number? degrees
    last_advert integer seconds since 1970 by the node's own clock
    last_modified integer? seconds since 1970 by the radio's clock
    on_radio bool whether it is in the radio's contact table
    first_seen integer
    last_heard integer? when the radio last received something that only this node can have sent, to about ten minutes
    radio string? the first 12 digits of the key of the radio that reported it last
    """,
    "channel": """
    slot integer
    name string empty: the slot is free
    channel string? the channel's digest
    region string? the region of messages to it, if not the radio's default; `*`: none
    link string? of a channel that was just created; contains its secret
    """,
    "path": """
    ok bool? true: done
    path string? hexadecimal, empty: a direct neighbour
    hops integer?
    out string? discovered: from this radio to the node
    out_hops integer?
    in string? discovered: from the node to this radio
    in_hops integer?
    """,
    "outbox": """
    upstreams upstream[]
    dead_letters dead-letter[] the first 500
    """,
    "upstream": """
    name string
    kind string hub, webhook, mqtt or hook
    url string without secrets
    link string? of a hub: live or http
    state string idle, sending, waiting, stopped or paused
    acknowledged integer every lane up to here
    pending integer events
    lanes lanes? absent: the server gets the whole journal in order
    in_flight integer
    bytes_per_second integer? of events, before compression, as it acknowledged them; absent: not known
    dead_letters integer
    lost integer events deleted before it had them, of which it has no gap yet
    given_up integer? events deleted before it had them, since it was added
    too_old integer? events that were older than its max_age_s when their turn came, and were left out, since it was added
    age_s integer? age of the oldest pending event
    reason string? why it is waiting or stopped, or why a hub cannot be asked
    last_success integer? when it acknowledged an event last, or said first that it has all; reconnecting alone is none
    refused_commands integer? unreadable, or too many, since the start
    batches integer
    bytes_sent integer
    certificate_expires integer? seconds since 1970
    allowance allowance? absent: any number of bytes at any hour
    """,
    "allowance": """
    day_bytes integer used today, both ways
    daily_bytes integer? what a day has
    month_bytes integer
    monthly_bytes integer?
    stopped string[] lanes that wait for bytes
    waits_for_hours bool nodes and packets wait for the bulk hours
    until integer? when a lane that waits may be sent
    """,
    "lanes": """
    messages lane messages, deliveries, commands, documents, alerts
    nodes lane contacts, adverts, readings
    packets lane
    """,
    "lane": """
    acknowledged integer the last seq of the lane
    pending integer events
    pending_bytes integer of their bodies
    seconds integer? until it has them, at the present rate, after the lanes above; absent: not known
    """,
    "dead-letter": """
    upstream string
    seq integer
    at integer
    kind string
    status integer
    reason string the server's reason
    body any
    """,
    "presets": """
    settings setting[] what `radio set` takes
    presets preset[]
    """,
    "setting": """
    name string
    allowed string
    """,
    "preset": """
    name string
    frequency number MHz
    bandwidth number kHz
    sf integer
    cr integer
    path_hash_bytes integer?
    """,
    "probed": "devices probed-device[] one for each serial device",
    "probed-device": """
    device string its location
    result string radio, other (sends other data), silent, or closed (cannot be opened)
    name string? the radio's
    key string? its public key, hex
    model string? board and version
    error string? why it cannot be opened
    """,
    "scan": "radios found-radio[] strongest first",
    "found-radio": """
    address string
    name string?
    rssi integer? dBm
    paired bool
    connected bool
    """,
    "findings": "findings finding[]",
    "finding": """
    subject string
    state string ok, warning or failed
    words string
    remedy string? what to do
    """,
  ]
}

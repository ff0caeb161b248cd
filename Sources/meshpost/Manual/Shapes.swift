// SPDX-License-Identifier: MIT

/// What `--json` prints, command by command: the one place from which man pages, docs/json.md and the tests take it.
///
/// A line is `NAME TYPE WORDS`. Types: `string`, `integer`, `number`, `bool`, `any`, or another shape's name; `[]` after it: an
/// array of them; `?` at the end: may be missing. Times are milliseconds since 1970 unless it says otherwise. Readers ignore names
/// that they do not know; a change of what stands here raises `Shapes.version`.
enum Shapes {
  static let version = 1

  /// What a command prints: one value, or rows, one a line.
  enum Form: String { case object, rows }

  struct Output {
    let form: Form
    let shape: String
  }

  private static func object(_ shape: String) -> Output { Output(form: .object, shape: shape) }
  private static func rows(_ shape: String) -> Output { Output(form: .rows, shape: shape) }

  /// By the command's words. What is missing prints no JSON of its own.
  static let commands: [String: Output] = [
    "overview": object("status"), "status": object("status"), "send": object("accepted"), "react": object("accepted"),
    "outgoing list": rows("outgoing"), "outgoing adopt": object("adopted"), "outgoing cancel": object("adopted"),
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
    "node tag": object("document"), "journal": rows("event"), "outbox list": object("outbox"),
    "outbox dead": object("outbox"), "outbox retry": object("retried"), "outbox drop": object("dropped"),
    "outbox resume": object("ok"), "upstream list": object("outbox"), "upstream add": object("added"),
    "upstream remove": object("ok"), "upstream pause": object("upstream"), "upstream resume": object("upstream"),
    "upstream test": object("ok"), "documents list": object("documents"), "documents set": object("document"),
    "documents delete": object("document"), "sync": object("sync"), "radio info": object("radio"),
    "radio set": object("radio"), "radio advert": object("advertised"), "radio presets": object("presets"),
    "radio backup": object("backed-up"),
    "radio restore": object("restored"), "radio probe": object("probed"), "radio scan": object("scan"),
    "radio pair": object("paired"), "radio list": rows("known-radio"),
    "radio forget": object("forgotten"), "doctor all": object("findings"), "doctor bluetooth": object("findings"),
    "map": object("map"), "chart signal": object("chart"), "chart battery": object("chart"),
    "chart traffic": object("chart"), "report": object("report"), "capture": object("captured"),
    "backup": object("bytes"),
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
    warnings string[]? what is not wise about it
    """,
    "link": "link string a meshcore:// link",
    "key": "key string the node's key, 64 hex digits", "reply": "reply string what the node printed",
    "retried": "retried integer dead letters that are sent again",
    "dropped": "dropped integer dead letters that were given up", "paired": "paired string the radio's address",
    "forgotten": "forgotten string the radio's address", "report": "report string Markdown",
    "captured": "captured integer packets or frames", "bytes": "bytes integer size of the copy",
    "backed-up": """
    channels integer how many
    contacts integer how many
    private_key bool whether it is in the file
    """,
    "restored": """
    settings bool whether they were set
    channels integer how many
    contacts integer how many
    private_key bool whether the radio got it
    """,
  ]

  private static let messages = [
    "map": """
    at string? when it was made, RFC 3339
    own any? this radio, as in a radio event
    nodes any as contact, or with --output how many
    background any? GeoJSON
    """,
    "chart": """
    title string?
    unit string?
    series series[]?
    points integer? with --output: how many
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
    id integer the message's number here; below zero: ours
    kind string direct, room, cli, channel or datagram
    sender string? the first 12 digits of the sender's key; in a room, of the room's; of ours, our radio's
    sender_alias string? what the sender is called here: `meshpost node alias`
    sender_name string? the contact's name, or the name that a channel message claims; of ours, our radio's
    recipient string? of ours: the recipient's key
    recipient_name string? of ours: the contact's name
    author string? a room post's author: the first 8 digits of the key
    author_name string? the only contact that fits
    channel string? the channel's digest
    channel_name string? its name
    sender_time integer? seconds since 1970 by the sender's clock
    text string? the text
    text_hex string? its bytes, where they are no UTF-8
    data_type integer? of a datagram
    data string? of a datagram, hexadecimal
    mentions string[]? names between @[ and ]
    snr number? dB
    hops integer? how many it came over
    direct bool it was routed, not flooded
    waited bool? true: it had waited in the radio, or may have
    waited_s integer? seconds that it waited at most, where that is known
    age_s integer? seconds between its being sent and its coming, by the sender's clock; absent: new, or not known
    radio string? the first 12 digits of our radio's key; missing: several have heard it
    direction string received or sent
    cursor string its place among both directions, for `after` and `before`
    outgoing string? of ours: its id, as `outgoing` has it
    origin string? of ours: who sent it
    state string? of ours: as in outgoing
    reason string? of ours: why it failed
    attempts integer? of ours
    floods integer? of ours
    round_trip_ms integer? of ours
    heard integer? of ours: repeaters that were heard sending it on
    airtime_ms integer? of ours
    ended_at integer? of ours
    ended bool? of ours: nothing more will become of it
    received_at integer when it came; of ours, when it was taken in
    clock_trusted bool whether that clock was synchronised
    copies integer how often it came
    reactions reaction[]? to it
    """,
    "reaction": """
    emoji string
    sender string who reacted
    """,
    "accepted": "messages outgoing[] as many as the text has parts; with --wait, as they ended",
    "outgoing": """
    id string its id
    number integer its number here
    origin string who sent it
    kind string direct, room or channel
    recipient string? the recipient's key
    channel string? the channel's digest
    text string
    created_at integer
    state string pending, sending, sent, delivered or failed
    reason string? why it failed
    sender_time integer? seconds since 1970, by which the recipient tells repetitions
    attempts integer?
    floods integer? attempts that were flooded
    round_trip_ms integer?
    heard integer? repeaters that were heard sending it on
    airtime_ms integer?
    ended_at integer?
    ended bool nothing more will become of it
    radio string? the first 12 digits of the key of the radio that sends it
    held_for string? the name of the radio that was to send it, while another is attached
    reactions reaction[]? to it
    """,
    "adopted": """
    messages outgoing[] what was done
    refused refused[] what was not, and why
    """,
    "refused": """
    id string
    error string
    """,
    "known-radio": """
    key string 64 hex digits
    radio string its first 12 digits, as rows name it
    name string
    present bool it is attached, or was last
    first_seen integer? missing: before radios were told apart
    last_seen integer?
    messages integer that came by it and are kept, about
    nodes integer of which it told last
    held integer messages that wait for it
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
    body any what the node told, with node and name
    """,
    "document": """
    key string
    value any? missing: deleted
    updated_at integer
    by_hub bool who wrote it last
    """,
    "documents": """
    documents document[]
    next string? the key after which more follow
    """,
  ]

  private static let tables = [
    "contact": """
    key string 64 hex digits
    name string
    alias string? noted here or at the hub
    note string?
    tags string[]?
    type string chat, repeater, room, sensor or none
    favourite bool
    flags integer as the radio has them
    hops integer? of the known path; missing: messages are flooded
    path string? hexadecimal
    lat number? degrees
    lon number? degrees
    last_advert integer seconds since 1970 by the node's own clock
    last_modified integer? seconds since 1970 by the radio's clock
    on_radio bool in the radio's table
    first_seen integer
    last_heard integer? when something came that it alone can have sent, to about ten minutes
    radio string? the first 12 digits of the key of the radio that told of it last
    """,
    "channel": """
    slot integer
    name string empty: the slot is free
    channel string? the channel's digest
    region string? into which messages to it go, where that is not the radio's default; `*`: into none
    link string? of a channel that was just made: its secret is in it
    """,
    "path": """
    ok bool? done
    path string? hexadecimal, empty: a direct neighbour
    hops integer?
    out string? discovered: from us to the node
    out_hops integer?
    in string? discovered: from the node to us
    in_hops integer?
    """,
    "outbox": """
    upstreams upstream[]
    dead_letters dead-letter[] the first 500
    """,
    "upstream": """
    name string
    kind string hub, webhook, mqtt or hook
    url string without what is secret in it
    link string? of a hub: live or http
    state string idle, sending, waiting, stopped or paused
    acknowledged integer the cursor
    pending integer events
    in_flight integer
    dead_letters integer
    lost integer events given up before it had them
    age_s integer? of the oldest that is pending
    reason string? why it waits or is stopped
    last_success integer?
    batches integer
    bytes_sent integer
    certificate_expires integer? seconds since 1970
    """,
    "dead-letter": """
    upstream string
    seq integer
    at integer
    kind string
    status integer
    reason string the server's words
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
    result string radio, other (sends something else), silent, or closed (cannot be opened)
    name string? the radio's
    key string? its public key, hex
    model string? board and version
    error string? why it cannot be opened
    """,
    "scan": "radios found-radio[] the strongest first",
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

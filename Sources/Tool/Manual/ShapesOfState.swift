// SPDX-License-Identifier: MIT

/// Shapes of states: of the gateway, the radio and other nodes.
extension Shapes {
  private static let syncState = """
    state string idle, syncing, synced or failed
    phase string? time, contacts, channels or messages; where it failed: the part that did
    current integer?
    total integer?
    reason string? why it failed
    last_synced integer?
    counters any since the start
    """

  static let states = [
    "status": """
    version string of the daemon
    gateway string its id
    epoch string of its journal
    configuration_error string? the file is refused, and the gateway runs with the last one that worked
    overrides override[]? settings that documents have set in place of the configuration file
    after_restart string[]? settings that are others in the file by now, and count from the next start on
    without_effect string[]? settings that name a channel that the radio does not have, or need a hub that is not there
    uptime_s integer
    clock_trusted bool
    resident_kib integer?
    wakeups integer
    radio link-state
    sync sync-state
    messaging messaging
    store store
    upstreams upstream[]
    left_out left-out[] messages of other places that were not sent here, of upstreams that have some
    removed_upstreams removed-upstream[] not configured any more, with events waiting or deleted: one that comes back under its name goes on there
    proxies proxy[]
    web web? pages on the local network; absent: none
    power power
    alerts alert[] those that are open, 50 at most
    listeners integer clients that capture packets and frames
    """,
    "override": """
    setting string as in the file, such as `messaging.airtime_per_hour_s`
    value string
    configured string what the file says, or the default
    document string the document's key
    """,
    "left-out": """
    upstream string
    not_accepted integer? of gateways that relay.gateways does not name
    unknown_age integer? that waited in a radio for an unknown time
    too_old integer?
    before_restore integer? from before the database was put back
    too_many integer? of gateways that have too many
    """,
    "removed-upstream": """
    name string
    at integer when it was removed
    pending integer events that the journal still has for it
    given_up integer? events that were deleted before it had them
    """,
    "alerts": """
    alerts alert[] the newest first
    next integer? there are more, before this id
    """,
    "alert": """
    id integer
    rule string the rule's name
    subject string? the upstream, or the node's key; absent: there is only one
    text string for people
    value number?
    began_at integer when it went wrong
    ended_at integer? absent: it is open
    acknowledged_at integer?
    acknowledged_by string?
    note string?
    """,
    "alert-rules": "rules alert-rule[] those that are on",
    "alert-rule": """
    rule string
    sentence string what it means
    """,
    "power": """
    battery_mv integer? the radio's battery; 0: not measured
    battery_low bool
    supply_low bool? this machine's supply, if it can be measured
    """,
    "link-state": """
    link string as configured
    step string? Bluetooth: the current step
    rssi integer? Bluetooth: dBm
    state string connecting, handshaking, up or down
    error string?
    remedy string?
    last_heard_s integer?
    unreadable_frames integer
    region_error string? it does not go back to its default region: nothing is sent that would go to another
    identity any? the body of a radio event
    advert advert? its last advert
    """,
    "advert": """
    at integer? absent: none sent by this gateway
    flood bool through the mesh, or to direct neighbours
    current bool name and position have not changed since
    """,
    "sync-state": syncState, "sync": syncState + "\nupdates any[] data fetched from hubs",
    "messaging": """
    waiting integer
    in_flight integer
    held integer messages held for a radio that is not attached
    delivered integer since the start
    failed integer since the start
    sent_on_channels integer since the start
    airtime_used_ms integer within the last hour
    airtime_limit_ms integer
    hour_messages integer
    hour_messages_limit integer
    waits_for_airtime bool
    polls any[]
    """,
    "store": """
    messages integer
    contacts integer
    contacts_on_radio integer
    last_seq integer
    oldest_seq integer
    journal_bytes integer
    size_bytes integer
    unindexed integer messages that the next search indexes first
    given_up integer? events that were deleted before every upstream had them, since the store was made
    given_up_at integer? when this last happened
    set_aside string? where a damaged database was saved
    loss string? what was lost with the database that was here before, found at the start or since
    error string?
    remedy string?
    """,
    "proxy": """
    name string
    address string
    error string?
    clients any[]
    """,
    "web": """
    address string
    error string? why nobody can use them
    has_password bool
    sessions integer browsers that are signed in
    """,
    "radio": """
    key string
    model string?
    version string? of its firmware
    build string?
    battery_mv integer?
    storage_used_kib integer?
    storage_total_kib integer?
    settings any by the names of `radio set`
    stats any the radio's own counters
    """,
    "login": """
    admin bool
    read_only bool? a room: posts are ignored
    permissions integer?
    server_time integer? seconds since 1970
    firmware_level integer?
    """,
    "node-status": """
    battery_mv integer
    queue integer
    noise_floor_dbm integer
    last_rssi_dbm integer
    last_snr number
    received integer
    sent integer
    airtime_s integer
    uptime_s integer
    sent_flood integer
    sent_direct integer
    received_flood integer
    received_direct integer
    error_flags integer
    duplicates_direct integer
    duplicates_flood integer
    receiving_s integer? of a repeater
    receive_errors integer? of a repeater
    posts_stored integer? of a room
    posts_pushed integer? of a room
    """,
    "telemetry": """
    readings sensor[]
    unread_hex string? the part that could not be decoded
    """,
    "sensor": """
    channel integer
    type string
    value number?
    values number[]?
    """,
    "neighbours": """
    total integer
    neighbours neighbour[]
    """,
    "neighbour": """
    key string a prefix of its key
    name string?
    heard_s integer seconds ago
    snr number
    """,
    "trace": """
    hops hop[]
    snr_here number
    """,
    "hop": """
    node string
    snr number
    """,
  ]
}

// SPDX-License-Identifier: MIT

// swift-format-ignore-file
// One line for each request, as in a table.

import ControlShapes
import OpenAPI

/// What a request of the control socket takes and answers. docs/requests.md and docs/control-socket.json are made from it.
struct Request {
  /// Names that end in `?` are those of optional fields.
  typealias Fields = [(String, Schema)]

  let summary: String
  let body: Fields?
  let status: Int
  let answers: [Answer]
  /// Commands whose `--json` prints the first answer.
  let commands: [String]

  init(_ summary: String, body: Fields? = nil, status: Int = 200, _ answers: Answer..., commands: String...) {
    (self.summary, self.body) = (summary, body)
    (self.status, self.answers, self.commands) = (status, answers, commands)
  }
}

/// One of the answers to a request, or the output of a command.
struct Answer: Sendable {
  static let lines = "application/x-ndjson"
  /// Its media type.
  var kind = "application/json"
  /// `nil`: `fields` are declared nowhere else.
  var shape: (any Sendable)?
  var fields: Request.Fields?

  static func object(_ shape: any Sendable) -> Answer { Answer(shape: shape) }
  static func rows(_ shape: any Sendable) -> Answer { Answer(kind: lines, shape: shape) }
  static func json(_ fields: Request.Fields, _ kind: String = "application/json") -> Answer { Answer(kind: kind, fields: fields) }
  static func other(_ kind: String) -> Answer { Answer(kind: kind) }

  var name: String? { shape.map(ShapeReference.name) }
  var schema: Schema { name.map { .named($0) } ?? fields.map { .object($0) } ?? .text }
}

private let ok = Answer.object(Shape.Ok())
private let document = Answer.object(Shape.Document())
private let node: Request.Fields = [("node", .text)]

extension QueryField {
  var parameter: OpenAPI.Parameter {
    let schema: Schema =
      switch kind {
      case .text: .text
      case .whole: .whole
      case .choice(let values): .oneOf(values)
      }
    return OpenAPI.Parameter(name + (isRequired ? "" : "?"), schema)
  }
}

extension Route {
  /// The compiler refuses a route without a line here.
  var request: Request {
    switch self {
    case .status: .init("Everything in [one object](control-socket.md#status).", .object(Shape.Status()), commands: "status", "overview")
    case .metrics: .init("[Metrics](observability.md#metrics) for Prometheus.", .other("text/plain"))
    case .sync: .init("The sync state of the radio, and of [the hubs' buckets](hub-protocol.md#buckets) as `updates`; with `follow=1` rows without these, one at each change.", .object(Shape.Sync()), .rows(Shape.SyncState()), commands: "sync")
    case .startSync: .init("Syncs now; `full=1`: including the whole contact list. 409: no radio.", status: 202, ok)
    case .messages: .init("Messages, oldest first, with their `reactions`: the newest `limit` (100), or the first after a position. `direction`: by default `received`, so that a bot does not receive its own messages. A position is a row's `cursor`, or a message's number. `with`: the conversation with a node. `q`: a search, as in `meshpost search --help` (not with `follow`). `since`, `until`: milliseconds since 1970. With `follow` sent messages are repeated with each state. `upstreams=1`: with [`upstreams`](control-socket.md#what-upstreams-have); `ways=1`: with [`ways` or `heard_by`](control-socket.md#ways-of-messages).", .rows(Shape.Message()), commands: "messages", "search", "room read")
    case .deleteMessages: .init("[Deletes messages for good](control-socket.md#deletion): received ones by `messages`, their numbers, and sent ones by `outgoing`, their ids, or any by `ids`, as people name them, 100 at most; or those of a `conversation`, before a time (`before`, milliseconds since 1970), in the background. With `count` it only answers. 404: one of them, or the conversation, is not there. 400: one has not ended, or an id is that of a received and of a sent message, or a member is unknown, or `conversation` is only the beginning of a name or key. Pages may not.", body: [("messages?", .list(.whole)), ("outgoing?", .list(.text)), ("ids?", .list(.text)), ("conversation?", .text), ("before?", .whole), ("count?", .truth)], .object(Shape.Deletion()), commands: "delete message", "delete conversation")
    case .conversations: .init("Channels, and nodes with which messages were exchanged, the newest first. `unread=1`: only those with unread messages.", .rows(Shape.Conversation()), commands: "conversations")
    case .markRead: .init("Read up to and including the row with this cursor; never moves back.", body: [("conversation", .text), ("cursor", .text)], ok)
    case .setLevel: .init("Which messages of a conversation [concern anybody here](control-socket.md#whom-messages-concern); `conversation`: as in rows, or a node or channel. 404: there is no such conversation.", body: [("conversation", .text), ("level", .oneOf(["all", "mentions", "direct", "none"]))], ok, commands: "level")
    case .blocks: .init("[Blocked senders](control-socket.md#whom-messages-concern), 256 at most.", .rows(Shape.Block()), commands: "block list")
    case .addBlock: .init("Blocks a sender: `whom` is a node or the beginning of a key, 8 digits or more; with `channel` a name on that channel. 429: 256 are blocked.", body: [("whom", .text), ("channel?", .text)], ok, commands: "block add")
    case .removeBlock: .init("Removes all blocks that hold this sender's messages. 404: there is none.", body: [("whom", .text), ("channel?", .text)], ok, commands: "block remove")
    case .live: .init("Changes, as [server-sent events](control-socket.md#live).", .other("text/event-stream"))
    case .contacts: .init("Nodes, by key. `heard`: so many (at most 200) that were heard last, newest first.", .rows(Shape.Contact()), commands: "contacts")
    case .channels: .init("Channels, by slot.", .rows(Shape.Channel()), commands: "channels")
    case .readings: .init("Readings of nodes, oldest first: the newest `limit` (100, at most 10000); with `newest=1` the newest of each node and kind, up to 10000. `node=self`: of the own radio.", .rows(Shape.Reading()), commands: "node readings")
    case .radios: .init("All radios that were ever attached.", .rows(Shape.KnownRadio()), commands: "radio list")
    case .airtime: .init("[Air time](sending.md#air-time) by hour and purpose, of the last `hours` (24, at most 1488), and the channel's use.", .object(Shape.Airtime()), commands: "airtime")
    case .journal, .events: .init("Events, in the format of [upstreams](hub-protocol.md).\(self == .events ? " An alias." : "")", .rows(Shape.Event()), commands: "journal")
    case .packets: .init("[Received packets](observability.md#capture), as they arrive.", .json([("at?", .whole), ("raw?", .text), ("snr?", .number), ("rssi?", .whole), ("frequency_khz?", .whole), ("bandwidth_hz?", .whole), ("spreading_factor?", .whole), ("lost?", .whole)], Answer.lines))
    case .frames: .init("[Frames on the link](observability.md#capture), as they pass; secrets are masked.", .json([("at?", .whole), ("dir?", .oneOf(["in", "out"])), ("hex?", .text), ("lost?", .whole)], Answer.lines))
    case .resolve: .init("What a name stands for: a [contact](json.md#contact) with `\"kind\":\"contact\"`, or a channel. 404, or 409 with `candidates`.", .json([("kind", .oneOf(["contact", "channel"])), ("name", .text), ("slot?", .whole), ("channel?", .text), ("key?", .text)]))
    case .send: .init("The messages are on disk, and will be sent. `region`: a name, `none` or `default`, for these messages alone; `answers`: the number of a received message, in whose region they are sent if none is chosen.", body: [("to", .text), ("text", .text), ("id?", .text), ("expires_s?", .whole), ("priority?", .oneOf(["interactive", "relayed", "bulk"])), ("split?", .truth), ("origin?", .text), ("region?", .text), ("answers?", .whole)], status: 202, .object(Shape.Accepted()), commands: "send", "room post")
    case .react: .init("A reaction to a message: with `message` its number, or with `outgoing` its id.", body: [("message?", .whole), ("outgoing?", .text), ("emoji", .text), ("id?", .text), ("origin?", .text)], status: 202, .object(Shape.Accepted()), commands: "react")
    case .outgoing: .init("Sent messages; those held for another radio have `held_for`. With `id` only this one, and with `follow=1` again after each change until its state is final. `upstreams=1`: with [`upstreams`](control-socket.md#what-upstreams-have); `ways=1`: with [`heard_by`](control-socket.md#ways-of-messages).", .rows(Shape.Outgoing()), commands: "sent list")
    case .attempts: .init("A message's attempts: when it was handed to the radio, whether it was flooded, and the code that acknowledges it. They are read from the journal, so lost ones are absent. `codes`: the codes of all attempts; none for channels, where nobody acknowledges.", .object(Shape.Attempts()))
    case .retryOutgoing: .init("Sends a failed message again.", .object(Shape.Outgoing()), commands: "retry")
    case .cancelOutgoing: .init("Cancels the message; with `held=1` all that are held for another radio.", .object(Shape.Outgoing()), .object(Shape.Adopted()), commands: "cancel")
    case .adoptOutgoing: .init("[The attached radio](sending.md#another-radio) sends a message that is held for another; with `held=1` all of them.", .object(Shape.Outgoing()), .object(Shape.Adopted()))
    case .addContact: .init("Adds a known node to the radio's contacts (`contact`), or a new one (`key`, `name`, `type`).", body: [("contact?", .text), ("key?", .text), ("name?", .text), ("type?", .oneOf(["chat", "repeater", "room", "sensor"]))], ok, commands: "contact add")
    case .removeContact: .init("Removes it from the radio's contacts.", ok, commands: "contact remove")
    case .exportContact: .init("A link to the node; without `contact` to this radio.", .object(Shape.Link()), commands: "contact export")
    case .importContact: .init("Adds the link's node to the radio's contacts.", body: [("link", .text)], .object(Shape.Key()), commands: "contact import")
    case .shareContact: .init("Sends the contact's advert to direct neighbours.", ok, commands: "contact share")
    case .favouriteContact: .init("Marks a node as a favourite, or not: favourites keep their place in the radio's contacts.", body: [("contact", .text), ("favourite?", .truth)], ok, commands: "contact favourite")
    case .commandsOfContact: .init("Lets a node run any command on the radio (`may_command`), or not: [flag 0x10](care.md#remote-commands). Pages may not.", body: [("contact", .text), ("may_command?", .truth)], ok, commands: "contact commands")
    case .contactPath: .init("The path to it; `discover`: as the node reports it; `advert`: the way of its last advert; `reset`: the next message floods; `path`: sets it, with `hash_bytes` (1 to 3) for each hop. One of them at a time.", body: [("contact", .text), ("path?", .text), ("hash_bytes?", .whole), ("reset?", .truth), ("discover?", .truth), ("advert?", .truth)], .object(Shape.Path()), commands: "contact path")
    case .putContact: .init("Restores a contact: a row of a backup.", body: [("key", .text), ("name_hex", .text), ("type?", .whole), ("flags?", .whole), ("path?", .text), ("path_hash_bytes?", .whole), ("last_advert?", .whole), ("latitude?", .whole), ("longitude?", .whole)], ok)
    case .addChannel: .init("Adds a channel: `#name`, `Public`, a link, or a name with its `secret`.", body: [("channel", .text), ("secret?", .text), ("region?", .text)], .object(Shape.Channel()), commands: "channel add")
    case .removeChannel: .init("Empties the channel's slot.", .object(Shape.Channel()), commands: "channel remove")
    case .setRegion: .init("The region for messages to it (`*`: none); without `region` the radio's default.", body: [("channel", .text), ("region?", .text)], .object(Shape.Channel()), commands: "channel region")
    case .sendData: .init("Sends a [datagram](sending.md#data-of-programs) to the channel at once, or refuses it: `data` is hexadecimal, 1 to 163 bytes. 429: the hourly air time is used up. 504: it may have been sent.", body: [("channel", .text), ("data_type", .whole), ("data", .text), ("region?", .text)], .object(Shape.SentDatagram()), commands: "channel data")
    case .putChannel: .init("Restores a channel: a row of a backup.", body: [("slot", .whole), ("name_hex", .text), ("secret", .text), ("region?", .text)], ok)
    case .logIn: .init("Logs in to a node. `read_only` in the answer: a room ignores our posts, and the password is stored only if the body contains `read_only`.", body: node + [("password?", .text), ("read_only?", .truth)], .object(Shape.Login()), commands: "node login", "room login")
    case .logOut: .init("Deletes the stored password.", body: node, ok, commands: "node logout")
    case .nodeStatus: .init("The node's state, as it reports it.", body: node, .object(Shape.NodeStatus()), commands: "node status")
    case .telemetry: .init("The node's sensors; `self`: the radio's own.", body: node, .object(Shape.Telemetry()), commands: "node telemetry")
    case .neighbours: .init("The nodes that a repeater hears.", body: node, .object(Shape.Neighbours()), commands: "node neighbours")
    case .nodeRegion: .init("The region for messages to it (`none`: without one); without `region` the radio's default.", body: node + [("region?", .text)], .object(Shape.Contact()), commands: "node region")
    case .nodeRegions: .init("The regions that a repeater carries; it needs no login.", body: node, .object(Shape.Carried()), commands: "node regions")
    case .trace: .init("Signals along the node's path and back, or along `path`, a round trip with `hash_bytes` (1 or 2) for each hop.", body: node + [("path?", .text), ("hash_bytes?", .whole)], .object(Shape.Trace()), commands: "node trace")
    case .command: .init("Runs a command on the node.", body: node + [("command", .text)], .object(Shape.Reply()), commands: "node cli")
    case .access: .init("The access list of a repeater or room, for its admins.", body: node, .object(Shape.Access()), commands: "node access")
    case .nodeClock: .init("Compares the node's clock with this machine's, which has to be synchronised. `set`: sets it, never ahead of true time; `reboot`: also a clock that is ahead, by starting the node anew. `clock_is_right`: this machine's clock was set, and may [judge others](alerts.md#our-own-clock) again; without `set` no node is asked. 400: it is not synchronised.", body: [("node?", .text), ("set?", .truth), ("reboot?", .truth), ("clock_is_right?", .truth)], .object(Shape.NodeClock()), ok, commands: "node clock")
    case .takeSnapshot: .init("Asks for all settings of the node's command line, as admin, in the air time for background work, and keeps them: a row for each, and at the end one with `snapshot` or `error`. It ends with the connection, and keeps what it has; within an hour after that another one asks only for the rest.", body: node, .rows(Shape.SnapshotProgress()))
    case .snapshots: .init("The snapshots of the node that are kept, oldest first: 16 at most.", .rows(Shape.Snapshot()))
    case .radio: .init("The radio, read at the time of the request.", .object(Shape.Radio()), commands: "radio info")
    case .setRadio: .init("Changes settings, by the names of `meshpost radio presets`; answers with the radio after the change.", body: [], .object(Shape.Radio()), commands: "radio set")
    case .advert: .init("Sends an advert: `flood`: to the mesh, else to direct neighbours. 429: the hourly air time is used up, or the same advert was sent to the mesh less than a minute ago.", body: [("flood?", .truth)], .object(Shape.Advertised()), commands: "radio advert")
    case .regionsAround: .init("Asks the repeaters heard within a day which regions they carry, one after the other.", .object(Shape.RegionsAround()), commands: "radio regions")
    case .presets: .init("Settings with their allowed values, and presets.", .object(Shape.Presets()), commands: "radio presets")
    case .survey: .init("Nodes in direct range: one packet, to which those of these `types` (separated by commas; repeater) answer within `seconds` (15). 429: the hourly air time is used up, or a survey is going on.", body: [("seconds?", .whole), ("types?", .text)], .object(Shape.Survey()), commands: "radio survey")
    case .variables: .init("Variables of the radio's board.", .object(Shape.Variables()), commands: "radio variables")
    case .setVariable: .init("Sets a variable of the radio's board; answers with all of them.", body: [("name", .text), ("value", .text)], .object(Shape.Variables()))
    case .radioBackup: .init("The radio, its channels with secrets, its contacts: `kind` says which.", .json([("kind", .oneOf(["radio", "channel", "contact"]))], Answer.lines))
    case .privateKey: .init("`export`: the radio's private key; `import`: replaces it (128 hex digits). Both are logged.", body: [("export?", .truth), ("import?", .text)], .json([("private_key?", .text), ("ok?", .truth)]))
    case .scan: .init("Radios in range over Bluetooth.", .object(Shape.Scan()), commands: "radio scan")
    case .pair: .init("Pairs, which takes up to 150 s; without a PIN, with the configuration's.", body: [("pin?", .text)], .object(Shape.Paired()), commands: "radio pair")
    case .forget: .init("Removes it and its bond from this machine.", .object(Shape.Forgotten()), commands: "radio forget")
    case .documents: .init("[Documents](documents.md), at most 1000.", .object(Shape.Documents()), commands: "documents list")
    case .editDocument: .init("Sets the document; without `value` it is deleted.", body: [("key", .text), ("value?", .any)], document, commands: "documents set", "documents delete")
    case .nodeAlias: .init("Sets the node's alias; without `value` it is deleted.", body: node + [("value?", .any)], document, commands: "node alias")
    case .nodeNote: .init("Sets the node's note; without `value` it is deleted.", body: node + [("value?", .any)], document, commands: "node note")
    case .nodeTags: .init("Sets the node's tags; without `value` they are deleted.", body: node + [("value?", .any)], document, commands: "node tag")
    case .relayChannel: .init("Whether the channel is [joined with other places](hub-protocol.md#messages-of-other-places).", body: [("channel", .text), ("value?", .any)], document, commands: "channel relay")
    case .outbox: .init("Upstreams and dead letters (the first 500, at most 640 KiB).", .object(Shape.Outbox()), commands: "upstream list", "upstream pending", "upstream dead")
    case .retryOutbox: .init("Queues dead letters again: all, those of an upstream, or one of these.", .object(Shape.Retried()), commands: "upstream retry")
    case .dropOutbox: .init("Deletes dead letters of an upstream, or one of these.", .object(Shape.Dropped()), commands: "upstream drop")
    case .resumeOutbox: .init("Retries waiting and stopped upstreams now.", ok)
    case .pauseUpstream: .init("Sends it nothing from now on.", .object(Shape.Upstream()), commands: "upstream pause")
    case .resumeUpstream: .init("Sends it events again.", .object(Shape.Upstream()), commands: "upstream resume")
    case .skipUpstream: .init("Makes the event over which it fails a dead letter, if it takes another event and then fails again; with this event's `seq`, if it fails over it again. Answers within 50 s. 400: it has taken all, or this event now; nothing shows that this event is the reason; or several were tried together, and then one is sent at a time.", .object(Shape.Skipped()), commands: "upstream skip")
    case .testUpstream: .init("Sends it a test. 504: the reason why it failed.", ok, commands: "upstream test")
    case .addUpstream: .init("[Stores the upstream](control-socket.md#added-upstreams) beside the database, and starts it. The body has the keys of an `[[upstream]]`, and `files`.", body: [], .object(Shape.Added()), commands: "upstream add")
    case .removeUpstream: .init("Removes an upstream that was added this way.", ok, commands: "upstream remove")
    case .forgetUpstream: .init("An upstream that is not configured any more loses its place in the journal. 404: there is none.", ok, commands: "upstream forget")
    case .alerts: .init("[Alerts](alerts.md), the newest first, at most `limit` (100, up to 1000); `before`: an id, such as `next` of the last answer.", .object(Shape.Alerts()), commands: "alerts list")
    case .alertRules: .init("The rules that are on.", .object(Shape.AlertRules()), commands: "alerts rules")
    case .acknowledgeAlert: .init("Acknowledges the alert. 404: there is none.", body: [("id", .whole), ("by?", .text), ("note?", .text)], .object(Shape.Alert()), commands: "alerts acknowledge")
    case .setWebPassword: .init("The [pages](pages.md)' password has this hash (`$scrypt$…`) from now on; without it nobody can sign in. All sessions end. `serves`: `[web]` has `listen`.", body: [("hash?", .text)], .json([("ok", .truth), ("serves", .truth)]))
    case .doctor: .init("Problems and remedies: all checks.", .object(Shape.Findings()), commands: "doctor all")
    case .bluetoothDoctor: .init("Problems and remedies of Bluetooth.", .object(Shape.Findings()), commands: "doctor bluetooth")
    case .report: .init("Data for a bug report, without secrets.", .other("text/markdown"))
    case .backup: .init("The store as an SQLite file. `replaces`: the file on this machine that it will replace, as `DEVICE:INODE`; `folder` and `name`: where it will be, the folder in the same form. 400: the gateway uses that file, or makes one of that name.", .other("application/vnd.sqlite3"))
    }
  }
}

// SPDX-License-Identifier: MIT

import HTTP
import ProxyTunnel
import Relay
import Release
import ServiceManager
import Store
import TOML
import UntrustedText

/// `[[upstream]]`.
enum UpstreamConfiguration {
  /// `nil` if a required key is wrong, which is noted.
  static func read(_ table: inout TOMLReader) -> UpstreamSettings? {
    let name = table.string("name")
    if name == nil || name == "" { table.note("name", "a unique name is required") }
    // Both have a cursor by their name.
    if let name, UpstreamSettings.isHook(name) { table.note("name", "\"\(name)\" is the name of a hook") }
    let kind = table.choice("kind", of: ["hub", "webhook", "mqtt"], default: "hub")
    let url = table.string("url")
    checkURL(url, kind, &table)
    let token = table.string("token_file")
    let authorities = table.string("ca_file").map { Credential.location($0) }
    let events = table.integer("batch_events", in: 1...1000, default: 200)
    let bytes = table.size("batch_bytes", in: 1024...(1 << 20), default: 64 << 10)
    let timeout = table.integer("timeout_s", in: 1...600, default: 30)
    // The error does not quote the value, which may contain a password.
    let proxy = noting("proxy", &table) { try ProxyChoice(parsing: $0.string("proxy")) } ?? .environment
    let filter = filter(&table)
    let fromStart = table.choice("from", of: ["now", "start"], default: "now") == "start"
    let allowed = allowed(kind, &table)
    let perMinute = table.integer("commands_per_minute", in: 1...600, default: 10)
    let oldest = table.integer("max_age_s", in: 0...31_536_000, default: 0)
    let takesWaited = table.bool("waited", default: true)
    let folds = table.bool("fold", default: true)
    let states = table.choice("outgoing", of: ["ended", "all"], default: kind == "hub" ? "ended" : "all")
    // A connection costs up to 8 kB, which would use up a smaller budget.
    let daily = table.size("daily_bytes", in: 200_000...(1 << 50), default: 0)
    let monthly = table.size("monthly_bytes", in: 2_000_000...(1 << 50), default: 0)
    let hours = noting("bulk_hours", &table) { try $0.string("bulk_hours").map { try BulkHours(parsing: $0) } }
    let details: UpstreamSettings.Kind? =
      switch kind {
      case "webhook": webhook(&table)
      case "mqtt": mqtt(&table, url)
      default: hub(&table)
      }
    guard let name, let url, let details else { return nil }
    warnOfRights(details, allowed, &table)
    if let shown = secret(token, details), UpstreamSettings.isOpen(url) {
      let schemes = kind == "mqtt" ? "mqtts:// or wss://" : "https://"
      table.warn("url", "\(shown) is sent over the network unencrypted: use \(schemes)")
    }
    var kept = filter
    kept.endsOnly = states == "ended"
    if oldest > 0 || !takesWaited {
      kept.age = AgeLimit(oldest: oldest == 0 ? nil : oldest, takesWaited: takesWaited)
    }
    if case .mqtt(let mqtt) = details, mqtt.observer != nil {
      warnOfFilters(filter, &table)
      let age = kept.age
      kept = EventFilter(kinds: ["packet"])
      kept.age = age
    }
    // A template's fields are those of a message: other events would leave them empty.
    if case .webhook(_, let template, _, _) = details, template != nil, kept.kinds.isEmpty { kept.kinds = ["message"] }
    switch details {
    case .webhook: kept.onlyConcerning = true
    case .mqtt(let mqtt): kept.onlyConcerning = mqtt.homeAssistantPrefix != nil
    case .hub, .hook, .unreadable: break
    }
    warnOfFields(details, kept.kinds, &table)
    let batches = if case .webhook(_, _, _, let batches) = details { batches } else { true }
    var upstream = UpstreamSettings(details, name: name, url: url)
    (upstream.tokenFile, upstream.authorities, upstream.timeout) = (token, authorities, .seconds(timeout))
    (upstream.journal.batchEvents, upstream.journal.batchBytes) = (batches ? Int(events) : 1, Int(bytes))
    (upstream.journal.filter, upstream.journal.fromStart, upstream.journal.folds) = (kept, fromStart, folds)
    (upstream.journal.allowed, upstream.journal.commandsPerMinute) = (allowed, Int(perMinute))
    upstream.version = Release.version
    upstream.journal.dailyBytes = daily > 0 ? daily : nil
    upstream.journal.monthlyBytes = monthly > 0 ? monthly : nil
    upstream.journal.bulkHours = hours
    upstream.proxy = proxy
    for trouble in upstream.fileTroubles(isDaemon: false) { table.lack(trouble.key, trouble.reason) }
    do {
      _ = try upstream.serverProxy()
    } catch {
      table.lack("proxy", error.description)
    }
    return upstream
  }

  /// Refuses topics for publishing at which this upstream, or another at its broker, receives commands. `gateway`: the
  /// gateway's name, if it is known.
  static func checkTopics(
    _ upstream: UpstreamSettings, beside others: [UpstreamSettings], gateway: String?, _ table: inout TOMLReader
  ) {
    let broker = UpstreamSettings.broker(upstream.url)
    let near = others.filter { other in
      UpstreamSettings.broker(other.url).map { $0.host == broker?.host && $0.port == broker?.port } ?? false
    }
    if let (key, topic) = upstream.keyThatFeeds(upstream, gateway: gateway) {
      table.note(key, "the gateway would publish to \"\(topic)\", where it takes commands: expected another topic")
    }
    for other in near {
      if let (key, topic) = upstream.keyThatFeeds(other, gateway: gateway) {
        table.note(
          key, "\"\(topic)\" is where upstream \"\(other.name)\" takes commands: expected another topic")
      } else if let (key, topic) = other.keyThatFeeds(upstream, gateway: gateway) {
        table.note(
          "command_topic", "upstream \"\(other.name)\" publishes to \"\(topic)\" (\(key)): expected another topic")
      }
    }
  }

  /// Refuses this gateway's own ports (`doors`) as a server: each refused event would cause another.
  static func checkDoors(_ upstream: UpstreamSettings, _ doors: [UInt16], _ table: inout TOMLReader) {
    guard case .tcp(let host, let port, _)? = HTTPEndpoint.parse(upstream.url, allowsQuery: true)?.endpoint,
      HTTPEndpoint.isThisMachine(host), doors.contains(port)
    else { return }
    table.note("url", "port \(port) is this gateway's own (pages or metrics): expected another server's")
  }

  /// The value of a key; `nil`: there is none, or it is refused, which is noted.
  private static func noting<Value>(
    _ key: String, _ table: inout TOMLReader, _ read: (inout TOMLReader) throws -> Value?
  ) -> Value? {
    do {
      return try read(&table)
    } catch {
      table.note(key, "\(error)")
      return nil
    }
  }

  /// The secret that an upstream sends to its server.
  private static func secret(_ token: String?, _ kind: UpstreamSettings.Kind) -> String? {
    if case .mqtt(let mqtt) = kind {
      if mqtt.passwordFile != nil { return "the password" }
      return mqtt.token == nil ? nil : "the radio's token"
    }
    return token == nil ? nil : "the token"
  }

  /// What the server may command and edit.
  private static func allowed(_ kind: String, _ table: inout TOMLReader) -> Set<String> {
    let named = table.optionalStrings("allow")
    if kind == "webhook" {
      if named != nil { table.warn("allow", "it does nothing here: a webhook commands nothing") }
      return []
    }
    // A server may do nothing unless the file says so.
    let words = named ?? []
    for word in words where !Upstream.Settings.knownRights.contains(word) {
      let known = Upstream.Settings.knownRights.joined(separator: ", ")
      table.note("allow", "\"\(word)\" is not allowed: expected \(known)")
    }
    checkNames("allow", words, &table)
    return Set(words)
  }

  /// Warns of keys for what a server sends here if it may not send.
  private static func warnOfRights(
    _ kind: UpstreamSettings.Kind, _ allowed: Set<String>, _ table: inout TOMLReader
  ) {
    if case .webhook = kind { return }
    let line = Upstream.Settings.line(permitting: allowed.union(["send"]))
    for key in ["commands_per_minute", "command_topic"] where allowed.isEmpty && table.has(key) {
      table.warn(key, "it does nothing, because the server may command nothing; to permit it to send: \(line)")
    }
    if case .mqtt(let mqtt) = kind, mqtt.homeAssistantPrefix != nil, !mqtt.homeAssistantNotify.isEmpty,
      !allowed.contains("send")
    {
      table.warn("home_assistant_notify", "Home Assistant may not send; to permit it: \(line)")
    }
  }

  /// Refuses names in a list that are empty or there twice: another one was meant. Compared by bytes.
  private static func checkNames(_ key: String, _ names: [String], _ table: inout TOMLReader) {
    var seen: Set<[UInt8]> = []
    for name in names {
      if Visible.isBlank(name) {
        table.note(key, "\"\(name)\" names nothing: expected names, or an empty list, []")
      } else if !seen.insert(Array(name.utf8)).inserted {
        table.note(key, "\"\(name)\" is there twice: expected each name once")
      }
    }
  }

  private static func hub(_ table: inout TOMLReader) -> UpstreamSettings.Kind {
    let isLive = table.choice("link", of: ["live", "http"], default: "live") == "live"
    return .hub(isLive: isLive, keepAlive: table.integer("keep_alive_s", in: 5...3600, default: 300))
  }

  private static func checkURL(_ url: String?, _ kind: String, _ table: inout TOMLReader) {
    if kind == "mqtt" {
      if url.flatMap({ UpstreamSettings.broker($0) }) == nil {
        table.note(
          "url",
          "expected mqtt://HOST[:PORT], mqtts://HOST[:PORT], ws://HOST[:PORT]/PATH or wss://…, without user names")
      }
    } else if !(url.map { UpstreamSettings.isURL($0, allowsQuery: kind == "webhook") } ?? false) {
      table.note("url", "expected http://HOST[:PORT][/PATH] or https://…, without user names")
    }
  }

  private static func mqtt(_ table: inout TOMLReader, _ url: String?) -> UpstreamSettings.Kind? {
    let (user, password) = (table.string("user"), table.string("password_file"))
    let client = table.string("client_id")
    // With an empty one each connection is another client to the broker, which then keeps nothing for it.
    if client?.isEmpty == true { table.note("client_id", "expected a name; without this key it is meshpost-GATEWAY") }
    for (key, text) in [("user", user), ("client_id", client)] {
      guard let text, text.utf8.count > 65_535 || text.utf8.contains(0) else { continue }
      table.note(key, "expected at most 65535 bytes without U+0000, as MQTT does")
    }
    let (certificate, key) = (
      table.string("cert_file").map { Credential.location($0) },
      table.string("key_file").map { Credential.location($0) }
    )
    if key != nil, certificate == nil { table.note("key_file", "key_file requires cert_file") }
    let keepAlive = table.integer("keep_alive_s", in: 0...65535, default: 300)
    let version = table.choice("version", of: ["auto", "5", "3.1.1"], default: "auto")
    let isCompact = table.choice("format", of: ["json", "compact"], default: "json") == "compact"
    let topic = self.topic("topic", default: "meshpost/{gateway}/\(isCompact ? "compact" : "{kind}")", &table)
    let status = self.topic("status_topic", default: "meshpost/{gateway}/status", &table)
    let commands = self.topic("command_topic", default: "meshpost/{gateway}/command", &table)
    let template = noting("template", &table) {
      try $0.string("template").map { try BodyTemplate(guessing: $0) }
    }
    let wantsHome = table.bool("home_assistant", default: false)
    let prefix = table.string("home_assistant_prefix") ?? "homeassistant"
    let isPrefix = !prefix.isEmpty && !prefix.utf8.contains(where: { "+#{} ".utf8.contains($0) })
    if !isPrefix { table.note("home_assistant_prefix", "\"\(prefix)\" is not a valid topic prefix") }
    let notify = table.strings("home_assistant_notify")
    warnIdle(["home_assistant_prefix", "home_assistant_notify"], without: "home_assistant", isOn: wantsHome, &table)
    let observer = observer(&table)
    let token = self.token(&table, url, hasUser: user != nil || password != nil)
    let stats = table.integer("stats_interval_s", in: 30...86_400, default: 300)
    guard let topic, let status else { return nil }
    if isCompact { checkCompact(topic, isOneForm: template == nil && observer == nil, &table) }
    var mqtt = UpstreamSettings.MQTTSettings(topic, status: status)
    (mqtt.user, mqtt.passwordFile, mqtt.clientID) = (user, password, client)
    (mqtt.certificate, mqtt.key, mqtt.keepAlive) = (certificate, key, UInt16(keepAlive))
    (mqtt.template, mqtt.commandTopic) = (template, commands)
    (mqtt.homeAssistantPrefix, mqtt.homeAssistantNotify) = (wantsHome ? prefix : nil, notify)
    (mqtt.observer, mqtt.token, mqtt.statsInterval) = (observer, token, stats)
    mqtt.isCompact = isCompact
    mqtt.version = UpstreamSettings.MQTTSettings.versions[version] ?? nil
    return .mqtt(mqtt)
  }

  /// The compact form publishes whole batches.
  private static func checkCompact(_ topic: TopicTemplate, isOneForm: Bool, _ table: inout TOMLReader) {
    if !isOneForm { table.note("format", "the compact form has no template, and observers do not read it: remove one") }
    if topic.fields.contains(where: { $0 != "gateway" && $0 != "lane" }) {
      table.note(
        "topic", "in the compact form a topic may have {gateway} and {lane}: a batch has events of several kinds")
    }
  }

  /// The observer feed: every received packet, for analyzers and maps.
  private static func observer(_ table: inout TOMLReader) -> UpstreamSettings.MQTTSettings.Observer? {
    let isOn = table.bool("observer", default: false)
    let code = table.string("iata")
    let sendsRaw = table.bool("observer_raw", default: false)
    warnIdle(["iata", "observer_raw"], without: "observer", isOn: isOn, &table)
    guard isOn else { return nil }
    guard let code, code.utf8.count == 3, code.allSatisfy({ $0.isASCII && $0.isUppercase }) else {
      table.note("iata", "expected the code of the nearest airport, three capital letters")
      return nil
    }
    return UpstreamSettings.MQTTSettings.Observer(iata: code, sendsRaw: sendsRaw)
  }

  private static func token(
    _ table: inout TOMLReader, _ url: String?, hasUser: Bool
  ) -> UpstreamSettings.MQTTSettings.RadioToken? {
    let isOn = table.bool("radio_token", default: false)
    let audience = table.string("token_audience")
    let (owner, email) = (table.string("token_owner"), table.string("token_email"))
    warnIdle(["token_audience", "token_owner", "token_email"], without: "radio_token", isOn: isOn, &table)
    guard isOn else { return nil }
    if hasUser { table.note("radio_token", "radio_token replaces user and password: remove those") }
    return UpstreamSettings.MQTTSettings.RadioToken(
      audience: audience ?? url.flatMap { UpstreamSettings.broker($0)?.host } ?? "", owner: owner, email: email)
  }

  private static func warnIdle(_ keys: [String], without other: String, isOn: Bool, _ table: inout TOMLReader) {
    for key in keys where !isOn && table.has(key) { table.warn(key, "it does nothing without \(other) = true") }
  }

  private static func topic(_ key: String, default text: String, _ table: inout TOMLReader) -> TopicTemplate? {
    noting(key, &table) { try TopicTemplate($0.string(key) ?? text) }
  }

  /// `wantsWholeKeys`: for filters whose events cause actions.
  static func filter(_ table: inout TOMLReader, wantsWholeKeys: Bool = false) -> EventFilter {
    let kinds = table.strings("kinds")
    for kind in kinds where EventKind(rawValue: kind) == nil {
      let known = EventKind.allCases.map(\.rawValue).joined(separator: ", ")
      table.note("kinds", "\"\(kind)\" is not a kind of event: expected \(known)")
    }
    let channels = table.optionalStrings("channels"), contacts = table.optionalStrings("contacts")
    let rooms = table.optionalStrings("rooms")
    checkNames("kinds", kinds, &table)
    checkNames("channels", channels ?? [], &table)
    checkNames("contacts", contacts ?? [], &table)
    checkNames("rooms", rooms ?? [], &table)
    let filter = EventFilter(
      kinds: Set(kinds), channels: channels ?? [], contacts: contacts ?? [], rooms: rooms ?? [],
      wantsWholeKeys: wantsWholeKeys)
    for weakness in filter.weaknesses(channels: channels, contacts: contacts, rooms: rooms) {
      table.warn(weakness.key, weakness.message)
    }
    return filter
  }

  /// An observer's feed has all packets, and nothing else.
  private static func warnOfFilters(_ filter: EventFilter, _ table: inout TOMLReader) {
    let isOfOthers = !filter.kinds.isEmpty && filter.kinds != [EventKind.packet.rawValue]
    let isSelective = filter != EventFilter(kinds: filter.kinds)
    for key in ["kinds", "channels", "contacts", "rooms", "outgoing"] where table.has(key) {
      guard key == "kinds" ? isOfOthers : isSelective || key == "outgoing" else { continue }
      table.warn(key, "it does nothing with observer = true: the feed has all packets, and nothing else")
    }
  }

  /// Warns of fields that have no value in any event: a mistyped one stays empty for ever.
  private static func warnOfFields(_ kind: UpstreamSettings.Kind, _ kinds: Set<String>, _ table: inout TOMLReader) {
    let template: BodyTemplate?
    switch kind {
    case .webhook(_, let text, _, _): template = text
    case .mqtt(let mqtt):
      template = mqtt.template
      for (key, topic) in [("status_topic", mqtt.statusTopic), ("command_topic", mqtt.commandTopic)] {
        for field in topic?.fields ?? [] where field != "gateway" && field != "kind" {
          table.warn(key, "{\(field)} has no value here: this topic may have {gateway} and {kind}")
        }
      }
      let fields = mqtt.topic.fields.filter { $0 != "gateway" && $0 != "kind" && !mqtt.isCompact }
      for field in fields where kinds == ["message"] && !EventBody.messageFields.contains(field) {
        table.warn("topic", "no message has a field \"\(field)\": it is `none` in each topic")
      }
    case .hub, .hook, .unreadable: return
    }
    for field in template?.fieldsWithoutValue ?? [] where kinds == ["message"] {
      table.warn("template", "no message has a field \"\(field)\": it stays empty")
    }
  }

  private static func webhook(_ table: inout TOMLReader) -> UpstreamSettings.Kind {
    let secret = table.string("secret_file")
    let type = table.string("content_type") ?? "application/json"
    let text = table.string("template")
    let batches = table.bool("batch", default: false)
    if batches, text != nil { table.note("batch", "a template is for one event: remove batch or template") }
    let template = noting("template", &table) { _ in
      try text.map { try BodyTemplate($0, isJSON: type.lowercased().mentions("json")) }
    }
    if type.isEmpty || !type.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F }) {
      table.note("content_type", "\"\(type)\" is not a media type")
    }
    return .webhook(secretFile: secret, template: template, contentType: type, batches: batches)
  }
}

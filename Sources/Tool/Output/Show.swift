// SPDX-License-Identifier: MIT

import Console
import ControlShapes
import Glibc
import JSON
import UntrustedText

/// Formats answers for people.
enum Show {
  static func time(_ milliseconds: Int64?) -> String {
    guard let milliseconds else { return "never" }
    return format(milliseconds, isUTC ? "%Y-%m-%d %H:%M:%SZ" : "%Y-%m-%d %H:%M:%S", isUTC: isUTC)
  }

  /// The time of a server's last success. It is not kept over a start or a change of the upstream, so that "never" would be untrue.
  private static func success(_ milliseconds: Int64?) -> String {
    milliseconds.map { "last \(time($0))" } ?? "no success since its start"
  }

  /// `1 node`, `2 nodes`; with a verb `1 text was`, `2 texts were`.
  static func counted(_ number: Int64, _ what: String, _ verb: (String, String)? = nil) -> String {
    let noun = number == 1 ? "1 \(what)" : "\(number) \(what)s"
    return noun + (verb.map { " \(number == 1 ? $0.0 : $0.1)" } ?? "")
  }

  /// RFC 3339 in UTC, for other programs.
  static func iso(_ milliseconds: Int64) -> String { format(milliseconds, "%Y-%m-%dT%H:%M:%SZ", isUTC: true) }

  /// The same with milliseconds.
  static func exact(_ milliseconds: Int64) -> String {
    let rest = String(1000 + (milliseconds % 1000).magnitude).dropFirst()
    return format(milliseconds, "%Y-%m-%dT%H:%M:%S.\(rest)Z", isUTC: true)
  }

  /// The option `--utc`, which every command has.
  private static let isUTC = CommandLine.arguments.contains("--utc")

  static func format(_ milliseconds: Int64, _ form: String, isUTC: Bool = isUTC) -> String {
    var seconds = time_t(milliseconds / 1000)
    var parts = tm()
    if isUTC { gmtime_r(&seconds, &parts) } else { localtime_r(&seconds, &parts) }
    var buffer = [CChar](repeating: 0, count: 32)
    strftime(&buffer, buffer.count, form, &parts)
    return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// An optional text as one clean line, for a measure of its width. Printing cleans, too.
  static func clean(_ text: String?) -> String { Visible.line(text ?? "") }

  static func radio(_ radio: JSONValue) {
    let row = Shape.FoundRadio()
    let strength = radio[row.rssi].map { "\($0) dBm" } ?? "-"
    let isPaired = radio[row.paired] ?? false
    let isConnected = radio[row.connected] ?? false
    let state = isConnected ? "connected" : isPaired ? "paired" : ""
    let fields = [radio[row.address] ?? "?", strength, clean(radio[row.name]), state]
    print(fields.joined(separator: "  "))
  }

  static func finding(_ finding: JSONValue) {
    let row = Shape.Finding()
    let mark = ["ok": "ok  ", "warning": "WARN", "failed": "FAIL"][finding[row.state] ?? ""] ?? "?"
    print(
      styled: "\(TerminalColour.state(mark))  \(finding[row.subject] ?? "?"): \(clean(finding[row.words]))")
    if let remedy = finding[row.remedy] { print("      \(clean(remedy))") }
  }

  private static func size(_ bytes: Int64) -> String {
    bytes < 1 << 20 ? "\(bytes >> 10) KiB" : "\(bytes >> 20) MiB"
  }

  /// The battery if it has a problem: `meshpost radio info` always shows the battery.
  private static func power(_ power: JSONValue) {
    if power[Shape.Power().batteryLow] == true {
      print(
        styled:
          "          \(TerminalColour.bad("battery low: \(Double(power[Shape.Power().batteryMv] ?? 0) / 1000) V"))")
    }
    if power[Shape.Power().supplyLow] == true {
      print(styled: "          \(TerminalColour.bad("this machine's supply voltage is too low"))")
    }
  }

  static func status(_ status: JSONValue) {
    let (row, link) = (Shape.Status(), Shape.LinkState())
    let radio = status[row.radio] ?? .null
    let identity = radio[link.identity]
    let memory = status[row.residentKib].map { ", \($0 / 1024) MiB resident" } ?? ""
    let uptime: Int64 = status[row.uptimeS] ?? 0
    print("gateway   \(status[row.gateway] ?? "?"), up \(span(uptime.magnitude))\(memory)")
    if status[row.clockTrusted] == false { print("          the clock is not synchronised: times are marked") }
    if let refusal = status[row.configurationError] {
      print(styled: "config    \(TerminalColour.bad("refused")); running with the last configuration that worked")
      for line in refusal.lines { print("          \(line)") }
    }
    for one in status[row.overrides] {
      print(
        "config    \(clean(one[Shape.Override().setting])) is \(clean(one[Shape.Override().value])) by a document, in place of \(clean(one[Shape.Override().configured])) in the file"
      )
    }
    let later = status[row.afterRestart].joined(separator: ", ")
    if !later.isEmpty { print(styled: "config    \(TerminalColour.bad("waits for a restart")): \(later)") }
    for words in status[row.withoutEffect] {
      print(styled: "config    \(TerminalColour.bad("without effect")): \(clean(words))")
    }
    let strength = radio[link.rssi].map { ", \($0) dBm" } ?? ""
    let isUp = radio[link.state] == "up"
    let step = isUp ? "" : radio[link.step].map { ", \($0)" } ?? ""
    print(
      styled:
        "radio     \(TerminalColour.state(radio[link.state] ?? "?")), \(radio[link.link] ?? "?")\(strength)\(step)"
    )
    if let identity {
      let version = clean(identity["version"]?.string)
      print("          \(clean(identity["name"]?.string)), \(clean(identity["model"]?.string)) \(version)")
    }
    advert(radio)
    trouble(radio)
    if let stuck = radio[link.regionError] { print(styled: "          \(TerminalColour.bad(stuck))") }
    power(status[row.power] ?? .null)
    sync(status[row.sync] ?? .null)
    messaging(status[row.messaging] ?? .null)
    store(status[row.store] ?? .null)
    for upstream in status[row.upstreams] { self.upstream(upstream) }
    for one in status[row.leftOut] {
      let counts = (one.fields ?? []).compactMap { name, count in
        count.integer.map { "\($0) \(name.split(separator: "_").joined(separator: " "))" }
      }
      print(
        "left out  \(clean(one[Shape.LeftOut().upstream])): messages of other places since the start: \(counts.joined(separator: ", "))"
      )
    }
    for one in status[row.removedUpstreams] {
      let row = Shape.RemovedUpstream()
      let deleted = one[row.givenUp].map { ", \($0) deleted before it had them" } ?? ""
      let name = (one[row.name] ?? "?").padding(10)
      print(
        "\(name)removed \(time(one[row.at])): \(counted(one[row.pending] ?? 0, "event", ("waits", "wait"))) for it\(deleted)"
      )
    }
    for alert in status[row.alerts] { print(styled: "alert     \(Show.alert(alert))") }
    for proxy in status[row.proxies] { self.proxy(proxy) }
    if let web = status[row.web] { pages(web) }
  }

  private static func pages(_ web: JSONValue) {
    let count = web[Shape.Web().sessions] ?? 0
    print("pages     at http://\(clean(web[Shape.Web().address])), \(counted(count, "browser")) signed in")
    trouble(web)
  }

  private static func proxy(_ proxy: JSONValue) {
    let clients = proxy[Shape.Proxy().clients]
    let names = clients.compactMap { $0["name"]?.string }.joined(separator: ", ")
    let users = clients.isEmpty ? "nobody" : "\(clients.count) (\(names))"
    print("shared    at \(proxy[Shape.Proxy().address] ?? "?") with \(users)")
    trouble(proxy)
  }

  private static func trouble(_ part: JSONValue) {
    if let error = part["error"]?.string { print("          \(error)") }
    if let remedy = part["remedy"]?.string { print("          \(remedy)") }
  }

  static func sync(_ sync: JSONValue) {
    print(styled: syncLine(sync))
    for upstream in sync[Shape.Sync().updates] { updates(upstream) }
  }

  private static func updates(_ upstream: JSONValue) {
    let state = upstream["reachable"]?.bool == true ? "" : ", unreachable"
    print("updates   \(upstream["upstream"]?.string ?? "?")\(state), \(success(upstream["last_success"]?.integer))")
    if let trouble = upstream["trouble"]?.string { print("          \(clean(trouble))") }
    for bucket in upstream["buckets"]?.array ?? [] {
      func number(_ name: String) -> Int64 { bucket[name]?.integer ?? 0 }
      let fetches = "\(number("fetches")) fetches (\(number("follow_ups")) followed)"
      let fates = "\(number("applied")) applied, \(number("skipped")) skipped, \(number("duplicates")) known"
      print(
        "          \(clean(bucket["bucket"]?.string)) \(number("seq")), \(number("behind")) behind: \(fetches), \(fates)"
      )
    }
  }

  static func syncLine(_ sync: JSONValue) -> Styled {
    let row = Shape.SyncState()
    let state = TerminalColour.state(sync[row.state] ?? "?")
    var line = ""
    if let phase = sync[row.phase] {
      line += " \(phase)"
      if let current = sync[row.current] { line += " \(current)" }
      if let total = sync[row.total] { line += "/\(total)" }
    }
    if let reason = sync[row.reason] { line += ": \(reason)" }
    return "sync      \(state)\(line), last \(time(sync[row.lastSynced]))"
  }

  private static func store(_ store: JSONValue) {
    let row = Shape.Store()
    let messages = counted(store[row.messages] ?? 0, "message")
    let nodes = counted(store[row.contacts] ?? 0, "node")
    print(
      "store     \(messages), \(nodes) (\(store[row.contactsOnRadio] ?? 0) on the "
        + "radio), seq \(store[row.lastSeq] ?? 0), \(size((store[row.sizeBytes] ?? 0)))")
    trouble(store)
    if let deleted = store[row.deleting] { print("          deleting: \(counted(deleted, "message")) so far") }
    if let events = store[row.givenUp] {
      print(
        "          \(counted(events, "event", ("was", "were"))) deleted before every upstream had them, the last \(time(store[row.givenUpAt]))"
      )
    }
    if let loss = store[row.loss] { print("          \(loss)") }
  }

  /// `byLane`: a line for each lane with waiting events.
  static func upstream(_ upstream: JSONValue, byLane: Bool = false) {
    let row = Shape.Upstream()
    let name = (upstream[row.name] ?? "?").padding(10)
    let link = upstream[row.link].map { " (\($0))" } ?? ""
    let counts = "\(upstream[row.pending] ?? 0) pending, \(counted(upstream[row.deadLetters] ?? 0, "dead letter"))"
    let last = success(upstream[row.lastSuccess])
    let state = TerminalColour.state(upstream[row.state] ?? "?")
    print(styled: "\(name)\(state), \(counts), \(last), \(upstream[row.url] ?? "")\(link)")
    let lanes = Self.lanes.compactMap { lane in
      (upstream[row.lanes]?[lane]?["pending"]?.integer).flatMap { $0 > 0 ? "\($0) in \(lane)" : nil }
    }
    if byLane {
      for lane in Self.lanes { if let lane = self.lane(lane, upstream) { print("          \(lane)") } }
    } else if (upstream[row.pending] ?? 0) > 0, !lanes.isEmpty {
      print("          pending: \(lanes.joined(separator: ", "))")
    }
    if (upstream[row.pending] ?? 0) > 0, (upstream[row.ageS] ?? 0) > 60 {
      print(
        "          the oldest has waited for \((upstream[row.ageS] ?? 0) / 60) min, \(upstream[row.inFlight] ?? 0) in flight"
      )
    }
    if (upstream[row.givenUp] ?? 0) > 0 {
      let open =
        (upstream[row.lost] ?? 0) > 0 ? ", \(upstream[row.lost] ?? 0) of them in gaps that it has yet to get" : ""
      print(
        "          \(counted(upstream[row.givenUp] ?? 0, "event", ("was", "were"))) deleted before it had them\(open)")
    }
    if (upstream[row.tooOld] ?? 0) > 0 {
      print(
        "          \(counted(upstream[row.tooOld] ?? 0, "event", ("was", "were"))) left out as too old, or of an unknown age (max_age_s, waited)"
      )
    }
    let unpermitted = upstream[row.unpermitted]
    if !unpermitted.isEmpty {
      print("          asked for \(clean(unpermitted.joined(separator: ", "))), which its `allow` does not name")
      print("          to permit it: \(clean(upstream[row.permits] ?? "?")) in its [[upstream]]")
      print("          one that `meshpost upstream add` made is removed and added again with --allow")
    }
    if let reason = upstream[row.reason] { print("          \(clean(reason))") }
    // Shorter pauses are over before anybody acts; a server may ask for an hour.
    if let rest = upstream[row.nextAttemptS], rest >= 60 {
      print("          tries again in \(duration(rest)); at once with `meshpost upstream resume`")
    }
    if let words = allowance(upstream[row.allowance]) { print("          \(words)") }
  }

  private static let lanes = ["messages", "nodes", "packets"]

  /// The waiting events, and their age; `nil`: none.
  private static func lane(_ name: String, _ upstream: JSONValue) -> String? {
    let row = Shape.Lane()
    guard let lane = upstream["lanes"]?[name], let events = lane[row.pending], events > 0 else { return nil }
    let bytes = lane[row.pendingBytes] ?? 0
    let amount = bytes < 1 << 10 ? counted(bytes, "byte") : size(bytes)
    return "\(name.padding(10))\(counted(events, "event")), \(amount), \(duration(lane[row.seconds]))"
  }

  /// `-`: unknown.
  private static func duration(_ seconds: Int64?) -> String {
    seconds.map { "about \(span(max(1, $0).magnitude))" } ?? "-"
  }

  /// In the greatest unit of which there are two.
  private static func span(_ seconds: UInt64) -> String {
    switch seconds {
    case ..<120: "\(seconds) s"
    case ..<7200: "\(seconds / 60) min"
    case ..<172_800: "\(seconds / 3600) h"
    default: "\(seconds / 86_400) days"
    }
  }

  static func message(_ message: JSONValue) -> Styled {
    let row = Shape.Message()
    let at = time(message[row.receivedAt])
    if isOurs(message) { return ourMessage(message, at) }
    var sender = speaker(Self.sender(of: message))
    let isInChannel = ["channel", "datagram"].contains(message[row.kind])
    var place = message[row.channelName].map { " [\(clean($0))]" } ?? (isInChannel ? " [unknown channel]" : "")
    if let author = shownName(message[row.authorName], key: message[row.author]) {
      // A room names itself, and a channel of this radio has that name, perhaps.
      (place, sender) = (" [room \(clean(Self.sender(of: message)))]", speaker(author))
    }
    var text = message[row.text].map { clean($0) } ?? "data \(message[row.data] ?? "")"
    // Nobody has said it.
    if message[row.command] == true { text = "(command to this radio) \(text)" }
    let copies = message[row.copies].flatMap { $0 > 1 ? " (×\($0))" : nil } ?? ""
    return "\(at)\(place) \(sender): \(text)\(copies)\(reactions(to: message))"
  }

  /// Behind a message; empty: there are none.
  static func reactions(to message: JSONValue) -> String {
    let all = message[Shape.Message().reactions].compactMap { $0[Shape.Reaction().emoji] }.joined()
    return all.isEmpty ? "" : "  \(clean(all))"
  }

  /// The name of somebody else before a text. One that reads as ours, or as a channel, stands in quotation marks: everybody chooses the own name.
  static func speaker(_ name: String) -> String {
    let name = clean(name)
    // Blanks and what is not seen make no difference to who reads it.
    let seen = name.unicodeScalars.filter { !$0.properties.isWhitespace && !$0.properties.isVariationSelector }
    let word = String(String.UnicodeScalarView(seen.prefix { $0.properties.isAlphabetic })).lowercased()
    let isDoubtful =
      word == "me" || name.contains(": ") || seen.first.map { "[\"".unicodeScalars.contains($0) } ?? false
    return isDoubtful ? "\"\(name)\"" : name
  }

  /// A sender's alias, otherwise its own name.
  static func sender(of message: JSONValue) -> String {
    let row = Shape.Message()
    return shownName(message[row.senderAlias], message[row.senderName], key: message[row.sender]) ?? "?"
  }

  /// The first of these names of which something is seen; otherwise the beginning of the key, as in the list of contacts.
  static func shownName(_ names: String?..., key: String?) -> String? {
    for case let name? in names where !Visible.isBlank(name) { return name }
    return key.map { String($0.prefix(12)) }
  }

  static func contact(_ contact: JSONValue) -> Styled {
    let row = Shape.Contact()
    let key = String((contact[row.key] ?? "").prefix(12))
    let hops = contact[row.hops].map { counted($0, "hop") } ?? "flood"
    let place =
      (contact[row.onRadio] == true ? "" : ", not on the radio")
      + (contact[row.mayCommand] == true ? ", may run commands on the radio" : "")
    let heard = contact[row.lastHeard].map { ", heard \(time($0))" } ?? ""
    let type = (contact[row.type] ?? "?").padding(9)
    let name = [contact[row.alias], contact[row.name].map { contact[row.alias] == nil ? $0 : "(\($0))" }]
    let shown = clean(name.compactMap { $0 }.joined(separator: " "))
    let offset = contact[row.clockOffsetS] ?? 0
    let clock = offset.magnitude >= 60 ? ", clock \(clockOffset(offset))" : ""
    return "\(key)  \(type)\(shown.padding(26))\(hops)\(heard)\(place)\(clock)"
  }

  /// How far a clock is off.
  static func clockOffset(_ seconds: Int64) -> String {
    "\(span(seconds.magnitude)) \(seconds < 0 ? "behind" : "ahead")"
  }

  static func channel(_ channel: JSONValue) -> Styled {
    let row = Shape.Channel()
    let slot = String(channel[row.slot] ?? 0).padding(4)
    let region = channel[row.region].map { "  \(self.region($0))" } ?? ""
    return "\(slot)\(clean(channel[row.name]).padding(26))\(channel[row.channel] ?? "")\(region)"
  }

  static func region(_ text: String) -> String { text == "*" ? "no region" : "the region \(clean(text))" }

  static func event(_ event: JSONValue) -> Styled {
    let row = Shape.Event()
    let body = event[row.body] ?? .null
    let seq = String(event[row.seq] ?? 0).padding(8)
    return "\(seq)\(time(event[row.at])) \((event[row.kind] ?? "?").padding(16))\(clean(body.text))"
  }

  static func deadLetter(_ letter: JSONValue) {
    let row = Shape.DeadLetter()
    let place = "\(letter[row.upstream] ?? "?") seq \(letter[row.seq] ?? 0)"
    print("dead      \(place) \(letter[row.kind] ?? "?"): \(clean(letter[row.reason]))")
  }

  /// Says so if there are none.
  static func upstreams(of outbox: JSONValue) -> [JSONValue] {
    let upstreams = outbox[Shape.Outbox().upstreams]
    if upstreams.isEmpty { print("no upstream is configured: see meshpost upstream add --help") }
    return upstreams
  }

  static func outbox(_ outbox: JSONValue) {
    for upstream in upstreams(of: outbox) { self.upstream(upstream, byLane: true) }
    let letters = outbox[Shape.Outbox().deadLetters]
    for letter in letters { deadLetter(letter) }
    guard !letters.isEmpty else { return }
    print("resend them with: meshpost upstream retry; one of them with: meshpost upstream retry UPSTREAM SEQ")
  }
}

extension String {
  /// At least `width` columns, with at least one space at the end.
  func padding(_ width: Int) -> String { self + String(repeating: " ", count: max(1, width - TextWidth.of(self))) }
}

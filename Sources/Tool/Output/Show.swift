// SPDX-License-Identifier: MIT

import Console
import Glibc
import JSON
import UntrustedText

/// Formats answers for people.
enum Show {
  static func time(_ milliseconds: Int64?) -> String {
    guard let milliseconds else { return "never" }
    return format(milliseconds, isUTC ? "%Y-%m-%d %H:%M:%SZ" : "%Y-%m-%d %H:%M:%S", isUTC: isUTC)
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
    let strength = radio["rssi"]?.integer.map { "\($0) dBm" } ?? "-"
    let isPaired = radio["paired"]?.bool ?? false
    let isConnected = radio["connected"]?.bool ?? false
    let state = isConnected ? "connected" : isPaired ? "paired" : ""
    let fields = [radio["address"]?.string ?? "?", strength, clean(radio["name"]?.string), state]
    print(fields.joined(separator: "  "))
  }

  static func finding(_ finding: JSONValue) {
    let mark = ["ok": "ok  ", "warning": "WARN", "failed": "FAIL"][finding["state"]?.string ?? ""] ?? "?"
    print(
      styled: "\(TerminalColour.state(mark))  \(finding["subject"]?.string ?? "?"): \(clean(finding["words"]?.string))")
    if let remedy = finding["remedy"]?.string { print("      \(clean(remedy))") }
  }

  private static func size(_ bytes: Int64) -> String {
    bytes < 1 << 20 ? "\(bytes >> 10) KiB" : "\(bytes >> 20) MiB"
  }

  /// The battery if it has a problem: `meshpost radio info` always shows the battery.
  private static func power(_ power: JSONValue) {
    if power["battery_low"]?.bool == true {
      print(
        styled: "          \(TerminalColour.bad("battery low: \(Double(power["battery_mv"]?.integer ?? 0) / 1000) V"))")
    }
    if power["supply_low"]?.bool == true {
      print(styled: "          \(TerminalColour.bad("this machine's supply voltage is too low"))")
    }
  }

  static func status(_ status: JSONValue) {
    let radio = status["radio"] ?? .null
    let identity = radio["identity"]
    let memory = status["resident_kib"]?.integer.map { ", \($0 / 1024) MiB resident" } ?? ""
    print("gateway   \(status["gateway"]?.string ?? "?"), up \(status["uptime_s"]?.integer ?? 0) s\(memory)")
    if status["clock_trusted"]?.bool == false { print("          the clock is not synchronised: times are marked") }
    if let refusal = status["configuration_error"]?.string {
      print(styled: "config    \(TerminalColour.bad("refused")); running with the last configuration that worked")
      for line in refusal.lines { print("          \(line)") }
    }
    for one in status["overrides"]?.array ?? [] {
      print(
        "config    \(clean(one["setting"]?.string)) is \(clean(one["value"]?.string)) by a document, in place of \(clean(one["configured"]?.string)) in the file"
      )
    }
    if let later = status["after_restart"]?.array {
      let names = later.compactMap(\.string).joined(separator: ", ")
      print(styled: "config    \(TerminalColour.bad("waits for a restart")): \(names)")
    }
    for words in status["without_effect"]?.array ?? [] {
      print(styled: "config    \(TerminalColour.bad("without effect")): \(clean(words.string))")
    }
    let strength = radio["rssi"]?.integer.map { ", \($0) dBm" } ?? ""
    let isUp = radio["state"]?.string == "up"
    let step = isUp ? "" : radio["step"]?.string.map { ", \($0)" } ?? ""
    print(
      styled:
        "radio     \(TerminalColour.state(radio["state"]?.string ?? "?")), \(radio["link"]?.string ?? "?")\(strength)\(step)"
    )
    if let identity {
      let version = clean(identity["version"]?.string)
      print("          \(clean(identity["name"]?.string)), \(clean(identity["model"]?.string)) \(version)")
    }
    advert(radio)
    trouble(radio)
    if let stuck = radio["region_error"]?.string { print(styled: "          \(TerminalColour.bad(stuck))") }
    power(status["power"] ?? .null)
    sync(status["sync"] ?? .null)
    messaging(status["messaging"] ?? .null)
    store(status["store"] ?? .null)
    for upstream in status["upstreams"]?.array ?? [] { self.upstream(upstream) }
    for one in status["left_out"]?.array ?? [] {
      let counts = (one.fields ?? []).compactMap { name, count in
        count.integer.map { "\($0) \(name.split(separator: "_").joined(separator: " "))" }
      }
      print("left out  \(clean(one["upstream"]?.string)): messages of other places: \(counts.joined(separator: ", "))")
    }
    for one in status["removed_upstreams"]?.array ?? [] {
      let deleted = one["given_up"]?.integer.map { ", \($0) were deleted before it had them" } ?? ""
      print(
        "\((one["name"]?.string ?? "?").padding(10))removed \(time(one["at"]?.integer)): \(one["pending"]?.integer ?? 0) events wait for it\(deleted)"
      )
    }
    for alert in status["alerts"]?.array ?? [] { print(styled: "alert     \(Show.alert(alert))") }
    for proxy in status["proxies"]?.array ?? [] { self.proxy(proxy) }
    if let web = status["web"] { pages(web) }
  }

  private static func pages(_ web: JSONValue) {
    let count = web["sessions"]?.integer ?? 0
    print("pages     at http://\(clean(web["address"]?.string)), \(count) browsers signed in")
    trouble(web)
  }

  private static func proxy(_ proxy: JSONValue) {
    let clients = proxy["clients"]?.array ?? []
    let names = clients.compactMap { $0["name"]?.string }.joined(separator: ", ")
    let users = clients.isEmpty ? "nobody" : "\(clients.count) (\(names))"
    print("shared    at \(proxy["address"]?.string ?? "?") with \(users)")
    trouble(proxy)
  }

  private static func trouble(_ part: JSONValue) {
    if let error = part["error"]?.string { print("          \(error)") }
    if let remedy = part["remedy"]?.string { print("          \(remedy)") }
  }

  static func sync(_ sync: JSONValue) {
    print(styled: syncLine(sync))
    for upstream in sync["updates"]?.array ?? [] { updates(upstream) }
  }

  private static func updates(_ upstream: JSONValue) {
    let state = upstream["reachable"]?.bool == true ? "" : ", unreachable"
    print("updates   \(upstream["upstream"]?.string ?? "?")\(state), last \(time(upstream["last_success"]?.integer))")
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
    let state = TerminalColour.state(sync["state"]?.string ?? "?")
    var line = ""
    if let phase = sync["phase"]?.string {
      line += " \(phase)"
      if let current = sync["current"]?.integer { line += " \(current)" }
      if let total = sync["total"]?.integer { line += "/\(total)" }
    }
    if let reason = sync["reason"]?.string { line += ": \(reason)" }
    return "sync      \(state)\(line), last \(time(sync["last_synced"]?.integer))"
  }

  private static func store(_ store: JSONValue) {
    func number(_ name: String) -> Int64 { store[name]?.integer ?? 0 }
    print(
      "store     \(number("messages")) messages, \(number("contacts")) nodes (\(number("contacts_on_radio")) on the "
        + "radio), seq \(number("last_seq")), \(size(number("size_bytes")))")
    trouble(store)
    if let events = store["given_up"]?.integer {
      print(
        "          \(events) events were deleted before every upstream had them, the last \(time(store["given_up_at"]?.integer))"
      )
    }
    if let loss = store["loss"]?.string { print("          \(loss)") }
  }

  /// `byLane`: a line for each lane with waiting events.
  static func upstream(_ upstream: JSONValue, byLane: Bool = false) {
    func number(_ name: String) -> Int64 { upstream[name]?.integer ?? 0 }
    let name = (upstream["name"]?.string ?? "?").padding(10)
    let link = upstream["link"]?.string.map { " (\($0))" } ?? ""
    let counts = "\(number("pending")) pending, \(number("dead_letters")) dead letters"
    let last = time(upstream["last_success"]?.integer)
    let state = TerminalColour.state(upstream["state"]?.string ?? "?")
    print(styled: "\(name)\(state), \(counts), last \(last), \(upstream["url"]?.string ?? "")\(link)")
    let lanes = Self.lanes.compactMap { lane in
      (upstream["lanes"]?[lane]?["pending"]?.integer).flatMap { $0 > 0 ? "\($0) in \(lane)" : nil }
    }
    if byLane {
      for lane in Self.lanes { if let lane = self.lane(lane, upstream) { print("          \(lane)") } }
    } else if number("pending") > 0, !lanes.isEmpty {
      print("          pending: \(lanes.joined(separator: ", "))")
    }
    if number("pending") > 0, number("age_s") > 60 {
      print("          the oldest has waited for \(number("age_s") / 60) min, \(number("in_flight")) in flight")
    }
    if number("given_up") > 0 {
      let open = number("lost") > 0 ? ", \(number("lost")) of them in gaps that it has yet to get" : ""
      print("          \(number("given_up")) events were deleted before it had them\(open)")
    }
    if number("too_old") > 0 { print("          \(number("too_old")) events were too old for it (max_age_s)") }
    if let reason = upstream["reason"]?.string { print("          \(clean(reason))") }
    if let words = allowance(upstream["allowance"]) { print("          \(words)") }
  }

  private static let lanes = ["messages", "nodes", "packets"]

  /// The waiting events, and their age; `nil`: none.
  private static func lane(_ name: String, _ upstream: JSONValue) -> String? {
    guard let lane = upstream["lanes"]?[name], let events = lane["pending"]?.integer, events > 0 else { return nil }
    let bytes = lane["pending_bytes"]?.integer ?? 0
    let amount = bytes < 1 << 10 ? "\(bytes) bytes" : size(bytes)
    let count = events == 1 ? "1 event" : "\(events) events"
    return "\(name.padding(10))\(count), \(amount), \(duration(lane["seconds"]?.integer))"
  }

  /// `-`: unknown.
  private static func duration(_ seconds: Int64?) -> String {
    switch seconds {
    case nil: "-"
    case let seconds? where seconds < 120: "about \(max(1, seconds)) s"
    case let seconds? where seconds < 7200: "about \(seconds / 60) min"
    case let seconds? where seconds < 172_800: "about \(seconds / 3600) h"
    case let seconds?: "about \(seconds / 86400) days"
    }
  }

  static func message(_ message: JSONValue) -> Styled {
    let at = time(message["received_at"]?.integer)
    if isOurs(message) { return ourMessage(message, at) }
    var sender = clean(Self.sender(of: message))
    let isInChannel = ["channel", "datagram"].contains(message["kind"]?.string)
    var place = message["channel_name"]?.string.map { " [\(clean($0))]" } ?? (isInChannel ? " [unknown channel]" : "")
    if let author = message["author_name"]?.string ?? message["author"]?.string {
      (place, sender) = (" [\(sender)]", clean(author))
    }
    let text = message["text"]?.string.map { clean($0) } ?? "data \(message["data"]?.string ?? "")"
    let copies = message["copies"]?.integer.flatMap { $0 > 1 ? " (×\($0))" : nil } ?? ""
    let reactions = (message["reactions"]?.array ?? []).compactMap { $0["emoji"]?.string }.joined()
    return "\(at)\(place) \(sender): \(text)\(copies)\(reactions.isEmpty ? "" : "  \(clean(reactions))")"
  }

  /// A sender's alias, otherwise its own name.
  static func sender(of message: JSONValue) -> String {
    message["sender_alias"]?.string ?? message["sender_name"]?.string ?? message["sender"]?.string ?? "?"
  }

  static func contact(_ contact: JSONValue) -> Styled {
    let key = String((contact["key"]?.string ?? "").prefix(12))
    let hops = contact["hops"]?.integer.map { "\($0) hops" } ?? "flood"
    let place = contact["on_radio"]?.bool == true ? "" : ", not on the radio"
    let heard = contact["last_heard"]?.integer.map { ", heard \(time($0))" } ?? ""
    let type = (contact["type"]?.string ?? "?").padding(9)
    let name = [contact["alias"]?.string, contact["name"]?.string.map { contact["alias"] == nil ? $0 : "(\($0))" }]
    let shown = clean(name.compactMap { $0 }.joined(separator: " "))
    return "\(key)  \(type)\(shown.padding(26))\(hops)\(heard)\(place)"
  }

  static func channel(_ channel: JSONValue) -> Styled {
    let slot = String(channel["slot"]?.integer ?? 0).padding(4)
    let region = channel["region"]?.string.map { "  \(self.region($0))" } ?? ""
    return "\(slot)\(clean(channel["name"]?.string).padding(26))\(channel["channel"]?.string ?? "")\(region)"
  }

  static func region(_ text: String) -> String { text == "*" ? "no region" : "the region \(clean(text))" }

  static func event(_ event: JSONValue) -> Styled {
    var body = JSONWriter()
    body.value(event["body"] ?? .null)
    let seq = String(event["seq"]?.integer ?? 0).padding(8)
    return "\(seq)\(time(event["at"]?.integer)) \((event["kind"]?.string ?? "?").padding(16))\(clean(body.string))"
  }

  static func deadLetter(_ letter: JSONValue) {
    let place = "\(letter["upstream"]?.string ?? "?") seq \(letter["seq"]?.integer ?? 0)"
    print("refused   \(place) \(letter["kind"]?.string ?? "?"): \(clean(letter["reason"]?.string))")
  }

  static func outbox(_ outbox: JSONValue) {
    for upstream in outbox["upstreams"]?.array ?? [] { self.upstream(upstream, byLane: true) }
    let letters = outbox["dead_letters"]?.array ?? []
    for letter in letters { deadLetter(letter) }
    guard !letters.isEmpty else { return }
    print("resend them with: meshpost upstream retry; one of them with: meshpost upstream retry UPSTREAM SEQ")
  }
}

extension String {
  /// At least `width` columns, with at least one space at the end.
  func padding(_ width: Int) -> String { self + String(repeating: " ", count: max(1, width - TextWidth.of(self))) }
}

// SPDX-License-Identifier: MIT

import JSON
import Testing
import Timing

/// Alerts from their cause to the events at a hub: each begin and each end comes once.
@Suite struct AlertsOfAGatewayTests {
  private static let quiet = "[alerts]\nclock_wrong = false\ndisk_full = false\n"

  @Test func `a dead upstream, a full disk and dead letters begin and end alerts, unless the rule is off`() throws {
    let rig = try Rig()
    func tables(_ more: String) -> String {
      """
      [[upstream]]
      name = "no"
      kind = "webhook"
      url = "http://127.0.0.1:1"
      kinds = ["message"]
      [alerts]
      clock_wrong = false
      disk_full_ends_after_s = 0
      \(more)
      """
    }
    rig.configure(tables(""))
    try rig.startSynced()
    rig.hub.mood = .unreachable
    rig.server("no", "webhook").refuses = { $0.body["text"]?.string == "nobody takes this" }
    rig.air("dm r1 r0 nobody takes this")
    rig.air("dm r1 r0 this is taken")
    try rig.until("both", within: .seconds(7200)) { try Set(rig.openAlerts()) == ["backlogged", "dead_letters"] }
    #expect(try rig.alert("backlogged")?["subject"]?.string == "hub")
    #expect(try rig.alert("dead_letters")?["subject"]?.string == "no")
    // The rule demands more room than any disk has.
    rig.reload(tables("disk_free = \"1048576 GiB\""))
    try rig.until("the disk") { try rig.openAlerts().contains("disk_full") }
    rig.reload(tables("disk_free = 0\ndead_letters = false"))
    try rig.until("room again, and one rule less") { try rig.openAlerts() == ["backlogged"] }
    rig.hub.mood = .well
    try rig.until("the hub has it") { try rig.openAlerts().isEmpty }
    try rig.until("all at the hub") { rig.hub.alerts.count == 6 }
    for rule in ["backlogged", "disk_full", "dead_letters"] {
      #expect(rig.hub.alerts.filter { $0.hasPrefix(rule) } == ["\(rule) begin", "\(rule) end"])
    }
  }

  @Test func `a configured node that is silent begins an alert, and the alert ends when the node is heard`() throws {
    let rig = try Rig()
    let rule = "nodes = [\"r1\"]\nnode_silent_after_s = 2"
    rig.configure(Self.quiet + rule)
    try rig.startSynced()
    try rig.until("the alert") { try rig.openAlerts().contains("node_silent") }
    #expect(try rig.alert("node_silent")?["text"]?.string == "r1 has not been heard for 2 seconds")
    rig.kill()
    try rig.startSynced()
    #expect(try rig.openAlerts().contains("node_silent"), "over a restart, too")
    // The node is heard, and then silent again.
    rig.air("advert r1")
    try rig.until("its end") { rig.hasSaid("alert over: node_silent") }
    try rig.until("it is silent again") { try rig.alert("node_silent")?["ended_at"] == nil }
    rig.reload(Self.quiet)
    try rig.until("nobody listens for it any more") { try rig.openAlerts().isEmpty }
  }

  @Test func `an alert about a loss ends after its time, also over a kill`() throws {
    let rig = try Rig { $0.queueCapacity = 100_000 }
    let small = "journal_max_size = \"1 MiB\""
    rig.configure(Self.quiet + "journal_loss_ends_after_s = 86400", store: small)
    rig.hub.mood = .unreachable
    try rig.startSynced()
    rig.air("inject r0 0 8000")
    try rig.until("the loss", within: .seconds(7200)) { try rig.openAlerts().contains("journal_loss") }
    let text = try rig.alert("journal_loss")?["text"]?.string ?? ""
    #expect(text.hasSuffix(" events were deleted that hub had not received") && text.prefix(1) != "0", "\(text)")
    try rig.until("all was handed over", within: .seconds(7200)) { rig.radio.queuedMessages == 0 }
    // The first cut is logged at once, and the others together, at most once an hour.
    let cuts = rig.story.count { $0.contains("were deleted: the journal is full") }
    #expect(cuts >= 1 && cuts < 8, "\(cuts)")
    try rig.until("the log has told of all", within: .seconds(3700)) {
      let all = try rig.alert("journal_loss")?["text"]?.string ?? ""
      return Int(all.prefix(while: \.isNumber)) == Self.toldAsDeleted(rig.story)
    }
    rig.kill()
    rig.configure(Self.quiet + "journal_loss_ends_after_s = 1", store: small)
    try rig.start()
    try rig.until("its end") { try !rig.openAlerts().contains("journal_loss") }
  }

  /// The deleted events that the log says the hub lacks.
  private static func toldAsDeleted(_ story: [String]) -> Int {
    story.reduce(0) { sum, line in
      let words = line.split(separator: " ")
      guard line.contains("were deleted: the journal is full"), let place = words.firstIndex(of: "hub"),
        place + 4 < words.count
      else { return sum }
      return sum + (Int(words[place + 4]) ?? 0)
    }
  }

  @Test func `a node without room in the contact table is reported until there is room`() throws {
    let rig = try Rig(isKnown: false) { ($0.maxContacts, $0.contacts) = (40, 40) }
    rig.configure(
      "[contacts]\nevict = false\n" + Self.quiet + "contacts_full_after_s = 0\ncontacts_full_ends_after_s = 0")
    try rig.startSynced()
    #expect(try rig.openAlerts() == [], "full, and nobody was refused")
    rig.air("advert r1")
    try rig.until("the alert") { try rig.openAlerts() == ["contacts_full"] }
    let known = try rig.rows("/v1/contacts").first { $0["on_radio"]?.bool == true }
    let key = try #require(known?["key"]?.string)
    #expect(try rig.ask("POST", "/v1/contacts/remove?contact=\(key)").status == 200)
    try rig.until("its end") { try rig.openAlerts().isEmpty }
    try rig.until("the hub to know both") { rig.hub.alerts == ["contacts_full begin", "contacts_full end"] }
  }

  @Test func `a radio whose queue was full is reported with the loss, also at the hub`() throws {
    let rig = try Rig { $0.queueCapacity = 16 }
    rig.configure(Self.quiet)
    rig.air("inject r0 0 24")
    try rig.start()
    try rig.until("the alert") { try rig.openAlerts() == ["radio_queue_full"] }
    try rig.until("the hub to know") { rig.hub.alerts == ["radio_queue_full begin"] }
    let gap = try #require(rig.hub.events.firstIndex { $0.kind == "radio_gap" })
    #expect(rig.hub.events[gap].body["waited"]?.integer == 16 && rig.hub.events[gap].body["lost"] == nil)
    #expect(rig.hub.events[..<gap].count { $0.kind == "message" } == 16, "behind those that came")
  }

  @Test func `a radio that returns no messages is reported as long as it returns none`() throws {
    let rig = try Rig()
    rig.configure(Self.quiet + "messages_stuck_after_s = 1\nmessages_stuck_ends_after_s = 0")
    rig.link.refuses = { $0 == .syncNextMessage }
    try rig.start()
    try rig.until("the alert") { try rig.openAlerts() == ["messages_stuck"] }
    #expect(try rig.alert("messages_stuck")?["text"]?.string?.contains("nothing more is received") == true)
    rig.link.refuses = { _ in false }
    try rig.until("its end") { try rig.openAlerts().isEmpty }
  }

  @Test func `a rule that is switched on finds a present problem`() throws {
    let rig = try Rig()
    rig.configure(Self.quiet + "radio_lost_after_s = 0\nradio_lost = false")
    try rig.startSynced()
    rig.link.isPresent = false
    try rig.until("the radio is away") { try rig.status()["radio"]?["state"]?.string == "down" }
    #expect(try rig.openAlerts().isEmpty)
    rig.reload(Self.quiet + "radio_lost_after_s = 0")
    try rig.until("the alert") { try rig.openAlerts() == ["radio_lost"] }
  }

  @Test func `a lost radio and its return are reported to hub, broker and webhook once, also after kills`() throws {
    let rig = try Rig()
    rig.configure(
      """
      [[upstream]]
      name = "broker"
      kind = "mqtt"
      url = "mqtt://127.0.0.1:1"
      [[upstream]]
      name = "hook"
      kind = "webhook"
      url = "http://127.0.0.1:1"
      kinds = ["alert"]

      """ + Self.quiet + "radio_lost_after_s = 1\nradio_lost_ends_after_s = 1")
    let servers = [rig.hub, rig.server("broker", "mqtt"), rig.server("hook", "webhook")]
    try rig.startSynced()
    rig.link.isPresent = false
    // The webhook got it from the disk: a kill before that commit is a different case.
    try rig.until("it to be told") { servers[2].alerts == ["radio_lost begin"] }
    rig.kill()
    try rig.start()
    #expect(try rig.openAlerts() == ["radio_lost"], "what was open is open")
    try rig.until("the begin everywhere") { servers.allSatisfy { $0.alerts == ["radio_lost begin"] } }
    rig.hub.mood = .unreachable
    let id = try #require(try rig.alert("radio_lost")?["id"]?.integer)
    #expect(try rig.post("/v1/alerts/acknowledge", #"{"id":\#(id),"by":"ana","note":"on my way"}"#).status == 200)
    rig.kill()
    rig.link.isPresent = true
    try rig.start()
    try rig.until("its end") { try rig.openAlerts().isEmpty }
    rig.hub.mood = .well
    _ = try rig.ask("POST", "/v1/outbox/resume")
    let all = ["radio_lost begin", "radio_lost acknowledged", "radio_lost end"]
    try rig.until("begin, acknowledgement and end everywhere") { servers.allSatisfy { $0.alerts.count >= 3 } }
    rig.pass(.seconds(600))
    for server in servers { #expect(server.alerts == all, "\(server.kind)") }
    let row = try #require(try rig.alert("radio_lost"))
    #expect(row["ended_at"] != nil && row["acknowledged_by"]?.string == "ana" && row["note"]?.string == "on my way")
    let rules = try rig.json("/v1/alerts/rules")["rules"]?.array ?? []
    #expect(
      rules.contains { $0["rule"]?.string == "radio_lost" && $0["sentence"]?.string?.contains("1 second") == true })
    let metrics = String(decoding: try rig.ask("GET", "/metrics").body, as: UTF8.self)
    #expect(metrics.contains("meshpost_alerts{rule=\"radio_lost\"} 0") && !metrics.contains("rule=\"clock_wrong\""))
    #expect(try rig.ask("POST", "/v1/alerts/acknowledge").status == 400)
    #expect(try rig.post("/v1/alerts/acknowledge", #"{"id":99999}"#).status == 404)
  }

  @Test func `an alert about a full disk is stored when the disk has room again, as begun and ended`() throws {
    let rig = try Rig { $0.queueCapacity = 1000 }
    rig.configure("[alerts]\nclock_wrong = false\ndisk_free = 0\ndisk_full_ends_after_s = 0")
    try rig.startSynced()
    rig.isDiskFull = true
    for number in 0..<20 { rig.air("dm r1 r0 number \(number)") }
    try rig.until("it to be logged") { rig.hasSaid("alert: nothing can be written") }
    rig.pass(.seconds(60))
    #expect(rig.hub.alerts.isEmpty && rig.hub.texts.isEmpty)
    rig.isDiskFull = false
    try rig.until("its end") { rig.hasSaid("alert over: disk_full") }
    try rig.until("both at the hub") { rig.hub.alerts == ["disk_full begin", "disk_full end"] }
    let rows = try rig.json("/v1/alerts")["alerts"]?.array ?? []
    #expect(rows.count { $0["rule"]?.string == "disk_full" && $0["ended_at"] != nil } == 1 && rows.count == 1)
    try rig.until("all messages") { rig.hub.texts == (0..<20).map { "number \($0)" } }
  }
}

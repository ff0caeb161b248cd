// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import JSON
import RadioSharing
import Relay
import Store
import Sync
import Timing

/// The content of `meshpost status --json`; docs/stability.md promises the shape.
struct StatusReport {
  let dependencies: ControlAPI.Dependencies

  func write(to json: inout JSONWriter) throws(StoreError) {
    json.field("version", dependencies.version)
    json.field("gateway", dependencies.store.gatewayID)
    json.field("epoch", dependencies.store.epoch)
    json.field("configuration_error", dependencies.operations.configurationRefusal)
    let overrides = dependencies.operations.overrides
    if !overrides.isEmpty {
      json.objects("overrides", overrides) { one, json in
        json.field("setting", one.setting)
        json.field("value", one.value)
        json.field("configured", one.configured)
        json.field("document", one.document)
      }
    }
    let later = dependencies.operations.settingsForNextStart
    if !later.isEmpty { json.arrayField("after_restart") { for setting in later { $0.value(setting) } } }
    let idle = dependencies.operations.idleSettings
    if !idle.isEmpty { json.arrayField("without_effect") { for words in idle { $0.value(words) } } }
    json.field("uptime_s", Int64((dependencies.loop.now - dependencies.startedAt).inSeconds))
    json.field("clock_trusted", dependencies.loop.wallClock.isSynchronised)
    json.field("resident_kib", Self.residentKibibytes)
    json.field("wakeups", dependencies.loop.wakeups)
    json.objectField("radio") { writeRadio(to: &$0) }
    json.objectField("sync") { writeSync(to: &$0) }
    let held = try dependencies.store.heldCount()
    json.objectField("messaging") { writeMessaging(held: held, to: &$0) }
    try writeStore(to: &json)
    json.objects("upstreams", dependencies.relay.upstreams) { Self.write($0.status, to: &$1) }
    json.objects("left_out", dependencies.relay.upstreams.compactMap(\.updates).filter { !$0.leftOut.isEmpty }) {
      report, json in
      json.field("upstream", report.upstream)
      for why in LeftOut.allCases { json.field(why.rawValue, report.leftOut[why].map { Int64($0) }) }
    }
    let removed = try dependencies.store.removedUpstreams().filter { $0.pending > 0 || $0.givenUp > 0 }
    json.objects("removed_upstreams", removed) { one, json in
      json.field("name", one.name)
      json.field("at", one.at)
      json.field("pending", one.pending)
      json.field("given_up", one.givenUp > 0 ? one.givenUp : nil)
    }
    writeProxies(to: &json)
    if let web = dependencies.operations.webReport { json.objectField("web") { web.write(to: &$0) } }
    json.objectField("power") { json in
      let power = dependencies.operations.powerReport
      json.field("battery_mv", power.millivolts)
      json.field("battery_low", power.isBatteryLow)
      json.field("supply_low", power.isSupplyLow)
    }
    let alerts = try dependencies.store.alerts(openOnly: true, limit: Self.mostAlerts)
    json.objects("alerts", alerts) { AlertsAPI.write($0, to: &$1) }
    json.field("listeners", dependencies.taps.count)
  }

  /// The greatest number of open alerts in a status; `/v1/alerts` has all.
  private static let mostAlerts = 50

  private func writeProxies(to json: inout JSONWriter) {
    json.objects("proxies", dependencies.proxy.reports) { report, json in
      json.field("name", report.name)
      json.field("address", report.address)
      json.field("error", report.trouble)
      json.objects("clients", report.clients) { Self.write($0, to: &$1) }
    }
  }

  private static func write(_ client: CompanionProxy.Report.Client, to json: inout JSONWriter) {
    json.field("name", client.name)
    json.field("program", client.program)
    json.field("connected_s", client.connectedSeconds)
    json.field("commands", client.commands)
    json.field("refusals", client.refusals)
    json.field("behind", client.behind)
    json.field("unread_bytes", client.unreadBytes)
  }

  func writeState(to json: inout JSONWriter) {
    json.field("version", dependencies.version)
    json.field("link", dependencies.connection.link.name)
    switch dependencies.connection.state {
    case .connecting: json.field("radio", "connecting")
    case .handshaking: json.field("radio", "handshaking")
    case .up: json.field("radio", "up")
    case .waiting(let error):
      json.field("radio", "down")
      json.field("error", error.description)
    }
    json.field("name", dependencies.connection.identity?.info.name.string)
    json.field("sync", dependencies.synchronizer.state.name)
    json.field("clock_trusted", dependencies.loop.wallClock.isSynchronised)
    json.field("store_error", dependencies.store.transactions.failure?.description)
    json.field("battery_mv", dependencies.operations.powerReport.shownMillivolts)
    // If a hub knows of open alerts and this is 0, it has missed their end.
    json.field(
      "alerts", dependencies.store.ifReadable { try dependencies.store.alerts(openOnly: true, limit: 50).count })
    let backlog = dependencies.operations.shownBacklog
    if backlog > 0 { json.field("pending", backlog) }
  }

  static var residentKibibytes: Int64? {
    guard let bytes = Files.read("/proc/self/statm") else { return nil }
    let words = String(decoding: bytes, as: UTF8.self).split(separator: " ")
    return words.count > 1 ? Int64(words[1]).map { $0 * Int64(sysconf(Int32(_SC_PAGESIZE))) / 1024 } : nil
  }

  private func writeRadio(to json: inout JSONWriter) {
    let connection = dependencies.connection
    json.field("link", connection.link.name)
    json.field("step", connection.link.step)
    json.field("rssi", connection.link.rssi)
    switch connection.state {
    case .connecting: json.field("state", "connecting")
    case .handshaking: json.field("state", "handshaking")
    case .up: json.field("state", "up")
    case .waiting(let error):
      json.field("state", "down")
      json.field("error", error.description)
      json.field("remedy", error.remedy)
    }
    json.field("last_heard_s", connection.lastHeard.map { Int64((dependencies.loop.now - $0).inSeconds) })
    json.field("unreadable_frames", connection.unreadableFrames)
    json.field("region_error", connection.isScopeStuck ? RadioConnection.stuckScope : nil)
    if let identity = connection.identity {
      json.objectField("identity") { EventBody.write(identity, to: &$0) }
    }
    guard let advert = dependencies.messaging.routine.advert.report else { return }
    json.objectField("advert") { json in
      json.field("at", advert.at)
      json.field("flood", advert.isFlood)
      json.field("current", advert.isCurrent)
    }
  }

  func writeSync(to json: inout JSONWriter) {
    let state = dependencies.synchronizer.state
    json.field("state", state.name)
    switch state {
    case .syncing(let phase, let current, let total):
      json.field("phase", phase.rawValue)
      json.field("current", current)
      if total > 0 { json.field("total", total) }
    case .failed(let reason, let phase):
      json.field("phase", phase?.rawValue)
      json.field("reason", reason)
    case .idle, .synced: break
    }
    json.field("last_synced", dependencies.synchronizer.lastSynced)
    let counters = dependencies.synchronizer.counters
    json.objectField("counters") { json in
      json.field("connections", counters.connections)
      json.field("messages_stored", counters.messagesStored)
      json.field("duplicates", counters.duplicates)
      json.field("empty_slot_messages", counters.emptySlotMessages)
      json.field("adverts", counters.adverts)
      json.field("contacts_changed", counters.contactsChanged)
      json.field("full_contact_lists", counters.fullContactLists)
      json.field("incremental_contact_lists", counters.incrementalContactLists)
      json.field("timeouts", counters.timeouts)
      json.field("unasked_replies", counters.unaskedReplies)
    }
  }

  /// The state of updates from servers.
  func writeUpdates(to json: inout JSONWriter) {
    json.arrayField("updates") { json in
      for upstream in dependencies.relay.upstreams {
        if let report = upstream.updates { json.object { Self.write(report, to: &$0) } }
      }
    }
  }

  private static func write(_ report: UpdatesReport, to json: inout JSONWriter) {
    json.field("upstream", report.upstream)
    json.field("reachable", report.isReachable)
    json.field("last_success", report.lastSuccess)
    json.field("trouble", report.trouble)
    json.objects("buckets", report.buckets) { bucket, json in
      json.field("bucket", bucket.name)
      json.field("seq", bucket.seq)
      json.field("behind", bucket.behind)
      json.field("since", bucket.since)
      json.field("fetches", bucket.statistics.fetches)
      json.field("follow_ups", bucket.statistics.followUps)
      json.field("applied", bucket.statistics.applied)
      json.field("skipped", bucket.statistics.skipped)
      json.field("duplicates", bucket.statistics.duplicates)
      json.field("divergences", bucket.statistics.divergences)
    }
  }

  private func writeMessaging(held: Int64, to json: inout JSONWriter) {
    let status = dependencies.messaging.messenger.status
    json.field("waiting", status.waiting)
    json.field("in_flight", status.inFlight)
    json.field("held", held)
    json.field("delivered", status.delivered)
    json.field("failed", status.failed)
    json.field("sent_on_channels", status.sentOnChannels)
    json.field("airtime_used_ms", status.airtime.used)
    json.field("airtime_limit_ms", status.airtime.limit)
    json.field("hour_messages", status.messages.used)
    json.field("hour_messages_limit", status.messages.limit)
    json.field("waits_for_airtime", status.waitsForBudget)
    json.objects("polls", dependencies.messaging.routine.reports) { report, json in
      json.field("node", report.poll.node)
      json.field("kind", report.poll.kind.rawValue)
      json.field("every_s", Int64(report.poll.every.inSeconds))
      json.field("last_success", report.lastSuccess)
      json.field("trouble", report.trouble)
    }
  }

  private func writeStore(to json: inout JSONWriter) throws(StoreError) {
    let store = dependencies.store
    let (messages, contacts) = (try store.messageCount(), try store.contactCount(onRadio: false))
    let (onRadio, size) = (try store.contactCount(onRadio: true), try store.size())
    let unindexed = try store.unindexedMessages()
    let givenUp = try store.givenUp()
    json.objectField("store") { json in
      json.field("messages", messages)
      json.field("contacts", contacts)
      json.field("contacts_on_radio", onRadio)
      json.field("last_seq", store.lastSeq)
      json.field("oldest_seq", store.journalSize.oldest)
      json.field("journal_bytes", store.journalSize.bytes)
      json.field("size_bytes", size)
      json.field("unindexed", unindexed)
      json.field("given_up", givenUp?.events)
      json.field("given_up_at", givenUp?.at)
      json.field("set_aside", store.provenance.setAside)
      json.field("loss", store.provenance.loss?.description)
      json.field("error", store.transactions.failure?.description ?? (store.isElsewhere ? Store.elsewhere.words : nil))
      json.field("remedy", store.transactions.failure?.remedy ?? (store.isElsewhere ? Store.elsewhere.remedy : nil))
    }
  }

  static func write(_ status: UpstreamStatus, to json: inout JSONWriter) {
    json.field("name", status.name)
    json.field("kind", status.kind)
    json.field("url", status.url)
    json.field("link", status.link)
    json.field("state", status.state.rawValue)
    json.field("acknowledged", status.cursor)
    json.field("pending", status.pending)
    if let lanes = status.lanes {
      json.objectField("lanes") { json in
        for lane in Lane.allCases {
          json.objectField(lane.rawValue) { json in
            json.field("acknowledged", lanes[lane].acknowledged)
            json.field("pending", lanes[lane].pending.events)
            json.field("pending_bytes", lanes[lane].pending.bytes)
            json.field("seconds", lanes[lane].seconds)
          }
        }
      }
    }
    json.field("in_flight", status.inFlight)
    json.field("bytes_per_second", status.rate)
    json.field("dead_letters", status.deadLetters)
    json.field("lost", status.losses.ahead)
    if status.losses.givenUp > 0 { json.field("given_up", status.losses.givenUp) }
    if status.losses.tooOld > 0 { json.field("too_old", status.losses.tooOld) }
    json.field("age_s", status.age)
    json.field("reason", status.reason)
    json.field("last_success", status.lastSuccess)
    if status.refusedCommands > 0 { json.field("refused_commands", status.refusedCommands) }
    json.field("batches", status.batches)
    json.field("bytes_sent", status.bytesSent)
    json.field("certificate_expires", status.certificateExpiry)
    if let allowance = status.allowance { json.objectField("allowance") { write(allowance, to: &$0) } }
  }

  private static func write(_ allowance: AllowanceStatus, to json: inout JSONWriter) {
    json.field("day_bytes", allowance.dayBytes)
    json.field("daily_bytes", allowance.dailyBytes)
    json.field("month_bytes", allowance.monthBytes)
    json.field("monthly_bytes", allowance.monthlyBytes)
    json.arrayField("stopped") { json in for lane in allowance.spent { json.value(lane.rawValue) } }
    json.field("waits_for_hours", allowance.waitsForHours)
    json.field("until", allowance.until)
  }
}

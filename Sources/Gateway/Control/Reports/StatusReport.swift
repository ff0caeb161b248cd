// SPDX-License-Identifier: MIT

import ControlShapes
import EventLoop
import Glibc
import JSON
import RadioSharing
import Relay
import Store
import Sync
import Timing
import Transport

/// The content of `meshpost status --json`; docs/stability.md promises the shape.
struct StatusReport {
  let dependencies: ControlAPI.Dependencies

  func write(to json: inout JSONWriter) throws(StoreError) {
    let row = Shape.Status()
    json.field(row.version, dependencies.version)
    json.field(row.gateway, dependencies.store.gatewayID)
    json.field(row.epoch, dependencies.store.epoch)
    json.field(row.configurationError, dependencies.operations.configurationRefusal)
    let overrides = dependencies.operations.overrides
    if !overrides.isEmpty {
      json.objects(row.overrides, overrides) { one, json in
        let row = Shape.Override()
        json.field(row.setting, one.setting)
        json.field(row.value, one.value)
        json.field(row.configured, one.configured)
        json.field(row.document, one.document)
      }
    }
    json.field(row.afterRestart, dependencies.operations.settingsForNextStart)
    json.field(row.withoutEffect, dependencies.operations.idleSettings)
    json.field(row.uptimeS, Int64((dependencies.loop.now - dependencies.startedAt).inSeconds))
    json.field(row.clockTrusted, dependencies.loop.wallClock.isSynchronised)
    json.field(row.residentKib, Self.residentKibibytes)
    json.field(row.wakeups, dependencies.loop.wakeups)
    json.object(row.radio) { writeRadio(to: &$0) }
    json.object(row.sync) { writeSync(to: &$0) }
    let held = try dependencies.store.heldCount()
    json.object(row.messaging) { writeMessaging(held: held, to: &$0) }
    try writeStore(to: &json)
    json.objects(row.upstreams, dependencies.relay.upstreams) { Self.write($0.status, to: &$1) }
    json.objects(row.leftOut, dependencies.relay.upstreams.compactMap(\.updates).filter { !$0.leftOut.isEmpty }) {
      report, json in
      json.field(Shape.LeftOut().upstream, report.upstream)
      for why in LeftOut.allCases { json.field(why.rawValue, report.leftOut[why].map { Int64($0) }) }
    }
    let removed = try dependencies.store.removedUpstreams().filter { $0.pending > 0 || $0.givenUp > 0 }
    json.objects(row.removedUpstreams, removed) { one, json in
      let row = Shape.RemovedUpstream()
      json.field(row.name, one.name)
      json.field(row.at, one.at)
      json.field(row.pending, one.pending)
      json.field(row.givenUp, one.givenUp > 0 ? one.givenUp : nil)
    }
    writeProxies(to: &json)
    if let web = dependencies.operations.webReport { json.object(row.web) { web.write(to: &$0) } }
    json.object(row.power) { json in
      let power = dependencies.operations.powerReport
      json.field(Shape.Power().batteryMv, power.millivolts)
      json.field(Shape.Power().batteryLow, power.isBatteryLow)
      json.field(Shape.Power().supplyLow, power.isSupplyLow)
    }
    let alerts = try dependencies.store.alerts(openOnly: true, limit: Self.mostAlerts)
    json.objects(row.alerts, alerts) { AlertsAPI.write($0, to: &$1) }
    json.field(row.listeners, dependencies.taps.count)
  }

  /// The greatest number of open alerts in a status; `/v1/alerts` has all.
  private static let mostAlerts = 50

  private func writeProxies(to json: inout JSONWriter) {
    json.objects(Shape.Status().proxies, dependencies.proxy.reports) { report, json in
      json.field(Shape.Proxy().name, report.name)
      json.field(Shape.Proxy().address, report.address)
      json.field(Shape.Proxy().error, report.trouble)
      json.objects(Shape.Proxy().clients, report.clients) { Self.write($0, to: &$1) }
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
    json.field("radio", linkState.name)
    json.field("error", linkState.error?.description)
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

  private var linkState: (name: String, error: LinkError?) {
    switch dependencies.connection.state {
    case .connecting: ("connecting", nil)
    case .handshaking: ("handshaking", nil)
    case .up: ("up", nil)
    case .waiting(let error): ("down", error)
    }
  }

  private func writeRadio(to json: inout JSONWriter) {
    let row = Shape.LinkState()
    let connection = dependencies.connection
    json.field(row.link, connection.link.name)
    json.field(row.step, connection.link.step)
    json.field(row.rssi, connection.link.rssi)
    json.field(row.state, linkState.name)
    json.field(row.error, linkState.error?.description)
    json.field(row.remedy, linkState.error?.remedy)
    json.field(row.lastHeardS, connection.lastHeard.map { Int64((dependencies.loop.now - $0).inSeconds) })
    json.field(row.unreadableFrames, connection.unreadableFrames)
    json.field(row.regions, dependencies.synchronizer.ways.knownRegions)
    json.field(row.regionError, connection.isScopeStuck ? RadioConnection.stuckScope : nil)
    if let identity = connection.identity {
      json.object(row.identity) { EventBody.write(identity, to: &$0) }
    }
    guard let advert = dependencies.messaging.routine.advert.report else { return }
    json.object(row.advert) { json in
      json.field(Shape.Advert().at, advert.at)
      json.field(Shape.Advert().flood, advert.isFlood)
      json.field(Shape.Advert().current, advert.isCurrent)
    }
  }

  func writeSync(to json: inout JSONWriter) {
    let row = Shape.SyncState()
    let state = dependencies.synchronizer.state
    json.field(row.state, state.name)
    switch state {
    case .syncing(let phase, let current, let total):
      json.field(row.phase, phase.rawValue)
      json.field(row.current, current)
      if total > 0 { json.field(row.total, total) }
    case .failed(let reason, let phase):
      json.field(row.phase, phase?.rawValue)
      json.field(row.reason, reason)
    case .idle, .synced: break
    }
    json.field(row.lastSynced, dependencies.synchronizer.lastSynced)
    let counters = dependencies.synchronizer.counters
    json.object(row.counters) { json in
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
    json.objects(Shape.Sync().updates, dependencies.relay.upstreams.compactMap(\.updates)) { Self.write($0, to: &$1) }
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
    let row = Shape.Messaging()
    let status = dependencies.messaging.messenger.status
    json.field(row.waiting, status.waiting)
    json.field(row.inFlight, status.inFlight)
    json.field(row.held, held)
    json.field(row.heldForRecipients, status.heldForRecipients)
    json.field(row.delivered, status.delivered)
    json.field(row.failed, status.failed)
    json.field(row.sentOnChannels, status.sentOnChannels)
    let unread = dependencies.messaging.knock.unread
    json.field(row.unread, Int64(unread.count))
    json.field(row.unreadSenders, unread.senderBytes)
    json.field(row.airtimeUsedMs, status.airtime.used)
    json.field(row.airtimeLimitMs, status.airtime.limit)
    json.field(row.hourMessages, status.messages.used)
    json.field(row.hourMessagesLimit, status.messages.limit)
    json.field(row.waitsForAirtime, status.waitsForBudget)
    json.field(row.channelUsePercent, (status.channel.use * 10).rounded() / 10)
    json.field(row.busyPercent, Int64(status.channel.limit))
    json.field(row.waitsForChannel, status.channel.waits)
    json.objects(row.polls, dependencies.messaging.routine.reports) { report, json in
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
    let (givenUp, deleting) = (try store.givenUp(), try store.deletedSoFar())
    json.object(Shape.Status().store) { json in
      let row = Shape.Store()
      json.field(row.messages, messages)
      json.field(row.contacts, contacts)
      json.field(row.contactsOnRadio, onRadio)
      json.field(row.lastSeq, store.lastSeq)
      json.field(row.oldestSeq, store.journalSize.oldest)
      json.field(row.journalBytes, store.journalSize.bytes)
      json.field(row.sizeBytes, size)
      json.field(row.deleting, deleting)
      json.field(row.unindexed, unindexed)
      json.field(row.givenUp, givenUp?.events)
      json.field(row.givenUpAt, givenUp?.at)
      json.field(row.setAside, store.provenance.setAside)
      json.field(row.loss, store.provenance.lossWords)
      let (failure, missing) = (store.transactions.failure, store.missingFile)
      json.field(row.error, failure?.description ?? missing?.words)
      json.field(row.remedy, failure?.remedy ?? missing?.remedy)
    }
  }

  static func write(_ status: UpstreamStatus, to json: inout JSONWriter) {
    let row = Shape.Upstream()
    json.field(row.name, status.name)
    json.field(row.kind, status.kind)
    json.field(row.url, status.url)
    json.field(row.link, status.link)
    json.field(row.state, status.state.rawValue)
    json.field(row.acknowledged, status.cursor)
    json.field(row.pending, status.pending)
    if let lanes = status.lanes {
      json.object(row.lanes) { json in
        for lane in Lane.allCases {
          json.objectField(lane.rawValue) { json in
            let row = Shape.Lane()
            json.field(row.acknowledged, lanes[lane].acknowledged)
            json.field(row.pending, lanes[lane].pending.events)
            json.field(row.pendingBytes, lanes[lane].pending.bytes)
            json.field(row.seconds, lanes[lane].seconds)
          }
        }
      }
    }
    json.field(row.inFlight, status.inFlight)
    json.field(row.bytesPerSecond, status.rate)
    json.field(row.deadLetters, status.deadLetters)
    json.field(row.lost, status.losses.ahead)
    if status.losses.givenUp > 0 { json.field(row.givenUp, status.losses.givenUp) }
    if status.losses.tooOld > 0 { json.field(row.tooOld, status.losses.tooOld) }
    json.field(row.ageS, status.age)
    json.field(row.reason, status.reason)
    json.field(row.nextAttemptS, status.nextAttempt)
    json.field(row.lastSuccess, status.lastSuccess)
    if status.refusedCommands > 0 { json.field(row.refusedCommands, status.refusedCommands) }
    json.field(row.unpermitted, status.unpermitted?.rights ?? [])
    json.field(row.permits, status.unpermitted?.line)
    json.field(row.batches, status.batches)
    json.field(row.bytesSent, status.bytesSent)
    json.field(row.certificateExpires, status.certificateExpiry)
    if let allowance = status.allowance { json.object(row.allowance) { write(allowance, to: &$0) } }
  }

  private static func write(_ allowance: AllowanceStatus, to json: inout JSONWriter) {
    let row = Shape.Allowance()
    json.field(row.dayBytes, allowance.dayBytes)
    json.field(row.dailyBytes, allowance.dailyBytes)
    json.field(row.monthBytes, allowance.monthBytes)
    json.field(row.monthlyBytes, allowance.monthlyBytes)
    json.field(row.stopped, allowance.spent.lazy.map(\.rawValue))
    json.field(row.waitsForHours, allowance.waitsForHours)
    json.field(row.until, allowance.until)
  }
}

// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import PrometheusText
import RadioSharing
import Relay
import Store
import Sync
import Timing

/// The content of `/metrics`; docs/observability.md promises the names.
struct MetricsReport {
  let dependencies: ControlAPI.Dependencies

  func write() throws(StoreError) -> [UInt8] {
    var text = PrometheusText()
    gateway(&text)
    radio(&text)
    sync(&text)
    messaging(&text)
    try store(&text)
    upstreams(&text)
    proxies(&text)
    try alerts(&text)
    return text.bytes
  }

  private func gateway(_ text: inout PrometheusText) {
    text.metric("meshpost_build_info", .gauge, "The daemon's version and the gateway's name, as labels.") {
      $0.add(1, ("version", dependencies.version), ("gateway", dependencies.store.gatewayID))
    }
    let uptime = (dependencies.loop.now - dependencies.startedAt).inSeconds
    text.metric("process_start_time_seconds", .gauge, "Start time of the daemon, in seconds since 1970.") {
      $0.add((Double(dependencies.loop.wallClock.milliseconds) / 1000 - uptime).rounded())
    }
    text.gauge(
      "process_resident_memory_bytes", "Resident memory.", StatusReport.residentKibibytes.map { $0 * 1024 })
    text.counter("meshpost_wakeups_total", "Number of times the daemon woke up.", dependencies.loop.wakeups)
    text.gauge(
      "meshpost_clock_synchronized", "1: the machine's clock is synchronised.",
      dependencies.loop.wallClock.isSynchronised ? 1 : 0)
  }

  private func radio(_ text: inout PrometheusText) {
    let connection = dependencies.connection
    text.gauge("meshpost_radio_up", "1: the link to the radio is up.", connection.state == .up ? 1 : 0)
    if let identity = connection.identity {
      text.metric("meshpost_radio_info", .gauge, "The attached radio, as labels.") { samples in
        let details = identity.device?.details
        samples.add(
          1, ("name", identity.info.name.string), ("key", identity.info.key.hex),
          ("model", details?.model.string ?? ""), ("version", details?.version.string ?? ""))
      }
      text.gauge("meshpost_radio_tx_power_dbm", "Transmit power.", identity.info.txPower)
    }
    text.gauge("meshpost_radio_rssi_dbm", "Signal strength of the Bluetooth link to the radio.", connection.link.rssi)
    text.metric("meshpost_radio_silence_seconds", .gauge, "Seconds since the radio last sent data.") {
      $0.add(connection.lastHeard.map { (dependencies.loop.now - $0).inSeconds.rounded() })
    }
    text.counter(
      "meshpost_radio_unreadable_frames_total", "Frames from the radio that could not be decoded.",
      connection.unreadableFrames)
    text.counter("meshpost_radio_packets_heard_total", "Packets received by the radio.", dependencies.taps.packets)
    text.metric("meshpost_radio_last_packet_snr_db", .gauge, "Signal-to-noise ratio of the last received packet.") {
      $0.add(dependencies.taps.last?.snr.decibels)
    }
    text.gauge(
      "meshpost_radio_last_packet_rssi_dbm", "Signal strength of the last received packet.",
      dependencies.taps.last?.rssi)
  }

  private func sync(_ text: inout PrometheusText) {
    let (state, counters) = (dependencies.synchronizer.state, dependencies.synchronizer.counters)
    text.metric("meshpost_sync_state", .gauge, "1 for the current sync state.") { samples in
      for name in SyncState.names { samples.add(name == state.name ? 1 : 0, ("state", name)) }
    }
    text.metric("meshpost_sync_last_success_timestamp_seconds", .gauge, "Time of the last complete sync.") {
      $0.add(dependencies.synchronizer.lastSynced.map { Double($0 / 1000) })
    }
    text.counter(
      "meshpost_radio_connections_total", "Number of times the link to the radio came up.", counters.connections)
    text.counter("meshpost_radio_timeouts_total", "Commands that the radio did not answer in time.", counters.timeouts)
    text.counter("meshpost_messages_received_total", "Messages received.", counters.messagesStored)
    text.counter("meshpost_messages_duplicate_total", "Duplicate messages received.", counters.duplicates)
    text.counter("meshpost_adverts_total", "Adverts heard.", counters.adverts)
    text.counter("meshpost_contacts_changed_total", "New or changed contacts.", counters.contactsChanged)
  }

  private func messaging(_ text: inout PrometheusText) {
    let status = dependencies.messaging.messenger.status
    text.gauge("meshpost_outgoing_waiting", "Outgoing messages that are waiting.", status.waiting)
    text.gauge("meshpost_outgoing_in_flight", "Outgoing messages waiting for an acknowledgement.", status.inFlight)
    text.gauge(
      "meshpost_outgoing_held", "Outgoing messages held for another radio.",
      dependencies.store.ifReadable({ try dependencies.store.heldCount() }))
    text.metric("meshpost_messages_sent", .gauge, "Stored outgoing messages by final state.") {
      $0.add(Double(status.delivered), ("state", "delivered"))
      $0.add(Double(status.failed), ("state", "failed"))
      $0.add(Double(status.sentOnChannels), ("state", "sent"))
    }
    text.metric("meshpost_airtime_hour_seconds", .gauge, "Air time used in the last hour.") {
      $0.add(Double(status.airtime.used) / 1000)
    }
    text.metric("meshpost_airtime_hour_limit_seconds", .gauge, "Air time allowed per hour.") {
      $0.add(Double(status.airtime.limit) / 1000)
    }
    let messenger = dependencies.messaging.messenger
    text.metric("meshpost_airtime_seconds_total", .counter, "Air time since the start, by purpose; heard: of others.") {
      samples in
      for purpose in AirtimePurpose.allCases {
        let milliseconds = messenger.airtimeCounters[purpose] ?? 0
        samples.add(Double(milliseconds) / 1000, ("purpose", purpose.rawValue))
      }
    }
    text.metric("meshpost_channel_use_ratio", .gauge, "Use of the channel in the last two minutes, heard and sent.") {
      $0.add((status.channel.use * 10).rounded() / 1000)
    }
    text.gauge(
      "meshpost_channel_waits", "1: something waits until the channel is less in use.", status.channel.waits ? 1 : 0)
  }

  private func store(_ text: inout PrometheusText) throws(StoreError) {
    let store = dependencies.store
    text.gauge("meshpost_store_up", "1: the last write succeeded.", store.transactions.failure == nil ? 1 : 0)
    text.gauge("meshpost_store_messages", "Messages kept.", try store.messageCount())
    let (all, onRadio) = (try store.contactCount(onRadio: false), try store.contactCount(onRadio: true))
    text.gauge("meshpost_store_contacts", "Nodes known.", all)
    text.gauge("meshpost_radio_contacts", "Contacts in the radio's table.", onRadio)
    text.gauge(
      "meshpost_radio_contacts_limit", "Capacity of the radio's contact table.",
      dependencies.connection.identity?.device?.maxContacts)
    text.gauge("meshpost_store_size_bytes", "Size of the database.", try store.size())
    text.gauge("meshpost_journal_size_bytes", "Size of the journal's events.", store.journalSize.bytes)
    text.counter(
      "meshpost_journal_events_total", "Events written to the journal: the last sequence number.", store.lastSeq)
  }

  private func upstreams(_ text: inout PrometheusText) {
    let all = dependencies.relay.upstreams.map(\.status)
    func each(
      _ name: String, _ kind: PrometheusText.Kind, _ help: String, _ value: (UpstreamStatus) -> Double?
    ) {
      text.metric("meshpost_upstream_\(name)", kind, help) { samples in
        for status in all { samples.add(value(status), ("upstream", status.name), ("kind", status.kind)) }
      }
    }
    each("up", .gauge, "1: the upstream accepts events, or has all of them.") {
      $0.state == .idle || $0.state == .sending ? 1 : 0
    }
    each("pending_events", .gauge, "Events that the upstream has not acknowledged.") { Double($0.pending) }
    each("oldest_pending_seconds", .gauge, "Age of the oldest pending event.") { Double($0.age ?? 0) }
    each("dead_letters", .gauge, "Events that the upstream refused, or an operator skipped.") { Double($0.deadLetters) }
    each("lost_events", .gauge, "Events deleted before the upstream had them.") { Double($0.losses.ahead) }
    each("given_up_events_total", .counter, "Events deleted before the upstream had them, since it was added.") {
      Double($0.losses.givenUp)
    }
    each("too_old_events_total", .counter, "Events left out because of max_age_s, since it was added.") {
      Double($0.losses.tooOld)
    }
    each("sent_bytes_total", .counter, "Bytes sent to the upstream.") { Double($0.bytesSent) }
    text.metric(
      "meshpost_upstream_sent_event_bytes_total", .counter, "Bytes of events sent to the upstream, before compression."
    ) { samples in
      for status in all {
        for lane in Lane.allCases {
          samples.add(Double(status.eventBytes[lane]), ("upstream", status.name), ("lane", lane.rawValue))
        }
      }
    }
    allowances(all, &text)
    each("batches_total", .counter, "Batches acknowledged by the upstream.") { Double($0.batches) }
    each("refused_commands_total", .counter, "Commands refused without an event.") { Double($0.refusedCommands) }
    each("last_success_timestamp_seconds", .gauge, "Time of the upstream's last acknowledgement.") {
      $0.lastSuccess.map { Double($0 / 1000) }
    }
  }

  private func allowances(_ all: [UpstreamStatus], _ text: inout PrometheusText) {
    func each(_ samples: inout PrometheusText.Samples, _ day: Int64?, _ month: Int64?, _ name: String) {
      samples.add(day.map { Double($0) }, ("upstream", name), ("period", "day"))
      samples.add(month.map { Double($0) }, ("upstream", name), ("period", "month"))
    }
    let limited = all.compactMap { status in status.allowance.map { (status.name, $0) } }
    guard !limited.isEmpty else { return }
    text.metric("meshpost_upstream_allowance_used_bytes", .gauge, "Bytes used, in both directions.") { samples in
      for (name, allowance) in limited { each(&samples, allowance.dayBytes, allowance.monthBytes, name) }
    }
    text.metric("meshpost_upstream_allowance_limit_bytes", .gauge, "Bytes allowed.") { samples in
      for (name, allowance) in limited { each(&samples, allowance.dailyBytes, allowance.monthlyBytes, name) }
    }
    text.metric("meshpost_upstream_allowance_stopped", .gauge, "1: the lane waits because the allowance is used up.") {
      samples in
      for (name, allowance) in limited {
        for lane in Lane.allCases {
          samples.add(allowance.spent.contains(lane) ? 1 : 0, ("upstream", name), ("lane", lane.rawValue))
        }
      }
    }
  }

  private func alerts(_ text: inout PrometheusText) throws(StoreError) {
    let open = try dependencies.store.alerts(openOnly: true, limit: Int.max)
    text.metric("meshpost_alerts", .gauge, "Open alerts, by rule; 0: the rule is on, and all is well.") { samples in
      let rules = dependencies.operations.alertRules.map(\.name)
      for rule in rules { samples.add(Double(open.count { $0.rule.utf8.elementsEqual(rule.utf8) }), ("rule", rule)) }
    }
    text.gauge(
      "meshpost_alerts_unacknowledged", "Open alerts that nobody has acknowledged.",
      open.count { $0.acknowledgedAt == nil })
  }

  private func proxies(_ text: inout PrometheusText) {
    let reports = dependencies.proxy.reports
    text.metric("meshpost_proxy_up", .gauge, "1: the proxy accepts clients.") { samples in
      for report in reports { samples.add(report.trouble == nil ? 1 : 0, ("proxy", report.name)) }
    }
    text.metric("meshpost_proxy_clients", .gauge, "Clients connected to the proxy.") { samples in
      for report in reports { samples.add(Double(report.clients.count), ("proxy", report.name)) }
    }
  }
}

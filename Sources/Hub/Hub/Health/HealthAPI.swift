// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc
import Hummingbird
import JSON
import PrometheusText
import Release
import Timing

/// The state of the hub, for load balancers and for Prometheus.
extension HubAPI {
  /// Answers at once with the probe's last result.
  func ready() -> Response {
    let problem = stores.probe.problem()
    return Self.json(
      [
        "ready": problem == nil, "reason": problem?.rawValue, "disk": stores.probe.isDiskFull ? "full" : nil,
        "database": stores.lock.isLong ? "locked" : nil, "messages": stores.probe.isHiding() ? "hidden" : nil,
        "pushes": stores.metrics.now.failingPushes > 0 ? "failing" : nil,
      ],
      status: problem == nil ? .ok : .serviceUnavailable)
  }

  func metrics(_ call: Call) async throws -> Response {
    var headers = HTTPFields()
    headers[.contentType] = "text/plain; version=0.0.4; charset=utf-8"
    return Response(status: .ok, headers: headers, body: .init(byteBuffer: ByteBuffer(bytes: exposition().bytes)))
  }

  private func exposition() -> PrometheusText {
    var text = PrometheusText()
    let counts = stores.metrics.now
    processMetrics(&text)
    connectionMetrics(&text, counts)
    batchMetrics(&text, counts)
    databaseMetrics(&text, counts)
    alertMetrics(&text)
    pushMetrics(&text, counts)
    return text
  }

  private func pushMetrics(_ text: inout PrometheusText, _ counts: HubMetrics.Counts) {
    guard web != nil else { return }
    text.metric("meshpost_hub_pushes_total", .counter, "Pushes to browsers.", "result", counts.pushes)
    text.gauge("meshpost_hub_push_subscriptions", "Browsers that get pushes.", counts.pushSubscriptions)
    text.gauge(
      "meshpost_hub_push_subscriptions_failing", "Browsers whose last push failed.", counts.failingPushes)
  }

  private func processMetrics(_ text: inout PrometheusText) {
    text.metric("meshpost_hub_build_info", .gauge, "The hub's version.") { $0.add(1, ("version", Release.version)) }
    text.metric("process_start_time_seconds", .gauge, "The start of the hub, seconds since 1970.") {
      $0.add(Double(HubClock.started / 1000))
    }
    text.gauge("process_resident_memory_bytes", "Resident memory.", Self.residentBytes)
    text.gauge("process_open_fds", "Open files.", OpenFiles.count)
  }

  /// `VmRSS` of /proc/self/status.
  private static var residentBytes: Int64? {
    guard let status = FileManager.default.contents(atPath: "/proc/self/status") else { return nil }
    let line = String(decoding: status, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
    return line?.split(separator: " ").compactMap { Int64($0) }.first.map { $0 * 1024 }
  }

  private func connectionMetrics(_ text: inout PrometheusText, _ counts: HubMetrics.Counts) {
    text.metric("meshpost_hub_links", .gauge, "Links to gateways, by compression.", "encoding", counts.links)
    text.counter("meshpost_hub_links_opened_total", "Opened links.", counts.linksOpened)
    text.gauge("meshpost_hub_connections", "Open connections, links and requests.", connections.count)
    text.gauge("meshpost_hub_connections_limit", "Most open connections.", connections.most)
    text.counter(
      "meshpost_hub_connections_refused_total", "Connections that were refused or closed at the limit.",
      connections.refusedCount)
    text.metric(
      "meshpost_hub_logins_refused_total", .counter, "Requests with a refused token.", "reason", counts.logins)
  }

  private func batchMetrics(_ text: inout PrometheusText, _ counts: HubMetrics.Counts) {
    let lanes = EventBatch.Lane.allCases.map { ($0 as EventBatch.Lane?, $0.rawValue) } + [(nil, "all")]
    text.metric("meshpost_hub_batches_total", .counter, "Stored batches.") {
      for (lane, name) in lanes { $0.add(Double(counts.batches[lane] ?? 0), ("lane", name)) }
    }
    text.metric("meshpost_hub_events_total", .counter, "Events in stored batches, including repeated ones.") {
      for (lane, name) in lanes { $0.add(Double(counts.events[lane] ?? 0), ("lane", name)) }
    }
    text.metric(
      "meshpost_hub_event_delay_seconds", .histogram, "Seconds from the newest event of a batch to its commit."
    ) {
      for (lane, name) in lanes {
        guard let delays = counts.delays[lane] else { continue }
        $0.add(bounds: delays.bounds, counts: delays.counts, sum: delays.sum, ("lane", name))
      }
    }
    text.counter("meshpost_hub_batches_out_of_order_total", "Batches after a gap.", counts.outOfOrder)
    text.counter(
      "meshpost_hub_batches_conflicting_total", "Batches with an event whose number a stored event has.",
      counts.conflicts)
    text.counter("meshpost_hub_batches_refused_total", "Refused batches.", counts.refusedBatches)
    text.counter(
      "meshpost_hub_events_refused_total", "Events in stored batches with content that is not served.",
      counts.refusedEvents)
    text.metric("meshpost_hub_busy_total", .counter, "Answers that ask for a later retry.", "reason", counts.busy)
    let queue = stores.ingest.admission.waiting
    text.gauge("meshpost_hub_queue_batches", "Batches that wait for the database.", queue.batches)
    text.gauge("meshpost_hub_queue_bytes", "Bytes of waiting batches.", queue.bytes)
    text.gauge("meshpost_hub_queue_bytes_limit", "Most bytes of waiting batches.", Admission.mostBytes)
  }

  private func databaseMetrics(_ text: inout PrometheusText, _ counts: HubMetrics.Counts) {
    let probe = stores.probe.now
    text.gauge("meshpost_hub_database_up", "1: the database answers.", stores.probe.problem() == nil ? 1 : 0)
    text.metric("meshpost_hub_database_probe_seconds", .gauge, "Seconds of the database's last answer.") {
      $0.add(probe.took?.inSeconds)
    }
    text.metric(
      "meshpost_hub_commit_seconds", .histogram, "Seconds of a transaction of batches, from its begin to the disk."
    ) {
      $0.add(
        bounds: counts.commitSeconds.bounds, counts: counts.commitSeconds.counts, sum: counts.commitSeconds.sum)
    }
    text.metric("meshpost_hub_commit_batches", .histogram, "Batches in a transaction.") {
      $0.add(
        bounds: counts.commitBatches.bounds, counts: counts.commitBatches.counts, sum: counts.commitBatches.sum)
    }
    text.metric(
      "meshpost_hub_commits_failed_total", .counter, "Transactions of batches that failed.", "reason",
      counts.failedCommits)
    text.counter(
      "meshpost_hub_slow_statements_total", "Statements and transactions of more than a second.", counts.slow)
    text.gauge("meshpost_hub_gateways", "Gateways in the database.", probe.census?.gateways)
    text.gauge("meshpost_hub_commands_waiting", "Commands that wait for a gateway.", probe.census?.waitingCommands)
    text.metric(
      "meshpost_hub_purged_rows_total", .counter, "Rows that the retention has deleted.", "table", counts.purged)
  }
}

extension PrometheusText {
  /// A metric with a sample for each value of a label.
  fileprivate mutating func metric<Label: CaseIterable & RawRepresentable<String>>(
    _ name: String, _ kind: Kind, _ help: String, _ label: String, _ counts: [Label: Int]
  ) {
    metric(name, kind, help) { samples in
      for one in Label.allCases { samples.add(Double(counts[one] ?? 0), (label, one.rawValue)) }
    }
  }
}

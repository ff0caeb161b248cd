// SPDX-License-Identifier: MIT

import Documents
import EventLoop
import JSON
import Store
import Timing
import UntrustedText

/// Updates of a page, applied. What is written for a page is one turn's, and so one transaction with the bucket's position: `move` hears of
/// a failure for all of it.
extension BucketSync {
  /// How many of them were new and wanted.
  func apply(_ outcome: CatchUp.Outcome, _ bucket: String) async throws -> Int {
    var (applied, duplicates, skipped) = (0, 0, Int64(0))
    var changesDocuments = false
    for update in outcome.updates {
      let fate = take(update, bucket)
      if bucket == "documents", fate == .sent { changesDocuments = true }
      tell(update, bucket, fate)
      switch fate {
      case .sent:
        applied += 1
        leftOut.remove(update.id)
      case .known:
        duplicates += 1
        leftOut.remove(update.id)
      case .skipped: skipped += 1
      case .leftOut(let why):
        skipped += 1
        if let line = leftOut.add(why, update.id, now: loop.now) { log.notice("\(upstream): \(line)") }
      case .later(let message): throw Trouble(message: message)
      }
    }
    // A page that is asked for again, because an update has no room now, tells its losses then.
    if outcome.lacking > 0, let position = catchUp.position(bucket) {
      skipped += outcome.lacking
      let lost = outcome.leftOut?.count ?? 0 > 0 ? nil : outcome.lost
      journalGap(
        bucket, lost ?? position.seq + 1...outcome.position.seq, catchUp.isTooFar(bucket) ? "too_long" : "trimmed",
        count: outcome.lacking, by: outcome.leftOut?.gateways ?? [])
    }
    if outcome.hasDiverged { diverged(bucket, outcome.position) }
    try await move(bucket, outcome)
    catchUp.moved(bucket, outcome, applied: applied, duplicates: duplicates, skipped: skipped)
    log.debug(
      "\(upstream): \(bucket): on disk up to seq \(outcome.position.seq): \(applied) applied, \(duplicates) known already, "
        + "\(skipped) skipped")
    // Once a page: each of these looks at all documents.
    if changesDocuments { host?.documentsChanged() }
    if bucket == "commands" { commands.runNext() }
    return applied
  }

  /// For `debug`; never what an update says: that may be private, and a command may hold a secret.
  private func tell(_ update: CatchUp.Update, _ bucket: String, _ fate: ChannelUpdateFate) {
    let outcome =
      switch fate {
      case .sent: "applied"
      case .known: "known already"
      case .skipped: "skipped"
      case .leftOut(let why): "left out: \(why.rawValue)"
      case .later(let message): "later: \(message)"
      }
    log.debug(
      "\(upstream): \(bucket): seq \(update.seq), date \(Self.date(update.at)), type \(Self.type(update, bucket)), "
        + "\(update.body.count) bytes: \(outcome)")
  }

  /// Milliseconds since 1970; `-`: the hub did not say.
  static func date(_ milliseconds: Int64?) -> String { milliseconds.map { "\($0)" } ?? "-" }

  private static func type(_ update: CatchUp.Update, _ bucket: String) -> String {
    switch bucket {
    case "commands":
      // `try?`: it was JSON when it came; a command is named by what it asks for, if that is known here.
      let command = (try? JSONValue(parsing: update.body))?["command"]?.string
      return "command \(CommandIntake.known.first { command?.isExactly($0) == true } ?? "unknown")"
    case "documents": return "document"
    default: return "message"
    }
  }

  /// The bucket's state goes to disk with what was written in this turn.
  func move(_ bucket: String, _ outcome: CatchUp.Outcome) async throws {
    let position = outcome.position
    try await store.save { [upstream] store throws(SQLiteError) in
      try store.setBucket(
        bucket, of: upstream, to: BucketPosition(seq: position.seq, at: position.at, since: position.since))
    }
  }

  func skip(
    _ bucket: String, _ lost: ClosedRange<Int64>, _ reason: String, _ position: CatchUp.Position
  ) async throws {
    journalGap(bucket, lost, reason)
    let outcome = CatchUp.Outcome(position: position)
    try await move(bucket, outcome)
    catchUp.moved(bucket, outcome, skipped: lost.upperBound - lost.lowerBound + 1)
  }

  var moment: Moment { Moment(clock) }

  /// `count`: so many of those, as others in between came; `gateways`: whose messages those are, if the hub says so.
  func journalGap(
    _ bucket: String, _ lost: ClosedRange<Int64>, _ reason: String, count: Int64? = nil, by gateways: [String] = []
  ) {
    // Of a channel only what named gateways heard is taken, and that list tells itself what is missed of it.
    if hasHeardList, bucket.hasPrefix("channel/") {
      return log.debug(
        "\(upstream): \(bucket): \(lost.lowerBound) to \(lost.upperBound) are left to the list of what was heard")
    }
    let all = lost.upperBound - lost.lowerBound + 1
    let count = min(count ?? all, all)
    let some = count < all ? "\(count) of updates" : "updates"
    let whose = gateways.isEmpty ? "" : ", messages of \(gateways.joined(separator: ", "))"
    log.warning(
      "\(upstream): \(bucket): \(some) \(lost.lowerBound) to \(lost.upperBound) are missed (\(reason)\(whose))")
    let body = JSONWriter.object { json in
      json.field("upstream", upstream)
      json.field("bucket", bucket)
      json.field("first", lost.lowerBound)
      json.field("last", lost.upperBound)
      json.field("count", count)
      json.field("reason", reason)
      if !gateways.isEmpty {
        json.arrayField("gateways") { json in for gateway in gateways { json.value(gateway) } }
      }
    }
    store.write { [moment] store throws(SQLiteError) in try store.append(.bucketGap, at: moment, body: body) }
  }

  /// The hub is an older copy of itself: it gets our documents again.
  func diverged(_ bucket: String, _ position: CatchUp.Position) {
    log.notice("\(upstream): \(bucket) was restored at the hub: fetching again from \(position.seq)")
    guard bucket == "documents" else { return }
    store.write { [moment] store throws(SQLiteError) in try store.announceDocuments(at: moment) }
  }

  func take(_ update: CatchUp.Update, _ bucket: String) -> ChannelUpdateFate {
    switch bucket {
    case "commands": return takeCommand(update)
    case "documents": return takeDocument(update)
    case "heard": return takeMessage(update, nil)
    default: return takeMessage(update, String(bucket.dropFirst("channel/".count)))
    }
  }

  func takeCommand(_ update: CatchUp.Update) -> ChannelUpdateFate {
    guard Visible.isLine(update.id, bytes: 1...48), update.body.count <= CommandIntake.maxBytes else { return .skipped }
    var isNew = false
    store.write { [upstream] store throws(SQLiteError) in
      // What the hub kept it for counts towards its lifetime.
      isNew = try store.queueCommand(update.body, id: update.id, of: upstream, age: update.age)
    }
    return isNew ? .sent : .known
  }

  func takeDocument(_ update: CatchUp.Update) -> ChannelUpdateFate {
    // `try?`: it was JSON when it came.
    guard let body = try? JSONValue(parsing: update.body), let text = body["key"]?.string,
      let key = DocumentKey(text), let updatedAt = body["updated_at"]?.count,
      rights.contains(key.isSetting ? "settings" : "documents")
    else { return .skipped }
    let given = body["value"] ?? .null
    guard given == .null || key.allows(given) else { return .skipped }
    var value = JSONWriter()
    value.value(given)
    let document = Document(
      key: text, value: given == .null ? nil : value.string, updatedAt: updatedAt,
      byHub: body["by_hub"]?.bool ?? false)
    var isNew = false
    let through = acknowledged()
    store.write { [upstream, moment] store throws(SQLiteError) in
      isNew = try store.applyDocument(document, via: upstream, acknowledged: through, at: moment)
    }
    return isNew ? .sent : .known
  }

  /// `channel`: of the list; `nil`: of one for all channels, of which those count that are exchanged.
  func takeMessage(_ update: CatchUp.Update, _ channel: String?) -> ChannelUpdateFate {
    // `try?`: it was JSON when it came.
    guard let body = try? JSONValue(parsing: update.body), let channel = channel ?? exchanged(body["channel"]?.string),
      let gateway = body["gateway"]?.string,
      let text = body["text"]?.string, let time = body["sender_time"]?.integer.flatMap({ UInt32(exactly: $0) })
    else { return .skipped }
    return host?.take(
      ChannelUpdate(
        upstream: upstream, gateway: gateway, channel: channel,
        senderName: body["sender_name"]?.string ?? "?", senderTime: time, text: text,
        at: ChannelUpdate.sent(update.at, body),
        isOfUnknownAge: body["waited"]?.bool == true && body["waited_s"] == nil && body["age_s"] == nil)) ?? .skipped
  }

  private func exchanged(_ digest: String?) -> String? {
    host?.exchangedChannels.first { digest?.isExactly($0) == true }
  }
}

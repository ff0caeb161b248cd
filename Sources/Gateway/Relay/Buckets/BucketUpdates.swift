// SPDX-License-Identifier: MIT

import Companion
import Documents
import EventLoop
import JSON
import Store
import Timing
import UntrustedText

/// Applies the updates of a page. All writes for a page are in one turn, and so in one transaction with the bucket's
/// position: `move` gets a failure of any of them.
extension BucketSync {
  /// Returns the number of new and wanted updates.
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
    // After the updates: if one has no room, the page is requested again, and reports its losses then.
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
    // Once for each page, because it checks all documents.
    if changesDocuments { host?.documentsChanged() }
    if bucket == "commands" { commands.runNext() }
    return applied
  }

  /// Logs the result for `debug`, without the update's content: it may be private, and a command may contain a secret.
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

  /// Milliseconds since 1970; `-`: the hub did not report it.
  static func date(_ milliseconds: Int64?) -> String { milliseconds.map { "\($0)" } ?? "-" }

  private static func type(_ update: CatchUp.Update, _ bucket: String) -> String {
    switch bucket {
    case "commands":
      // `try?`: the update was parsed before. Only known commands are named.
      let command = (try? JSONValue(parsing: update.body))?["command"]?.string
      return "command \(CommandIntake.known.first { command?.isExactly($0) == true } ?? "unknown")"
    case "documents": return "document"
    default: return "message"
    }
  }

  /// Commits the bucket's position with all writes of this turn.
  func move(_ bucket: String, _ outcome: CatchUp.Outcome) async throws {
    let position = outcome.position
    let staysBehind = bucket == "documents" && hasRefusedEdits
    try await store.save { [upstream] store throws(SQLiteError) in
      if staysBehind { return }
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

  var moment: Moment { Moment(loop.wallClock) }

  /// `count`: the number of lost updates in the range; `gateways`: whose messages they are, if the hub reports it.
  func journalGap(
    _ bucket: String, _ lost: ClosedRange<Int64>, _ reason: String, count: Int64? = nil, by gateways: [String] = []
  ) {
    // If only named gateways' messages are wanted, the list `heard` reports its own losses.
    if hasHeardList, bucket.hasPrefix("channel/") {
      return log.debug(
        "\(upstream): \(bucket): \(lost.lowerBound) to \(lost.upperBound) are left to the list heard, which reports its own losses"
      )
    }
    let all = lost.upperBound - lost.lowerBound + 1
    let count = min(count ?? all, all)
    let some = count < all ? "\(count) of updates" : "updates"
    let whose = gateways.isEmpty ? "" : ", messages of \(gateways.joined(separator: ", "))"
    log.warning(
      "\(upstream): \(bucket): \(some) \(lost.lowerBound) to \(lost.upperBound) are lost (\(reason)\(whose))")
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

  /// The hub was restored from a backup: sends it our documents again.
  func diverged(_ bucket: String, _ position: CatchUp.Position) {
    log.notice("\(upstream): \(bucket) was restored at the hub: fetching again from \(position.seq)")
    guard bucket == "documents" else { return }
    hasRefusedEdits = false
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
      // The time in the hub's queue counts towards the command's lifetime.
      isNew = try store.queueCommand(update.body, id: update.id, of: upstream, age: update.age)
    }
    if !isNew { commands.repeatEnd(of: update.id, update.body) }
    return isNew ? .sent : .known
  }

  func takeDocument(_ update: CatchUp.Update) -> ChannelUpdateFate {
    // `try?`: the update was parsed before.
    guard let body = try? JSONValue(parsing: update.body), let text = body["key"]?.string,
      let key = DocumentKey(text), let updatedAt = body["updated_at"]?.count
    else { return .skipped }
    let given = body["value"] ?? .null
    guard given == .null || key.allows(given) else { return .skipped }
    let document = Document(
      key: text, value: given == .null ? nil : given.text, updatedAt: updatedAt,
      byHub: body["by_hub"]?.bool ?? false)
    guard rights.contains(key.right) else { return refuse(document, key.right) }
    var isNew = false
    let through = acknowledged()
    store.write { [upstream, moment] store throws(SQLiteError) in
      isNew = try store.applyDocument(document, via: upstream, acknowledged: through, at: moment)
    }
    return isNew ? .sent : .known
  }

  /// A version that `allow` does not permit. If this gateway has another one, the position on disk stays before it: after
  /// a start it is told again and, once it is permitted, applied.
  private func refuse(_ document: Document, _ right: String) -> ChannelUpdateFate {
    // If the store cannot be read, this gateway counts as without the document.
    let mine = store.ifReadable { try store.document(document.key) }
    let isSame = mine.map { $0.hasSameValue(as: document) } ?? (document.value == nil)
    guard !isSame else { return .known }
    hasRefusedEdits = true
    // Others are this gateway's own: earlier ones, or those of its former card.
    if document.byHub { commands.tellUnpermittedEdit(of: document.key, right) }
    return .skipped
  }

  /// `channel`: the list's channel; `nil`: the list is for all channels, and messages of exchanged channels count.
  func takeMessage(_ update: CatchUp.Update, _ channel: String?) -> ChannelUpdateFate {
    // `try?`: the update was parsed before.
    guard let body = try? JSONValue(parsing: update.body), let channel = channel ?? exchanged(body["channel"]?.string),
      let gateway = body["gateway"]?.string,
      let text = body["text"]?.string, let time = body["sender_time"]?.integer.flatMap({ UInt32(exactly: $0) })
    else { return .skipped }
    return host?.take(
      ChannelUpdate(
        upstream: upstream, gateway: gateway, channel: channel,
        senderName: body["sender_name"]?.string ?? "?", senderTime: time, text: text,
        at: ChannelUpdate.sent(update.at, body), now: update.now,
        isOfUnknownAge: body["waited"]?.bool == true && body["waited_s"] == nil && body["age_s"] == nil)) ?? .skipped
  }

  private func exchanged(_ digest: String?) -> String? {
    host?.exchangedChannels.first { digest?.isExactly($0) == true }
  }
}

/// A hub sends messages of a channel only to gateways that have reported the channel.
extension BucketSync {
  /// The hub does not know that this gateway has the channel; a new or restored hub may have forgotten it. Reports the
  /// channel, at most once in `pollInterval`. Returns true if the bucket has to wait until the hub knows, because this
  /// gateway has a position in it.
  func joins(_ bucket: String, _ from: CatchUp.Position) -> Bool {
    if holds.mustTell(bucket, at: loop.now) { announce(bucket) }
    var random = SystemRandomNumberGenerator()
    guard from.since > 0 || from.seq > 0, holds.holdUntilKnown(bucket, at: loop.now, using: &random) else {
      return false
    }
    catchUp.hold(bucket)
    return true
  }

  private func announce(_ bucket: String) {
    var (channel, region): (Channel?, String?)
    store.ifReadable {
      channel = try store.channels().first { bucket == "channel/\($0.secret.digest)" }
      region = try channel.flatMap { try store.region(ofChannel: $0.secret.digest) }
    }
    guard let channel else { return }
    holds.told(bucket, at: loop.now)
    guard rations.mayAnnounce(at: loop.now) else { return }
    log.notice(
      "\(upstream): the hub does not know that this gateway has the channel \(channel.name.string): telling it")
    store.write { [moment] store throws(SQLiteError) in
      _ = try store.append(.channel, at: moment, body: EventBody.channel(channel, region: region))
    }
  }
}

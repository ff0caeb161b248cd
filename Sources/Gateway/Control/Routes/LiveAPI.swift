// SPDX-License-Identifier: MIT

import ControlShapes
import EventLoop
import HTTP
import JSON
import Store
import Timing

/// `/v1/live`: all changes as server-sent events, for pages. Source: WHATWG HTML § 9.2.
///
/// Events of the journal have their seq as `id`, so a browser that reconnects continues after its last one. States have
/// no id: they are sent whole.
struct LiveAPI {
  /// The shortest time between two states.
  private static let statePause: Duration = .seconds(1)
  /// After this silence a `tick` is sent: otherwise the client would consider the connection dead.
  private static let silence: Duration = .seconds(20)
  /// A client that has missed more events than this gets none of them, and loads the page's data again.
  private static let mostMissed: Int64 = 5000

  let dependencies: ControlAPI.Dependencies
  let reads: ReadMarks

  func follow(_ request: HTTPRequest, _ reply: Reply) async throws -> Answer {
    let loop = dependencies.loop
    let wanted = request.headers["Last-Event-ID"].flatMap { Int64($0) } ?? ControlAPI.number(request, "after")
    var feed = Feed(seq: start(wanted), reads: reads.count)
    feed.isBehind = wanted.map { $0 != feed.seq } ?? false
    let wake = Waiter()
    let headers: HTTPHeaders = ["Content-Type": "text/event-stream", "Cache-Control": "no-store"]
    var (timer, isTimeUp): (LoopTimer?, Bool) = (nil, false)
    defer { timer?.cancel() }
    return try await reply.rows(follow: true, wake: wake, joinsNews: true, headers: headers) {
      var out: [UInt8] = []
      if !feed.isBegun { begin(&feed, &out) }
      // Another wake-up than its own timer: the state may have changed.
      if !isTimeUp { feed.isStateWanted = true }
      isTimeUp = false
      let count = try events(&feed, &out)
      try readMarks(&feed, &out)
      guard count < ControlAPI.pageRows else { return (out, false) }
      let now = loop.now
      if feed.isStateWanted, feed.stateDue <= now {
        try Self.event("status", nil, &out) { try StatusReport(dependencies: dependencies).write(to: &$0) }
        (feed.isStateWanted, feed.stateDue) = (false, now + Self.statePause)
      }
      if out.isEmpty, now >= feed.spoken + Self.silence { tick(&out) }
      if !out.isEmpty { feed.spoken = now }
      timer?.cancel()
      timer = loop.schedule(at: feed.isStateWanted ? feed.stateDue : feed.spoken + Self.silence) {
        isTimeUp = true
        wake.resume()
      }
      return (out, true)
    }
  }

  private func readMarks(_ feed: inout Feed, _ out: inout [UInt8]) throws(StoreError) {
    let store = dependencies.store
    for change in reads.changes(after: feed.reads) where change.radio == store.radio {
      guard let conversation = try store.conversation(change.name, ofRadio: change.radio) else { continue }
      Self.event("read", nil, &out) { json in
        json.field(Shape.Conversation().conversation, change.name.description)
        ConversationsAPI.write(conversation, to: &json)
      }
    }
    feed.reads = reads.count
  }

  /// The position after the client's last event; if that is unknown or too far back, the newest position.
  private func start(_ wanted: Int64?) -> Int64 {
    let last = dependencies.store.lastSeq
    guard let wanted, wanted <= last, wanted >= last - Self.mostMissed else { return last }
    return max(0, wanted)
  }

  private struct Feed {
    var seq: Int64
    var reads: Int
    var isBegun = false
    /// The client has missed more events than it gets.
    var isBehind = false
    /// A state is due, but not before `stateDue`.
    var isStateWanted = true
    var stateDue = MonotonicTime(nanoseconds: 0)
    /// When the last line was sent.
    var spoken = MonotonicTime(nanoseconds: 0)
  }

  private func begin(_ feed: inout Feed, _ out: inout [UInt8]) {
    feed.isBegun = true
    out += Array("retry: 2000\n\n".utf8)
    hello(feed.seq, hasMissed: feed.isBehind, &out)
  }

  private func hello(_ seq: Int64, hasMissed: Bool, _ out: inout [UInt8]) {
    Self.event("hello", seq, &out) { json in
      json.field("gateway", dependencies.store.gatewayID)
      json.field("epoch", dependencies.store.epoch)
      json.field("seq", seq)
      json.field("missed", hasMissed ? true : nil)
      // Pages judge ages by it: a browser's clock may be wrong.
      json.field("now", dependencies.loop.wallClock.milliseconds)
    }
  }

  /// The connection is there; and what the clock shows, which may have been set since.
  private func tick(_ out: inout [UInt8]) {
    Self.event("tick", nil, &out) { json in json.field("now", dependencies.loop.wallClock.milliseconds) }
  }

  /// Writes events of the journal; returns how many were read. If some were deleted before the client got them, it is
  /// told so and continues with new ones.
  private func events(_ feed: inout Feed, _ out: inout [UInt8]) throws(StoreError) -> Int {
    let store = dependencies.store
    var found: [(seq: Int64, at: Int64, kind: String, body: [UInt8])] = []
    try store.readJournal(after: feed.seq, limit: ControlAPI.pageRows) { event, isSound in
      found.append((event.seq, event.at, isSound ? event.kind : "damaged", isSound ? event.body : Array("{}".utf8)))
      return true
    }
    let rows = MessageRow(store: store, relay: nil)
    for event in found {
      guard event.seq == feed.seq + 1 else {
        feed.seq = store.lastSeq
        hello(feed.seq, hasMissed: true, &out)
        return 0
      }
      if let row = try MessagesAPI.row(of: (event.kind, event.body), store) {
        Self.event("message", event.seq, &out) { rows.write(row, to: &$0) }
      } else {
        Self.event("journal", event.seq, &out) { json in
          json.field(Shape.Event().seq, event.seq)
          json.field(Shape.Event().at, event.at)
          json.field(Shape.Event().kind, event.kind)
          json.field(Shape.Event().body, json: event.body)
        }
      }
      feed.seq = event.seq
    }
    return found.count
  }

  /// JSON is one line, because it escapes line breaks.
  private static func event(
    _ name: String, _ id: Int64?, _ out: inout [UInt8], _ body: (inout JSONWriter) throws -> Void
  ) rethrows {
    let line = try JSONWriter.object(body)
    out += Array("event: \(name)\n".utf8)
    if let id { out += Array("id: \(id)\n".utf8) }
    out += Array("data: ".utf8) + line.filter { $0 != 10 && $0 != 13 } + Array("\n\n".utf8)
  }
}

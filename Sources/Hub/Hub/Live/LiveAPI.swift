// SPDX-License-Identifier: MIT

import HTTPTypes
import Hummingbird
import JSON
import NIOCore
import ServiceLifecycle

/// `/v1/live`: changes as server-sent events. Source: docs/hub-protocol.md.
extension HubAPI {
  func follow(_ call: Call) async throws -> Response {
    let (last, after) = (try call.lastEvent(), try call.bound("after"))
    let wanted = last ?? after
    // In the address it belongs to `after`.
    let arrived = last != nil && after != nil && last != after ? nil : try call.bound("arrived")
    guard let reader = try await live.enter(call.holder) else {
      stores.metrics.wasBusy(.readers)
      let words = "\(LiveFeed.mostReaders) readers already follow, or \(LiveFeed.mostOfOne) of yours"
      return Self.refusal(.serviceUnavailable, words, retryAfter: 30)
    }
    let stream = LiveReader(live, reader, stores, call.holder, wanted: wanted, arrived: arrived)
    var headers = HTTPFields()
    headers[.contentType] = "text/event-stream"
    headers[.cacheControl] = "no-store"
    // Otherwise a proxy that buffers answers would withhold events.
    if let name = HTTPField.Name("X-Accel-Buffering") { headers[name] = "no" }
    return Response(
      status: .ok, headers: headers,
      body: ResponseBody { writer in
        while let bytes = try await stream.next() { try await writer.write(ByteBuffer(bytes: bytes)) }
        try await writer.finish(nil)
      })
  }
}

/// The stream of one reader: a greeting, the missed messages, then new events. The reader leaves the feed at the end of this object, also if its
/// answer never begins.
private actor LiveReader {
  /// Pause before a heartbeat if there is no event.
  private static let heartbeat: Duration = .seconds(20)
  private static let piece = 64 * 1024
  private static let pageRows = 100

  private enum Stage {
    case greeting
    case behind(Int64)
    case following
  }

  private let live: LiveFeed
  private let stores: HubStores
  private let holder: String
  private let wanted: Int64?
  /// The arrival of the reader's last message at the hub, by the reader's query.
  private let arrived: Int64?
  private let id: Int
  private var reader: LiveFeed.Reader
  private var stage = Stage.greeting
  private var sentAt = ContinuousClock.now

  init(
    _ live: LiveFeed, _ reader: LiveFeed.Reader, _ stores: HubStores, _ holder: String, wanted: Int64?, arrived: Int64?
  ) {
    (self.live, self.reader, id, self.stores) = (live, reader, reader.id, stores)
    (self.holder, self.wanted, self.arrived) = (holder, wanted, arrived)
  }

  deinit { live.tasks.begin { [live, id] in await live.leave(id) } }

  /// `nil`: the end.
  func next() async throws -> [UInt8]? {
    switch stage {
    case .greeting: return try await greeting()
    case .behind(let after):
      if let bytes = try await missed(after) { return bytes }
      stage = .following
    case .following: break
    }
    return try await news()
  }

  private func greeting() async throws -> [UInt8] {
    reader = try await live.caughtUp(reader, to: wanted ?? 0)
    let known = wanted.map { min($0, reader.position) } ?? reader.position
    var missed = HubStore.Missed(count: 0, arrived: reader.arrived)
    if known < reader.position {
      missed = try await stores.readers.ask(holder) { try $0.missed(after: known, upTo: LiveFeed.mostMissed + 1) }
    }
    // A position beyond the newest, or with another message, is of another database or of a later copy of this one.
    let isOther = (wanted ?? 0) > reader.position || (wanted != nil && arrived != nil && arrived != missed.arrived)
    let isBehind = missed.count > LiveFeed.mostMissed || isOther
    let start = isBehind ? reader.position : known
    stage = .behind(start)
    let arrivedThen = isBehind ? reader.arrived : missed.arrived
    let hello = JSONWriter.object([
      "position": start, "arrived": arrivedThen, "missed": isBehind ? true : nil, "now": HubClock.now,
    ])
    return Array("retry: 2000\n\n".utf8) + LiveFeed.event("hello", id: start, hello)
  }

  private func missed(_ after: Int64) async throws -> [UInt8]? {
    let newest = reader.position
    guard after < newest else { return nil }
    let messages = try await stores.readers.ask(holder) { store in
      try store.joined(try store.positions(after: after, limit: Self.pageRows).filter { $0 <= newest })
    }
    guard let last = messages.last else { return nil }
    stage = .behind(last.position)
    return messages.flatMap { LiveFeed.event("message", id: $0.position, $0.json) }
  }

  private func news() async throws -> [UInt8]? {
    while !Task.isCancelled {
      let (live, id) = (live, id)
      let heartbeatTimer = Task {
        try await Task.sleep(for: Self.heartbeat)
        await live.nudge(id)
      }
      defer { heartbeatTimer.cancel() }
      let place = reader
      let found = await withTaskCancellationOrGracefulShutdownHandler {
        await live.next(place, most: Self.piece)
      } onCancelOrGracefulShutdown: {
        live.tasks.begin { await live.leave(id) }
      }
      guard let found else { return nil }
      reader = found.reader
      if !found.bytes.isEmpty {
        sentAt = .now
        return found.bytes
      }
      guard ContinuousClock.now - sentAt >= Self.heartbeat / 2 else { continue }
      sentAt = .now
      // An event, and no comment: browsers hide comments from the page, which would consider the connection dead.
      return LiveFeed.event("tick", id: nil, JSONWriter.object(["now": HubClock.now]))
    }
    return nil
  }
}

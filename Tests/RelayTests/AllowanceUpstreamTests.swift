// SPDX-License-Identifier: MIT

import EventLoop
import JSON
import SQLite
import Store
import TestSupport
import Testing
import Timing

@testable import Relay

/// A hub in invented time whose line costs more than what is sent.
private final class MeteredHub: Carrier {
  let kind = "hub"
  let place = "nowhere"
  let keepsConnection = true
  let window = 4
  let bytesSent: UInt64 = 0
  private(set) var lineBytes: UInt64 = 0
  private let loop: EventLoop
  private(set) var isUp = false
  private(set) var greetings = 0
  private(set) var kinds: [String] = []
  private(set) var acknowledged = ByLane<Int64?>(all: nil)

  init(on loop: EventLoop) { self.loop = loop }

  func greet() async -> Greeting {
    lineBytes += 6000
    greetings += 1
    isUp = true
    return .has(.byLane(acknowledged))
  }

  func carry(_ batch: Batch) async -> Verdict {
    guard isUp else { return .retry(reason: "the link is down", after: nil) }
    lineBytes += UInt64(batch.size + 200)
    let lane = batch.lane ?? .messages
    kinds += batch.events.map(\.kind)
    acknowledged[lane] = batch.events.last?.seq ?? acknowledged[lane]
    // `try?`: void is void.
    try? await loop.sleep(for: .milliseconds(600))
    return isUp ? .acknowledged(through: acknowledged[lane] ?? 0) : .hungUp(reason: "closed")
  }

  func close() {
    if isUp { lineBytes += 150 }
    isUp = false
  }
}

@Suite struct AllowanceUpstreamTests {
  private let scratch = Scratch(inMemory: true)
  private let machine = InventedMachine()
  private let loop: EventLoop
  private let store: Store
  private let hub: MeteredHub

  init() throws {
    loop = EventLoop(on: machine)
    store = try Store(Store.Settings(location: scratch.location("gw.db")))
    hub = MeteredHub(on: loop)
  }

  private func upstream(_ lines: @escaping (String) -> Void = { _ in }) throws -> JournalUpstream {
    var settings = JournalUpstream.Settings(name: "hub", fromStart: true)
    settings.filter = EventFilter(kinds: Set(EventKind.allCases.map(\.rawValue)))
    settings.dailyBytes = 300_000
    let upstream = try JournalUpstream(
      settings, carrier: hub, store: store, on: loop, log: Log(level: .info, sink: { _, line in lines(line) }))
    upstream.account?.zone = { _ in 0 }
    loop.afterTurn { [store, weak upstream] in
      store.commit()
      if store.takeNews().hasGrown { upstream?.wake() }
    }
    upstream.wake()
    return upstream
  }

  private func pass(_ seconds: Int64) {
    let end = loop.now + .seconds(seconds)
    while loop.now < end {
      let timer = loop.schedule(at: end) {}
      loop.turn(wait: true)
      timer.cancel()
    }
  }

  private func append(_ kind: EventKind, _ count: Int) {
    store.write { store throws(SQLiteError) in
      for _ in 0..<count {
        try store.append(
          kind, at: Moment(milliseconds: 1, trusted: true),
          body: Array("\"\(String(repeating: "x", count: 300))\"".utf8))
      }
    }
  }

  private func count(_ kind: String) -> Int { hub.kinds.count { $0 == kind } }

  @Test func `as a day's bytes run out packets stop first, messages last, and everything goes on the next day`() throws
  {
    var lines: [String] = []
    let upstream = try upstream { lines.append($0) }
    append(.packet, 1000)
    pass(3600)
    #expect((150_000...180_000).contains(hub.lineBytes), "\(hub.lineBytes)")
    #expect(upstream.status.allowance?.spent == [.packets] && hub.isUp)
    append(.advert, 1000)
    pass(3600)
    #expect((210_000...240_000).contains(hub.lineBytes), "\(hub.lineBytes)")
    #expect(upstream.status.allowance?.spent == [.nodes, .packets] && count("advert") > 50)
    append(.message, 1000)
    pass(3600)
    #expect((285_000...300_000).contains(hub.lineBytes), "\(hub.lineBytes)")
    #expect(count("message") > 50 && !hub.isUp, "a connection that nothing may be sent over is not kept")
    #expect(upstream.status.state == .waiting && upstream.status.reason?.contains("allowance") == true)
    #expect(upstream.status.allowance?.spent == Lane.allCases)
    let (used, packets) = (hub.lineBytes, count("packet"))
    // It is one o'clock in the night: nothing is said to the hub until the next.
    pass(10 * 3600)
    #expect(hub.lineBytes == used)
    pass(86_400)
    #expect(count("message") > 300 && count("packet") >= packets && hub.lineBytes <= 600_000)
    // The third is behind the messages that wait.
    #expect(count("allowance") == 2, "what was stopped is told")
    #expect(lines.count { $0.contains("the allowance stops") } >= 3)
    upstream.stop()
  }

  @Test func `whoever is killed again and again uses no more than the day has`() throws {
    append(.message, 3000)
    for _ in 0..<200 {
      let upstream = try upstream()
      pass(2)
      // Killed: what it says at its end does not count.
      let kept = try store.allowance(of: "hub")
      upstream.stop()
      store.write { store throws(SQLiteError) in try store.setAllowance(of: "hub", kept ?? "") }
      store.settle()
    }
    #expect(hub.lineBytes <= 303_000, "\(hub.lineBytes)")
  }

  @Test func `an end in order keeps what was used exactly`() throws {
    let first = try upstream()
    append(.message, 20)
    pass(60)
    first.stop()
    store.settle()
    let second = try upstream()
    #expect(second.status.allowance?.dayBytes == Int64(hub.lineBytes))
    second.stop()
  }
}

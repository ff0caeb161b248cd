// SPDX-License-Identifier: MIT

import JSON
import SQLite
import Synchronization
import TestSupport
import Testing

@testable import Hub

@Suite struct EventListTests {
  private final class Counts: Sendable {
    let made = Mutex(0)
  }

  @Test func `a reader gets whole events, at least one, and nothing after the end of the list`() {
    var list = EventList()
    var place = list.end
    for byte in 0..<3 as Range<UInt8> { list.append([byte, byte]) }
    #expect(list.read(from: &place, most: 3) == [0, 0] && list.read(from: &place, most: 1) == [1, 1])
    var newest = list.end
    for _ in 0..<EventList.mostEvents { list.append([9]) }
    #expect(place == 2 && list.read(from: &place, most: 9) == nil)
    #expect(list.read(from: &newest, most: .max)?.count == EventList.mostEvents && newest == list.end)
    list.clear()
    #expect(list.read(from: &newest, most: 9) == [] && newest == list.end)
  }

  @Test func `the list is bounded in bytes`() {
    var list = EventList()
    var first = list.end
    list.append([1])
    var second = list.end
    list.append([UInt8](repeating: 2, count: EventList.mostBytes))
    #expect(list.read(from: &first, most: 1) == nil && list.read(from: &second, most: 1)?.first == 2)
  }

  @Test func `announced changes wait until they are taken, and changes of channels are not announced`() {
    var changes = AnnouncedChanges()
    func change(_ bucket: String) -> HubChange { HubChange(gateway: "g", bucket: bucket, seq: 0) }
    let added = ["commands", "result/c1", "alert/7", "channel/x", "alert/x", "documents"].map {
      changes.add(change($0))
    }
    #expect(added == [true, true, true, true, false, false])
    let (ended, begun) = changes.takeCommands()
    #expect(ended == [["g", "c1"]] && begun == ["g"] && changes.takeAlerts() == [7])
    #expect(changes.takeCommands().ended.isEmpty && changes.takeAlerts() == [])
    // The database did not answer; meanwhile another one came.
    _ = changes.add(change("result/c2"))
    changes.putBack(ended: ended, begun: begun, alerts: [7])
    let again = changes.takeCommands()
    #expect(again.ended == [["g", "c1"], ["g", "c2"]] && again.begun == ["g"] && changes.takeAlerts() == [7])
  }

  @Test(arguments: ["alert/", "result/c"])
  func `more announced changes than there is room for are noted, and the same one again is not more`(_ name: String) {
    var changes = AnnouncedChanges()
    for number in 1...AnnouncedChanges.most {
      for _ in 0..<2 { _ = changes.add(HubChange(gateway: "g", bucket: "\(name)\(number)", seq: 0)) }
    }
    #expect(!changes.isOverflowing)
    _ = changes.add(HubChange(gateway: "g", bucket: "\(name)0", seq: 0))
    #expect(changes.isOverflowing)
  }

  @Test func `a new state is news also after the hub's clock was set back, and a contact now and then`() {
    var gateway = LiveGateway()
    var news = [gateway.note(seen: 900_000, state: 800_000)]
    #expect(gateway.hasNewContact(at: 900_000), "readers know nothing yet")
    gateway.published(at: 900_000)
    news.append(gateway.note(seen: 900_000, state: 800_000))
    #expect(!gateway.hasNewContact(at: 940_000))
    // By the clock that was set back by ten minutes.
    news.append(gateway.note(seen: 0, state: 310_000))
    news.append(gateway.note(seen: 320_000, state: 310_000))
    #expect(gateway.hasNewContact(at: 320_000))
    gateway.published(at: 320_000, seen: 320_000)
    news.append(gateway.note(seen: 330_000, state: 0))
    #expect(!gateway.hasNewContact(at: 330_000))
    #expect(gateway.hasNewContact(at: 350_000))
    #expect(news == [true, false, true, false, false])
    // By the clock of another hub, whose contacts this one does not look for.
    gateway.published(at: 360_000, seen: 20_000)
    #expect(!gateway.hasNewContact(at: 900_000), "readers have what the row says")
  }

  @Test func `figures that cannot be counted are absent, and are not counted again for a minute`() async throws {
    let (rig, counts) = (try LinkRig(), Counts())
    let figures = FleetFigures { _ in
      counts.made.withLock { $0 += 1 }
      throw HubDatabaseError(kind: .unavailable, message: "it takes too long")
    }
    for now in [1000, 60_000] as [Int64] { #expect(await figures.ifCounted(now) == nil) }
    #expect(counts.made.withLock { $0 } == 1)
    #expect(await figures.ifCounted(61_000) == nil)
    #expect(counts.made.withLock { $0 } == 2)
    _ = try await rig.hello(version: 0)
    _ = try await rig.ship([LinkRig.event(1, "message")])
    let row = try #require(try await rig.store.fleet().first)
    let shown = try JSONValue(parsing: JSONWriter.object(row.json(linkedAt: nil, nil, alerts: OpenAlerts())))
    #expect(shown["gateway"]?.string == "g" && shown["messages_today"] == nil && shown["nodes"] == nil)
    let figured = row.json(linkedAt: nil, FleetFigures.Figures(), alerts: OpenAlerts())
    let counted = try JSONValue(parsing: JSONWriter.object(figured))
    #expect(counted["messages_today"]?.integer == 0 && counted["nodes"]?.integer == 0)
  }

  @Test func `a reader with newer messages from another hub gets a position after them`() async throws {
    let rig = try LinkRig()
    _ = try await rig.hello(version: 0)
    let stores = rig.stores
    let figures = FleetFigures { now in try await stores.readers.ask("figures") { try $0.figures(now: now) } }
    let links = SharedLinkTable(LinkRegistry(), stores, isShared: false)
    let feed = LiveFeed({ stores.monitor }, links, figures)
    _ = try await rig.ship([LinkRig.event(1, "message")])
    let present = try #require(try await feed.enter("present"))
    _ = try await rig.ship([LinkRig.event(2, "message")])
    let newest = try await stores.monitor.newestPosition()
    #expect(newest > present.position)
    // This feed asks its database once a second, and has not seen the second message.
    let returning = try #require(try await feed.enter("returning"))
    let place = try await feed.caughtUp(returning, to: newest)
    #expect(place.position == newest)
    // Nobody has shown it this one.
    #expect(try await feed.caughtUp(place, to: newest + 1).position == newest)
    for reader in [present, returning] { await feed.leave(reader.id) }
  }

  /// The names of the commands that a reader gets, until it has this one. Ends after some seconds, also without it.
  private func commands(
    _ reader: inout LiveFeed.Reader, of feed: LiveFeed, until last: String
  ) async throws -> [String] {
    var ids: [String] = []
    for _ in 0..<200 where !ids.contains(last) {
      let id = reader.id
      let nudge = Task {
        try await Task.sleep(for: .milliseconds(50))
        await feed.nudge(id)
      }
      defer { nudge.cancel() }
      guard let (bytes, next) = await feed.next(reader, most: 1 << 20) else { break }
      reader = next
      for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n") where line.hasPrefix("data: ") {
        let json = try JSONValue(parsing: Array(line.utf8.dropFirst(6)))
        if json["state"]?.string == "queued", let id = json["id"]?.string { ids.append(id) }
      }
    }
    return ids
  }

  @Test func `commands that begin together all reach the readers, each once`() async throws {
    let rig = try LinkRig()
    _ = try await rig.hello(version: 0)
    let stores = rig.stores
    let figures = FleetFigures { now in try await stores.readers.ask("figures") { try $0.figures(now: now) } }
    let feed = LiveFeed({ stores.monitor }, SharedLinkTable(LinkRegistry(), stores, isShared: false), figures)
    var reader = try #require(try await feed.enter("reader"))
    let names = (0..<120).map { "c\($0)" }
    func begin(_ id: String) async throws {
      await feed.received(HubChange(gateway: "g", bucket: "commands", seq: 0))
      let body = JSONValue.object([("command", .string("sync"))])
      _ = try await stores.writer.enqueue(body, id: id, for: "g", by: "me", at: HubClock.now)
      await feed.received(HubChange(gateway: "g", bucket: "commands", seq: 0))
    }
    for name in names { try await begin(name) }
    var seen = try await commands(&reader, of: feed, until: names[119])
    #expect(Set(seen) == Set(names) && seen.count == names.count)
    try await begin("later")
    seen = try await commands(&reader, of: feed, until: "later")
    #expect(seen == ["later"])
    await feed.leave(reader.id)
  }

  @Test func `the feed's look at gateways leaves none out`() async throws {
    let scratch = Scratch()
    let store = try HubStore(location: scratch.location("hub.db"))
    let other = try Database(location: scratch.location("hub.db"))
    try other.execute(
      """
      INSERT INTO gateways(id, epoch, last_seen) WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n
        WHERE i < 10050) SELECT 'g' || i, 'e', 9 FROM n;
      INSERT INTO states(gateway, name, at, body) SELECT id, 'gateway', 9, '{}' FROM gateways;
      """)
    let seen = try await store.seen(since: 9)
    #expect(seen.count == 10_050 && seen.values.allSatisfy { $0.seen == 9 && $0.state == 9 })
    withExtendedLifetime(scratch) {}
  }
}

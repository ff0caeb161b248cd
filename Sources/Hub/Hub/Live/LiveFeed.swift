// SPDX-License-Identifier: MIT

import JSON

/// Changes for live readers. The feed queries the database once a second while there are readers, and otherwise never.
///
/// All readers share one `EventList`. A reader that falls behind the list is disconnected; it returns with the number of its last message, and gets the
/// missed messages from the database.
actor LiveFeed {
  static let mostReaders = 256
  /// Most readers of one token or person. Each tab of a browser is a reader.
  static let mostOfOne = 32
  /// Most messages for a returning reader. A reader that missed more gets `missed` instead.
  static let mostMissed: Int64 = 5000
  private static let pause: Duration = .seconds(1)
  /// The pause after a known change.
  private static let shortest: Duration = .milliseconds(100)
  private static let messagesAtOnce = 500
  /// The newest messages, whose hearers the feed counts again.
  private static let watched = 256
  private static let hearersPause: Duration = .seconds(1)
  private static let rowsAtOnce = 200
  /// Looks at a feed that has to catch up, ten milliseconds apart.
  private static let mostTurns = 1000
  /// Clocks of hubs differ by less than this, in milliseconds.
  private static let maxClockError: Int64 = 10_000

  struct Reader: Sendable {
    let id: Int
    /// The reader's next event of the list.
    var next: Int
    /// The newest message at the reader's arrival. Later messages are in the list.
    let position: Int64
    /// The arrival of that message at the hub.
    let arrived: Int64?
  }

  private let store: @Sendable () -> HubStore
  private let links: SharedLinkTable
  private let figures: FleetFigures
  private let alerts: @Sendable ([String]) async throws -> [String: OpenAlerts]

  private var events = EventList()
  private var waiting: [Int: CheckedContinuation<Void, Never>] = [:]
  /// The holder of each reader.
  private var readers: [Int: String] = [:]
  private var lastReader = 0
  private var isRunning = false

  private var position: Int64?
  private var arrived: Int64?
  private var hearers: [Int64: Int] = [:]
  private var hearersAt = ContinuousClock.now
  private var gateways: [String: LiveGateway] = [:]
  /// Gateways with changes that readers do not know yet.
  private var changed: Set<String> = []
  private var seenUntil: Int64 = 0
  private var seenAt = ContinuousClock.now
  private var hasChanges = false
  private var sleeper: Task<Void, Never>?
  let tasks = KeptTasks()
  private var announced = AnnouncedChanges()
  /// Recent commands that readers have, by gateway and id, with their times: the same moment is read again, because clocks of hubs differ.
  private var recentCommands: [[String]: Int64] = [:]
  /// The earliest time of commands that are announced and were not read yet.
  private var commandsSince: Int64?

  init(
    _ store: @escaping @Sendable () -> HubStore, _ links: SharedLinkTable, _ figures: FleetFigures,
    alerts: @escaping @Sendable ([String]) async throws -> [String: OpenAlerts] = { _ in [:] }
  ) {
    (self.store, self.links, self.figures, self.alerts) = (store, links, figures, alerts)
  }

  // MARK: Readers

  /// `holder`: the name of the token or person. `nil`: there are too many readers, or too many of this holder.
  func enter(_ holder: String) async throws -> Reader? {
    guard readers.count < Self.mostReaders, readers.values.count(where: { $0 == holder }) < Self.mostOfOne else {
      return nil
    }
    lastReader += 1
    let id = lastReader
    readers[id] = holder
    do {
      // After this the feed finds changes.
      if !isRunning { try await begin() }
      while position == nil, isRunning { try await Task.sleep(for: .milliseconds(10)) }
    } catch {
      leave(id)
      throw error
    }
    guard let position else {
      leave(id)
      return nil
    }
    return Reader(id: id, next: events.end, position: position, arrived: arrived)
  }

  /// The reader's place once this feed has read up to `position`: another hub on this database may have shown the reader
  /// messages that this one has not read yet. Unchanged if the database does not have so many.
  func caughtUp(_ reader: Reader, to position: Int64) async throws -> Reader {
    guard position > reader.position, try await store().newestPosition() >= position else { return reader }
    for _ in 0..<Self.mostTurns {
      guard isRunning, let reached = self.position else { break }
      if reached >= position { return Reader(id: reader.id, next: events.end, position: reached, arrived: arrived) }
      wake()
      try await Task.sleep(for: .milliseconds(10))
    }
    return reader
  }

  func leave(_ id: Int) {
    readers[id] = nil
    waiting.removeValue(forKey: id)?.resume()
    if readers.isEmpty { sleeper?.cancel() }
  }

  /// The database may not have what readers were shown: they come again, and are told.
  func startOver() async {
    readers = [:]
    events.clear()
    wakeReaders()
    // `try?`: a database without an answer is asked again with the next reader.
    guard let newest = try? await store().newestPosition() else { return }
    if isRunning { (position, arrived) = (newest, try? await store().arrived(newest)) }
  }

  /// Wakes a reader without an event, for a heartbeat.
  func nudge(_ id: Int) { waiting.removeValue(forKey: id)?.resume() }

  /// The events at the reader's place, about `most` bytes; empty: it was nudged. `nil`: it fell behind the list, or the feed ended.
  func next(_ place: Reader, most: Int) async -> (bytes: [UInt8], reader: Reader)? {
    var reader = place
    if reader.next == events.end {
      guard readers[reader.id] != nil, isRunning else { return nil }
      let id = reader.id
      await withCheckedContinuation { waiting[id] = $0 }
    }
    guard readers[reader.id] != nil, let out = events.read(from: &reader.next, most: most) else { return nil }
    return out.isEmpty && !isRunning ? nil : (out, reader)
  }

  /// Adds an event for all present readers. `id`: the position of a new message.
  func publish(_ name: String, id: Int64? = nil, _ body: [UInt8]) {
    guard !readers.isEmpty else { return }
    events.append(Self.event(name, id: id, body))
  }

  private func wakeReaders() {
    let woken = waiting.values
    waiting = [:]
    for waiter in woken { waiter.resume() }
  }

  /// An event of `text/event-stream`. Source: WHATWG HTML § 9.2. The JSON of this hub has no line breaks.
  static func event(_ name: String, id: Int64?, _ body: [UInt8]) -> [UInt8] {
    var out = Array((id.map { "id: \($0)\n" } ?? "").utf8)
    out += Array("event: \(name)\ndata: ".utf8)
    out += body
    out += [0x0A, 0x0A]
    return out
  }

  // MARK: Finding changes

  /// Notes a change that a hub on this database announced.
  func received(_ change: HubChange) {
    guard isRunning else { return }
    // A busy hub may look long after this.
    if change.bucket == "commands" { keepCommands(since: HubClock.now - Self.maxClockError) }
    if announced.add(change) { wake() }
  }

  private func keepCommands(since: Int64) { commandsSince = min(commandsSince ?? .max, since) }

  private func wake() {
    hasChanges = true
    sleeper?.cancel()
  }

  private func begin() async throws {
    isRunning = true
    do {
      let newest = try await store().newestPosition()
      arrived = try await store().arrived(newest)
      (gateways, changed) = ([:], [])
      seenUntil = 0
      try await pollGateways(publishes: false)
      position = newest
    } catch {
      isRunning = false
      throw error
    }
    tasks.begin { [self] in await run() }
  }

  private func run() async {
    while !readers.isEmpty, !Task.isCancelled {
      await poll()
      wakeReaders()
      let pause = Task<Void, Never> { [hasChanges] in
        // `try?`: a change cancels it.
        _ = try? await Task.sleep(for: hasChanges ? Self.shortest : Self.pause)
      }
      if !hasChanges { sleeper = pause }
      await pause.value
      // Changes come in groups.
      if pause.isCancelled, !readers.isEmpty { _ = try? await Task.sleep(for: Self.shortest) }
      sleeper = nil
    }
    (isRunning, position, hearers, gateways) = (false, nil, [:], [:])
    events.clear()
    (announced, recentCommands) = (AnnouncedChanges(), [:])
    wakeReaders()
  }

  private func poll() async {
    hasChanges = false
    guard !announced.isOverflowing else {
      announced = AnnouncedChanges()
      return await startOver()
    }
    // A part that fails does not keep the others from readers.
    for part in Part.allCases {
      do {
        switch part {
        case .messages: try await pollMessages()
        case .hearers: try await pollHearers()
        case .gateways: try await pollGateways(publishes: true)
        case .commands: try await pollCommands()
        case .alerts: try await pollAlerts()
        }
      } catch {
        // The database is unavailable, as its probe reports: the next round tries again.
      }
    }
  }

  private enum Part: CaseIterable { case messages, hearers, gateways, commands, alerts }

  private func pollMessages() async throws {
    guard let after = position else { return }
    let store = store()
    let found = try await store.positions(after: after, limit: Self.messagesAtOnce)
    guard !found.isEmpty else { return }
    let messages = try await store.joined(found)
    for message in messages {
      publish("message", id: message.position, message.json)
      hearers[message.position] = message.hearers
    }
    position = found.last
    arrived = messages.last.flatMap { $0.position == found.last && $0.arrived > 0 ? $0.arrived : nil }
    for old in hearers.keys.sorted().dropLast(Self.watched) { hearers[old] = nil }
    // More messages are waiting.
    if found.count == Self.messagesAtOnce { hasChanges = true }
  }

  private func pollHearers() async throws {
    guard let oldest = hearers.keys.min(), ContinuousClock.now - hearersAt >= Self.hearersPause else { return }
    hearersAt = .now
    let store = store()
    let counts = try await store.hearerCounts(from: oldest)
    let more = counts.filter { position, count in hearers[position].map { $0 < count } ?? false }.keys.sorted()
    for message in try await store.joined(more) {
      publish("message", message.json)
      // The counted hearers, for a message lists only some of many.
      hearers[message.position] = counts[message.position]
    }
  }

  private func pollGateways(publishes: Bool) async throws {
    guard !publishes || ContinuousClock.now - seenAt >= Self.pause else { return }
    seenAt = .now
    let now = HubClock.now
    let store = store()
    let seen = try await store.seen(since: seenUntil)
    seenUntil = now - Self.maxClockError
    let links = await links.times()
    for (gateway, times) in seen {
      var known = gateways[gateway] ?? LiveGateway()
      if known.note(seen: times.seen, state: times.state) { changed.insert(gateway) }
      gateways[gateway] = known
    }
    for (gateway, var known) in gateways {
      if known.linkedAt != links[gateway] {
        known.linkedAt = links[gateway]
        changed.insert(gateway)
      }
      if known.hasNewContact(at: now) { changed.insert(gateway) }
      gateways[gateway] = known
    }
    for (gateway, since) in links where gateways[gateway] == nil {
      gateways[gateway] = LiveGateway(linkedAt: since)
      changed.insert(gateway)
    }
    guard publishes else {
      for gateway in changed { gateways[gateway]?.published(at: now) }
      changed = []
      return
    }
    // If the database does not answer, the rest stays for the next round.
    while !changed.isEmpty {
      let some = Array(changed.sorted().prefix(Self.rowsAtOnce))
      try await publishRows(some, links, now)
      changed.subtract(some)
    }
  }

  private func publishRows(_ some: [String], _ links: [String: Int64], _ now: Int64) async throws {
    let figures = await figures.ifCounted()
    let open = try await alerts(some)
    let rows = try await store().fleet(only: some)
    for row in rows {
      let alerts = open[row.gateway] ?? OpenAlerts()
      publish("gateway", JSONWriter.object(row.json(linkedAt: links[row.gateway], figures, alerts: alerts)))
      gateways[row.gateway]?.published(at: now, seen: row.lastSeen)
    }
    // One that was removed would be asked for each second.
    let there = Set(rows.map(\.gateway))
    for gateway in some where !there.contains(gateway) && links[gateway] == nil { gateways[gateway] = nil }
  }

  /// Publishes changed alerts, each with its gateway's row, which has the number of its alerts.
  private func pollAlerts() async throws {
    var touched: Set<String> = []
    let changed = announced.takeAlerts()
    do {
      for id in changed {
        guard let alert = try await store().alert(id) else { continue }
        publish("alert", JSONWriter.object(alert.json))
        if !alert.gateway.isEmpty { touched.insert(alert.gateway) }
      }
      guard !touched.isEmpty else { return }
      try await publishRows(touched.sorted(), await links.times(), HubClock.now)
    } catch {
      // Readers may get some of them twice, which changes nothing.
      announced.putBack(alerts: changed)
      throw error
    }
  }

  private func pollCommands() async throws {
    let (ended, begun) = announced.takeCommands()
    let since = min(commandsSince ?? .max, HubClock.now - Self.maxClockError)
    commandsSince = nil
    let store = store()
    var found: [HubStore.OwnedCommand] = []
    var shown = recentCommands.filter { $0.value >= since }
    do {
      for place in ended {
        guard let command = try await store.command(place[1], of: place[0]) else { continue }
        shown[place] = command.createdAt
        found.append(HubStore.OwnedCommand(gateway: place[0], command: command))
      }
      for gateway in begun {
        for command in try await store.commands(of: gateway, since: since) where shown[[gateway, command.id]] == nil {
          shown[[gateway, command.id]] = command.createdAt
          found.append(HubStore.OwnedCommand(gateway: gateway, command: command))
        }
      }
    } catch {
      announced.putBack(ended: ended, begun: begun)
      keepCommands(since: since)
      throw error
    }
    recentCommands = shown
    for owned in found { publish("command", JSONWriter.object(owned.json)) }
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import Hub
import MQTT
import Sockets
import Timing

/// Stores publications of a broker in a hub's database. It acknowledges a publication once its events are on disk there: until then the broker keeps
/// it, and sends it again on the next connection. So neither a kill of this program nor an absent database loses a publication.
final class BrokerConsumer {
  /// Most bytes of publications that are not stored yet. If a broker ignores the window, it closes the connection at this limit, and these
  /// publications come again.
  private static let maxHeldBytes = 64 << 20
  /// The same limit in publications.
  private static let maxHeld = 16384
  /// Publications and bytes of one round.
  private static let maxRound = (count: 512, bytes: 4 << 20)
  /// A connection of at least this duration resets the pause between attempts.
  private static let good: Duration = .seconds(30)
  private static let reportPause: Duration = .seconds(600)
  /// Pauses between attempts.
  private static func pauses(_ limit: Duration) -> Backoff { Backoff(first: .seconds(1), limit: limit) }
  /// Most reasons of one outage in the log, once each.
  private static let maxTold = 16

  private struct PendingPublication {
    let publication: Publication
    let acknowledge: () -> Void
  }

  private typealias Outcome = Result<PublicationIngest.Counts, any Error>

  private let settings: ConsumeSettings
  private let consumption: PublicationIngest
  private let loop: EventLoop
  private let tell: (String) -> Void
  private let outcomes = Wakeup<Outcome>()
  private var answer: Promise<Outcome>?
  private var random = SystemRandomNumberGenerator()

  private var client: MQTTClient?
  private var held: [PendingPublication] = []
  private var heldBytes = 0
  private let arrived = Waiter()
  /// Resumed when a round is stored.
  private let stored = Waiter()
  private var isStoring = false
  /// The round that is being stored, on other threads. One that outlives this consumer is stored, and comes again.
  private var keeping: Task<Void, Never>?
  private var isOverfull = false
  private var hadSession = false
  /// Something else has left a subscription in the session that no client here can read: the next connection begins another one. Some brokers make such
  /// subscriptions themselves, and a new session does not help there.
  private var (needsNewSession, newSessions) = (false, Ration.hourly)
  private var isClosed = false
  /// The reason why it has ended by itself: a newer program has upgraded the tables.
  private(set) var end: String?
  private var counts = PublicationIngest.Counts()
  private var reported = PublicationIngest.Counts()

  /// `tell` gets the status in words, for a service manager.
  init(
    _ settings: ConsumeSettings, _ consumption: PublicationIngest, on loop: EventLoop,
    _ tell: @escaping (String) -> Void
  ) {
    (self.settings, self.consumption) = (settings, consumption)
    (self.loop, self.tell) = (loop, tell)
    outcomes.attach(to: loop) { [weak self] outcome in self?.answer?.keep(outcome) }
  }

  /// Runs until cancelled, or until a newer program has upgraded the tables: see `end`.
  func run() async {
    do {
      try await loop.race({ try await self.connect() }, { try await self.store() }, { try await self.report() })
    } catch {
      // Cancelled: the end.
    }
  }

  /// Disconnects with a message to the broker, which keeps the unacknowledged publications.
  func close() {
    isClosed = true
    client?.close()
    HubLog.write(.notice, "stopped; \(words(counts))")
  }

  // MARK: The broker

  private func connect() async throws(CancellationError) {
    let brokers = settings.brokers
    var (number, pauses) = (0, Self.pauses(.seconds(60)))
    // The logged reasons since the last good connection.
    var told: Set<String> = []
    while true {
      while isOverfull, isStoring { try await stored.wait() }
      isOverfull = false
      let place = brokers[number % brokers.count]
      let begun = loop.now
      let end = try await useBroker(place) {
        told = []
      }
      if loop.now - begun >= Self.good { pauses.reset() }
      // Unacknowledged publications come again, with other identifiers.
      (held, heldBytes) = ([], 0)
      if isClosed { return }
      let words = "broker \(place.shown): \(end)"
      if told.count < Self.maxTold, told.insert(words).inserted { HubLog.write(.warning, words) }
      tell("no broker: \(end)")
      number += 1
      // Tries another node of the cluster at once.
      if number % brokers.count != 0, pauses.failures == 0 { continue }
      try await loop.sleep(for: pauses.next(using: &random))
    }
  }

  /// Opens one connection and uses it; returns why it ended.
  private func useBroker(_ place: BrokerAddress, _ isUp: () -> Void) async throws(CancellationError) -> String {
    do {
      let client = try client(place)
      self.client = client
      if needsNewSession { client.forgetSession() }
      try await client.connect(try options())
      needsNewSession = false
      if let reason = sharing(client) {
        client.close()
        return reason
      }
      isUp()
      let session = client.hasSession ? "with our session" : "with a new session"
      HubLog.write(.notice, "broker \(place.shown): connected \(session)")
      if hadSession, !client.hasSession {
        HubLog.write(
          .warning, "the broker has forgotten our session: what was published meanwhile is not going to come")
      }
      hadSession = true
      tell("connected to \(place.shown); \(words(counts))")
      for filter in settings.filters { client.subscribe(filter) }
      try await client.run()
      return "given up"
    } catch let cancelled as CancellationError {
      throw cancelled
    } catch {
      if Task.isCancelled { throw CancellationError() }
      if case .foreign? = error as? MQTTFailure, !needsNewSession, newSessions.take(at: loop.now) {
        // It is not the broker that forgets the session.
        (needsNewSession, hadSession) = (true, false)
        HubLog.write(
          .warning,
          "broker \(place.shown): something else has left a subscription in our session, which ends each connection; "
            + "a new session begins, and publications that still wait in the old one are lost")
      }
      return isOverfull ? "too much waits for the database" : "\(error)"
    }
  }

  /// Why the broker cannot share publications within a group; `nil`: it can, or there is no group. A broker without shared subscriptions takes
  /// `$share/…` for a topic on which nothing ever comes.
  private func sharing(_ client: MQTTClient) -> String? {
    guard settings.group != nil else { return nil }
    if let shares = client.sharesSubscriptions {
      return shares ? nil : "it has no shared subscriptions, and consume.group is set"
    }
    guard settings.version != "3.1.1" else { return nil }
    return """
      consume.group is set, and a broker of version 3.1.1 does not say whether it has shared subscriptions: \
      set version = "3.1.1" if it has
      """
  }

  private func client(_ address: BrokerAddress) throws -> MQTTClient {
    var tls: TLSContext?
    if address.tls {
      tls = try TLSContext(
        authorities: settings.authorities, certificate: settings.certificate, key: settings.key)
    }
    let versions: [String: MQTTVersion] = ["5": .v5, "3.1.1": .v3]
    let client = MQTTClient(
      host: address.host, port: address.port, path: address.path, tls: tls, version: versions[settings.version],
      on: loop)
    client.onMessage = { [weak self] message, acknowledge in self?.received(message, acknowledge) }
    return client
  }

  private func options() throws -> MQTTOptions {
    var options = MQTTOptions(
      clientID: settings.clientID, user: settings.user, password: try settings.password().map { Array($0.utf8) },
      keepAlive: UInt16(clamping: settings.keepAlive), sessionExpiry: UInt32(clamping: settings.session))
    options.receiveMaximum = UInt16(clamping: settings.window)
    // The topic and the packet's own fields beside the payload.
    options.maxBytes = UInt32(Publication.maxBytes + 4096)
    options.needsQuality1 = true
    // No limit in the client: NATS repeats a thousand publications after the failure of a node. `Self.maxHeldBytes` bounds the bytes.
    options.maxHeldBytes = .max
    return options
  }

  private func received(_ message: MQTTMessage, _ acknowledge: @escaping () -> Void) {
    held.append(
      PendingPublication(
        publication: Publication(topic: message.topic, payload: message.payload), acknowledge: acknowledge))
    heldBytes += message.payload.count
    arrived.resume()
    guard heldBytes > Self.maxHeldBytes || held.count > Self.maxHeld else { return }
    isOverfull = true
    client?.close()
  }

  // MARK: The database

  /// Stores the waiting publications together. While a round is in progress, the next one gathers.
  private func store() async throws(CancellationError) {
    while true {
      isStoring = false
      stored.resume()
      while held.isEmpty { try await arrived.wait() }
      isStoring = true
      let round = nextRound()
      var (pauses, isTold) = (Self.pauses(.seconds(30)), false)
      while true {
        let answer = Promise<Outcome>()
        self.answer = answer
        keep(round.map(\.publication))
        switch try await answer.value() {
        case .success(let kept):
          counts += kept
          if isTold { HubLog.write(.notice, "new events are stored again") }
          for held in round { held.acknowledge() }
        case .failure(let error as HubDatabaseError) where error.kind == .outdated:
          // Nothing is acknowledged: the broker keeps it for the next program with this client id.
          end = error.message
          return
        case .failure(let error):
          if !isTold { HubLog.write(.error, "received batches cannot be stored: \(error); nothing is acknowledged") }
          isTold = true
          tell("received batches cannot be stored")
          try await loop.sleep(for: pauses.next(using: &random))
          continue
        }
        break
      }
    }
  }

  private func nextRound() -> [PendingPublication] {
    var (count, bytes) = (0, 0)
    for one in held.prefix(Self.maxRound.count) {
      bytes += one.publication.payload.count
      guard count == 0 || bytes <= Self.maxRound.bytes else { break }
      count += 1
    }
    let round = Array(held.prefix(count))
    held.removeFirst(count)
    heldBytes -= round.reduce(0) { $0 + $1.publication.payload.count }
    return round
  }

  /// Stores on other threads: the loop continues with pings.
  private func keep(_ publications: [Publication]) {
    keeping = Task { [consumption, outcomes] in
      do {
        outcomes.send(.success(try await consumption.keep(publications)))
      } catch {
        outcomes.send(.failure(error))
      }
    }
  }

  // MARK: Reporting

  private func report() async throws(CancellationError) {
    while true {
      try await loop.sleep(for: Self.reportPause)
      guard counts != reported else { continue }
      reported = counts
      HubLog.write(.notice, words(counts))
      if client?.isUp == true { tell("connected; \(words(counts))") }
    }
  }

  private func words(_ counts: PublicationIngest.Counts) -> String {
    var words = "events: \(counts.stored) stored, \(counts.known) known before; publications: \(counts.publications)"
    if counts.missing > 0 { words += "; events missing at gateways: \(counts.missing)" }
    if counts.refused > 0 { words += "; publications refused (\(settings.refusedFile)): \(counts.refused)" }
    return words
  }
}

// SPDX-License-Identifier: MIT

import CLinux
import Companion
import Control
import EventLoop
import Glibc
import JSON
import Messaging
import RadioSharing
import Relay
import Release
import ServiceManager
import Store
import Sync
import Timing
import Transport

/// The gateway: all of its parts on one event loop.
public final class Daemon {
  public static let version = Release.version
  /// The longest wait at the end for a message that the radio is handing over.
  static let shutdownGrace: Duration = .seconds(3)
  /// The longest wait at the end for the answers to what servers were sent. systemd kills after 20 s.
  static let answerGrace: Duration = .seconds(5)

  var inUse: ConfigurationInUse
  let loop: EventLoop
  let log: Log
  let surroundings: Surroundings
  package let store: Store
  let synchronizer: Synchronizer
  let messaging: MessagingParts
  let exchange: ChannelExchange
  let signer: RadioSigner
  let proxy: CompanionProxy
  private(set) lazy var pages = LocalPages(
    WebSecrets(store: store.location), api: { [unowned self] in control }, on: loop, log: log)
  let packets: PacketFeed
  let relay: Relay
  var control: ControlAPI?
  let maintenance: StoreMaintenance
  let publisher: StatePublisher
  let power: PowerWatch
  let alerts: GatewayAlerts

  var configuration: GatewayConfiguration { inUse.current }
  var connection: RadioConnection { synchronizer.connection }

  /// Why the daemon cannot start, with the exit code of `sysexits.h`.
  public struct StartError: Error {
    public let message: String
    public let code: Int32
    /// The disk's problem, if a later start may succeed.
    public private(set) var waits: StoreError?
  }

  /// `loop`: runs the gateway, and has the time. `opened`: its store, if that is open already.
  public init(
    _ configuration: GatewayConfiguration, file: String, opened: Store? = nil, on loop: EventLoop = EventLoop(),
    manager: ServiceManager? = .ofThisProcess(), in surroundings: Surroundings = Surroundings()
  ) throws(StartError) {
    inUse = ConfigurationInUse(configuration, of: file)
    self.loop = loop
    self.surroundings = surroundings
    log = Log(level: configuration.logLevel, clock: loop.wallClock, sink: surroundings.log)
    do {
      if let opened { store = opened } else { store = try Self.writableStore(configuration.store, on: loop) }
    } catch {
      throw StartError(
        message: "\(error). \(error.remedy)", code: error.passesByItself ? EX_TEMPFAIL : EX_CANTCREAT,
        waits: error.isOfDisk ? error : nil)
    }
    maintenance = StoreMaintenance(store, journalMaxSize: configuration.store.journalMaxSize, on: loop, log: log)
    let link = surroundings.link(configuration, manager, loop, log)
    manager?.dropInherited()
    let connection = RadioConnection(link, key: configuration.radioKey, on: loop, log: log)
    synchronizer = Synchronizer(connection, store: store, settings: configuration.sync, on: loop, log: log)
    packets = PacketFeed(synchronizer, store, clock: loop.wallClock)
    let changes = StateChange()
    power = PowerWatch(synchronizer, store, limit: configuration.lowBattery, changes: changes, on: loop)
    do throws(StoreError) {
      let upstreams = configuration.upstreams.map(\.name)
      messaging = try Self.begin(with: store, for: upstreams) { [store, synchronizer, log] () throws(StoreError) in
        try Self.makeMessaging(configuration.messaging, store, synchronizer, loop, log)
      }
      relay = try Self.begin(with: store, for: upstreams) { [store, log] () throws(StoreError) in
        try Relay(configuration.upstreams, carriers: surroundings.carriers, store: store, on: loop, log: log)
      } others: { [messaging] () throws(StoreError) in
        try messaging.messenger.begin()
      }
    } catch {
      throw StartError(message: "\(error). \(error.remedy)", code: EX_CANTCREAT)
    }
    signer = RadioSigner(connection)
    proxy = CompanionProxy(
      CompanionProxy.Gateway(
        loop: loop, log: log, store: store, synchronizer: synchronizer, messenger: messaging.messenger,
        requests: messaging.nodes.requests, sign: { [signer] in await signer.sign($0) }))
    exchange = ChannelExchange(configuration.exchange, messaging.messenger, store, log: log)
    alerts = GatewayAlerts(
      configuration.alerts, store, relay,
      contactTable: { [store] in
        guard let most = connection.identity?.device?.maxContacts, most > 0 else { return nil }
        return store.ifReadable { try store.contactCount(onRadio: true) }.map { (Int($0), most) }
      }, changes: changes, on: loop, log: log)
    publisher = StatePublisher(changes, synchronizer, store, relay, manager: manager, on: loop, log: log)
    messaging.keeper.needed = { [weak routine = messaging.routine, weak alerts] in
      routine?.needed?.union(alerts?.wanted ?? [])
    }
    alerts.needed = { [weak routine = messaging.routine] in routine?.needed }
    alerts.polledKinds = { [weak routine = messaging.routine] in routine?.polledKinds }
    messaging.nodes.answered = { [weak alerts] in alerts?.answered($0, $1) }
    messaging.nodes.does = { [weak alerts] in alerts?.does($0, $1) }
    messaging.routine.polled = { [weak alerts] in alerts?.polled($0, $1, isAnswered: $2) }
    messaging.knock.whenFull = { [weak alerts] in alerts?.nodeWasNotAdded() }
    messaging.knock.whenUnread = { [weak alerts] in alerts?.textsWereUnread($0) }
    power.alerts = alerts
    maintenance.alerts = alerts
    do {
      control = try ControlAPI(
        ControlAPI.Dependencies(
          version: Self.version, configurationFile: file, loop: loop, log: log, store: store,
          synchronizer: synchronizer,
          messaging: messaging, bluetooth: configuration.bluetooth, proxy: proxy, relay: relay, taps: packets.taps,
          operations: DaemonOperations(self, maintenance, power)),
        location: configuration.controlSocket, group: configuration.controlGroup,
        metricsPort: configuration.metricsPort)
    } catch {
      throw StartError(message: "the control socket: \(error)", code: EX_CANTCREAT)
    }
  }

  private static func makeMessaging(
    _ configuration: MessagingConfiguration, _ store: Store, _ synchronizer: Synchronizer, _ loop: EventLoop, _ log: Log
  ) throws(StoreError) -> MessagingParts {
    let messenger = try Messenger(
      store: store, synchronizer: synchronizer, settings: configuration.messenger, on: loop, log: log)
    let nodes = NodeService(messenger, credentials: Credentials(location: configuration.credentialsFile))
    let routine = NodePolling(messenger, nodes, configuration.routine)
    let table = RadioTable(synchronizer, store: store)
    let keeper = ContactEviction(configuration.keeper, table, synchronizer, store: store, on: loop, log: log)
    let knock = Knock(keeper)
    keeper.guests = { [weak knock] in knock?.guests ?? [] }
    messenger.keeper = keeper
    return MessagingParts(
      messenger: messenger, nodes: nodes, table: table, routine: routine, keeper: keeper, knock: knock)
  }

  // MARK: Running

  /// Runs until SIGTERM or SIGINT, or until a service ends by itself. Returns the exit code, of `sysexits.h`.
  public func run() -> Int32 {
    SpareMemory.readInPieces()
    let signals = SignalQueue([SIGTERM, SIGINT, SIGHUP], on: loop)
    var code = EX_OK
    // `try?`: nothing cancels it.
    loop.run { if let end = try? await self.serve(signals) { code = end } }
    withExtendedLifetime(signals) {}
    return code
  }

  /// Begins the services, answers signals until one ends the gateway, and ends the services. Returns the exit code.
  package func serve(_ signals: SignalQueue) async throws(CancellationError) -> Int32 {
    var code = EX_OK
    loop.afterTurn { [weak self] in self?.endTurn() }
    synchronizer.observer = self
    relay.radio = signer
    relay.host = self
    connection.tap = packets.taps
    settingsChanged()
    announce()
    // A single part cannot be restarted: the service manager starts the whole gateway again.
    let running = RunningServices(services, on: loop) { [log] name in
      log.error("\(name) ended by itself. This is a bug. The gateway ends; the service manager starts it again")
      code = EX_SOFTWARE
      signals.put(SIGTERM)
    }
    try await loop.nextTurn()
    publisher.notifier?.ready(publisher.summary)
    keepConfiguration()
    while try await signals.next() == SIGHUP { reload() }
    publisher.notifier?.ending()
    log.notice("ending")
    await running.end()
    // Its tasks hold the store: a link that was not up at the end tells of no other end.
    messaging.routine.linkDown()
    // Cancelled tasks have ended, too.
    try await loop.nextTurn()
    return code
  }

  /// The end of a turn: commits its writes, then wakes upstreams and clients that follow.
  private func endTurn() {
    store.commit(everything: connection.link.isFilling)
    if !synchronizer.hasMessageInHand, !store.transactions.hasUncommitted { connection.settle() }
    let news = store.transactions.takeNews()
    if let loss = news.loss { log.warning(loss) }
    if let pause = news.pause { maintenance.commit(after: pause) }
    if news.hasGrown {
      relay.wake()
      control?.somethingIsNew()
      maintenance.somethingWasStored()
      alerts.somethingWasStored()
    } else if store.transactions.failure != nil {
      alerts.storeFailed()
    }
    publisher.readBacklog()
    if store.isDamaged { maintenance.foundDamage() }
  }

  private func announce() {
    for lack in configuration.lacks { log.warning(lack) }
    tellRefusal()
    if let words = store.provenance.refusedRead {
      log.error("\(words). The second attempt read all of it: check the disk")
    }
    if let words = store.provenance.undoneMove {
      log.warning("\(words). The database from before is in its place again, with all that it had")
    }
    if let words = store.provenance.lostFromLog ?? store.provenance.putBack {
      let (loss, isOfLog) = (store.provenance.loss, store.provenance.lostFromLog != nil)
      // The words about an older copy have it already.
      let extent = isOfLog ? loss?.extent.map { "; \($0)" } ?? "" : ""
      let amount = loss.map { ": \($0.amount)" } ?? ""
      log.error(
        "\(words)\(extent). Began a new epoch. "
          + "What is missing and was not sent is lost\(amount); a gap tells upstreams")
    } else if let loss = store.provenance.loss {
      log.error("\(loss)\(loss.cause == .removed ? ". \(Self.goneRemedy)" : "")")
    }
    let servers = configuration.upstreams.count { if case .hook = $0.kind { false } else { true } }
    log.notice("meshpostd \(Self.version), gateway \(store.gatewayID), \(servers) upstreams")
    if servers == 0 { log.warning("no upstream is configured: everything stays in the store") }
  }
}

// SPDX-License-Identifier: MIT

import CLinux
import Companion
import Control
import EventLoop
import Glibc
import JSON
import Messaging
import Proxy
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
  /// Memory is given back so long after a burst.
  private static let quietPeriod: Duration = .seconds(2)
  /// The message that the radio is handing over gets so long before the end.
  private static let shutdownGrace: Duration = .seconds(3)

  let file: String
  private(set) var configuration: GatewayConfiguration
  private let loop = EventLoop()
  private let log: Log
  private let store: Store
  private let connection: RadioConnection
  private let synchronizer: Synchronizer
  private let messaging: MessagingParts
  private let remote: RemoteCommands
  private let exchange: ChannelExchange
  private let voice: RadioSigner
  private let proxy: CompanionProxy
  private let taps = TapAPI()
  private let counts = PacketCounts()
  private var network: NetworkWatch?
  private var wantsPackets = false
  private var stateTimer: LoopTimer?
  private var commitTimer: LoopTimer?
  private var lastState: [UInt8] = []
  private let relay: Relay
  private var control: ControlAPI?
  private var signals: Signals?
  private let upkeep: StoreMaintenance
  private let duties: ServiceNotifier?
  private let power: PowerWatch
  private var isEnding = false

  /// Why the daemon cannot start, with the exit code of `sysexits.h`.
  public struct StartError: Error {
    public let words: String
    public let code: Int32
  }

  public init(_ configuration: GatewayConfiguration, file: String) throws(StartError) {
    self.configuration = configuration
    self.file = file
    log = Log(level: configuration.logLevel)
    do {
      store = try Store(configuration.store)
    } catch {
      throw StartError(words: "\(error). \(error.remedy)", code: error.passesByItself ? EX_TEMPFAIL : EX_CANTCREAT)
    }
    upkeep = StoreMaintenance(store, journalMaxSize: configuration.store.journalMaxSize, on: loop, log: log)
    let manager = ServiceManager.ofThisProcess()
    let link = Links.link(
      to: configuration.link, bluetooth: configuration.bluetooth, key: configuration.radioKey, manager: manager,
      on: loop, log: log)
    manager?.dropInherited()
    connection = RadioConnection(link, key: configuration.radioKey, on: loop, log: log)
    synchronizer = Synchronizer(connection, store: store, settings: configuration.sync, on: loop, log: log)
    power = PowerWatch(synchronizer, store, limit: configuration.lowBattery, on: loop, log: log)
    duties = manager.map { [synchronizer, loop, log] in ServiceNotifier($0, synchronizer, on: loop, log: log) }
    do {
      messaging = try Self.makeMessaging(configuration.messaging, store, synchronizer, loop, log)
    } catch {
      throw StartError(words: "\(error). \(error.remedy)", code: EX_CANTCREAT)
    }
    remote = RemoteCommands(messaging.messenger, synchronizer)
    voice = RadioSigner(connection, on: loop)
    proxy = CompanionProxy(
      CompanionProxy.Parts(
        loop: loop, log: log, store: store, synchronizer: synchronizer, messenger: messaging.messenger,
        requests: messaging.nodes.requests, sign: { [voice] in voice.sign($0, $1) }))
    exchange = ChannelExchange(configuration.exchange, messaging.messenger, store, log: log)
    do {
      relay = try Relay(configuration.upstreams, store: store, on: loop, log: log)
    } catch {
      throw StartError(words: "\(error). \(error.remedy)", code: EX_CANTCREAT)
    }
    do {
      control = try ControlAPI(
        ControlAPI.Dependencies(
          version: Self.version, configurationFile: file, loop: loop, log: log, store: store,
          synchronizer: synchronizer,
          messaging: messaging, bluetooth: configuration.bluetooth, proxy: proxy, relay: relay, taps: taps,
          counts: counts, operations: DaemonOperations(self, upkeep, power)),
        location: configuration.controlSocket, group: configuration.controlGroup,
        metricsPort: configuration.metricsPort)
    } catch {
      throw StartError(words: "the control socket: \(error)", code: EX_CANTCREAT)
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
    messenger.keeper = keeper
    return MessagingParts(messenger: messenger, nodes: nodes, table: table, routine: routine, keeper: keeper)
  }

  /// What comes from the radio reaches those who send, too.
  private func connectMessaging() {
    connectCommands()
    synchronizer.observer = self
    taps.onListening = { [connection, taps] isWanted in
      connection.onFrame = isWanted ? { taps.frame($0, $1) } : nil
    }
  }

  private func connectCommands() {
    remote.status = { [unowned self] in self.control?.stateJSON() ?? Array("{}".utf8) }
    relay.setCommandHandler { [remote] command, done in remote.carryOut(command, done) }
    relay.setRadio(voice)
    wantsPackets = relay.wantsPackets
    relay.setReceivers(
      documentChanged: { [weak self] _ in self?.documentsChanged() },
      channelMessage: { [exchange] update in exchange.take(update) }, channels: { [exchange] in exchange.digests() })
    documentsChanged()
  }

  /// Packets are journaled while somebody wants them: they are many.
  private func heard(_ packet: [UInt8], _ snr: SNR, _ rssi: Int8) {
    counts.heard(snr, rssi)
    taps.heard(packet, snr, rssi, connection.identity?.info.radio)
    guard wantsPackets else { return }
    let moment = synchronizer.now
    let body = JSONWriter.object { json in
      json.field("raw", Hex.string(packet))
      json.field("snr", snr.decibels)
      json.field("rssi", rssi)
    }
    store.post(when: .soon, "a packet") { store throws(SQLiteError) in
      try store.append(.packet, at: moment, body: body)
    }
  }

  /// Documents may say other things than the file, where a hub is allowed to have them say so.
  func documentsChanged() {
    let settings = SettingsDocuments(configuration, store, log)
    log.level = settings.logLevel
    messaging.messenger.change(settings.messenger)
    exchange.settings = settings.exchange
    relay.channelsChanged()
  }

  private func radioChanged() {
    publishState()
    messaging.messenger.radioChanged()
    if connection.state != .up {
      messaging.nodes.requests.linkLost()
      messaging.routine.linkDown()
    } else if synchronizer.state == .synced {
      messaging.routine.linkUp()
    }
  }

  /// Runs until SIGTERM or SIGINT.
  public func run() {
    signals = Signals([SIGTERM, SIGINT, SIGHUP], on: loop) { [weak self] signal in
      if signal == SIGHUP { self?.reload() } else { self?.end() }
    }
    loop.afterTurn { [store] in store.commit() }
    loop.afterTurn { [synchronizer, connection, store] in
      if connection.link.isFilling, store.gathersMessages { store.commit(everything: true) }
      if !synchronizer.hasMessageInHand { connection.settle() }
    }
    store.onDeferred = { [weak self] pause in self?.commitLater(pause) }
    store.onLoss = { [log] in log.warning($0) }
    store.onDamage = { [weak self] in self?.loop.later { self?.replaceDamagedStore() } }
    store.onCommit { [upkeep] in upkeep.somethingWasStored() }
    connectMessaging()
    if let location = store.setAside {
      log.error("the database was damaged: it is kept as \(location), a new one with a new epoch was begun")
    }
    for lack in configuration.lacks { log.warning(lack) }
    if let words = store.lostFromLog { log.error("\(words). A new epoch was begun") }
    let servers = configuration.upstreams.count { if case .hook = $0.kind { false } else { true } }
    log.notice("meshpostd \(Self.version), gateway \(store.gatewayID), \(servers) upstreams")
    if servers == 0 { log.warning("no upstream is configured: everything stays in the store") }
    network = NetworkWatch(on: loop) { [weak self] in self?.networkChanged() }
    connection.start()
    relay.start()
    proxy.listen(configuration.proxies)
    upkeep.start()
    power.onChange = { [weak self] in self?.publishState() }
    power.start()
    loop.later { [weak self] in if let self { self.duties?.ready(self.summary) } }
    loop.run()
  }

  /// One timer for all that waits, however often something is promised.
  private func commitLater(_ pause: Duration) {
    guard commitTimer?.isScheduled != true else { return }
    commitTimer = loop.schedule(after: pause) { [store] in store.commit(everything: true) }
  }

  /// For `systemctl status`, one line.
  private var summary: String {
    let radio =
      switch connection.state {
      case .up: "radio up, \(synchronizer.state.name)"
      case .waiting(let error): "radio down: \(error)"
      case .connecting, .handshaking: "looking for the radio"
      }
    return store.failure.map { "\(radio); \($0)" } ?? radio
  }

  private func networkChanged() {
    log.info("the network has changed: upstreams that wait are tried at once")
    relay.networkChanged()
  }

  /// At most one state every few seconds: each costs the uplink a little.
  private func publishState() {
    guard stateTimer?.isScheduled != true else { return }
    stateTimer = loop.schedule(after: Self.quietPeriod) { [weak self] in
      guard let self else { return }
      self.duties?.changed(self.summary)
      guard let state = self.control?.stateJSON(), state != self.lastState else { return }
      self.lastState = state
      self.relay.setState("gateway", state)
    }
  }

  // MARK: Signals

  private func end() {
    guard !isEnding else { return }
    isEnding = true
    duties?.ending()
    log.notice("ending")
    loop.begin {
      await self.synchronizer.finish(within: Self.shutdownGrace)
      self.close()
    }
  }

  private func close() {
    upkeep.stop()
    proxy.stop()
    connection.stop()
    relay.stop()
    control?.stop()
    store.settle()
    do {
      try store.checkpoint()
    } catch {
      log.info("the last checkpoint is left to the next start: \(error)")
    }
    loop.stop()
  }

  /// What can be reloaded: the log's level, upstreams and their credentials, whether the radio's time is set.
  private func reload() {
    duties?.reloading()
    defer { duties?.reloaded() }
    let fresh: GatewayConfiguration
    do {
      fresh = try GatewayConfiguration(file: file)
    } catch {
      log.error("the configuration is not reloaded:\n\(error)")
      return
    }
    for words in fresh.warnings { log.warning(words) }
    synchronizer.settings = fresh.sync
    messaging.routine.change(fresh.messaging.routine)
    power.change(limit: fresh.lowBattery)
    messaging.keeper.settings = fresh.messaging.keeper
    let old = configuration
    let keepsRunning = [
      ("radio.link", old.link != fresh.link), ("radio.key", old.radioKey != fresh.radioKey),
      ("Bluetooth", old.bluetooth != fresh.bluetooth),
      ("store", old.store.location != fresh.store.location),
      ("control", old.controlSocket != fresh.controlSocket),
      ("messaging.credentials_file", old.messaging.credentialsFile != fresh.messaging.credentialsFile),
      ("gateway.id", old.store.gatewayID != fresh.store.gatewayID),
    ]
    for (name, changed) in keepsRunning where changed { log.warning("\(name) changes at the next start only") }
    do {
      try change(to: fresh)
      // Whoever waits or is stopped may have what it needs by now.
      relay.resume()
      proxy.listen(fresh.proxies)
      for lack in fresh.lacks { log.warning(lack) }
      log.notice("the configuration is reloaded")
    } catch {
      log.error("the configuration is not reloaded: \(error)")
    }
  }

  /// Upstreams whose settings are the same go on running. When it throws, nothing has changed.
  func change(to fresh: GatewayConfiguration) throws(StoreError) {
    let added = try relay.change(to: fresh.upstreams)
    configuration = fresh
    connectCommands()
    for upstream in added { upstream.setState("gateway", lastState) }
    relay.start()
  }

  // MARK: The store's care

  private func replaceDamagedStore() {
    do {
      let location = try store.replaceDamaged()
      log.error("the database is damaged: it is kept as \(location), a new one with a new epoch was begun")
      try store.keepOnlyCursors(of: relay.upstreams.map(\.name))
      relay.storeReplaced()
      messaging.messenger.storeReplaced()
      proxy.storeReplaced()
      synchronizer.restart(fully: true)
    } catch {
      log.error("\(error). \(error.remedy) Trying again in a minute")
      loop.schedule(after: .seconds(60)) { [weak self] in self?.replaceDamagedStore() }
    }
  }

}

// MARK: What the radio says

extension Daemon: SyncObserver {
  public func linkChanged() { radioChanged() }

  public func syncChanged() {
    control?.somethingIsNew()
    if synchronizer.state == .synced {
      relay.radioIsUp()
      relay.channelsChanged()
      upkeep.memoryWasUsed()
    }
    radioChanged()
  }

  public func heard(_ push: Push, in frame: [UInt8]) {
    proxy.heard(push, frame)
    messaging.messenger.received(push)
    messaging.nodes.requests.received(push)
    if case .logRxData(let snr, let rssi, let packet) = push { heard(packet, snr, rssi) }
  }

  public func contactCame(_ contact: Contact) {
    messaging.messenger.contactChanged(contact)
    messaging.keeper.look()
  }

  public func messageStored(_ message: QueuedMessage) {
    messaging.nodes.requests.received(message)
    proxy.messageStored()
  }

  public func radioReplaced() {
    messaging.radioReplaced()
    proxy.radioReplaced()
  }

  public func radioIsIdle() { power.radioIsIdle() }
}

// SPDX-License-Identifier: MIT

import FoundationEssentials
import Glibc
import Hummingbird
import HummingbirdCore
import NIOCore
import NIOPosix
import ServiceLifecycle
import Synchronization
import Timing

/// The hub: its HTTP API and its gateways' links. Source of truth: docs/hub-protocol.md.
public struct HubServer: Sendable {
  private let configuration: HubConfiguration
  private let access: HubAccess
  private let tokens: Tokens
  private let tasks = KeptTasks()
  let api: HubAPI

  public init(_ configuration: HubConfiguration) throws {
    self.configuration = configuration
    tokens = Tokens(configuration)
    access = HubAccess(tokens.all)
    _ = HubClock.started
    let stores = try HubStores(
      location: configuration.location, password: configuration.password, keeps: configuration.retention,
      alertsOnConflicts: configuration.alerts.rules.times[.gatewayConflict] != nil)
    let limit = OpenFiles.raiseLimit()
    let room = ConnectionTable.room(
      limit: limit, open: OpenFiles.count + Self.loops, wanted: configuration.maxConnections)
    guard room >= min(ConnectionTable.least, configuration.maxConnections) else {
      throw HubConfiguration.Failure(
        description: "the limit of \(limit) open files allows no connections: raise LimitNOFILE")
    }
    if room < configuration.maxConnections {
      HubLog.write(
        .notice,
        "the limit of \(limit) open files allows \(room) connections, not \(configuration.maxConnections)")
    }
    let isServer = HubStore.isServer(configuration.location)
    let registry = LinkRegistry()
    let links = SharedLinkTable(registry, stores, isShared: isServer)
    let peerHubs =
      isServer
      ? PeerHubRequests(
        registry, hasOtherHubs: { try await stores.monitor.hasOtherHubs() },
        notify: { try await stores.writer.notifyOtherHubs($0) }
      )
      : nil
    let figures = FleetFigures { now in try await stores.readers.ask("figures") { try $0.figures(now: now) } }
    let openAlerts: @Sendable ([String]) async throws -> [String: OpenAlerts] = { gateways in
      try await stores.monitor.openAlerts(of: gateways)
    }
    let watch = HubAlerts(
      configuration.alerts, stores, registry, name: "\(ProcessInfo.processInfo.hostName):\(configuration.port)",
      location: isServer ? nil : configuration.location, mark: DatabaseMark(configuration.location))
    let connections = ConnectionTable(most: room, access, log: HubLog.write)
    let tokenRefresh = TokenRefresh { [tokens, access, connections] in
      if tokens.hasChanged() { tokens.apply(to: access, connections) }
    }
    let refused = RefusedLogins(HubLog.write)
    api = HubAPI(
      stores: stores, access: access, registry: registry, links: links, figures: figures,
      live: LiveFeed({ stores.monitor }, links, figures, alerts: openAlerts), watch: watch, alerts: openAlerts,
      peerHubs: peerHubs,
      limiter: RateLimiter(perSecond: configuration.rateLimit, bytesPerDay: configuration.bytesPerDay),
      memory: TransferMemory(largest: configuration.maxBody),
      connections: connections, refused: refused,
      maxBody: configuration.maxBody, tokenRefresh: configuration.gatewayTokens == nil ? nil : tokenRefresh,
      web: try configuration.web.map { try HubWeb($0, stores, refused) })
  }

  /// Descriptors that NIO opens later: three for each loop, and the listening socket.
  private static var loops: Int { System.coreCount * 3 + 1 }

  /// Pause between two checks of the folder of gateways' tokens. A removed token stays valid for at most this time.
  private static let tokensPause: Duration = .milliseconds(500)
  private static let logCopyPause: Duration = .seconds(3600)

  /// Connections that the kernel holds until the hub accepts them. The kernel has a limit of its own (`net.core.somaxconn`, 4096 by default). A whole
  /// fleet that connects at once waits here for milliseconds; beyond the limit TCP retries after one second, two, four …
  private static let backlog = 4096

  /// Returns when each of the network's loops and the link registry have responded. It does not test the database: a restart of the hub helps no
  /// database, and all gateways would reconnect.
  public func checkLoops() async {
    for loop in MultiThreadedEventLoopGroup.singleton.makeIterator() {
      // `try?`: only the return matters.
      try? await loop.submit {}.get()
    }
    _ = await api.registry.count
  }

  /// Replaces the tokens by those of this configuration, and closes connections that they do not allow.
  public func reload(_ configuration: HubConfiguration) {
    tokens.reload(configuration)
    tokens.apply(to: access, api.connections)
    tasks.begin { [access, api] in
      do {
        access.load(try await api.stores.lookups.tokenBindings())
        api.connections.close { access.allows($0) }
      } catch {
        HubLog.write(.warning, "the gateways of tokens without one are not read again: \(error)")
      }
    }
  }

  /// Serves until SIGTERM or SIGINT. `ready` gets the port.
  public func run(_ ready: @escaping @Sendable (Int) -> Void) async throws {
    let registry = api.registry
    let live = api.live
    for kind in configuration.retention.kinds.keys.sorted() where !KnownKinds.all.contains(kind) {
      HubLog.write(
        .warning,
        "[retention] kinds: \"\(kind)\" is not a kind of event that this version knows. If it is mistyped, the age of its lane counts"
      )
    }
    do {
      access.load(try await api.stores.lookups.tokenBindings())
    } catch {
      // The hub reads each binding again when its gateway connects.
      HubLog.debug("tokens' gateways: \(error.message)")
    }
    await api.stores.listen { [tasks] change in
      tasks.begin {
        await registry.received(change)
        await live.received(change)
      }
    }
    let listener = listenToOtherHubs()
    defer { withExtendedLifetime(listener) {} }
    let probe = Task { [api] in
      let isOutdated = await api.stores.probe.run {
        HubLog.write(
          .warning,
          "the database's server was started again, or another database has its place: gateways and readers connect again and compare what it has"
        )
        // First, before the newest event of this database is noted in place of the last one's.
        await api.watch.lookAgain()
        await api.registry.closeAll()
        await api.live.startOver()
      }
      // Stops as on SIGTERM: gateways look for a newer hub.
      if isOutdated { kill(getpid(), SIGTERM) }
    }
    let maintenance = RetentionService(stores: api.stores, retention: configuration.retention, access: access)
    // Uses of tokens are shown only in the pages, so without pages nothing records them.
    let uses = api.web.map { _ in Task { [access] in await TokenUses(stores: api.stores, access: access).run() } }
    let pushes = api.web.map { web in Task { await web.pushes.run() } }
    let linkList = Task { [api] in await api.links.run() }
    let others = [
      probe, Task { [api] in await LogSummary(stores: api.stores).run() },
      Task {
        // `try?`: it is cancelled while it sleeps.
        while (try? await Task.sleep(for: Self.tokensPause)) != nil {
          if tokens.hasChanged() { tokens.apply(to: access, api.connections) }
        }
      },
      Task { [api] in await api.watch.run() }, Task { await maintenance.run() },
      Task { [api] in await DeletionService(store: api.stores.maintenance).run() },
      Task { [api] in await SearchIndexer(reader: api.stores.monitor, writer: api.stores.maintenance).run() },
      Task { [api] in await api.stores.testLock() },
      Task { [api] in if let web = api.web { await web.endRevoked(in: api.connections) } },
      Task { [api] in
        // `try?`: it is cancelled while it sleeps.
        repeat { await api.stores.copyLog() } while (try? await Task.sleep(for: Self.logCopyPause)) != nil
      },
    ]
    defer {
      for task in others { task.cancel() }
      uses?.cancel()
      pushes?.cancel()
      linkList.cancel()
    }
    let application = Application(
      router: api.router(), server: HTTPServerBuilder { [api] responder in api.childChannel(responder) },
      configuration: .init(
        address: .hostname(configuration.host, port: configuration.port),
        backlog: Self.backlog, availableConnectionsDelegate: api.connections),
      onServerRunning: { channel in ready(channel.localAddress?.port ?? 0) },
      logger: HubLog.logger("hub"))
    do {
      try await application.runService()
    } catch {
      throw ListenFailure(error, host: configuration.host, port: configuration.port) ?? error
    }
    uses?.cancel()
    pushes?.cancel()
    linkList.cancel()
    // A hub that stops does not wait for an unavailable database.
    let problem = api.stores.probe.problem()
    let waits = problem == nil || problem == .lost
    for kept in [tasks, registry.tasks, live.tasks] { await kept.end(waits: waits) }
    if waits {
      await uses?.value
      await linkList.value
      await api.stores.copyLog(atEnd: true)
      // Last: a push service that is silent takes fifteen seconds, and whoever stops the hub may not wait so long.
      await pushes?.value
    }
    if api.stores.probe.isLost {
      HubLog.write(
        .error, "the hub has ended, and its database file was removed or replaced: what it took since then is lost")
    }
    if api.stores.probe.now.failure == .outdated { throw HubDatabaseError.outdated }
  }
}

extension HubServer {
  /// Forwards changes by other hubs on the same database to the gateways that are linked here.
  private func listenToOtherHubs() -> PostgresListener? {
    guard HubStore.isServer(configuration.location) else { return nil }
    let (registry, stores, peerHubs, live, tasks) = (api.registry, api.stores, api.peerHubs, api.live, tasks)
    return PostgresListener(
      address: configuration.location, password: configuration.password,
      onConnect: { tasks.begin { await registry.notifyAll(from: stores.lookups) } },
      onChange: { change in
        tasks.begin {
          if change.bucket.begins(with: PeerHubRequests.bucketPrefix) {
            await peerHubs?.received(change)
          } else {
            await registry.received(change)
            await live.received(change)
          }
        }
      })
  }
}

/// The configuration's tokens, and those of the folder of gateways' tokens.
private final class Tokens: Sendable {
  private let state: Mutex<(listed: [HubConfiguration.Token], folder: GatewayTokens?)>

  init(_ configuration: HubConfiguration) {
    state = Mutex((configuration.tokens, configuration.gatewayTokens.flatMap { GatewayTokens(folder: $0) }))
    logFaults()
  }

  var all: [HubConfiguration.Token] { state.withLock { $0.listed + ($0.folder?.tokens ?? []) } }

  func reload(_ configuration: HubConfiguration) {
    state.withLock { state in
      state = (configuration.tokens, configuration.gatewayTokens.flatMap { GatewayTokens(folder: $0) })
    }
    logFaults()
  }

  func hasChanged() -> Bool {
    guard state.withLock({ $0.folder?.read(always: false) ?? false }) else { return false }
    logFaults()
    return true
  }

  /// Applies the tokens, and closes connections that they do not allow. Of two simultaneous calls, the newest tokens apply.
  func apply(to access: HubAccess, _ connections: ConnectionTable) {
    state.withLock { access.replace(with: $0.listed + ($0.folder?.tokens ?? [])) }
    let ended = connections.close { access.allows($0) }
    HubLog.write(.notice, "tokens reloaded" + (ended > 0 ? "; closed connections without rights: \(ended)" : ""))
  }

  private func logFaults() {
    for fault in state.withLock({ $0.folder?.faults ?? [] }) { HubLog.write(.warning, fault) }
  }
}

extension MonotonicTime {
  /// The time since a moment of the steady clock.
  init(since moment: ContinuousClock.Instant, now: ContinuousClock.Instant = .now) {
    self = MonotonicTime(nanoseconds: 0) + (now - moment)
  }
}

public enum HubClock {
  /// A closure alone in a `Mutex` is wrapped once more by each look at it, and so becomes slower without end.
  package struct Invented: Sendable {
    let now: @Sendable () -> Int64

    package init(now: @escaping @Sendable () -> Int64) { self.now = now }
  }

  /// The clock of a simulation, for the whole process; `nil`: the machine's.
  package static let invented = Mutex<Invented?>(nil)

  /// Milliseconds since 1970.
  public static var now: Int64 {
    invented.withLock { $0 }?.now() ?? Int64(Date().timeIntervalSince1970 * 1000)
  }
  /// When this process started.
  static let started = now
}

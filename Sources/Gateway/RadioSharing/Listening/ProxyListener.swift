// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Sockets
import Store
import Timing

/// Accepts clients at one address, and serves them. Retries an unavailable address.
final class ProxyListener {
  private static let retryAfter: Duration = .seconds(15)
  /// Notices a vanished client after about two minutes.
  private static let keepAlive: [(option: Int32, seconds: Int32)] = [
    (TCP_KEEPIDLE, 60), (TCP_KEEPINTVL, 20), (TCP_KEEPCNT, 3),
  ]

  /// Half of what the kernel keeps for a client that does not read (socket(7): it doubles the number). Its own bound is 4 MiB, which counts as the gateway's
  /// memory, and hides for long that a client does not read.
  private static let kernelBuffer: Int32 = 64 * 1024

  let settings: SharingSettings
  private let gateway: CompanionProxy.Gateway
  private let log: Log
  private var task: LoopTask?
  private var acceptor: Acceptor?
  private(set) var isStopped = false
  private(set) var trouble: String?
  private var turnedAway: Set<IPAddress> = []
  private(set) var clients: [ClientSession] = []

  init(_ settings: SharingSettings, _ gateway: CompanionProxy.Gateway) {
    self.settings = settings
    self.gateway = gateway
    log = gateway.log
  }

  func start() {
    task = gateway.loop.begin {
      // `try?`: ends only by `stop`.
      try? await self.run()
    }
  }

  /// Stops listening, and disconnects all clients at once: the address is free on return.
  func stop(_ reason: String?) {
    isStopped = true
    task?.cancel()
    acceptor?.stop()
    disconnectAll(reason)
  }

  func disconnectAll(_ reason: String?) { for client in clients { client.disconnect(reason) } }

  /// Listens, and serves each client in a child task: all have ended when this returns.
  private func run() async throws(CancellationError) {
    let acceptor = try await listening()
    self.acceptor = acceptor
    defer { acceptor.stop() }
    await withDiscardingTaskGroup { group in
      // `try?`: throws only when the listener is stopped.
      while let socket = try? await acceptor.accept() {
        guard let client = admit(socket) else {
          close(socket)
          continue
        }
        clients.append(client)
        gateway.loop.begin(in: &group) {
          await client.run()
          self.clients.removeAll { $0 === client }
        }
      }
      group.cancelAll()
    }
  }

  private func listening() async throws(CancellationError) -> Acceptor {
    while true {
      do throws(SystemError) {
        let descriptor = try settings.address.listen()
        log.notice("proxy \(settings.name): other programs share the radio at \(settings.address)")
        trouble = nil
        return Acceptor(
          descriptor, name: "proxy \(settings.name)", reserve: .turnsAway, on: gateway.loop, log: log)
      } catch {
        if trouble == nil {
          log.warning("proxy \(settings.name): \(error); retrying every \(Int(Self.retryAfter.inSeconds)) s")
        }
        trouble = "\(error)"
      }
      try await gateway.loop.sleep(for: Self.retryAfter)
    }
  }

  // MARK: Admission

  /// `nil`: refused.
  private func admit(_ socket: Int32) -> ClientSession? {
    guard let peer = ListenAddress.peer(of: socket), isAllowed(peer) else { return nil }
    var there = clients.filter { !$0.isOver }
    if there.count >= settings.maxClients, let silent = Self.leastWanted(there) {
      silent.disconnect("it sent no command, and another client needs its place")
      there.removeAll { $0 === silent }
    }
    guard there.count < settings.maxClients else {
      gateway.tell("proxy \(settings.name): \(peer) refused: \(there.count) clients are already connected")
      return nil
    }
    let name = freeName(peer, there)
    // Each radio has its own list of messages.
    let place = gateway.store.radio > 1 ? "\(name) of radio \(gateway.store.radio)" : name
    do throws(StoreError) {
      let position = try position(at: place, besides: there.filter { $0.peer == peer })
      prepare(socket)
      return ClientSession(
        SocketStream(socket, on: gateway.loop), from: peer, name: name, place: place, position, settings, gateway)
    } catch {
      log.warning("proxy \(settings.name): \(peer) refused: \(error)")
      return nil
    }
  }

  /// Chooses among clients that have sent no command: the oldest of the address with the most of them. So no address
  /// keeps others out by connecting.
  private static func leastWanted(_ there: [ClientSession]) -> ClientSession? {
    let silent = Dictionary(grouping: there.filter { !$0.hasSpoken }, by: \.peer).values
    // Each group is in the order of connection.
    return silent.max { ($0.count, $1[0].connectedAt) < ($1.count, $0[0].connectedAt) }?.first
  }

  /// The lowest free number for this address: a client that returns alone finds its own position.
  private func freeName(_ peer: IPAddress, _ there: [ClientSession]) -> String {
    let taken = Set(there.map(\.name))
    var number = 1
    while taken.contains("\(settings.name)/\(peer)/\(number)") { number += 1 }
    return "\(settings.name)/\(peer)/\(number)"
  }

  /// `others`: the connected clients of the same address.
  private func position(
    at place: String, besides others: [ClientSession]
  ) throws(StoreError) -> ClientPosition {
    // A position beyond the end is from another database.
    let newest = try gateway.store.lastMessageID()
    if let kept = try gateway.store.clientCursor(place), kept <= newest {
      // It is in use: those of clients that are away are forgotten before it.
      gateway.keepCursor(place, kept)
      let deleted = try gateway.store.deletedCount(after: kept)
      if deleted > 0 { gateway.tell("before client \(place) returned, up to \(deleted) messages for it were deleted") }
      return ClientPosition(after: kept, isStored: true)
    }
    // A client whose machine takes nothing may have lost its connection, and be this one: what it has not confirmed is for this one, too.
    let unconfirmed = others.filter { $0.outlet.untaken > 0 }.map(\.position.received).min() ?? newest
    return ClientPosition(after: min(max(0, newest - settings.history), unconfirmed))
  }

  private func isAllowed(_ peer: IPAddress) -> Bool {
    if peer.isLoopback && settings.allowFrom.isEmpty || settings.allowFrom.contains(where: { $0.contains(peer) }) {
      return true
    }
    // At most 16 lines.
    if turnedAway.count < 16, turnedAway.insert(peer).inserted {
      log.warning("proxy \(settings.name): \(peer) refused: not in allow_from")
    }
    return false
  }

  private func prepare(_ socket: Int32) {
    var yes: Int32 = 1
    let size = socklen_t(MemoryLayout<Int32>.size)
    setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, size)
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, size)
    var most = Self.kernelBuffer
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &most, size)
    for (option, seconds) in Self.keepAlive {
      var value = seconds
      setsockopt(socket, Int32(IPPROTO_TCP), option, &value, size)
    }
  }
}

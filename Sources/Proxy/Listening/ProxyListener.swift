// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Timing

/// Takes connections at one address. An address that cannot be had is tried again and again.
final class ProxyListener {
  private static let retryAfter: Duration = .seconds(15)
  /// A client that went away without a word is noticed after about two minutes.
  private static let keepAlive: [(option: Int32, seconds: Int32)] = [
    (TCP_KEEPIDLE, 60), (TCP_KEEPINTVL, 20), (TCP_KEEPCNT, 3),
  ]

  let settings: ProxySettings
  private let loop: EventLoop
  private let log: Log
  private var descriptor: Int32 = -1
  private var acceptor: Acceptor?
  private var retry: LoopTimer?
  private(set) var isStopped = false
  private(set) var trouble: String?
  private var turnedAway: Set<IPAddress> = []
  var onClient: (Int32, IPAddress) -> Void = { socket, _ in close(socket) }

  init(_ settings: ProxySettings, _ loop: EventLoop, _ log: Log) {
    self.settings = settings
    self.loop = loop
    self.log = log
  }

  deinit { stop() }

  func start() {
    guard !isStopped else { return }
    do {
      descriptor = try settings.address.listen()
      acceptor = Acceptor(descriptor, name: "proxy \(settings.name)", reserve: .turnsAway, on: loop, log: log) {
        [weak self] in self?.accept($0)
      }
      log.notice("proxy \(settings.name): other programs share the radio at \(settings.address)")
      trouble = nil
    } catch {
      if trouble == nil {
        log.warning("proxy \(settings.name): \(error); tried again every \(Int(Self.retryAfter.inSeconds)) s")
      }
      trouble = "\(error)"
      retry = loop.schedule(after: Self.retryAfter) { [weak self] in self?.start() }
    }
  }

  func stop() {
    isStopped = true
    retry?.cancel()
    acceptor?.stop()
    acceptor = nil
    guard descriptor >= 0 else { return }
    close(descriptor)
    descriptor = -1
  }

  private func accept(_ socket: Int32) {
    guard let peer = ListenAddress.peer(of: socket), isAllowed(peer) else {
      close(socket)
      return
    }
    prepare(socket)
    onClient(socket, peer)
  }

  private func isAllowed(_ peer: IPAddress) -> Bool {
    if peer.isLoopback && settings.allowFrom.isEmpty || settings.allowFrom.contains(where: { $0.contains(peer) }) {
      return true
    }
    // Once for each, and not for ever more of them.
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
    for (option, seconds) in Self.keepAlive {
      var value = seconds
      setsockopt(socket, Int32(IPPROTO_TCP), option, &value, size)
    }
  }
}

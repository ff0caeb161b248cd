// SPDX-License-Identifier: MIT

import CCurl
import EventLoop
import Glibc
import Timing

extension EventLoop {
  /// A connected, non-blocking socket to a server, directly or through a proxy; the caller owns it. Throws the obstacle
  /// within `timeout`. A cancelled call leaves nothing open.
  public func connect(
    host: String, port: UInt16, through proxy: TunnelSettings?, timeout: Duration
  ) async throws(Connector.Failure) -> Int32 {
    guard let proxy else { return try await connect(host: host, port: port, timeout: timeout, triesAgain: true) }
    return try await Tunnel(to: host, port, through: proxy, on: self).socket(within: timeout)
  }
}

/// One attempt to reach a server through a proxy: libcurl connects and talks to the proxy on our loop, and then the
/// socket is ours.
///
/// curl calls `watch` and `arm` while it runs, and must not be called from them, so their consequences follow in a
/// later turn. Each attempt has its own multi handle, so nothing stays open afterwards.
private final class Tunnel {
  /// Progress callbacks of curl, one for each byte of the proxy's answer; a longer answer is refused. curl reads as
  /// long as there is data, and would block the loop.
  private static let maxProgress = 64 << 10

  /// Milliseconds by which curl's own time limit is longer.
  private static let grace = 1000

  private let proxy: TunnelSettings
  private let host: String
  private let port: UInt16
  private let loop: EventLoop
  private let waiter = Waiter()
  private var result: Result<Int32, Connector.Failure>?
  private var (easy, multi): (OpaquePointer?, OpaquePointer?)
  private let progress = UnsafeMutablePointer<Int>.allocate(capacity: 1)
  private var watched: [Int32: EventLoop.Readiness] = [:]
  /// The timer that curl has asked for.
  private var timer: LoopTimer?
  /// Whether curl has reached the proxy at one of its addresses.
  private var hasReachedProxy: Bool { watched.keys.contains(where: Self.isConnected) }

  init(to host: String, _ port: UInt16, through proxy: TunnelSettings, on loop: EventLoop) {
    (self.host, self.port, self.proxy, self.loop) = (host, port, proxy, loop)
    progress.initialize(to: Self.maxProgress)
  }

  deinit { progress.deallocate() }

  func socket(within timeout: Duration) async throws(Connector.Failure) -> Int32 {
    defer { end() }
    try begin(timeout)
    let limit = loop.schedule(after: timeout) { [self] in fail(words.timedOut(hasReachedProxy: hasReachedProxy)) }
    defer { limit.cancel() }
    while true {
      if let result { return try result.get() }
      do {
        try await waiter.wait()
      } catch {
        // The socket may have arrived in the turn of the cancellation.
        if case .success(let socket)? = result { close(socket) }
        throw .cancelled
      }
    }
  }

  private var words: TunnelWords { TunnelWords(proxy: proxy, host: host) }

  private func failure(_ message: String) -> Connector.Failure { .unusable("\(host) port \(port)", message: message) }

  // MARK: curl's handles

  private func begin(_ timeout: Duration) throws(Connector.Failure) {
    guard meshpost_curl_is_installed() != 0 else { throw failure(words.notInstalled) }
    let (url, proxyURL) = try addresses()
    (easy, multi) = (meshpost_curl_easy_init(), nil)
    multi = meshpost_curl_multi_init(
      { _, descriptor, what, data, _ in
        data.map { Unmanaged<Tunnel>.fromOpaque($0).takeUnretainedValue().watch(descriptor, Int(what)) }
        return 0
      },
      { _, milliseconds, data in
        data.map { Unmanaged<Tunnel>.fromOpaque($0).takeUnretainedValue().arm(milliseconds) }
        return 0
      }, Unmanaged.passUnretained(self).toOpaque())
    guard let easy, let multi else { throw failure("out of memory") }
    let texts = [
      (MESHPOST_CURL_URL, url), (MESHPOST_CURL_PROXY, proxyURL),
      // Options that are set are not taken from the environment.
      (MESHPOST_CURL_NOPROXY, ""), (MESHPOST_CURL_PROXYUSERNAME, proxy.user),
      (MESHPOST_CURL_PROXYPASSWORD, proxy.password),
    ]
    let milliseconds = Int(clamping: min(timeout.wholeNanoseconds / 1_000_000, 3_600_000))
    let numbers = [
      (MESHPOST_CURL_HTTPPROXYTUNNEL, 1), (MESHPOST_CURL_CONNECT_ONLY, 1), (MESHPOST_CURL_NOSIGNAL, 1),
      (MESHPOST_CURL_PROTOCOLS, MESHPOST_CURL_HTTP),
      (MESHPOST_CURL_PROXYAUTH, MESHPOST_CURL_BASIC),
      (MESHPOST_CURL_SOCKS5_AUTH, MESHPOST_CURL_BASIC),
      // curl divides its limit among the proxy's addresses. Our limit comes first, and sees state that curl would have
      // closed.
      (MESHPOST_CURL_CONNECTTIMEOUT_MS, max(1, milliseconds) + Self.grace),
    ]
    for (option, text) in texts {
      guard let text else { continue }
      let code = meshpost_curl_set_text(easy, Int32(option), text)
      guard code == 0 else { throw failure(Self.said(code)) }
    }
    for (option, number) in numbers {
      let code = meshpost_curl_set_number(easy, Int32(option), number)
      guard code == 0 else { throw failure(Self.said(code)) }
    }
    // A cancelled attempt does not wait for the resolver's thread. curl before 7.87 lacks the option, which is
    // harmless.
    _ = meshpost_curl_set_number(easy, Int32(MESHPOST_CURL_QUICK_EXIT), 1)
    guard meshpost_curl_limit_progress(easy, progress) == 0, meshpost_curl_multi_add(multi, easy) == 0 else {
      throw failure("libcurl cannot be initialised")
    }
  }

  /// The URLs of server and proxy for curl.
  private func addresses() throws(Connector.Failure) -> (url: String, proxy: String) {
    let name: String
    do throws(HostName.Failure) {
      name = try HostName.ascii(host)
    } catch {
      throw .noSuchHost(host, message: error.description)
    }
    guard ServerName.isIPv6(name) || !name.isEmpty && name.utf8.allSatisfy(ServerName.isOfName) else {
      throw .noSuchHost(host, message: "invalid host name")
    }
    let proxyName: String
    do throws(HostName.Failure) {
      proxyName = try HostName.ascii(proxy.host)
    } catch {
      throw failure("\(words.noAddress): \(error.description)")
    }
    return (
      "http://\(ServerName.inURL(name)):\(port)/",
      "\(proxy.kind.rawValue)://\(ServerName.inURL(proxyName)):\(proxy.port)"
    )
  }

  private static func said(_ code: Int32) -> String {
    "libcurl: \(meshpost_curl_words(code).map { String(cString: $0) } ?? "code \(code)")"
  }

  /// Releases everything. Must not be called from a callback of curl.
  private func end() {
    timer?.cancel()
    // Unwatched before curl closes its sockets: to the kernel, the duplicate that was taken over is the same socket.
    for descriptor in watched.keys { loop.unwatch(descriptor) }
    watched = [:]
    let (easy, multi) = (easy, multi)
    (self.easy, self.multi) = (nil, nil)
    if let multi, let easy { _ = meshpost_curl_multi_remove(multi, easy) }
    if let easy { meshpost_curl_easy_cleanup(easy) }
    if let multi { meshpost_curl_multi_cleanup(multi) }
  }

  // MARK: Requests of curl

  private func watch(_ descriptor: Int32, _ what: Int) {
    // While the tunnel ends, nothing is watched any more.
    guard multi != nil else { return }
    var interest: EventLoop.Readiness = []
    if what != MESHPOST_CURL_UNWATCH {
      if what & MESHPOST_CURL_WATCH_IN != 0 { interest.insert(.readable) }
      if what & MESHPOST_CURL_WATCH_OUT != 0 { interest.insert(.writable) }
    }
    guard !interest.isEmpty else {
      if watched.removeValue(forKey: descriptor) != nil { loop.unwatch(descriptor) }
      return
    }
    if watched.updateValue(interest, forKey: descriptor) != nil {
      return loop.changeInterest(descriptor, to: interest)
    }
    let isWatched = loop.watch(descriptor, for: interest) { [self] readiness in
      var ready: Int32 = 0
      if readiness.contains(.readable) { ready |= Int32(MESHPOST_CURL_READY_IN) }
      if readiness.contains(.writable) { ready |= Int32(MESHPOST_CURL_READY_OUT) }
      if !readiness.isDisjoint(with: .closed) { ready |= Int32(MESHPOST_CURL_READY_ERROR) }
      act(descriptor, ready)
    }
    guard !isWatched else { return }
    watched[descriptor] = nil
    let error = SystemError("epoll_ctl")
    loop.later { [self] in fail(error.description) }
  }

  private func arm(_ milliseconds: Int) {
    timer?.cancel()
    timer = nil
    guard multi != nil, milliseconds >= 0 else { return }
    timer = loop.schedule(after: .milliseconds(milliseconds)) { [self] in act(Int32(MESHPOST_CURL_TIME), 0) }
  }

  private func act(_ descriptor: Int32, _ ready: Int32) {
    guard let multi, result == nil else { return }
    let code = meshpost_curl_multi_act(multi, descriptor, ready)
    guard code == 0 else { return fail("libcurl: error \(code)") }
    var ended: Int32 = 0
    guard meshpost_curl_multi_has_ended(multi, &ended) != 0 else { return }
    if ended == 0 { succeed() } else { failed(ended) }
  }

  // MARK: The result

  private func finish(_ result: Result<Int32, Connector.Failure>) {
    guard self.result == nil else { return }
    self.result = result
    waiter.resume()
  }

  private func fail(_ message: String) { finish(.failure(failure(message))) }

  private func succeed() {
    guard let easy else { return }
    let theirs = meshpost_curl_get_socket(easy)
    guard theirs >= 0 else { return fail("libcurl has no socket") }
    let ours = fcntl(theirs, F_DUPFD_CLOEXEC, 0)
    guard ours >= 0 else { return fail(SystemError("dup").description) }
    Descriptor.setNonBlocking(ours)
    var yes: Int32 = 1
    setsockopt(ours, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<Int32>.size))
    finish(.success(ours))
  }

  private func failed(_ code: Int32) {
    guard let easy else { return }
    if Int(code) == MESHPOST_CURLE_COULDNT_RESOLVE_HOST {
      return finish(.failure(.noSuchHost(host, message: "looked up here, for \(proxy.shown)")))
    }
    func number(_ info: Int) -> Int { meshpost_curl_get_number(easy, Int32(info)) }
    let status = number(MESHPOST_CURL_HTTP_CONNECTCODE)
    let trouble = number(MESHPOST_CURL_PROXY_ERROR)
    let system = number(MESHPOST_CURL_OS_ERRNO)
    let isReached = hasReachedProxy
    fail(
      words.failed(
        Int(code), status: status, trouble: trouble,
        system: system == 0 ? nil : SystemError("", code: Int32(system)).message,
        isTooLong: progress.pointee <= 0, hasReachedProxy: isReached, Self.said(code)))
  }

  private static func isConnected(_ descriptor: Int32) -> Bool {
    var address = sockaddr_storage()
    var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
    let code = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getpeername(descriptor, $0, &size) }
    }
    // curl has further sockets for its resolver.
    return code == 0 && [AF_INET, AF_INET6].contains(Int32(address.ss_family))
  }
}

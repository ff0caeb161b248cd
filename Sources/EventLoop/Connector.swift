// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import Timing

/// Opens a TCP connection without ever blocking the loop: the name is looked up on a short-lived thread, each address is
/// tried in turn, and a time limit covers all of it.
public final class Connector {
  public enum Failure: Error, Equatable, Sendable, CustomStringConvertible {
    case noSuchHost(String, words: String)
    case refused(String, SystemError)
    case timedOut(String)

    public var description: String {
      switch self {
      case .noSuchHost(let host, let words): "no address for \(host): \(words)"
      case .refused(let target, let error): "\(target): \(error.words)"
      case .timedOut(let target): "\(target): no answer in time"
      }
    }
  }

  /// An address as the kernel takes it.
  struct Address: Sendable {
    let family: Int32
    let bytes: [UInt8]
  }

  private let loop: EventLoop
  private let target: String
  private let done: (Result<Int32, Failure>) -> Void
  private var remaining: [Address] = []
  private var socket: Int32 = -1
  private var timer: LoopTimer?
  private var answer: Wakeup<LookupResult>?
  private var isOver = false
  private var lastError: Failure?

  enum LookupResult: Sendable {
    case addresses([Address])
    case failed(String)
  }

  /// `done` gets the connected, non-blocking socket, whose owner it becomes. Keep the connector until then;
  /// `cancel` to give up.
  public init(
    host: String, port: UInt16, timeout: Duration, on loop: EventLoop,
    _ done: @escaping (Result<Int32, Failure>) -> Void
  ) {
    self.loop = loop
    self.done = done
    target = "\(host) port \(port)"
    timer = loop.schedule(after: timeout) { [weak self] in
      guard let self else { return }
      self.finish(.failure(.timedOut(self.target)))
    }
    lookUp(host, port)
  }

  deinit { cancel() }

  public func cancel() {
    isOver = true
    timer?.cancel()
    answer?.detach(from: loop)
    answer = nil
    closeSocket()
  }

  private func lookUp(_ host: String, _ port: UInt16) {
    let wakeup = Wakeup<LookupResult>()
    answer = wakeup
    wakeup.attach(to: loop) { [weak self] result in
      guard let self, !self.isOver else { return }
      self.answer?.detach(from: self.loop)
      self.answer = nil
      switch result {
      case .addresses(let addresses):
        self.remaining = addresses
        self.tryNext()
      case .failed(let words): self.finish(.failure(.noSuchHost(host, words: words)))
      }
    }
    ResolverThread.run { wakeup.send(Self.resolve(host, port)) }
  }

  private static func resolve(_ host: String, _ port: UInt16) -> LookupResult {
    var hints = addrinfo()
    hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    hints.ai_flags = AI_ADDRCONFIG
    var list: UnsafeMutablePointer<addrinfo>?
    let code = getaddrinfo(host, String(port), &hints, &list)
    guard code == 0 else { return .failed(String(cString: gai_strerror(code))) }
    defer { freeaddrinfo(list) }
    var addresses: [Address] = []
    var next = list
    while let entry = next, addresses.count < 8 {
      if let address = entry.pointee.ai_addr {
        let bytes = UnsafeRawBufferPointer(start: address, count: Int(entry.pointee.ai_addrlen))
        addresses.append(Address(family: entry.pointee.ai_family, bytes: Array(bytes)))
      }
      next = entry.pointee.ai_next
    }
    return .addresses(addresses)
  }

  private func tryNext() {
    guard !remaining.isEmpty else {
      return finish(.failure(lastError ?? .noSuchHost(target, words: "no address")))
    }
    let address = remaining.removeFirst()
    let flags = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
    socket = Glibc.socket(address.family, flags, 0)
    guard socket >= 0 else { return failed(SystemError("socket")) }
    let code = address.bytes.withUnsafeBytes { bytes in
      bytes.withMemoryRebound(to: sockaddr.self) { connect(socket, $0.baseAddress, socklen_t(bytes.count)) }
    }
    if code == 0 { return succeed() }
    guard errno == EINPROGRESS else { return failed(SystemError("connect")) }
    loop.watch(socket, for: .writable) { [weak self] _ in self?.connected() }
  }

  private func connected() {
    var code: Int32 = 0
    var size = socklen_t(MemoryLayout<Int32>.size)
    getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size)
    loop.unwatch(socket)
    if code == 0 { succeed() } else { failed(SystemError("connect", code: code)) }
  }

  private func failed(_ error: SystemError) {
    lastError = .refused(target, error)
    closeSocket()
    tryNext()
  }

  private func succeed() {
    var yes: Int32 = 1
    setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<Int32>.size))
    let connected = socket
    socket = -1
    finish(.success(connected))
  }

  private func closeSocket() {
    guard socket >= 0 else { return }
    loop.unwatch(socket)
    close(socket)
    socket = -1
  }

  private func finish(_ result: Result<Int32, Failure>) {
    guard !isOver else { return }
    cancel()
    done(result)
  }
}

/// A detached thread with a small stack for one name look-up: getaddrinfo has no form that does not wait.
private enum ResolverThread {
  private final class Work {
    let body: @Sendable () -> Void
    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
  }

  static func run(_ body: @escaping @Sendable () -> Void) {
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
    pthread_attr_setstacksize(&attributes, 256 * 1024)
    defer { pthread_attr_destroy(&attributes) }
    var thread = pthread_t()
    let work = Unmanaged.passRetained(Work(body)).toOpaque()
    let code = pthread_create(
      &thread, &attributes,
      { argument in
        guard let argument else { return nil }
        Unmanaged<Work>.fromOpaque(argument).takeRetainedValue().body()
        return nil
      }, work)
    // No thread to be had: the connector's time limit ends the attempt.
    if code != 0 { Unmanaged<Work>.fromOpaque(work).release() }
  }
}

// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Opens a TCP connection without blocking the loop: a short-lived thread looks the name up, the addresses race
/// (`ConnectionRace`), the first that connects wins, and one time limit covers all of it.
public final class Connector {
  /// Why there is no connection.
  public enum Failure: Error, Equatable, Sendable, CustomStringConvertible {
    case noSuchHost(String, message: String)
    /// Every address has failed.
    case failed(String, [Attempt])
    case timedOut(String, [Attempt])
    /// The connection through a proxy, or its TLS, has failed. `message` says whether the proxy or the server behind it
    /// is at fault.
    case unusable(String, message: String)
    /// The waiting task was cancelled.
    case cancelled

    /// The result of an attempt at one address.
    public struct Attempt: Equatable, Sendable {
      public let address: String
      public let message: String
    }

    public var description: String {
      switch self {
      case .noSuchHost(let host, let message): "no address for \(host): \(message)"
      case .failed(let target, let attempts), .timedOut(let target, let attempts):
        "\(target): \(Self.summary(attempts))"
      case .unusable(let target, let message): "\(target): \(message)"
      case .cancelled: "given up"
      }
    }

    /// Each outcome once, with a few of the addresses that had it.
    private static func summary(_ attempts: [Attempt]) -> String {
      guard attempts.count > 1 else { return attempts.first?.message ?? "the name lookup timed out" }
      var outcomes: [(message: String, addresses: [String])] = []
      for attempt in attempts {
        if let place = outcomes.firstIndex(where: { $0.message == attempt.message }) {
          outcomes[place].addresses.append(attempt.address)
        } else {
          outcomes.append((attempt.message, [attempt.address]))
        }
      }
      return outcomes.map { message, addresses in
        let rest = addresses.count - 3
        return "\(message) (\(addresses.prefix(3).joined(separator: ", "))\(rest > 0 ? " and \(rest) more" : ""))"
      }.joined(separator: ", ")
    }
  }

  private static let silence = "no answer in time"

  private let loop: EventLoop
  private let target: String
  private let done: (Result<Int32, Failure>) -> Void
  private var addresses: [NetworkAddress] = []
  private var race = ConnectionRace(families: [])
  /// Sockets of the attempts under way, by the attempt's number.
  private var sockets: [Int: Int32] = [:]
  private var outcomes: [(address: Int, message: String)] = []
  private var limit: LoopTimer?
  private var pace: LoopTimer?
  private var answer: Wakeup<NameLookup.Result>?
  private var isOver = false
  private let triesAgain: Bool

  /// `triesAgain`: if the server has worked lately, an interrupted line is likelier than a dead server, so silent
  /// attempts are repeated more often than the kernel does, and so is data sent over the connection. Do not use it for
  /// a server that lets each new connection replace the previous one.
  ///
  /// `done` receives the connected, non-blocking socket, and owns it. Keep the connector until then; call `cancel` to
  /// give up.
  public init(
    host: String, port: UInt16, timeout: Duration, triesAgain: Bool = false, on loop: EventLoop,
    _ done: @escaping (Result<Int32, Failure>) -> Void
  ) {
    self.loop = loop
    self.done = done
    self.triesAgain = triesAgain
    target = Connector.target(host, port)
    limit = loop.schedule(after: timeout) { [weak self] in self?.timedOut() }
    let wakeup = Wakeup<NameLookup.Result>()
    answer = wakeup
    wakeup.attach(to: loop) { [weak self] result in self?.lookedUp(host, result) }
    NameLookup.run(host, port, wakeup)
    if triesAgain { loop.connecting[ObjectIdentifier(self)] = self }
  }

  deinit { cancel() }

  static func target(_ host: String, _ port: UInt16) -> String { "\(host) port \(port)" }

  var isLookingUp: Bool { answer != nil }

  /// Closes every socket and stops every timer; `done` is not called.
  public func cancel() {
    isOver = true
    loop.connecting[ObjectIdentifier(self)] = nil
    limit?.cancel()
    pace?.cancel()
    answer?.detach(from: loop)
    answer = nil
    for address in Array(sockets.keys) { closeSocket(address) }
  }

  private func lookedUp(_ host: String, _ result: NameLookup.Result) {
    guard !isOver else { return }
    answer?.detach(from: loop)
    answer = nil
    switch result {
    case .addresses(let found):
      addresses = found
      let known = loop.goodAddresses[target].flatMap { found.firstIndex(of: $0) }
      let isSilent = loop.goodAddresses.isSilent(target)
      let repeats = triesAgain && loop.goodAddresses.hasWorkedLately(target, now: loop.now)
      race = ConnectionRace(
        families: found.map(\.family), first: isSilent ? nil : known, last: isSilent ? known : nil, triesAgain: repeats)
      perform(race.begin(now: loop.now))
    case .failed(let message): finish(.failure(.noSuchHost(host, message: message)))
    }
  }

  // MARK: The race

  private func perform(_ actions: [ConnectionRace.Action]) {
    for action in actions where !isOver {
      switch action {
      case .start(let address): start(address)
      case .giveUp(let address):
        closeSocket(address)
        outcomes.append((address, Self.silence))
      case .lost: finish(.failure(.failed(target, attempts)))
      }
    }
    pace?.cancel()
    pace = nil
    guard !isOver, let next = race.nextAt else { return }
    pace = loop.schedule(at: next) { [weak self] in
      guard let self else { return }
      self.perform(self.race.timePassed(now: self.loop.now))
    }
  }

  /// The line may be up again.
  func hurry() { if !isOver { perform(race.hurry(now: loop.now)) } }

  private func address(of attempt: Int) -> NetworkAddress { addresses[attempt % addresses.count] }

  private func start(_ address: Int) {
    do throws(SystemError) {
      let (socket, isConnected) = try loop.machine.connect(self.address(of: address))
      sockets[address] = socket
      if isConnected { return succeed(address) }
      guard loop.watch(socket, for: .writable, { [weak self] _ in self?.answered(address) }) else {
        throw SystemError("epoll_ctl")
      }
    } catch {
      failed(address, error)
    }
  }

  private func answered(_ address: Int) {
    guard let socket = sockets[address] else { return }
    var code: Int32 = 0
    var size = socklen_t(MemoryLayout<Int32>.size)
    getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size)
    if code == 0 { succeed(address) } else { failed(address, SystemError("connect", code: code)) }
  }

  private func failed(_ address: Int, _ error: SystemError) {
    closeSocket(address)
    outcomes.append((address, error.message))
    if self.address(of: address) == loop.goodAddresses[target] { loop.goodAddresses.forget(target) }
    perform(race.failed(address, now: loop.now))
  }

  private func succeed(_ address: Int) {
    guard let socket = sockets.removeValue(forKey: address) else { return }
    loop.unwatch(socket)
    loop.goodAddresses.worked(self.address(of: address), for: target, now: loop.now)
    var yes: Int32 = 1
    setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<Int32>.size))
    if triesAgain { Descriptor.asksEvenly(socket) }
    finish(.success(socket))
  }

  private func timedOut() {
    loop.goodAddresses.forget(target)
    outcomes += race.underWay.map { ($0, Self.silence) }
    finish(.failure(.timedOut(target, attempts)))
  }

  private var attempts: [Failure.Attempt] {
    // Each address once per message, however often it was tried.
    outcomes.reduce(into: []) { all, outcome in
      let attempt = Failure.Attempt(address: "\(address(of: outcome.address))", message: outcome.message)
      if !all.contains(attempt) { all.append(attempt) }
    }
  }

  private func closeSocket(_ address: Int) {
    guard let socket = sockets.removeValue(forKey: address) else { return }
    loop.unwatch(socket)
    close(socket)
  }

  private func finish(_ result: Result<Int32, Failure>) {
    guard !isOver else { return }
    cancel()
    done(result)
  }
}

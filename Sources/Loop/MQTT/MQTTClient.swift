// SPDX-License-Identifier: MIT

import EventLoop
import ProxyTunnel
import Sockets
import Timing

/// A client of one broker: MQTT 5, or 3.1.1 if the broker does not support 5. Publishes with QoS 1.
///
/// It neither reconnects nor stores anything; its owner does. `MQTTSession` decides; this class carries out.
public final class MQTTClient {
  /// Time-out for an answer of the broker while nothing is transferred.
  private static let patience: Duration = .seconds(20)
  /// More collected output than this is sent at once.
  private static let maxGathered = 16384
  /// While more output than this waits, the client handles no packets: a broker that reads no answers cannot send more commands.
  private static let maxUnsent = 256 * 1024

  private let transport: MQTTTransport
  let loop: EventLoop
  private(set) var stream: (any ByteStream)?
  var session: MQTTSession
  /// Unanswered publications, by packet identifier.
  private var promises: [UInt16: Promise<MQTTAnswer?>] = [:]
  let budget = ReceiveBudget()
  /// Resumed when an answer becomes due, or none is due any more.
  private let expectation = Waiter()
  /// Resumed when one more publication may be sent, or the connection has ended.
  private let vacancy = Waiter()
  /// Bytes sent over all connections, without TLS and WebSocket.
  public private(set) var bytesSent: UInt64 = 0
  /// Called for each message; call the closure once it is stored: then the broker may delete it.
  public var onMessage: (MQTTMessage, _ acknowledge: @escaping () -> Void) -> Void = { _, acknowledge in acknowledge() }

  /// `path`: of the WebSocket that carries MQTT; `nil`: plain TCP or TLS. `meter`: counts the traffic. `version`: the only one to use;
  /// `nil`: 5, or 3.1.1 if that fails.
  public init(
    host: String, port: UInt16, path: String? = nil, tls: TLSContext?, proxy: TunnelSettings? = nil,
    version: MQTTVersion? = nil, meter: TrafficMeter? = nil, on loop: EventLoop
  ) {
    transport = MQTTTransport(host: host, port: port, path: path, tls: tls, proxy: proxy, meter: meter)
    session = MQTTSession(version)
    self.loop = loop
  }

  /// Whether the broker has accepted the client, and the connection has not ended.
  public var isUp: Bool { session.connection != nil }
  /// Whether the broker has resumed the session: queued messages follow.
  public var hasSession: Bool { session.connection?.greeting.hasSession ?? false }
  /// Whether the broker supports `$share/GROUP/…`; `nil`: unknown, as with version 3.1.1.
  public var sharesSubscriptions: Bool? { session.connection?.greeting.sharesSubscriptions }
  /// Why the last connection ended; `nil`: it has not, or the client closed it.
  public var end: MQTTFailure? { session.end }

  // MARK: Connecting

  /// Connects; if the broker supports no version 5, or no retained will, connects again without that. Then call `run`.
  public func connect(_ options: MQTTOptions) async throws(MQTTFailure) {
    close()
    session.begin(options, now: loop.now)
    do {
      while try await !greet(options) { drop() }
    } catch {
      drop()
      throw error as? MQTTFailure ?? .unreachable("given up")
    }
  }

  /// False: try again.
  private func greet(_ options: MQTTOptions) async throws -> Bool {
    let stream = try await transport.open(on: loop)
    self.stream = stream
    budget.limit = options.maxHeldBytes
    write(session.opened(options))
    switch try await greeting(stream) {
    case .accepted: return true
    case .reconnect: return false
    case .end(let failure, let goodbye): throw ended(failure, goodbye)
    }
  }

  private func greeting(_ stream: any ByteStream) async throws -> MQTTSession.Greeting {
    do {
      return try await loop.whileMoving(session.helloPatience ?? Self.patience, { stream.movedBytes }) {
        while true {
          let bytes = try await stream.read()
          if let greeting = self.session.received(bytes, now: self.loop.now) { return greeting }
        }
      }
    } catch is TimedOut {
      return session.failed(.silent, .unreachable("no answer to CONNECT in time"), now: loop.now)
    } catch let end as StreamEnd {
      let failure = MQTTFailure.early(end.reason ?? "the broker closed the connection")
      // A failure of TLS or of the WebSocket does not depend on the version.
      guard stream.pendingBytes == 0, end != .cancelled else { return .end(failure) }
      return session.failed(.hungUp, failure, now: loop.now)
    }
  }

  // MARK: Connected

  /// Handles incoming packets and keeps the connection alive until it ends. Unacknowledged publications then get `nil`. After
  /// cancellation it may be called again: nothing is lost.
  public func run() async throws(MQTTFailure) {
    do {
      try await loop.race({ try await self.receive() }, { try await self.ping() }, { try await self.awaitAnswers() })
    } catch {
      if error is CancellationError, isUp { return }
      let words = (error as? StreamEnd)?.reason ?? "the broker closed the connection"
      let failure = error as? MQTTFailure ?? .unreachable(words)
      drop(failure)
      throw failure
    }
  }

  private func receive() async throws {
    guard let stream else { throw StreamEnd.cancelled }
    while true {
      while self.stream === stream, !isFull(stream), let action = step({ $0.next(now: $1) }) { try perform(action) }
      do throws(StreamEnd) {
        guard try await hasRoom(stream) else { continue }
        let bytes = try await stream.read()
        step { $0.append(bytes, now: $1) }
      } catch {
        if Task.isCancelled { throw CancellationError() }
        throw error
      }
    }
  }

  private func perform(_ action: MQTTConnection.Action) throws(MQTTFailure) {
    switch action {
    case .settle(let id, let answer):
      promises.removeValue(forKey: id)?.keep(answer)
      flush()
      vacancy.resume()
    case .deliver(let message, let id): deliver(message, id)
    case .end(let failure, let goodbye): throw ended(failure, goodbye)
    }
  }

  private func deliver(_ message: MQTTMessage, _ id: UInt16?) {
    let (connection, hold) = (stream, budget.hold(message))
    onMessage(message) { [weak self] in
      // On another connection the acknowledgement would apply to another message.
      guard let self, let id, self.stream === connection else { return }
      self.step { $0.acknowledge(id, now: $1) }
      withExtendedLifetime(hold) { self.flush() }
    }
  }

  private func isFull(_ stream: any ByteStream) -> Bool { budget.isSpent || stream.pendingBytes > Self.maxUnsent }

  /// Mosquitto 2.0.11 sends more than the receive maximum: the excess stays with the kernel, which holds the broker back. False: there
  /// was no room, and there may be now.
  private func hasRoom(_ stream: any ByteStream) async throws(StreamEnd) -> Bool {
    guard isFull(stream), self.stream === stream else { return true }
    if stream.pendingBytes > Self.maxUnsent {
      try await stream.drained()
    } else {
      do { try await budget.freed.wait() } catch { throw .cancelled }
    }
    return false
  }

  private func ping() async throws {
    while let due = session.connection?.pings.due {
      guard loop.now >= due else {
        try await loop.sleep(until: due)
        continue
      }
      step { $0.ping(now: $1) }
      flush()
    }
    try await Waiter().wait()
  }

  /// Ends the connection if an answer is overdue and nothing was transferred for long.
  private func awaitAnswers() async throws {
    while true {
      guard session.connection?.owed != nil else {
        try await expectation.wait()
        continue
      }
      // An answer is progress, however few bytes it has.
      let moved = { (self.stream?.movedBytes ?? 0) &+ (self.session.connection?.answers ?? 0) << 32 }
      var progress = Progress(Self.patience, moved(), now: loop.now)
      while session.connection?.owed != nil {
        try await expectation.wait(until: progress.nextLook(now: loop.now), on: loop)
        if progress.isOver(moved(), now: loop.now), let failure = step({ $0.overdue(now: $1) }) { throw failure }
      }
    }
  }

  /// Lets the open connection handle an event, and wakes the task that waits for answers when one becomes due, or none is due any more.
  /// `nil`: there is no connection.
  @discardableResult
  private func step<Result>(_ event: (inout MQTTConnection, MonotonicTime) -> Result?) -> Result? {
    session.open { connection in
      let wasOwed = connection.owed != nil
      defer { if wasOwed != (connection.owed != nil) { expectation.resume() } }
      return event(&connection, loop.now)
    }
  }

  // MARK: To the broker

  /// Waits for the broker's answer; `nil`: the connection ended first. `isFollowed`: more follows at once, then `flush` or `untilRoom`;
  /// both may be sent together.
  public func publish(_ message: MQTTMessage, isFollowed: Bool = false) -> Promise<MQTTAnswer?> {
    let promise = Promise<MQTTAnswer?>()
    switch step({ $0.publish(message, now: $1) }) {
    case .waits(let id): promises[id] = promise
    case .settled(let answer): promise.keep(answer)
    case nil: promise.keep(nil)
    }
    if !isFollowed || (session.connection?.output.count ?? 0) >= Self.maxGathered { flush() }
    return promise
  }

  /// With QoS 1; a refusal ends the connection. `isOthers`: messages that this client publishes there do not come back, which
  /// only version 5 supports.
  public func subscribe(_ topic: String, isOthers: Bool = false) {
    step { $0.subscribe(topic, isOthers: isOthers, now: $1) }
    flush()
  }

  /// Ends a subscription that the broker has kept with the session.
  public func unsubscribe(_ topic: String) {
    step { $0.unsubscribe(topic, now: $1) }
    flush()
  }

  /// The next connection begins a new session, without the old one's subscriptions and messages.
  public func forgetSession() { session.forget() }

  /// Returns when the broker accepts one more publication, or the connection has ended. Earlier publications are sent first.
  public func untilRoom() async throws(CancellationError) {
    while session.connection?.hasRoom == false {
      flush()
      try await vacancy.wait()
    }
  }

  /// Sends the collected output in as few TLS records and IP packets as possible.
  public func flush() { write(session.open { $0.takeOutput() } ?? []) }

  private func write(_ bytes: [UInt8]) {
    guard !bytes.isEmpty else { return }
    bytesSent &+= UInt64(bytes.count)
    stream?.write(bytes)
  }

  // MARK: The end

  /// A clean DISCONNECT, so that the will is not published.
  public func close() {
    flush()
    if isUp { write(MQTTCommand.disconnect(code: 0).encode()) }
    drop()
  }

  /// Says why this side closes the connection, if the broker understands that.
  private func ended(_ failure: MQTTFailure, _ goodbye: UInt8?) -> MQTTFailure {
    if let goodbye { write(MQTTCommand.disconnect(code: goodbye).encode()) }
    return failure
  }

  private func drop(_ failure: MQTTFailure? = nil) {
    stream?.close()
    stream = nil
    session.close(failure)
    let unanswered = promises.values
    promises = [:]
    vacancy.resume()
    budget.freed.resume()
    for promise in unanswered { promise.keep(nil) }
  }
}

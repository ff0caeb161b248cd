// SPDX-License-Identifier: MIT

import BluetoothSession
import CLinux
import DBus
import EventLoop
import Glibc

/// How frames come and go once the radio is connected: through sockets that BlueZ hands out (AcquireNotify,
/// AcquireWrite), which cost no D-Bus traffic and keep the order; else by StartNotify and WriteValue, one write at a time.
final class GATTChannel {
  /// A notification is one frame; more than the largest ATT value does not come.
  private static let maxBytes = 1024
  /// Frames that wait to be written; the session has one command under way, so more means that nothing is taken.
  private static let maxWaiting = 16
  /// Others have their turn in between.
  private static let framesPerTurn = 32
  private static let writeLimit: Duration = .seconds(10)

  private let bus: Bus
  private let loop: EventLoop
  private var reading: Int32 = -1
  private var writing: Int32 = -1
  private var values: Bus.Subscription?
  private var notifying: String?
  /// The characteristic that WriteValue is called on.
  private var target: String?
  private var waiting: [[UInt8]] = []
  private var isWriting = false
  /// Counts openings: an answer to an earlier one changes nothing.
  private var generation = 0
  var onFrame: ([UInt8]) -> Void = { _ in }
  var onEnd: () -> Void = {}

  init(_ bus: Bus, on loop: EventLoop) {
    self.bus = bus
    self.loop = loop
  }

  deinit { close() }

  func close() {
    generation &+= 1
    if reading >= 0 {
      loop.unwatch(reading)
      Glibc.close(reading)
    }
    if writing >= 0 {
      loop.unwatch(writing)
      Glibc.close(writing)
    }
    if let values { bus.unsubscribe(values) }
    if let notifying {
      // What comes of it does not matter: the link is going.
      bus.call(.call(BlueZ.service, notifying, BlueZ.characteristic, "StopNotify")) { _ in }
    }
    (reading, writing, values, notifying, target) = (-1, -1, nil, nil, nil)
    waiting = []
    isWriting = false
  }

  private func ended() {
    close()
    onEnd()
  }

  // MARK: From the radio

  func openNotifications(_ tx: String, _ done: @escaping (BluetoothOutcome) -> Void) {
    acquire("AcquireNotify", tx) { [weak self] result in
      guard let self else { return }
      switch result {
      case .success(let (socket, mtu)):
        self.reading = socket
        self.loop.watch(socket, for: .readable) { [weak self] _ in self?.readSocket() }
        done(.opened(mtu: mtu))
      case .failure(.refused(name: "org.bluez.Error.NotSupported", _)),
        .failure(.refused(name: "org.freedesktop.DBus.Error.UnknownMethod", _)):
        self.startNotify(tx, done)
      case .failure(let error): done(.failed(BlueZ.failure(error)))
      }
    }
  }

  private func acquire(
    _ method: String, _ path: String, _ done: @escaping (Result<(Int32, Int), BusError>) -> Void
  ) {
    let attempt = generation
    let call = BusMessage.call(BlueZ.service, path, BlueZ.characteristic, method, [.options()])
    bus.call(call, timeout: .seconds(18)) { [weak self] result in
      guard let self, self.generation == attempt else { return done(.failure(.timedOut)) }
      done(
        result.flatMap { body in
          guard body.count == 2, case .descriptor(let descriptor) = body[0], let mtu = body[1].integer else {
            return .failure(.malformed("\(method) without a socket"))
          }
          let socket = descriptor.duplicate()
          guard socket >= 0 else { return .failure(.invalid("no descriptor is left")) }
          _ = fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK)
          return .success((socket, Int(clamping: mtu)))
        })
    }
  }

  private func readSocket() {
    var buffer = [UInt8](repeating: 0, count: Self.maxBytes)
    for _ in 0..<Self.framesPerTurn where reading >= 0 {
      let count = recv(reading, &buffer, buffer.count, 0)
      if count > 0 {
        onFrame(Array(buffer.prefix(count)))
      } else if count < 0, errno == EAGAIN || errno == EINTR {
        return
      } else {
        return ended()
      }
    }
  }

  private func startNotify(_ tx: String, _ done: @escaping (BluetoothOutcome) -> Void) {
    let attempt = generation
    let rule = MatchRule(
      sender: BlueZ.service, path: tx, interface: BlueZ.properties, member: "PropertiesChanged",
      argument: BlueZ.characteristic)
    // Subscribed before it starts: nothing falls between.
    values = bus.subscribe(rule) { [weak self] message in
      guard message.body.count >= 2, case .bytes(let frame)? = message.body[1]["Value"] else { return }
      self?.onFrame(frame)
    }
    bus.call(.call(BlueZ.service, tx, BlueZ.characteristic, "StartNotify"), timeout: .seconds(18)) {
      [weak self] result in
      guard let self, self.generation == attempt else { return done(.failed(.timedOut)) }
      if case .failure(let error) = result { return done(.failed(BlueZ.failure(error))) }
      self.notifying = tx
      self.bus.property(BlueZ.service, tx, BlueZ.characteristic, "MTU") { mtu in
        // Before BlueZ 5.62 there is no such property: unknown.
        done(.opened(mtu: Int(clamping: (try? mtu.get())?.integer ?? 0)))  // `try?`: 0 is "not known"
      }
    }
  }

  // MARK: To the radio

  /// `flags` of the characteristic: the socket writes without response, which not every radio takes.
  func openWrites(_ rx: String, flags: [String], _ done: @escaping (BluetoothOutcome) -> Void) {
    guard flags.contains("write-without-response") else {
      target = rx
      return done(.opened(mtu: 0))
    }
    acquire("AcquireWrite", rx) { [weak self] result in
      guard let self else { return }
      switch result {
      case .success(let (socket, mtu)):
        self.writing = socket
        self.loop.watch(socket, for: []) { [weak self] ready in self?.writable(ready) }
        done(.opened(mtu: mtu))
      case .failure(.refused(name: "org.bluez.Error.NotSupported", _)),
        .failure(.refused(name: "org.freedesktop.DBus.Error.UnknownMethod", _)):
        self.target = rx
        done(.opened(mtu: 0))
      case .failure(let error): done(.failed(BlueZ.failure(error)))
      }
    }
  }

  func send(_ frame: [UInt8]) {
    guard writing >= 0 || target != nil else { return }
    guard waiting.count < Self.maxWaiting else { return ended() }
    waiting.append(frame)
    flush()
  }

  private func flush() {
    if let target { return writeValue(target) }
    while writing >= 0, let frame = waiting.first {
      let count = Glibc.send(writing, frame, frame.count, Int32(MSG_NOSIGNAL))
      if count == frame.count {
        waiting.removeFirst()
      } else if count < 0, errno == EAGAIN || errno == EINTR {
        return loop.changeInterest(writing, to: .writable)
      } else {
        return loop.later { [weak self] in self?.ended() }
      }
    }
    if writing >= 0 { loop.changeInterest(writing, to: []) }
  }

  private func writable(_ ready: EventLoop.Readiness) {
    if !ready.intersection(.closed).isEmpty { return ended() }
    flush()
  }

  /// With response, one at a time: BlueZ answers a second one with "In Progress", and some radios merge two.
  private func writeValue(_ target: String) {
    guard !isWriting, let frame = waiting.first else { return }
    isWriting = true
    let attempt = generation
    let call = BusMessage.call(
      BlueZ.service, target, BlueZ.characteristic, "WriteValue",
      [.bytes(frame), .options([("type", .string("request"))])])
    bus.call(call, timeout: Self.writeLimit) { [weak self] result in
      guard let self, self.generation == attempt else { return }
      self.isWriting = false
      if case .failure = result { return self.ended() }
      self.waiting.removeFirst()
      self.flush()
    }
  }
}

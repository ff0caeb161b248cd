// SPDX-License-Identifier: MIT

import CLinux
import DBus
import EventLoop
import Glibc

/// Transfers frames over one connection to the radio: through sockets that BlueZ hands out (AcquireNotify,
/// AcquireWrite), which cause no D-Bus traffic and preserve the order; otherwise by StartNotify and WriteValue, one write at a time.
///
/// Closed with its connection; the next connection has a new channel.
final class GATTChannel {
  /// The destination of frames.
  private enum Destination {
    case socket(Int32)
    /// WriteValue of this object.
    case characteristic(String)
  }

  /// A notification is one frame; the buffer holds the largest ATT value.
  private static let maxBytes = 1024
  /// Maximum number of waiting frames. The session has one command in progress, so more means that the radio accepts nothing.
  private static let maxWaiting = 16
  /// Frames per turn, so that other tasks run in between.
  private static let framesPerTurn = 32
  private static let openLimit: Duration = .seconds(18)
  private static let writeLimit: Duration = .seconds(10)

  private let bus: Bus
  private let objects: BlueZObjects
  private let loop: EventLoop
  private let received: ([UInt8]) -> Void
  private let ended: () -> Void
  private var isClosed = false
  private var reading: Int32 = -1
  private var writing: Int32 = -1
  /// The characteristic that notifies of frames.
  private var notifying: String?
  private let frames = Mailbox<[UInt8]>(bound: maxWaiting)
  private let room = Waiter()
  private var writer: LoopTask?

  /// `received` is called for each frame; `ended` once, if the channel breaks before it is closed.
  init(
    _ bus: Bus, _ objects: BlueZObjects, on loop: EventLoop, received: @escaping ([UInt8]) -> Void,
    ended: @escaping () -> Void
  ) {
    self.bus = bus
    self.objects = objects
    self.loop = loop
    self.received = received
    self.ended = ended
  }

  func close() {
    isClosed = true
    writer?.cancel()
    for socket in [reading, writing] where socket >= 0 {
      loop.unwatch(socket)
      Glibc.close(socket)
    }
    if let notifying {
      objects.listen(toValuesOf: nil)
      // Nobody needs the result: the link is closing.
      bus.post(.call(BlueZ.service, notifying, BlueZ.characteristic, "StopNotify"))
    }
    (reading, writing, notifying, writer) = (-1, -1, nil, nil)
  }

  private func broke() {
    guard !isClosed else { return }
    close()
    ended()
  }

  /// Asks BlueZ for a socket; returns it with its MTU. `nil`: this BlueZ offers none.
  private func acquire(_ method: String, _ path: String) async throws -> (socket: Int32, mtu: Int)? {
    let call = BusMessage.call(BlueZ.service, path, BlueZ.characteristic, method, [.options()])
    var answer: BusMessage?
    do {
      answer = try await bus.call(call, timeout: Self.openLimit)
    } catch BusError.refused(name: "org.bluez.Error.NotSupported", _),
      BusError.refused(name: "org.freedesktop.DBus.Error.UnknownMethod", _)
    {
      answer = nil
    }
    try mustBeOpen()
    guard let body = answer?.body else { return nil }
    guard body.count == 2, case .descriptor(let descriptor) = body[0], let mtu = body[1].integer else {
      throw BusError.malformed("\(method) without a socket")
    }
    let socket = descriptor.duplicate()
    guard socket >= 0 else { throw BusError.invalid("no descriptor is left") }
    Descriptor.setNonBlocking(socket)
    return (socket, Int(clamping: mtu))
  }

  /// Throws if the connection has ended during the call.
  private func mustBeOpen() throws(BusError) { if isClosed { throw .timedOut } }

  // MARK: From the radio

  /// Returns the MTU, 0 if unknown. Throws `BusError`.
  func openNotifications(_ tx: String) async throws -> Int {
    guard let (socket, mtu) = try await acquire("AcquireNotify", tx) else { return try await startNotify(tx) }
    reading = socket
    loop.watch(socket, for: .readable) { [self] _ in readSocket() }
    return mtu
  }

  private func readSocket() {
    var buffer = [UInt8](repeating: 0, count: Self.maxBytes)
    for _ in 0..<Self.framesPerTurn where reading >= 0 {
      let count = recv(reading, &buffer, buffer.count, 0)
      if count > 0 {
        received(Array(buffer.prefix(count)))
      } else if count < 0, errno == EAGAIN || errno == EINTR {
        return
      } else {
        return broke()
      }
    }
  }

  func take(_ value: [UInt8], of characteristic: String) { if characteristic == notifying { received(value) } }

  private func startNotify(_ tx: String) async throws -> Int {
    // Subscribed before notifications start, so that none is missed.
    objects.listen(toValuesOf: tx)
    notifying = tx
    try await bus.call(.call(BlueZ.service, tx, BlueZ.characteristic, "StartNotify"), timeout: Self.openLimit)
    try mustBeOpen()
    do {
      return Int(clamping: try await bus.property(BlueZ.service, tx, BlueZ.characteristic, "MTU").integer ?? 0)
    } catch is BusError {
      return 0  // before BlueZ 5.62 there is no such property
    }
  }

  // MARK: To the radio

  /// `flags` of the characteristic: the socket writes without response, which some radios do not support. Otherwise as `openNotifications`.
  func openWrites(_ rx: String, flags: [String]) async throws -> Int {
    try mustBeOpen()
    guard flags.contains("write-without-response"), let (socket, mtu) = try await acquire("AcquireWrite", rx) else {
      begin(.characteristic(rx))
      return 0
    }
    writing = socket
    loop.watch(socket, for: []) { [self] ready in
      if ready.isDisjoint(with: .closed) { room.resume() } else { broke() }
    }
    begin(.socket(socket))
    return mtu
  }

  func send(_ frame: [UInt8]) {
    guard writer != nil else { return }
    if !frames.put(frame) { broke() }
  }

  private func begin(_ way: Destination) { writer = loop.begin { [self] in await write(to: way) } }

  /// Writes frames in order until the channel is closed.
  private func write(to way: Destination) async {
    do {
      while let frame = try await frames.next() {
        switch way {
        case .socket(let socket): try await write(frame, to: socket)
        case .characteristic(let target): try await writeValue(frame, of: target)
        }
      }
    } catch is CancellationError {
      return
    } catch {
      broke()
    }
  }

  private func write(_ frame: [UInt8], to socket: Int32) async throws {
    while true {
      let count = Glibc.send(socket, frame, frame.count, Int32(MSG_NOSIGNAL))
      if count == frame.count { return }
      guard count < 0, errno == EAGAIN || errno == EINTR else { throw SystemError("send") }
      loop.changeInterest(socket, to: .writable)
      try await room.wait()
      loop.changeInterest(socket, to: [])
    }
  }

  /// With response, one at a time: BlueZ rejects a concurrent write with "In Progress", and some radios merge two.
  private func writeValue(_ frame: [UInt8], of target: String) async throws {
    let call = BusMessage.call(
      BlueZ.service, target, BlueZ.characteristic, "WriteValue",
      [.bytes(frame), .options([("type", .string("request"))])])
    try await bus.call(call, timeout: Self.writeLimit)
  }
}

// SPDX-License-Identifier: MIT

import BluetoothSession
import CLinux
import DBus
import EventLoop
import Glibc

/// How frames come and go over one connection to the radio: through sockets that BlueZ hands out (AcquireNotify,
/// AcquireWrite), which cost no D-Bus traffic and keep the order; else by StartNotify and WriteValue, one write at a time.
///
/// Closed when that connection ends; the next one has a channel of its own.
final class GATTChannel {
  /// What frames are written to.
  private enum Way {
    case socket(Int32)
    /// WriteValue is called on it.
    case characteristic(String)
  }

  /// A notification is one frame; more than the largest ATT value does not come.
  private static let maxBytes = 1024
  /// Frames that wait to be written; the session has one command under way, so more means that nothing is taken.
  private static let maxWaiting = 16
  /// Others have their turn in between.
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
  /// The characteristic whose values are frames.
  private var notifying: String?
  private let frames = Mailbox<[UInt8]>(bound: maxWaiting)
  private let room = Waiter()
  private var writer: LoopTask?

  /// `received` gets each frame. `ended` is called once, if the channel breaks before it is closed.
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
      // What comes of it does not matter: the link is going.
      bus.post(.call(BlueZ.service, notifying, BlueZ.characteristic, "StopNotify"))
    }
    (reading, writing, notifying, writer) = (-1, -1, nil, nil)
  }

  private func broke() {
    guard !isClosed else { return }
    close()
    ended()
  }

  /// A socket of BlueZ's and its MTU. `nil`: this BlueZ has none to give.
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

  /// The connection to the radio may have gone while BlueZ was asked.
  private func mustBeOpen() throws(BusError) { if isClosed { throw .timedOut } }

  // MARK: From the radio

  /// Returns the MTU, 0 when it is not known. Throws `BusError`.
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

  /// A characteristic has another value.
  func take(_ value: [UInt8], of characteristic: String) { if characteristic == notifying { received(value) } }

  private func startNotify(_ tx: String) async throws -> Int {
    // Before it starts: nothing falls between.
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

  /// `flags` of the characteristic: the socket writes without response, which not every radio takes. As `openNotifications`.
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

  private func begin(_ way: Way) { writer = loop.begin { [self] in await write(to: way) } }

  /// One frame after the other, until the channel is closed.
  private func write(to way: Way) async {
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

  /// With response, one at a time: BlueZ answers a second one with "In Progress", and some radios merge two.
  private func writeValue(_ frame: [UInt8], of target: String) async throws {
    let call = BusMessage.call(
      BlueZ.service, target, BlueZ.characteristic, "WriteValue",
      [.bytes(frame), .options([("type", .string("request"))])])
    try await bus.call(call, timeout: Self.writeLimit)
  }
}

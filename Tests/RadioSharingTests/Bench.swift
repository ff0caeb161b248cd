// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Glibc
import Messaging
import Sockets
import Store
import Sync
import TestSupport
import Testing
import Timing
import Transport
import VirtualRadio

@testable import RadioSharing

/// The radio side of a gateway, and a proxy that shares its radio, on one loop.
final class Bench: SyncObserver {
  let scratch = Scratch(inMemory: true)
  let loop: EventLoop
  let store: Store
  let synchronizer: Synchronizer
  let proxy: CompanionProxy
  let radio: RadioAtPort
  var log: [String] { lines.all }
  private let lines = Lines()
  let port: UInt16
  let messenger: Messenger
  private let nodes: NodeService

  private var connecting: LoopTask?

  private final class Lines { var all: [String] = [] }

  /// `isThere`: a radio is attached.
  init(
    isThere: Bool = true, on machine: any Machine = LinuxMachine(), maxClients: Int = 8,
    messaging: Messenger.Settings = .init()
  ) throws {
    signal(SIGPIPE, SIG_IGN)
    loop = EventLoop(on: machine)
    let log = Log(level: .info, sink: { [lines] _, text in lines.all.append(text) })
    store = try Store(Store.Settings(location: scratch.location("gw.db")))
    radio = try RadioAtPort(on: loop)
    let address = try LinkAddress(parsing: "tcp:127.0.0.1:\(isThere ? radio.port : 1)")
    let link = Links.link(to: address, on: loop, log: log)
    let connection = RadioConnection(link, on: loop, log: log)
    synchronizer = Synchronizer(connection, store: store, settings: .init(), on: loop, log: log)
    messenger = try Messenger(store: store, synchronizer: synchronizer, settings: messaging, on: loop, log: log)
    nodes = NodeService(messenger, credentials: Credentials(location: scratch.location("passwords")))
    proxy = CompanionProxy(
      CompanionProxy.Gateway(
        loop: loop, log: log, store: store, synchronizer: synchronizer, messenger: messenger,
        requests: nodes.requests, sign: { _ in nil }))
    let (free, port) = try LoopbackSocket.listen(on: 0)
    close(free)
    self.port = port
    loop.afterTurn { [store] in store.commit() }
    synchronizer.observer = self
    if isThere {
      connecting = loop.begin { try? await connection.run() }  // `try?`: `deinit` cancels it
      try run("synced") { self.synchronizer.state == .synced }
    }
    listen(maxClients)
    try run("listens") { self.lines.all.contains { $0.contains("share the radio") } }
  }

  deinit {
    proxy.stop()
    synchronizer.stop()
    connecting?.cancel()
    radio.stop()
    for _ in 0..<2 { loop.turn(wait: false) }
  }

  func listen(_ maxClients: Int) {
    guard let address = ListenAddress("127.0.0.1:\(port)") else { return }
    proxy.listen([
      SharingSettings(name: "apps", address: address, allows: [.channels, .advert], maxClients: maxClients)
    ])
    // The proxy listens once its task has begun.
    loop.turn(wait: false)
  }

  var clients: Int { proxy.reports.first?.clients.count ?? 0 }

  /// Bytes that a client has not taken.
  func untaken(_ name: String) -> Int? { proxy.reports.first?.clients.first { $0.name == name }?.unreadBytes }

  /// Turns the loop for so long, by its clock.
  func pass(_ time: Duration) {
    let end = loop.now + time
    loop.schedule(at: end) {}
    while loop.now < end { loop.turn(wait: true) }
  }

  /// Turns the loop until the condition is true.
  func run(_ what: String, _ condition: () throws -> Bool) throws {
    let isSo = try turn(loop, until: condition)
    try #require(isSo, "waited in vain: \(what); \(lines.all.suffix(3))")
  }

  func client(from host: UInt8 = 1) throws -> TestClient {
    let before = clients
    let client = try TestClient(port, on: loop, from: host)
    try run("a client") { self.clients > before || client.isClosed }
    return client
  }

  func linkChanged() { messenger.radioChanged() }
  func syncChanged() { messenger.radioChanged() }
  func heard(_ push: Push, in frame: [UInt8]) {
    proxy.heard(push, frame)
    messenger.received(push)
    nodes.requests.received(push)
  }
  func contactCame(_ contact: Contact) {}
  func messageStored(_ message: QueuedMessage) { proxy.messageStored() }
  func messageRepeated(_ message: QueuedMessage) {}
  func messagesWereLost(_ loss: RadioQueue.Loss) {}
  func radioReplaced() { proxy.radioReplaced() }
  func radioIsIdle() {}
}

/// Turns the loop until the condition is true, and lets no invented time pass. False: nothing moves any more.
func turnAtOnce(_ loop: EventLoop, until condition: () -> Bool) -> Bool {
  var patience = Patience()
  while !condition() {
    // Turning is no progress.
    if patience.isOver(work: { Work(own: 0) }) { return false }
    loop.turn(wait: false)
  }
  return true
}

/// A virtual radio at a TCP port. A test can add frames to the packet of an answer.
final class RadioAtPort {
  let port: UInt16
  let radio: VirtualRadio
  /// Frames that are sent together with the next frame that begins with this byte.
  var escort: (code: UInt8, before: [UInt8], after: [UInt8])?
  private let acceptor: Acceptor
  private var task: LoopTask?

  init(on loop: EventLoop) throws {
    let (listener, port) = try LoopbackSocket.listen(on: 0)
    self.port = port
    let radio = VirtualRadio(VirtualRadioSettings(name: "r0", seed: 1, channelSlots: 8, clock: 1_795_000_000), on: loop)
    self.radio = radio
    acceptor = Acceptor(listener, name: "radio", reserve: .turnsAway, on: loop, log: Log(level: .error))
    task = loop.begin { [acceptor, weak self] in
      // The connection ends when either side has closed it.
      do {
        while true {
          let stream = SocketStream(try await acceptor.accept(), on: loop)
          radio.output = { [weak self] frame in self?.send(frame, stream) }
          radio.isClientConnected = true
          var decoder = SerialDecoder(.toRadio)
          while let bytes = try? await stream.read() {  // `try?`: the next one may come
            decoder.append(bytes, now: loop.now)
            while let frame = decoder.next(now: loop.now) { radio.received(frame) }
          }
          stream.close()
        }
      } catch {}
    }
  }

  private func send(_ frame: [UInt8], _ stream: SocketStream) {
    let bytes = SerialFraming.wrap(frame, .fromRadio)
    guard let escort, escort.code == frame.first else { return stream.write(bytes) }
    self.escort = nil
    stream.write(
      SerialFraming.wrap(escort.before, .fromRadio) + bytes + SerialFraming.wrap(escort.after, .fromRadio))
  }

  func stop() {
    task?.cancel()
    acceptor.stop()
    radio.output = { _ in }
  }
}

/// A client that writes any bytes, on the test's loop.
final class TestClient {
  private let socket: Int32
  private let loop: EventLoop
  private var decoder = SerialDecoder(.fromRadio)
  private(set) var frames: [[UInt8]] = []
  private(set) var isClosed = false

  /// `host`: the last part of its own address 127.0.0.x.
  init(_ port: UInt16, on loop: EventLoop, from host: UInt8 = 1, receiveBuffer: Int32? = nil) throws {
    self.loop = loop
    socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    if var size = receiveBuffer {
      setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<Int32>.size))
    }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    for (call, host, port) in [(bind, host, 0), (connect, 1, port)] {
      address.sin_port = port.bigEndian
      address.sin_addr.s_addr = (UInt32(0x7F00_0000) + UInt32(host)).bigEndian
      let result = withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          call(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
        }
      }
      try #require(result == 0)
    }
    Descriptor.setNonBlocking(socket)
  }

  deinit { close() }

  func close() {
    guard !isClosed else { return }
    isClosed = true
    Glibc.close(socket)
  }

  func send(raw bytes: [UInt8]) { _ = Glibc.send(socket, bytes, bytes.count, Int32(MSG_NOSIGNAL)) }

  func send(_ frames: [UInt8]...) { send(raw: frames.flatMap { SerialFraming.wrap($0, .toRadio) }) }

  /// Reads the available bytes. True: the other end has closed.
  func read() -> Bool {
    while true {
      switch Descriptor.read(socket) {
      case .bytes(let bytes):
        decoder.append(bytes, now: loop.now)
        while let frame = decoder.next(now: loop.now) { frames.append(frame) }
      case .wouldBlock: return false
      case .end, .failed: return true
      }
    }
  }

  /// Reads what its kernel has, and not what comes then.
  func readOnce() { _ = Descriptor.read(socket) }

  /// Turns the loop until this many frames have arrived.
  func frames(_ count: Int) throws -> [[UInt8]] {
    let isSo = turn(loop) { read() || frames.count >= count }
    try #require(isSo && frames.count >= count, "\(frames)")
    return frames
  }

  func isDisconnected() -> Bool { turn(loop) { read() } }
}

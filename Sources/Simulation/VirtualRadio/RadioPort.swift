// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Timing

/// Faults that a virtual radio's port can inject.
public enum PortFault: Equatable, Sendable {
  /// The port neither reads nor writes for this time.
  case silence(Duration)
  /// The radio sends this many random bytes, including markers.
  case garbage(Int)
  /// The next frame breaks off in the middle.
  case halfFrame
  /// The next reply is replaced by one of another kind.
  case wrongReply
}

/// The port for one client: transfers frames, and injects faults. A new port is plugged in; `run` serves it.
public class RadioPort {
  let radio: VirtualRadio
  let loop: EventLoop
  private let kind: FirmwareReceiver.Kind
  private var receiver: FirmwareReceiver
  private var pending: [UInt8] = []
  /// Wi-Fi: frames that wait for the client, and commands that wait for them. Each pass of the firmware's loop writes a frame, or executes a command.
  private var frames: [[UInt8]] = []
  private var commands: [[UInt8]] = []
  private var hasPass = false
  /// The descriptor of the client's line; `nil`: there is no client, and the radio's output is lost.
  private var line: Int32?
  private let ready = Waiter()
  /// When the port is plugged in again; `nil`: it is not unplugged.
  private var returnsAt: MonotonicTime?
  private let unplugged = Waiter()
  private var silentUntil: MonotonicTime?
  private var cutsNext = false
  private var falsifiesNext = false
  private var random = SeededRandom(seed: 7)
  /// Frames that were dropped because the client did not read.
  public private(set) var droppedFrames = 0
  /// Frames with a message that were handed to the client.
  public private(set) var messagesHandedOver = 0

  /// The firmware's queue on Wi-Fi; it drops further frames without a sign (`SerialWifiInterface`).
  static let maxFrames = 4
  /// The most bytes that wait for a slow client. Further frames are dropped, as radios drop them.
  static let maxPending = 1 << 20

  init(_ radio: VirtualRadio, on loop: EventLoop, _ kind: FirmwareReceiver.Kind) {
    self.radio = radio
    self.loop = loop
    self.kind = kind
    receiver = FirmwareReceiver(kind)
    radio.port = self
  }

  // MARK: For each kind of port

  /// The address to connect to.
  public var address: String { "" }
  var isPluggedIn: Bool { false }
  /// Whether the line ends when the client closes it; otherwise the next client gets the same line.
  var endsWithClient: Bool { true }
  /// Makes the port visible to clients.
  func plugIn() throws {}
  /// Removes the port and the client's line at once; does nothing if the port is unplugged already.
  func pullOut() {}
  /// Serves clients while the port is plugged in.
  func serve() async throws {}
  /// The radio has restarted.
  func rebooted() {}

  // MARK: The port's life

  /// Serves clients until the task is cancelled, and then unplugs the port.
  public final func run() async {
    defer { pullOut() }
    do {
      while true {
        if isPluggedIn { try await loop.race({ try await self.serve() }, { try await self.untilUnplugged() }) }
        try await untilUnplugged()
        try await untilReturn()
        // The port stays unplugged until the next unplugging ends.
        do { try plugIn() } catch { Log().error("\(error)") }
      }
    } catch is CancellationError {
      return
    } catch {
      Log().error("\(address): \(error)")
    }
  }

  private func untilUnplugged() async throws(CancellationError) {
    while returnsAt == nil { try await unplugged.wait() }
  }

  private func untilReturn() async throws(CancellationError) {
    while let time = returnsAt, loop.now < time { try await unplugged.wait(until: time, on: loop) }
    returnsAt = nil
  }

  /// Unplugs the port for a while.
  public final func unplug(for duration: Duration) {
    pullOut()
    let time = loop.now + duration
    returnsAt = min(returnsAt ?? time, time)
    unplugged.resume()
  }

  // MARK: A client

  /// Makes the descriptor the client's line. False: the kernel refuses.
  func attach(_ descriptor: Int32) -> Bool {
    receiver = FirmwareReceiver(kind)
    pending.removeAll()
    guard loop.watch(descriptor, for: .readable, { [ready] _ in ready.resume() }) else { return false }
    line = descriptor
    return true
  }

  /// Ends the client's line. Call it before closing the descriptor.
  func cut() {
    guard let line else { return }
    loop.unwatch(line)
    self.line = nil
    pending.removeAll()
    (frames, commands) = ([], [])
    ready.resume()
  }

  /// Transfers bytes in both directions until the client closes the line, or `cut` ends it.
  func carry() async throws(CancellationError) {
    while let line, !hasEnded(line) {
      try await ready.wait()
      flush()
    }
  }

  /// Reads the available bytes, up to the limit of a turn. True: the client has closed the line.
  private func hasEnded(_ descriptor: Int32) -> Bool {
    for _ in 0..<Descriptor.readsPerTurn where line == descriptor {
      switch Descriptor.read(descriptor) {
      case .bytes(let bytes): received(bytes)
      case .wouldBlock: return false
      case .end, .failed: return endsWithClient
      }
    }
    return false
  }

  private func received(_ bytes: [UInt8]) {
    guard !isSilent else { return }
    receiver.receive(bytes) { frame in
      guard kind == .wifi else { return radio.received(frame) }
      commands.append(frame)
      pass()
    }
  }

  // MARK: The passes of the Wi-Fi firmware's loop

  /// How many contacts of a list fit into one pass.
  var contactsAtOnce: Int { kind == .wifi ? 1 : 8 }

  private func pass() {
    guard !hasPass else { return }
    hasPass = true
    loop.later { [weak self] in self?.passed() }
  }

  private func passed() {
    hasPass = false
    if !frames.isEmpty {
      write(frames.removeFirst())
    } else if !commands.isEmpty {
      radio.received(commands.removeFirst())
    }
    if !frames.isEmpty || !commands.isEmpty { pass() }
  }

  // MARK: Faults

  public func perform(_ fault: PortFault) {
    switch fault {
    case .silence(let duration): silentUntil = loop.now + duration
    case .garbage(let count):
      queue(
        (0..<count).map { _ in
          [0x3E, 0x3C, 0, UInt8.random(in: 0...255, using: &random)].randomElement(using: &random) ?? 0x3E
        })
    case .halfFrame: cutsNext = true
    case .wrongReply: falsifiesNext = true
    }
  }

  private var isSilent: Bool { silentUntil.map { loop.now < $0 } ?? false }

  // MARK: From the radio

  func send(_ frame: [UInt8]) {
    guard !isSilent, let code = frame.first else { return }
    var frame = frame
    if falsifiesNext, code < 0x80 {
      falsifiesNext = false
      frame = Reply.battery(Battery(millivolts: 1)).encode()
    }
    if [7, 8, 16, 17, 27].contains(code) { messagesHandedOver += 1 }
    var bytes = SerialFraming.wrap(frame, .fromRadio)
    if cutsNext {
      cutsNext = false
      bytes = Array(bytes.prefix(bytes.count / 2))
    }
    queue(bytes)
  }

  private func queue(_ bytes: [UInt8]) {
    guard line != nil else { return }
    guard kind == .wifi else { return write(bytes) }
    guard frames.count < Self.maxFrames else {
      droppedFrames += 1
      return
    }
    frames.append(bytes)
    pass()
  }

  private func write(_ bytes: [UInt8]) {
    guard pending.count + bytes.count <= Self.maxPending else {
      droppedFrames += 1
      return
    }
    pending.append(contentsOf: bytes)
    flush()
  }

  private func flush() {
    guard let line, !pending.isEmpty else { return }
    while !pending.isEmpty, case .wrote(let count) = Descriptor.write(line, pending[...]) { pending.removeFirst(count) }
    loop.changeInterest(line, to: pending.isEmpty ? .readable : [.readable, .writable])
  }
}

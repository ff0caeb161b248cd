// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Timing

/// Faults that a virtual radio's port can inject.
public enum PortFault: Equatable, Sendable {
  /// Nothing is read or written for a while.
  case silence(Duration)
  /// So many random bytes, markers among them.
  case garbage(Int)
  /// The next frame breaks off in the middle.
  case halfFrame
  /// The next reply is replaced by one of another kind.
  case wrongReply
}

/// The port for a client: frames in, frames out, and injected faults.
public class RadioPort {
  let radio: VirtualRadio
  let loop: EventLoop
  private var receiver: FirmwareReceiver
  private var pending: [UInt8] = []
  private var isSilent = false
  private var cutsNext = false
  private var falsifiesNext = false
  private var random = SeededRandom(seed: 7)
  /// Frames that did not fit: a client that does not read.
  public private(set) var droppedFrames = 0
  /// Frames handed to the client that held a message.
  public private(set) var messagesHandedOver = 0

  /// Output waiting for a slow client at most; more frames are dropped, as radios drop them.
  static let maxPending = 1 << 20

  init(_ radio: VirtualRadio, on loop: EventLoop, _ kind: FirmwareReceiver.Kind) {
    self.radio = radio
    self.loop = loop
    receiver = FirmwareReceiver(kind)
    radio.output = { [weak self] frame in self?.send(frame) }
  }

  /// Writes as much as the descriptor accepts; returns the rest. Overridden by subclasses.
  func writeOut(_ bytes: ArraySlice<UInt8>) -> Int { bytes.count }

  func received(_ bytes: [UInt8]) {
    guard !isSilent else { return }
    receiver.receive(bytes) { frame in radio.received(frame) }
  }

  func resetReceiver(_ kind: FirmwareReceiver.Kind) {
    receiver = FirmwareReceiver(kind)
    pending.removeAll()
  }

  public func perform(_ fault: PortFault) {
    switch fault {
    case .silence(let duration):
      isSilent = true
      loop.schedule(after: duration) { [weak self] in self?.isSilent = false }
    case .garbage(let count):
      queue(
        (0..<count).map { _ in
          [0x3E, 0x3C, 0, UInt8.random(in: 0...255, using: &random)].randomElement(using: &random) ?? 0x3E
        })
    case .halfFrame: cutsNext = true
    case .wrongReply: falsifiesNext = true
    }
  }

  private func send(_ frame: [UInt8]) {
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
    guard pending.count + bytes.count <= Self.maxPending else {
      droppedFrames += 1
      return
    }
    pending.append(contentsOf: bytes)
    flush()
  }

  func flush() {
    guard !pending.isEmpty else { return }
    let written = writeOut(pending[...])
    pending.removeFirst(min(written, pending.count))
  }

  var wantsToWrite: Bool { !pending.isEmpty }

  /// Removes the port for a while, like unplugging.
  public func unplug(for duration: Duration) {}

  /// The address to connect to.
  public var address: String { "" }
}

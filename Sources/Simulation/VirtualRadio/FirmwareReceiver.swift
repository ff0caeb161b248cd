// SPDX-License-Identifier: MIT

import Companion

/// Finds frames as the firmware does, with its faults (docs/protocol/companion.md §§ 1.1 and 1.2).
///
/// Serial: it skips to `<`, accepts any length, cuts frames at 176 bytes and executes them, and has no time-out. Wi-Fi: it takes any 3 bytes as a
/// header, drops frames that are too long or have no `<`, and never resynchronises.
struct FirmwareReceiver {
  enum Kind { case serial, wifi }

  private enum State {
    case marker
    case lengthLow(isFrame: Bool)
    case lengthHigh(isFrame: Bool, low: UInt8)
    case body(isFrame: Bool, left: Int)
  }

  private let kind: Kind
  private var state: State = .marker
  private var frame: [UInt8] = []
  private var isTooLong = false

  init(_ kind: Kind) { self.kind = kind }

  /// Calls `body` with each frame that the firmware would execute.
  mutating func receive(_ bytes: some Sequence<UInt8>, _ body: ([UInt8]) -> Void) {
    for byte in bytes { receive(byte, body) }
  }

  private mutating func receive(_ byte: UInt8, _ body: ([UInt8]) -> Void) {
    switch state {
    case .marker:
      let isMarker = byte == FrameDirection.toRadio.rawValue
      if isMarker || kind == .wifi { state = .lengthLow(isFrame: isMarker) }
    case .lengthLow(let isFrame): state = .lengthHigh(isFrame: isFrame, low: byte)
    case .lengthHigh(let isFrame, let low):
      let length = Int(low) | Int(byte) << 8
      frame.removeAll(keepingCapacity: true)
      isTooLong = length > SerialFraming.largestFrame
      state = length == 0 ? .marker : .body(isFrame: isFrame, left: length)
    case .body(let isFrame, let left):
      if frame.count < SerialFraming.largestFrame { frame.append(byte) }
      guard left == 1 else {
        state = .body(isFrame: isFrame, left: left - 1)
        return
      }
      state = .marker
      if isFrame, kind == .serial || !isTooLong { body(frame) }
    }
  }
}

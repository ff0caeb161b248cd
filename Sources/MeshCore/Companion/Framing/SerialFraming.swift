// SPDX-License-Identifier: MIT

// Framing on serial lines and TCP: a marker, a length, the frame. No escaping, no checksum.
// Source: docs/protocol/companion.md §§ 1.1 and 1.2; firmware `ArduinoSerialInterface.cpp`.

import Timing

/// The direction of a stream of frames; each direction has its own marker.
public enum FrameDirection: UInt8, Sendable {
  case toRadio = 0x3C
  case fromRadio = 0x3E
}

public enum SerialFraming {
  /// The largest frame that firmware 1.16 and later accepts; before, it was 172.
  public static let largestFrame = 176
  public static let largestFrameBefore116 = 172
  /// Greater lengths count as garbage. The limit is above `largestFrame` to leave room for later firmware.
  public static let largestAccepted = 255

  /// The frame with its marker and length. Pass it to a **single** write.
  public static func wrap(_ frame: [UInt8], _ direction: FrameDirection) -> [UInt8] {
    let count = UInt16(truncatingIfNeeded: frame.count)
    return [direction.rawValue, UInt8(truncatingIfNeeded: count), UInt8(truncatingIfNeeded: count >> 8)] + frame
  }
}

/// Finds the frames in a stream of bytes that may contain boot logs, garbage and torn frames.
///
/// Total: no input traps, and it buffers only one incomplete frame (at most 258 bytes) and the current chunk. A marker
/// that does not begin a plausible frame is skipped, and the search continues one byte after it. A frame that is not
/// complete within its time limit is skipped in the same way.
public struct SerialDecoder: Sendable {
  /// The time limit for a frame from its marker to its end, on a serial line.
  public static let frameTimeout: Duration = .seconds(1)

  private let direction: FrameDirection
  private let limit: Duration
  private var buffer: [UInt8] = []
  private var start = 0
  /// When the incomplete frame began; `nil`: there is none.
  private var startedAt: MonotonicTime?
  /// Bytes that belonged to no frame so far, such as boot logs. Wraps.
  public private(set) var skippedBytes: UInt64 = 0

  /// `limit`: the time limit for a frame from its marker to its end.
  public init(_ direction: FrameDirection, limit: Duration = SerialDecoder.frameTimeout) {
    (self.direction, self.limit) = (direction, limit)
  }

  /// When to call `timedOut`; `nil` while no frame is incomplete.
  public var deadline: MonotonicTime? { startedAt.map { $0 + limit } }

  /// The number of buffered bytes.
  public var pending: Int { buffer.count - start }

  /// Adds received bytes. Call `next` until it returns `nil`.
  public mutating func append(_ chunk: some Collection<UInt8>, now: MonotonicTime) {
    if start == buffer.count {
      buffer.removeAll(keepingCapacity: true)
      start = 0
    } else if start > 4096 {
      buffer.removeFirst(start)
      start = 0
    }
    buffer.append(contentsOf: chunk)
    if startedAt == nil { startedAt = now }
  }

  /// The next whole frame; `nil`: more bytes are needed.
  public mutating func next(now: MonotonicTime) -> [UInt8]? {
    while start < buffer.count {
      guard buffer[start] == direction.rawValue else {
        skipToMarker()
        continue
      }
      switch look() {
      case .garbage: skip(1)
      case .incomplete: return nil
      case .frame(let length):
        let frame = Array(buffer[start + 3..<start + 3 + length])
        start += 3 + length
        startedAt = start < buffer.count ? now : nil
        return frame
      }
    }
    startedAt = nil
    return nil
  }

  /// If the incomplete frame has timed out, its marker was garbage: the search continues after it.
  public mutating func timedOut(now: MonotonicTime) {
    guard let deadline, now >= deadline, start < buffer.count else { return }
    skip(1)
    startedAt = now
  }

  /// Discards an incomplete frame, because the link was closed.
  public mutating func reset() {
    buffer.removeAll()
    start = 0
    startedAt = nil
  }

  private enum Look { case garbage, incomplete, frame(Int) }

  private func look() -> Look {
    let available = buffer.count - start
    guard available >= 3 else { return .incomplete }
    let length = Int(buffer[start + 1]) | Int(buffer[start + 2]) << 8
    guard length > 0, length <= SerialFraming.largestAccepted else { return .garbage }
    guard available >= 4 else { return .incomplete }
    guard FrameShape.isPlausible(code: buffer[start + 3], length: length, direction) else { return .garbage }
    return available >= 3 + length ? .frame(length) : .incomplete
  }

  private mutating func skip(_ count: Int) {
    start += count
    skippedBytes &+= UInt64(count)
  }

  private mutating func skipToMarker() {
    let found = buffer[start...].firstIndex(of: direction.rawValue) ?? buffer.count
    skip(found - start)
  }
}

/// Criteria for accepting a marker.
enum FrameShape {
  /// The first byte must be below 0x40 or in 0x80…0xBF from the radio (with room for new codes), and below 0x80 to the
  /// radio. A known code from the radio must have at least the length of its shortest form.
  static func isPlausible(code: UInt8, length: Int, _ direction: FrameDirection) -> Bool {
    switch direction {
    case .toRadio: return code < 0x80
    case .fromRadio:
      guard code & 0x40 == 0 else { return false }
      return length >= shortest(code)
    }
  }

  private static func shortest(_ code: UInt8) -> Int {
    code < 0x80
      ? (Int(code) < replies.count ? replies[Int(code)] : 1)
      : (Int(code - 0x80) < pushes.count ? pushes[Int(code - 0x80)] : 1)
  }

  /// Shortest lengths by code, from 0 and from 0x80 on. Source: docs/protocol/companion.md §§ 6 and 7.
  private static let replies = [
    1, 1, 5, 148, 5, 58, 10, 13, 8, 5, 1, 1, 3, 2, 65, 1, 16, 11, 50, 6, 65, 1, 6, 9, 2, 2, 1, 9, 1,
  ]
  private static let pushes = [33, 33, 9, 1, 4, 8, 8, 8, 3, 13, 148, 8, 6, 10, 4, 33, 1]
}

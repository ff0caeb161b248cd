// SPDX-License-Identifier: MIT

import Timing

/// Frames in a stream without noise, such as a TCP connection.
///
/// Serial lines have noise, which `SerialDecoder` skips. On TCP, invalid data comes from a client of another protocol,
/// such as a browser, and the data after it cannot be trusted either. Therefore the first invalid byte ends the stream.
public struct FrameStream: Sendable {
  public enum Fault: Equatable, Sendable {
    /// This byte does not begin a frame.
    case noMarker(UInt8)
    /// No frame has this length.
    case length(Int)
    /// A frame was not completed.
    case unfinished
  }

  /// The time limit for a frame from its first byte to its end, on a lossy line.
  public static let frameTimeout: Duration = .seconds(30)

  private let direction: FrameDirection
  private var buffer: [UInt8] = []
  private var start = 0
  private var startedAt: MonotonicTime?
  /// The error; no frames follow it.
  public private(set) var fault: Fault?

  public init(_ direction: FrameDirection) { self.direction = direction }

  /// When to call `timedOut`; `nil` while no frame is incomplete.
  public var deadline: MonotonicTime? { startedAt.map { $0 + Self.frameTimeout } }

  /// Adds received bytes. Call `next` until it returns `nil`, and check `fault` then.
  public mutating func append(_ chunk: some Collection<UInt8>, now: MonotonicTime) {
    guard fault == nil else { return }
    buffer.removeFirst(start)
    start = 0
    buffer.append(contentsOf: chunk)
    if startedAt == nil, !buffer.isEmpty { startedAt = now }
  }

  /// The next whole frame; `nil`: more bytes are needed, or there is a `fault`.
  public mutating func next(now: MonotonicTime) -> [UInt8]? {
    guard fault == nil, start < buffer.count else { return nil }
    guard buffer[start] == direction.rawValue else { return broken(.noMarker(buffer[start])) }
    guard buffer.count - start >= 3 else { return nil }
    let length = Int(buffer[start + 1]) | Int(buffer[start + 2]) << 8
    guard length > 0, length <= SerialFraming.largestAccepted else { return broken(.length(length)) }
    guard buffer.count - start >= 3 + length else { return nil }
    let frame = Array(buffer[start + 3..<start + 3 + length])
    start += 3 + length
    startedAt = start < buffer.count ? now : nil
    return frame
  }

  public mutating func timedOut(now: MonotonicTime) {
    guard let deadline, now >= deadline else { return }
    _ = broken(.unfinished)
  }

  private mutating func broken(_ fault: Fault) -> [UInt8]? {
    self.fault = fault
    (buffer, start, startedAt) = ([], 0, nil)
    return nil
  }
}

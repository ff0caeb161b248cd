// SPDX-License-Identifier: MIT

import Timing

/// Frames in a stream that carries nothing else, such as a TCP connection.
///
/// Serial lines have noise, which `SerialDecoder` skips. TCP has none: invalid data comes from a client of another protocol,
/// such as a browser, and the data after it cannot be trusted either. Therefore the first invalid byte ends the stream.
public struct FrameStream: Sendable {
  public enum Fault: Equatable, Sendable {
    /// A frame does not begin so.
    case noMarker(UInt8)
    /// No frame is so long.
    case length(Int)
    /// A frame was begun and not ended.
    case unfinished
  }

  /// Timeout of a frame from its first byte to its end, over a lossy line.
  public static let frameTimeout: Duration = .seconds(30)

  private let direction: FrameDirection
  private var buffer: [UInt8] = []
  private var start = 0
  private var startedAt: MonotonicTime?
  /// The error, after which there are no more frames.
  public private(set) var fault: Fault?

  public init(_ direction: FrameDirection) { self.direction = direction }

  /// When `timedOut` wants to be called; `nil` while nothing is half done.
  public var deadline: MonotonicTime? { startedAt.map { $0 + Self.frameTimeout } }

  /// Bytes came. Call `next` until it returns `nil`, and look at `fault` then.
  public mutating func append(_ chunk: some Collection<UInt8>, now: MonotonicTime) {
    guard fault == nil else { return }
    buffer.removeFirst(start)
    start = 0
    buffer.append(contentsOf: chunk)
    if startedAt == nil, !buffer.isEmpty { startedAt = now }
  }

  /// The next whole frame; `nil` when more bytes are needed, or something was wrong.
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

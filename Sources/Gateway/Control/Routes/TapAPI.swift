// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import JSON
import Messaging
import Sync
import Timing

/// `/v1/packets` and `/v1/frames`: received packets and frames of the link, for connected clients.
///
/// Nothing is stored. A client that reads too slowly gets the number of dropped lines.
public final class TapAPI: FrameTap {
  enum Source { case packets, frames }

  /// Lines that wait for a slow reader.
  private static let maxWaiting = 500
  private static let maxListeners = 4

  private final class Listener {
    let source: Source
    let wake = Waiter()
    var waiting: [[UInt8]] = []
    var lost = 0

    init(_ source: Source) { self.source = source }

    func take() -> [UInt8] {
      defer { (waiting, lost) = ([], 0) }
      let loss = lost == 0 ? [] : ControlAPI.line { $0.field("lost", lost) }
      return waiting.flatMap { $0 } + loss
    }
  }

  private let clock: WallClock
  private var listeners: [Listener] = []
  /// Received packets since the start.
  private(set) var packets: UInt64 = 0
  private(set) var last: (snr: SNR, rssi: Int8)?

  public init(clock: WallClock) { self.clock = clock }

  var count: Int { listeners.count }

  private func isHeard(_ source: Source) -> Bool { listeners.contains { $0.source == source } }

  /// Sends lines until the client disconnects.
  func listen(_ source: Source, _ reply: Reply) async throws -> Answer {
    guard listeners.count(where: { $0.source == source }) < Self.maxListeners else {
      throw Refusal.full("the limit of \(Self.maxListeners) listeners is reached")
    }
    let listener = Listener(source)
    listeners.append(listener)
    defer { listeners.removeAll { $0 === listener } }
    return try await reply.rows(follow: true, wake: listener.wake, headers: Reply.rowHeaders) {
      (listener.take(), true)
    }
  }

  private func tell(_ source: Source, _ line: () -> [UInt8]) {
    guard isHeard(source) else { return }
    let line = line()
    for listener in listeners where listener.source == source {
      if listener.waiting.count < Self.maxWaiting { listener.waiting.append(line) } else { listener.lost += 1 }
      listener.wake.resume()
    }
  }

  /// The radio has received a packet.
  public func heard(_ packet: [UInt8], _ snr: SNR, _ rssi: Int8, _ radio: RadioParameters?) {
    packets &+= 1
    last = (snr, rssi)
    tell(.packets) {
      ControlAPI.line { json in
        json.field("at", clock.milliseconds)
        json.field("raw", Hex.string(packet))
        json.field("snr", snr.decibels)
        json.field("rssi", rssi)
        json.field("frequency_khz", radio?.frequency)
        json.field("bandwidth_hz", radio?.bandwidth)
        json.field("spreading_factor", radio?.spreadingFactor)
      }
    }
  }

  /// A frame went over the link; its secrets are masked.
  public func passed(_ frame: [UInt8], _ direction: FrameDirection) {
    tell(.frames) {
      ControlAPI.line { json in
        json.field("at", clock.milliseconds)
        json.field("dir", direction == .toRadio ? "out" : "in")
        json.field("hex", SecretMask.hex(frame, direction))
      }
    }
  }
}

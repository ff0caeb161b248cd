// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import HTTP
import JSON

/// `/v1/packets` and `/v1/frames`: what the radio hears, and what is said on the link, to whoever listens just then.
///
/// Nothing is kept: who does not listen misses it, and who reads too slowly is told how much was left out.
public final class TapAPI {
  static let paths = ["/v1/packets", "/v1/frames"]
  /// Lines that wait for a slow reader.
  private static let maxWaiting = 500
  private static let maxListeners = 4

  private final class Listener {
    var waiting: [[UInt8]] = []
    var lost = 0
    var stream: RowStream?
  }

  private let clock = WallClock()
  private var listeners: [String: [Listener]] = [:]
  /// Somebody began or ceased to listen to frames.
  public var onListening: (Bool) -> Void = { _ in }

  public init() {}

  /// How many listen.
  var count: Int { listeners.values.reduce(0) { $0 + $1.count } }

  /// False: not one of these.
  func handle(_ request: HTTPRequest, _ responder: HTTPResponder) -> Bool {
    guard request.method == "GET", Self.paths.contains(request.path) else { return false }
    let path = request.path
    guard listeners[path, default: []].count < Self.maxListeners else {
      Answering.refuse(responder, .full("\(Self.maxListeners) listen already"))
      return true
    }
    let listener = Listener()
    let stream = RowStream(responder, follow: true) { (Self.take(from: listener), true) }
    listener.stream = stream
    listeners[path, default: []].append(listener)
    stream.onEnd = { [weak self, weak listener] in
      self?.listeners[path]?.removeAll { $0 === listener }
      // They hold each other until then.
      listener?.stream = nil
      self?.tellListening()
    }
    stream.start()
    tellListening()
    return true
  }

  private func tellListening() { onListening(!(listeners["/v1/frames"] ?? []).isEmpty) }

  private static func take(from listener: Listener) -> [UInt8] {
    defer { (listener.waiting, listener.lost) = ([], 0) }
    let loss = listener.lost == 0 ? [] : ControlAPI.line { $0.field("lost", listener.lost) }
    return listener.waiting.flatMap { $0 } + loss
  }

  private func tell(_ path: String, _ line: () -> [UInt8]) {
    guard let there = listeners[path], !there.isEmpty else { return }
    let line = line()
    for listener in there {
      if listener.waiting.count < Self.maxWaiting { listener.waiting.append(line) } else { listener.lost += 1 }
      listener.stream?.writePages()
    }
  }

  /// A packet was heard.
  public func heard(_ packet: [UInt8], _ snr: SNR, _ rssi: Int8, _ radio: RadioParameters?) {
    tell("/v1/packets") {
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

  /// A frame went over the link; secrets in it are masked.
  public func frame(_ frame: [UInt8], _ direction: FrameDirection) {
    tell("/v1/frames") {
      ControlAPI.line { json in
        json.field("at", clock.milliseconds)
        json.field("dir", direction == .toRadio ? "out" : "in")
        json.field("hex", SecretMask.hex(frame, direction))
      }
    }
  }
}

// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Timing

/// Finds radios without disturbing other devices.
///
/// It listens first: what talks by itself and not in frames (a GPS, a console) is not written to. Then one question of five bytes
/// (DEVICE_QUERY), a second after two seconds of silence, and no more: neither the change of DTR nor the zero bytes that a radio
/// that is known to be one may get. A device that another program has open is not touched. The line is left as it was found.
public final class SerialProbe {
  public enum Result: Equatable, Sendable {
    /// A companion radio: its name, its public key in hex, its model and version.
    case radio(name: String, key: String, model: String)
    /// It sends, and not in frames.
    case other
    case silent
    /// Not to be opened: gone, in use, not permitted.
    case closed(LinkError)
  }

  /// So long it is only listened to; boards that the opening has reset tell of their start meanwhile.
  /// Longer than the second between two lines of a GPS.
  private static let listenPeriod: Duration = .milliseconds(1200)
  /// Who talks for so long and not in frames is something else.
  private static let noiseLimit: Duration = .seconds(3)
  private static let patience: Duration = .seconds(2)
  private static let attempts = 2

  private let device: String
  private let port: SerialPort
  private let loop: EventLoop
  private var decoder = SerialDecoder(.fromRadio)
  private var isTalking = false

  private init(_ device: String, _ port: SerialPort, on loop: EventLoop) {
    self.device = device
    self.port = port
    self.loop = loop
  }

  /// What is behind a device. Closes it on every way out.
  public static func look(
    at device: String, baud: UInt32 = LinkAddress.defaultBaud, on loop: EventLoop
  ) async throws(CancellationError) -> Result {
    do {
      let port = try SerialPort(location: device, baud: baud, dtr: nil)
      defer { port.restore() }
      return try await SerialProbe(device, port, on: loop).identify()
    } catch let error as LinkError {
      return .closed(error)
    } catch let error as SystemError {
      return .closed(.system("\(device): \(error)"))
    } catch {
      throw CancellationError()
    }
  }

  private func identify() async throws -> Result {
    guard try await mayBeAsked() else { return .other }
    let details: DeviceInfo.Details?
    switch try await answer(to: .deviceQuery(clientVersion: 3), { $0.isAboutDevice }) {
    case nil: return isTalking ? .other : .silent
    case .deviceInfo(let info): details = info.details
    // Firmware that does not know the question.
    default: details = nil
    }
    guard case .selfInfo(let own) = try await answer(to: .start(client: "meshpost"), { $0.isAboutNode }) else {
      return isTalking ? .other : .silent
    }
    let model = [details?.model.string, details?.version.string].compactMap { $0 }.joined(separator: " ")
    return .radio(name: own.name.string, key: own.key.hex, model: model)
  }

  /// Listens until it is quiet for a moment, or sends a frame. False: it keeps talking, and not in frames.
  private func mayBeAsked() async throws -> Bool {
    let begun = loop.now
    while true {
      isTalking = false
      if try await nextFrame(before: loop.now + Self.listenPeriod) != nil || !isTalking { return true }
      if loop.now - begun > Self.noiseLimit { return false }
    }
  }

  /// Asks up to twice. `nil`: no such answer came.
  private func answer(to question: Command, _ isAnswer: (Reply) -> Bool) async throws -> Reply? {
    let bytes = SerialFraming.wrap(question.encode(), .toRadio)
    for _ in 0..<Self.attempts {
      _ = Descriptor.write(port.descriptor, bytes[...])  // not taken: silence follows
      let deadline = loop.now + Self.patience
      while let frame = try await nextFrame(before: deadline) {
        if case .reply(let reply) = frame, isAnswer(reply) { return reply }
      }
    }
    return nil
  }

  /// `nil`: none has come before that time. Throws `LinkError` when the device is gone.
  private func nextFrame(before deadline: MonotonicTime) async throws -> RadioFrame? {
    while true {
      while let bytes = decoder.next(now: loop.now) {
        // `try?`: bytes that look like a frame and are none.
        if let frame = try? RadioFrame(decoding: bytes) { return frame }
      }
      // The deadline counts for a device that never stops sending, too.
      guard loop.now < deadline, try await loop.wait(for: .readable, of: port.descriptor, until: deadline) else {
        decoder.timedOut(now: loop.now)
        return nil
      }
      switch Descriptor.read(port.descriptor) {
      case .bytes(let bytes):
        isTalking = true
        decoder.append(bytes, now: loop.now)
      case .wouldBlock: continue
      case .end, .failed: throw LinkError.unplugged(device)
      }
    }
  }
}

extension Reply {
  /// An older firmware answers DEVICE_QUERY with an error.
  fileprivate var isAboutDevice: Bool {
    switch self {
    case .deviceInfo, .error: true
    default: false
    }
  }

  fileprivate var isAboutNode: Bool { if case .selfInfo = self { true } else { false } }
}

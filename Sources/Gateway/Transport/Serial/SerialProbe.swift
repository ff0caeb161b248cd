// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Timing

/// Finds radios without disturbing other devices.
///
/// It listens first: a device that sends data without frames (a GPS, a console) is never written to. Then it sends one
/// query of five bytes (DEVICE_QUERY), and repeats it once after two seconds of silence. Unlike a link to a known
/// radio, it neither changes DTR nor sends zero bytes. Devices that another program has open are left alone. Line
/// settings are restored.
public final class SerialProbe {
  public enum Result: Equatable, Sendable {
    /// A companion radio: name, public key in hex, model and version.
    case radio(name: String, key: String, model: String)
    /// It sends data that is not framed.
    case other
    case silent
    /// It cannot be opened: gone, in use, not permitted.
    case closed(LinkError)
  }

  /// Time to listen first; boards that were reset by opening report their start meanwhile.
  /// Longer than the one-second interval of a GPS.
  private static let listenPeriod: Duration = .milliseconds(1200)
  /// A device that sends unframed data for this time is not a radio.
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

  /// Probes a device. Closes it in every case.
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
    // Older firmware does not know this query.
    default: details = nil
    }
    guard case .selfInfo(let own) = try await answer(to: .start(client: "meshpost"), { $0.isAboutNode }) else {
      return isTalking ? .other : .silent
    }
    let model = [details?.model.string, details?.version.string].compactMap { $0 }.joined(separator: " ")
    return .radio(name: own.name.string, key: own.key.hex, model: model)
  }

  /// Listens until the line is quiet, or a frame arrives. False: it keeps sending unframed data.
  private func mayBeAsked() async throws -> Bool {
    let begun = loop.now
    while true {
      isTalking = false
      if try await nextFrame(before: loop.now + Self.listenPeriod) != nil || !isTalking { return true }
      if loop.now - begun > Self.noiseLimit { return false }
    }
  }

  /// Queries at most twice. `nil`: no valid answer.
  private func answer(to question: Command, _ isAnswer: (Reply) -> Bool) async throws -> Reply? {
    let bytes = SerialFraming.wrap(question.encode(), .toRadio)
    for _ in 0..<Self.attempts {
      _ = Descriptor.write(port.descriptor, bytes[...])  // a failed write shows as silence
      let deadline = loop.now + Self.patience
      while let frame = try await nextFrame(before: deadline) {
        if case .reply(let reply) = frame, isAnswer(reply) { return reply }
      }
    }
    return nil
  }

  /// `nil`: no frame before the deadline. Throws `LinkError` if the device disappears.
  private func nextFrame(before deadline: MonotonicTime) async throws -> RadioFrame? {
    while true {
      while let bytes = decoder.next(now: loop.now) {
        // `try?`: bytes that look like a frame but are not valid.
        if let frame = try? RadioFrame(decoding: bytes) { return frame }
      }
      // The deadline also applies to a device that never stops sending.
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

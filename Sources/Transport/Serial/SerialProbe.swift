// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Timing

/// Asks what is behind a serial device, without confusing what is no radio.
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

  private enum Step { case listening, asking, startingSession(DeviceInfo?) }

  /// So long it is only listened to; boards that the opening has reset tell of their start meanwhile.
  /// Longer than the second between two lines of a GPS.
  private static let listenPeriod: Duration = .milliseconds(1200)
  /// Who talks for so long and not in frames is something else.
  private static let noiseLimit: Duration = .seconds(3)
  private static let patience: Duration = .seconds(2)

  public let device: String
  private let loop: EventLoop
  private var done: ((Result) -> Void)?
  private var port: SerialPort?
  private var decoder = SerialDecoder(.fromRadio)
  private var step: Step = .listening
  private var timer: LoopTimer?
  private var questions = 0
  private var isTalking = false
  private var begun: MonotonicTime

  /// `done` hears once, later. Keep the probe until then.
  public init(
    _ device: String, baud: UInt32 = LinkAddress.defaultBaud, on loop: EventLoop, _ done: @escaping (Result) -> Void
  ) {
    self.device = device
    self.loop = loop
    self.done = done
    begun = loop.now
    do {
      let port = try SerialPort(location: device, baud: baud, dtr: nil)
      self.port = port
      loop.watch(port.descriptor, for: .readable) { [weak self] _ in self?.read() }
      timer = loop.schedule(after: Self.listenPeriod) { [weak self] in self?.expired() }
    } catch {
      loop.later { [weak self] in self?.end(.closed(error)) }
    }
  }

  deinit { close() }

  private func close() {
    timer?.cancel()
    guard let port else { return }
    loop.unwatch(port.descriptor)
    port.restore()
    self.port = nil
  }

  private func end(_ result: Result) {
    close()
    let tell = done
    done = nil
    tell?(result)
  }

  private func read() {
    for _ in 0..<Descriptor.readsPerTurn {
      guard let port else { return }
      switch Descriptor.read(port.descriptor) {
      case .bytes(let bytes): take(bytes)
      case .wouldBlock: return
      case .end, .failed: return end(.closed(.unplugged(device)))
      }
    }
  }

  private func take(_ bytes: [UInt8]) {
    isTalking = true
    decoder.append(bytes, now: loop.now)
    while port != nil, let bytes = decoder.next(now: loop.now) {
      // `try?`: bytes that look like a frame and are none.
      guard let frame = try? RadioFrame(decoding: bytes) else { continue }
      // A radio that tells what it hears: it may be asked at once.
      if case .listening = step { beginAsking() }
      if case .reply(let reply) = frame { heard(reply) }
    }
  }

  private func heard(_ reply: Reply) {
    switch (step, reply) {
    case (.asking, .deviceInfo(let info)): start(info)
    // Firmware that does not know the question.
    case (.asking, .error): start(nil)
    case (.startingSession(let info), .selfInfo(let own)):
      let details = info?.details
      let model = [details?.model.string, details?.version.string].compactMap { $0 }.joined(separator: " ")
      end(.radio(name: own.name.string, key: own.key.hex, model: model))
    default: break
    }
  }

  private func start(_ info: DeviceInfo?) {
    step = .startingSession(info)
    questions = 0
    ask()
  }

  private func ask() {
    questions += 1
    let command: Command
    if case .startingSession = step {
      command = .start(client: "meshpost")
    } else {
      command = .deviceQuery(clientVersion: 3)
    }
    let bytes = SerialFraming.wrap(command.encode(), .toRadio)
    if let port { _ = Descriptor.write(port.descriptor, bytes[...]) }  // not taken: silence follows
    timer?.cancel()
    timer = loop.schedule(after: Self.patience) { [weak self] in self?.expired() }
  }

  private func expired() {
    decoder.timedOut(now: loop.now)
    switch step {
    case .listening:
      guard !isTalking || loop.now - begun > Self.noiseLimit else { return listenOn() }
      if isTalking, loop.now - begun > Self.noiseLimit { return end(.other) }
      beginAsking()
    case .asking, .startingSession:
      if questions < 2 { return ask() }
      end(isTalking ? .other : .silent)
    }
  }

  private func beginAsking() {
    step = .asking
    ask()
  }

  /// Until it has been quiet for a moment.
  private func listenOn() {
    isTalking = false
    timer = loop.schedule(after: Self.listenPeriod) { [weak self] in self?.expired() }
  }
}

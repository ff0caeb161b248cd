// SPDX-License-Identifier: MIT

import EventLoop
import Timing

/// Which of several serial devices is the radio: each is asked, one after the other.
final class SerialSearch {
  /// What was no radio is left alone for so long, or until it is plugged in anew.
  private static let quarantine: Duration = .seconds(600)

  private let loop: EventLoop
  private var probe: SerialProbe?
  private var findings: [String: (result: SerialProbe.Result, at: MonotonicTime)] = [:]

  init(on loop: EventLoop) { self.loop = loop }

  /// `key`: beginning of the wanted radio's public key, in hex. `found` hears later: the device, or why there is none.
  func look(_ devices: [String], key: String?, baud: UInt32, _ found: @escaping (Result<String, LinkError>) -> Void) {
    findings = findings.filter { devices.contains($0.key) }
    let now = loop.now
    let next = devices.first { device in
      guard let finding = findings[device] else { return true }
      return now - finding.at > Self.quarantine
    }
    guard let next else { return loop.later { [weak self] in if let self { found(self.judge(devices, key)) } } }
    probe = SerialProbe(next, baud: baud, on: loop) { [weak self] result in
      guard let self else { return }
      self.findings[next] = (result, self.loop.now)
      self.look(devices, key: key, baud: baud, found)
    }
  }

  /// Nobody waits for it any more.
  func cancel() { probe = nil }

  private func judge(_ devices: [String], _ key: String?) -> Result<String, LinkError> {
    let radios = devices.filter { device in
      guard case .radio(_, let own, _)? = findings[device]?.result else { return false }
      return key.map { own.hasPrefix($0) } ?? true
    }
    // A board with a USB of its own that is alone may need more than a probe does to be woken. A bridge may be anything's.
    let isAlone =
      devices.count == 1 && SerialDevices.isKnownBoard(devices[0]) && findings[devices[0]]?.result == .silent
    // What is a radio, or cannot be opened, is asked again the next time.
    defer { findings = findings.filter { [.other, .silent].contains($0.value.result) } }
    if radios.count == 1 || isAlone { return .success(radios.first ?? devices[0]) }
    let words = devices.map { "\($0): \(findings[$0].map { Self.words($0.result) } ?? "not asked")" }
    return .failure(radios.isEmpty ? .noRadioAmong(words) : .severalRadios(words))
  }

  private static func words(_ result: SerialProbe.Result) -> String {
    switch result {
    case .radio(let name, let key, _): "\(name), key \(key.prefix(12))"
    case .other: "something else, which sends by itself"
    case .silent: "it does not answer"
    case .closed(let error): error.description
    }
  }
}

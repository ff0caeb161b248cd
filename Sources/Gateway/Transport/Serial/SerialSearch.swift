// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import Timing

/// Finds the radio among several serial devices by probing one after the other.
final class SerialSearch {
  /// A device that was not a radio is skipped for this time, or until it is plugged in again.
  private static let quarantine: Duration = .seconds(600)

  private let loop: EventLoop
  private var findings: [String: (result: SerialProbe.Result, at: MonotonicTime, node: UInt64)] = [:]

  init(on loop: EventLoop) { self.loop = loop }

  /// The device of the only radio whose public key begins with `key`, in hex. Throws `LinkError` if there is none.
  func look(_ devices: [String], key: String?, baud: UInt32) async throws -> String {
    findings = findings.filter { devices.contains($0.key) }
    for device in devices where !isQuarantined(device) {
      let node = Self.node(device)
      let result = try await SerialProbe.look(at: device, baud: baud, on: loop)
      findings[device] = (result, loop.now, node)
    }
    return try judge(devices, key)
  }

  private func isQuarantined(_ device: String) -> Bool {
    findings[device].map { loop.now - $0.at <= Self.quarantine && $0.node == Self.node(device) } ?? false
  }

  /// A device that is plugged in again gets the same name, and a new node from the kernel. 0: there is none.
  private static func node(_ device: String) -> UInt64 {
    var status = stat()
    return stat(device, &status) == 0 ? UInt64(status.st_ino) : 0
  }

  private func judge(_ devices: [String], _ key: String?) throws(LinkError) -> String {
    let radios = devices.filter { device in
      guard case .radio(_, let own, _)? = findings[device]?.result else { return false }
      return key.map { own.hasPrefix($0) } ?? true
    }
    // A single board with native USB may need more than a probe to wake it. A UART bridge may belong to any device.
    let isAlone =
      devices.count == 1 && SerialDevices.isKnownBoard(devices[0]) && findings[devices[0]]?.result == .silent
    // Radios, and devices that could not be opened, are probed again next time.
    defer { findings = findings.filter { [.other, .silent].contains($0.value.result) } }
    if radios.count == 1 || isAlone { return radios.first ?? devices[0] }
    let words = devices.map { "\($0): \(findings[$0].map { Self.words($0.result) } ?? "not asked")" }
    throw radios.isEmpty ? .noRadioAmong(words) : .severalRadios(words)
  }

  private static func words(_ result: SerialProbe.Result) -> String {
    switch result {
    case .radio(let name, let key, _): "\(name), key \(key.prefix(12))"
    case .other: "not a radio: sends other data"
    case .silent: "it does not answer"
    case .closed(let error): error.description
    }
  }
}

// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import JSON
import Store
import Transport

/// The data for a bug report as one text: versions, findings, the status, the configuration, the newest log lines. It
/// contains no secrets, keys, texts of messages or positions.
struct TroubleReport {
  private static let maxConfiguration = 64 << 10

  let dependencies: ControlAPI.Dependencies

  func write(_ findings: [Finding]) -> [UInt8] {
    let sections = [
      ("Versions", versions()), ("Doctor", Self.describe(findings)), ("Status", status()),
      ("Configuration", configuration()), ("Log", log()),
    ]
    let text = sections.map { "## \($0.0)\n\n```\n\($0.1)\n```\n" }.joined(separator: "\n")
    return Array("# Meshpost report\n\n\(text)".utf8)
  }

  private func versions() -> String {
    var system = utsname()
    uname(&system)
    func field<Tuple>(_ tuple: Tuple) -> String {
      withUnsafeBytes(of: tuple) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
    }
    let release = MachineDoctor.text("/etc/os-release")?.split(separator: "\n").first { $0.hasPrefix("PRETTY_NAME=") }
    let board = MachineDoctor.text("/proc/device-tree/model").map { $0.filter { $0 != "\0" } }
    let details = dependencies.connection.identity?.device?.details
    let lines = [
      "meshpostd \(dependencies.version)", "\(field(system.sysname)) \(field(system.release)) \(field(system.machine))",
      release.map { String($0.dropFirst(12)) } ?? "", board ?? "",
      details.map { Redaction.line("radio: \($0.model.string) \($0.version.string), \($0.build.string)") }
        ?? "radio: unknown",
    ]
    return lines.filter { !$0.isEmpty }.joined(separator: "\n")
  }

  static func describe(_ findings: [Finding]) -> String {
    findings.map { finding in
      let isHooks = finding.subject.utf8.starts(with: "hook/".utf8) && finding.state != .ok
      let words = isHooks ? "(hidden)" : Redaction.line(finding.message)
      return "\(finding.state.rawValue): \(finding.subject): \(words)"
    }.joined(separator: "\n")
  }

  private func status() -> String {
    do {
      let status = try JSONWriter.object { json throws(StoreError) in
        try StatusReport(dependencies: dependencies).write(to: &json)
      }
      let value = try JSONValue(parsing: status)
      return Redaction.line(Self.withoutPositions(value).text)
    } catch {
      return "\(error)"
    }
  }

  private static func withoutPositions(_ value: JSONValue) -> JSONValue {
    switch value {
    case .object(let fields):
      .object(fields.compactMap { shown($0.0, $0.1, ofHook: value["kind"]?.string == "hook") })
    case .array(let values): .array(values.map(withoutPositions))
    default: value
    }
  }

  private static func shown(_ key: String, _ value: JSONValue, ofHook: Bool) -> (String, JSONValue)? {
    if key == "lat" || key == "lon" { return nil }
    // A program's words may contain anything, including its input.
    if key == "reason", ofHook { return (key, .string("(hidden)")) }
    return (key, withoutPositions(value))
  }

  private func configuration() -> String {
    let file = open(dependencies.configurationFile, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return "\(dependencies.configurationFile): \(String(cString: strerror(errno)))" }
    defer { close(file) }
    var bytes: [UInt8] = []
    while bytes.count < Self.maxConfiguration, case .bytes(let more) = Descriptor.read(file) { bytes += more }
    return ShownConfiguration.text(bytes)
  }

  private func log() -> String {
    dependencies.log.recent.map { line in "\(Self.time(line.at)) \(line.level.word): \(Self.line(line.text))" }
      .joined(separator: "\n")
  }

  /// Removes the output of a hook.
  static func line(_ text: String) -> String {
    guard text.utf8.starts(with: "hook/".utf8) else { return Redaction.line(text) }
    let name = text.unicodeScalars.prefix { $0 != ":" }
    return Redaction.line(String(name)) + ": (hidden)"
  }

  private static func time(_ milliseconds: Int64) -> String {
    var (seconds, parts) = (time_t(milliseconds / 1000), tm())
    gmtime_r(&seconds, &parts)
    var buffer = [CChar](repeating: 0, count: 32)
    strftime(&buffer, buffer.count, "%Y-%m-%d %H:%M:%SZ", &parts)
    return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}

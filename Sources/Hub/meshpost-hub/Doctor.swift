// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import EventLoop
import FoundationEssentials
import Glibc
import HTTP
import Hub
import JSON

struct Doctor: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Find problems of the hub, its database and its machine, and suggest remedies.",
    discussion: "Exits with 1 if a problem is found.")

  @OptionGroup var hub: HubOptions
  @Flag(help: "As JSON.") var json = false

  func run() async throws {
    var found: [HubFinding]
    do {
      let configuration = try HubConfiguration(file: hub.config)
      try configuration.web?.check()
      found = [HubFinding("configuration", .ok, hub.config)]
      found += await HubDoctor(configuration).examine()
      found += [Self.service(configuration), Self.answer(configuration)].compactMap { $0 }
    } catch {
      let lines = "\(error)".split(whereSeparator: \.isNewline)
      found = lines.map {
        HubFinding("configuration", .failed, String($0), "\(hub.config): see the documented example.")
      }
    }
    let isFine = found.allSatisfy { $0.state == .ok }
    if json {
      Console.json(String(decoding: HubFinding.json(found), as: UTF8.self))
    } else {
      for finding in found { Self.show(finding) }
    }
    if !isFine { throw ExitCode(1) }
  }

  private static func show(_ finding: HubFinding) {
    let word: Styled =
      switch finding.state {
      case .ok: "\("OK  ", .good)"
      case .warning: "\("WARN", .warning)"
      case .failed: "\("FAIL", .bad)"
      }
    Console.line("\(word)  \(finding.name): \(finding.message)")
    if let remedy = finding.remedy { Console.line("      \(remedy)") }
  }

  // MARK: The service

  private static let unit = "meshpost-hub.service"
  /// Memory of a link with compression. Source: docs/scaling.md.
  private static let linkBytes: Int64 = 40 << 10

  /// `nil`: systemd does not know the unit.
  private static func service(_ configuration: HubConfiguration) -> HubFinding? {
    let names = ["LoadState", "LimitNOFILE", "MemoryHigh"]
    guard let facts = properties(names), facts["LoadState"] == "loaded" else { return nil }
    let most = Int64(configuration.maxConnections)
    if let files = facts["LimitNOFILE"].flatMap({ Int64($0) }), files < most + 100 {
      return HubFinding(
        "service", .warning, "LimitNOFILE = \(files) of the unit is too small for max_connections = \(most)",
        "`systemctl edit \(unit)`: LimitNOFILE=\(most + 1000)")
    }
    if let memory = facts["MemoryHigh"].flatMap({ Int64($0) }), memory < most * linkBytes + (64 << 20) {
      return HubFinding(
        "service", .warning, "MemoryHigh = \(memory >> 20) MiB of the unit is too small for \(most) links",
        "`systemctl edit \(unit)`: MemoryHigh=\((most * linkBytes + (128 << 20)) >> 20)M, MemoryMax above it")
    }
    return HubFinding("service", .ok, "the unit's limits fit \(most) connections")
  }

  private static func properties(_ names: [String]) -> [String: String]? {
    let arguments = ["/usr/bin/systemctl", "show", unit, "--property=\(names.joined(separator: ","))"]
    // `try?`: a machine without systemd has no unit.
    guard let exit = try? Subprocess.run(arguments, environment: ProcessInfo.processInfo.environment), exit.code == 0
    else { return nil }
    let pairs = String(decoding: exit.output, as: UTF8.self).split(separator: "\n").compactMap {
      line -> (String, String)? in
      let parts = line.split(separator: "=", maxSplits: 1)
      return parts.count == 2 ? (String(parts[0]), String(parts[1])) : nil
    }
    return Dictionary(pairs, uniquingKeysWith: { $1 })
  }

  // MARK: Readiness

  private static func host(of configuration: HubConfiguration) -> String {
    let any = ["0.0.0.0": "127.0.0.1", "::": "::1", "localhost": "127.0.0.1"]
    return any[configuration.host] ?? configuration.host
  }

  /// The answer of the hub on this machine; `nil`: there is none.
  static func response(_ configuration: HubConfiguration, _ target: String, token: String? = nil) -> HTTPResponse? {
    let loop = EventLoop()
    let address = host(of: configuration)
    let client = HTTPClient(.tcp(host: address, port: UInt16(clamping: configuration.port), tls: false), on: loop)
    var headers = HTTPHeaders()
    if let token { headers.add("Authorization", "Bearer \(token)") }
    let request = HTTPRequest("GET", target, headers: headers)
    var response: HTTPResponse?
    // `try?`: no answer is an answer, too.
    loop.run { response = try? await client.send(request, timeout: .seconds(5)) }
    client.close()
    return response
  }

  private static func answer(_ configuration: HubConfiguration) -> HubFinding {
    let place = "\(host(of: configuration)) port \(configuration.port)"
    guard let response = Self.response(configuration, "/readyz") else {
      return HubFinding(
        "hub", .failed, "no answer on \(place)",
        "Check whether it runs: `systemctl status meshpost-hub`, `journalctl -u meshpost-hub`.")
    }
    // `try?`: for any other answer the status is shown.
    let answer = try? JSONValue(parsing: response.body)
    guard response.status == 200 else {
      return .notReady(answer?["reason"]?.string ?? "HTTP \(response.status)", on: place)
    }
    return .ready(
      on: place, isLocked: answer?["database"]?.string == "locked", isHiding: answer?["messages"]?.string == "hidden")
  }
}

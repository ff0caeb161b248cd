// SPDX-License-Identifier: MIT

import ArgumentParser
import ControlShapes
import Glibc
import JSON
import UntrustedText

/// Starts the gateway with the new configuration, and tests the radio and all upstreams.
extension Setup {
  /// In seconds.
  private static let patience = 60
  /// The configuration of the service.
  static let serviceFile = "/etc/meshpost/meshpostd.toml"

  func start() throws {
    let isOfService = config.isExactly(Self.serviceFile)
    guard isOfService, access("/run/systemd/system", F_OK) == 0 else {
      let why = isOfService ? "systemd is not running" : "the service has another configuration, \(Self.serviceFile)"
      return print("\(why): start the gateway with `meshpostd --config \(config)`")
    }
    guard run("/usr/bin/systemctl", ["enable", "--quiet", "meshpost"]) == 0,
      run("/usr/bin/systemctl", ["restart", "meshpost"]) == 0
    else { throw Failure.say("the gateway failed to start: see `journalctl -u meshpost`", EX_UNAVAILABLE) }
    print("the gateway is running, and starts at boot")
    let isRadioWell = waitForRadio()
    let stay = (existing?.upstreams ?? []).filter { old in !upstreams.contains { $0.name.isExactly(old.name) } }
    let all = upstreams + stay.map { Upstream(name: $0.name, url: $0.url) }
    let isUpstreamWell = all.map { isWell($0) }.allSatisfy { $0 }
    print("see its state with `meshpost status`; to use it without sudo: `sudo adduser $USER meshpost`")
    if !isRadioWell || !isUpstreamWell { throw ExitCode(EX_UNAVAILABLE) }
  }

  private func client() -> ControlClient? {
    Connection.here(existing?.string("control", "socket") ?? Connection.systemSocket).map { ControlClient($0) }
  }

  private func waitForRadio() -> Bool {
    let row = Shape.LinkState()
    let end = time(nil) + Self.patience
    var reason = "no status yet"
    while time(nil) < end {
      let radio = client()?.quietly("/v1/status")?[Shape.Status().radio]
      if radio?[row.state] == "up" {
        print("the radio is up: \(Show.clean(radio?[row.identity]?["name"]?.string))")
        return true
      }
      let words = [radio?[row.error] ?? radio?[row.state], radio?[row.remedy]].compactMap { $0 }
      if !words.isEmpty { reason = words.joined(separator: ". ") }
      usleep(300_000)
    }
    print("the radio is not up yet: \(reason)")
    return false
  }

  /// Whether it has accepted events already, or accepts some soon: then it needs no test.
  private func hasTaken(_ upstream: Upstream) -> Bool {
    let row = Shape.Upstream()
    for _ in 0..<20 {
      let found = client()?.quietly("/v1/status")?[Shape.Status().upstreams].first {
        $0[row.name]?.isExactly(upstream.name) == true
      }
      if found?[row.lastSuccess] != nil { return true }
      guard found?[row.state] == "sending" else { return false }
      usleep(500_000)
    }
    return false
  }

  private func isWell(_ upstream: Upstream) -> Bool {
    let target = "/v1/upstreams/test".with(["upstream": upstream.name])
    // `try?`: the error is already printed.
    let isWell = hasTaken(upstream) || client().flatMap { try? $0.post(target, limit: 90) } != nil
    let trouble = "does not answer correctly; the gateway keeps all events and continues trying"
    print("\(upstream.name) \(isWell ? "answers and accepts this gateway" : trouble)")
    return isWell
  }

  private func run(_ program: String, _ arguments: [String]) -> Int32 {
    // `try?`: a program that cannot be started counts as failed.
    (try? ChildProgram([program] + arguments))?.wait() ?? -1
  }
}

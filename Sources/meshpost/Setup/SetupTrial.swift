// SPDX-License-Identifier: MIT

import ArgumentParser
import Escaping
import Glibc
import JSON

/// The gateway is started with what was written, and everything in it is tried.
extension Setup {
  /// In seconds.
  private static let patience = 60

  func start() throws {
    guard run("/usr/bin/meshpostd", ["--check", "--config", config]) == 0 else {
      throw Failure.say("the configuration is not right; see above", EX_CONFIG)
    }
    guard access("/run/systemd/system", F_OK) == 0 else {
      return print("there is no systemd here: start it with `meshpostd --config \(config)`")
    }
    guard run("/usr/bin/systemctl", ["enable", "--quiet", "meshpost"]) == 0,
      run("/usr/bin/systemctl", ["restart", "meshpost"]) == 0
    else { throw Failure.say("the gateway does not start: see `journalctl -u meshpost`", EX_UNAVAILABLE) }
    print("the gateway runs, and starts with the machine")
    let isRadioWell = waitForRadio()
    let stay = (existing?.upstreams ?? []).filter { old in !upstreams.contains { $0.name.isExactly(old.name) } }
    let all = upstreams + stay.map { Upstream(name: $0.name, url: $0.url) }
    let isUpstreamWell = all.map { isWell($0) }.allSatisfy { $0 }
    print("`meshpost status` shows how it is; `sudo adduser $USER meshpost` lets you do so without sudo")
    if !isRadioWell || !isUpstreamWell { throw ExitCode(EX_UNAVAILABLE) }
  }

  private func client() -> ControlClient? {
    Connection.here("/run/meshpost/control.sock").map { ControlClient($0) }
  }

  private func waitForRadio() -> Bool {
    let end = time(nil) + Self.patience
    var words = "nothing is known of it"
    while time(nil) < end {
      let radio = client()?.quietly("/v1/status")?["radio"]
      if radio?["state"]?.string == "up" {
        print("the radio is up: \(Show.clean(radio?["identity"]?["name"]?.string))")
        return true
      }
      words = [radio?["error"]?.string, radio?["remedy"]?.string].compactMap { $0 }.joined(separator: ". ")
      usleep(300_000)
    }
    print("the radio is not there yet: \(words)")
    return false
  }

  /// It has taken something already, or is about to: then there is nothing to try.
  private func hasTaken(_ upstream: Upstream) -> Bool {
    for _ in 0..<20 {
      let found = client()?.quietly("/v1/status")?["upstreams"]?.array?.first {
        $0["name"]?.string?.isExactly(upstream.name) == true
      }
      if found?["last_success"]?.integer != nil { return true }
      guard found?["state"]?.string == "sending" else { return false }
      usleep(500_000)
    }
    return false
  }

  private func isWell(_ upstream: Upstream) -> Bool {
    if hasTaken(upstream) {
      print("\(upstream.name) is there, and takes us")
      return true
    }
    // `try?`: what it is was said already.
    guard let client = client(),
      (try? client.post("/v1/upstreams/test?upstream=\(ControlClient.escape(upstream.name))", limit: 90)) != nil
    else {
      print("\(upstream.name) does not answer as it should; the gateway keeps everything and goes on trying")
      return false
    }
    print("\(upstream.name) is there, and takes us")
    return true
  }

  private func run(_ program: String, _ arguments: [String]) -> Int32 {
    // `try?`: that it did not run is what is told.
    (try? ChildProgram([program] + arguments))?.wait() ?? -1
  }
}

// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import TestSupport
import Testing

extension WholeProgramTests {
  /// Runs the pages in a real browser: `Tests/pages/run`.
  @Suite struct Pages {
    private static func stage(_ arguments: [String]) throws -> Program {
      let run = Checkout.folder.appending(path: "Tests/pages/run").path()
      return try Program(Program.python, [run] + arguments)
    }

    /// `MESHPOST_PAGES`: the names of single tests, for debugging.
    private static var names: [String] {
      ProcessInfo.processInfo.environment["MESHPOST_PAGES"]?.split(separator: " ").map(String.init) ?? []
    }

    private static var mayBeMade: Bool { (try? stage(["--may"]).ended()) == 0 }

    @Test(.enabled("no browser is here (chromium, chromium-driver)") { mayBeMade })
    func `each view works in a browser, for two people, on a phone, and for a person without trust`() async throws {
      let rig = try Rig()
      let air = rig.scratch.location("air")
      #expect(mkfifo(air, 0o600) == 0)
      let radio = Program.programs.appending(path: "meshpost-radio").path()
      // Open for reading and writing, so that it does not end when a writer closes it.
      rig.radio = try Program(
        "/bin/sh",
        [
          "-c", "exec \"$0\" \"$@\" <>\"$AIR\"", radio, "--clock", "now", "--tty",
          "r0=\(rig.scratch.location("radio.tty"))", "--nodes", "6", "--contacts", "80", "--repeaters", "2",
          "--advertise",
          "--keep",
        ], environment: ["AIR": air])
      try rig.radio?.line(with: "ready")
      try rig.startHub()
      try rig.startGateway()
      try rig.waitForSync()
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      try Self.giveAPast(rig)
      try rig.startGateway()
      try rig.waitForSync()
      // It is killed and restarts at the same port.
      let (descriptor, port) = try LoopbackPort.take()
      close(descriptor)
      let host = "\(Program.programs.appending(path: "meshpost").path()) web --socket \(rig.socket) --port \(port)"
      let run = try Self.stage(["--host", host, "--gateway", rig.socket, "--air", air] + Self.names)
      let code = await run.ends()
      print(run.lines.joined(separator: "\n"))
      #expect(code == 0, "\(run.lines.filter { !$0.hasPrefix("fine") }.joined(separator: "\n"))")
    }

    @Test(.enabled("no browser is here (chromium, chromium-driver)") { mayBeMade })
    func `each view of the hub works in a browser, for an administrator and for a viewer`() async throws {
      let rig = try Rig()
      let air = rig.scratch.location("air")
      #expect(mkfifo(air, 0o600) == 0)
      let radio = Program.programs.appending(path: "meshpost-radio").path()
      rig.radio = try Program(
        "/bin/sh",
        [
          "-c", "exec \"$0\" \"$@\" <>\"$AIR\"", radio, "--clock", "now", "--tty",
          "r0=\(rig.scratch.location("radio.tty"))", "--tty", "r2=\(rig.scratch.location("second.tty"))", "--nodes",
          "4",
          "--contacts", "20", "--advertise",
        ], environment: ["AIR": air])
      try rig.radio?.line(with: "ready")
      rig.writeHubConfiguration(
        extra: """
          [web]
          url = "http://127.0.0.1:\(rig.hubPort)"
          pages = "\(PagesHost.pages)"
          push_services = ["127.0.0.1"]
          """)
      try rig.startHub()
      for (person, role, password) in [("ana", "administer", "correct horse"), ("vera", "view", "battery staple")] {
        let added = try Program.own(
          "meshpost-hub", ["people", "add", person, "--role", role, "--config", rig.scratch.location("hub.toml")])
        added.write(password)
        added.endInput()
        #expect(try added.ended() == 0, "\(added.lines)")
      }
      // The hub's rights: also documents and settings.
      let allowed = "allow = [\"send\", \"status\", \"sync\", \"documents\", \"settings\"]"
      rig.writeGatewayConfiguration(extra: allowed)
      try rig.startGateway()
      try rig.waitForSync()
      let second = try Program.own("meshpostd", ["--config", Self.writeSecondGateway(rig)])
      try second.line(with: "synced with the radio")
      let script = Checkout.folder.appending(path: "Tests/pages/hub").path()
      let folder = ProcessInfo.processInfo.environment["MESHPOST_HUB_PICTURES"].map { ["--pictures", $0] } ?? []
      let run = try Program(
        Program.python,
        [script, "--url", "http://127.0.0.1:\(rig.hubPort)", "--air", air, "--token", Rig.token] + folder + Self.names)
      let code = await run.ends()
      print(run.lines.joined(separator: "\n"))
      #expect(code == 0, "\(run.lines.filter { !$0.hasPrefix("fine") }.joined(separator: "\n"))")
      withExtendedLifetime(second) {}
    }

    /// Gives the stopped gateway what a mesh lives through in a year (`Tests/lived-in`).
    private static func giveAPast(_ rig: Rig) throws {
      let script = Checkout.folder.appending(path: "Tests/lived-in/gateway.py").path()
      let sizes = ["--messages", "3000", "--nodes", "200", "--readings", "1000"]
      let run = try Program(Program.python, [script, rig.scratch.location("gw.db")] + sizes)
      #expect(try run.ended() == 0, "\(run.lines)")
    }

    /// A second gateway on the same mesh and hub: a message that both hear is one message there. Returns the location of its configuration.
    private static func writeSecondGateway(_ rig: Rig) -> String {
      rig.scratch.write(
        "second.toml",
        """
        [gateway]
        id = "second"
        [radio]
        link = "serial:\(rig.scratch.location("second.tty"))"
        [store]
        location = "\(rig.scratch.location("second.db"))"
        [control]
        socket = "\(rig.scratch.location("second.ctl"))"
        [[upstream]]
        name = "hub"
        url = "http://127.0.0.1:\(rig.hubPort)"
        token_file = "\(rig.scratch.location("token"))"
        """)
    }
  }
}

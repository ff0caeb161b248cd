// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// The command line over a real `sshd` on loopback.
  @Suite struct Remote {
    /// A server that accepts one key, and the client's files for it.
    final class Server {
      let scratch = Scratch()
      let port: UInt16
      var program: Program
      let user = NSUserName()

      init() throws {
        let (descriptor, port) = try LoopbackPort.take()
        close(descriptor)
        self.port = port
        // The folder in which sshd drops its rights; systemd creates it otherwise.
        mkdir("/run/sshd", 0o755)
        chmod(scratch.folder.path(), 0o755)
        let make = "for key in host user other; do ssh-keygen -q -t ed25519 -N '' -f $key; done; cp user.pub authorized"
        guard try Program("/bin/sh", ["-c", make], folder: scratch.folder).ended() == 0 else {
          throw Program.Waited(description: "ssh-keygen")
        }
        _ = scratch.write(
          "sshd",
          """
          Port \(port)
          ListenAddress 127.0.0.1
          HostKey \(scratch.location("host"))
          AuthorizedKeysFile \(scratch.location("authorized"))
          PidFile none
          UsePAM no
          PasswordAuthentication no
          StrictModes no
          """)
        program = try Program("/usr/sbin/sshd", ["-D", "-e", "-f", scratch.location("sshd")])
        try program.line(with: "listening on")
        let key = try String(contentsOfFile: scratch.location("host.pub"), encoding: .utf8)
        _ = scratch.write("known", "[127.0.0.1]:\(port) \(key)")
        writeClient(key: "user", known: "known")
      }

      func writeClient(key: String, known: String) {
        _ = scratch.write(
          "client-\(key)-\(known)",
          """
          IdentityFile \(scratch.location(key))
          IdentitiesOnly yes
          UserKnownHostsFile \(scratch.location(known))
          StrictHostKeyChecking yes
          BatchMode yes
          """)
      }

      func start(
        _ arguments: [String], of rig: Rig, key: String = "user", known: String = "known", remote: String? = nil
      ) throws -> Program {
        let program = Program.programs.appending(path: "meshpost").path()
        writeClient(key: key, known: known)
        return try Program(
          program, arguments + ["--host", "ssh://\(user)@127.0.0.1:\(port)\(rig.socket)"],
          environment: [
            "MESHPOST_SSH": "ssh -F \(scratch.location("client-\(key)-\(known)"))",
            "MESHPOST_REMOTE": remote ?? program,
            "XDG_RUNTIME_DIR": scratch.location("mux-\(key)-\(known)"),
          ])
      }

      func run(
        _ arguments: [String], of rig: Rig, key: String = "user", known: String = "known", remote: String? = nil
      ) throws -> (code: Int32, lines: [String]) {
        scratch.makeFolder("mux-\(key)-\(known)")
        let program = try start(arguments, of: rig, key: key, known: known, remote: remote)
        return (try program.ended(), program.lines)
      }

      deinit {
        program.kill9()
        // Shared connections outlive the program that opened them.
        _ = try? Program("/usr/bin/pkill", ["-f", scratch.folder.path()]).ended()  // best effort
      }
    }

    private func rig() throws -> Rig {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "5"])
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 hello from the hill")
      try untilTrue("a message") { try rig.meshpost("journal").lines.contains { $0.contains(" message ") } }
      // Its way is the last event. It only informs, so it may wait for a minute; at the end of the program it is told.
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try rig.meshpost("journal").lines.contains { $0.contains(" ways ") })
      return rig
    }

    @Test func `commands print the same over ssh as on the gateway`() throws {
      let rig = try rig()
      let server = try Server()
      for arguments in [
        ["messages"], ["contacts", "--json"], ["channels"], ["search", "hill"], ["sent"], ["radio", "presets"],
        ["export", "contacts", "--format", "csv"], ["documents"], ["journal", "--limit", "3"], ["search", "x*"],
      ] {
        let here = try Program.own("meshpost", arguments + ["--socket", rig.socket])
        let code = try here.ended()
        let there = try server.run(arguments, of: rig)
        #expect(there.code == code && there.lines == here.lines, "\(arguments): \(there)")
      }
      let status = try server.run(["status"], of: rig)
      #expect(status.code == 0 && status.lines.contains { $0.hasPrefix("radio     up") }, "\(status)")
      let sent = try server.run(["send", "r1", "over the wire", "--wait"], of: rig)
      #expect(sent.code == 0 && sent.lines.last?.contains("delivered") == true, "\(sent)")
      let file = server.scratch.location("report.md")
      #expect(try server.run(["report", "--output", file], of: rig).code == 0)
      #expect(FileManager.default.fileExists(atPath: file), "files are written here, not there")
      #expect(try server.run(["doctor"], of: rig).lines.contains { $0.hasPrefix("ok    radio") })
    }

    @Test func `pages work over ssh, and over a new connection when the old one is gone`() throws {
      let rig = try rig()
      let server = try Server()
      server.scratch.makeFolder("mux-user-known")
      let host = try PagesHost(rig) { try server.start($0, of: rig) }
      #expect(host.signIn()?.status == 200)
      for _ in 0..<3 {
        let messages = host.ask("GET", "/v1/messages?direction=both")
        #expect(messages?.status == 200)
        let text = String(decoding: messages?.body ?? [], as: UTF8.self)
        #expect(text.contains("hello from the hill"))
        let live = try host.follow(after: "0") { $0.contains { $0.contains("hello from the hill") } }
        #expect(live.contains { $0.hasPrefix("event: hello") })
        // All `ssh` processes, here and there.
        _ = try Program("/usr/bin/pkill", ["-f", "^(ssh|/usr/bin/ssh) .*\(server.scratch.folder.path())"]).ended()
        try untilTrue("the pages to go through another ssh") { host.ask("GET", "/v1/status")?.status == 200 }
      }
    }

    @Test func `a refused key, an unknown host, a machine without meshpost and a stopped daemon are reported`()
      throws
    {
      let rig = try rig()
      let server = try Server()
      let key = try server.run(["status"], of: rig, key: "other")
      #expect(key.code == EX_NOHOST && key.lines.joined().contains("Permission denied"), "\(key)")
      #expect(key.lines.last?.contains("ssh does not get to 127.0.0.1") == true)
      let host = try server.run(["status"], of: rig, known: "nobody")
      #expect(host.code == EX_NOHOST && host.lines.joined().contains("Host key verification failed"), "\(host)")
      let program = try server.run(["status"], of: rig, remote: "/nowhere/meshpost")
      #expect(
        program.code == EX_UNAVAILABLE && program.lines.last?.contains("there is no meshpost on") == true, "\(program)")
      rig.gateway?.kill9()
      let daemon = try server.run(["status"], of: rig)
      #expect(daemon.code == EX_UNAVAILABLE && daemon.lines.joined().contains("meshpostd is not running"), "\(daemon)")
      let wrong = try Program.own("meshpost", ["status", "--host", "ssh://-oProxyCommand=x"])
      #expect(try wrong.ended() == EX_USAGE, "no host is taken for an option")
    }

    @Test func `a connection that is cut ends its command with an error`() throws {
      let rig = try rig()
      let server = try Server()
      server.scratch.makeFolder("mux-user-known")
      let follow = try server.start(["messages", "--follow"], of: rig)
      try follow.line(with: "hello from the hill")
      // The sessions of the server, not its listening process.
      let sessions = try Program("/usr/bin/pkill", ["-9", "-P", "\(server.program.processID)"])
      #expect(try sessions.ended() == 0)
      #expect(try follow.ended() == EX_NOHOST, "\(follow.lines)")
      #expect(follow.lines.last?.contains("or lost it") == true, "\(follow.lines)")
      #expect(try server.run(["messages"], of: rig).code == 0, "and the next one goes")
    }
  }
}

// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  /// Care of a radio: its settings, and backups of the radio and of the store.
  @Suite struct Care {
    private func rig(_ radio: [String] = []) throws -> Rig {
      let rig = try Rig()
      try rig.startRadio(radio)
      try rig.startGateway()
      try rig.waitForSync()
      return rig
    }

    private func radio(_ rig: Rig) throws -> JSONValue {
      try JSONValue(parsing: try rig.meshpost("radio", "info", "--json").lines.joined())
    }

    @Test func `a radio's backup restores another radio, with the private key under a passphrase`() throws {
      let rig = try rig(["--contacts", "25"])
      for channel in ["#one", "#two"] { #expect(try rig.meshpost("channel", "add", channel).code == 0) }
      #expect(try rig.meshpost("radio", "set", "name=Original", "position=47,8").code == 0)
      let file = rig.scratch.location("radio.backup")
      let backup = try Program.own(
        "meshpost", ["radio", "backup", file, "--private-key", "--socket", rig.socket])
      backup.write("a good passphrase")
      #expect(try backup.ended() == 0, "\(backup.lines)")
      var status = stat()
      stat(file, &status)
      #expect(status.st_mode & 0o777 == 0o600, "secrets of channels are in it")
      let inode = status.st_ino
      #expect(try rig.meshpost("radio", "backup", file).code == EX_CANTCREAT, "an existing file may be the only backup")
      stat(file, &status)
      #expect(status.st_ino == inode && access(file + ".part", F_OK) != 0)
      let key = try rig.status()?["radio"]?["identity"]?["key"]?.string
      try opens(file, key: key ?? "")
      // Another radio, empty.
      rig.killRadio()
      try untilTrue("the radio to be missed") { try rig.status()?["radio"]?["state"]?.string == "down" }
      try rig.startRadio(["--seed", "9"])
      try rig.waitForSync()
      try untilTrue("another radio") { try rig.status()?["radio"]?["identity"]?["key"]?.string != key }
      let wrong = try restore(rig, file, "another passphrase")
      #expect(wrong.code == EX_DATAERR && wrong.lines.joined().contains("passphrase is wrong"), "\(wrong.lines)")
      let restored = try restore(rig, file, "a good passphrase")
      #expect(restored.code == 0, "\(restored.lines)")
      let settings = try radio(rig)["settings"]
      #expect(settings?["name"]?.string == "Original" && settings?["position"]?.string == "47.0,8.0")
      #expect(try rig.status()?["radio"]?["identity"]?["key"]?.string == key, "it is the same node")
      #expect(try rig.meshpost("channels").lines.count == 3)
      let names = try rig.meshpost("contacts", "--on-radio").lines
      #expect(names.count { $0.contains("Node ") } == 25, "\(names.count)")
    }

    @Test func `a backup that goes to standard output has nothing but the backup`() throws {
      let rig = try rig()
      let (program, file) = (Program.programs.appending(path: "meshpost").path(), rig.scratch.location("out"))
      let commands = [("backup", "/dev/stdout"), ("radio backup", "/dev/fd/1"), ("map --json --output", "/dev/stdout")]
      for (command, target) in commands {
        let script = "\"$0\" \(command) \(target) --socket \"$1\" > \"$2\""
        let shell = try Program("/bin/sh", ["-c", script, program, rig.socket, file])
        #expect(try shell.ended() == 0 && !shell.lines.isEmpty, "\(command) \(shell.lines)")
        let bytes = try Data(contentsOf: URL(filePath: file))
        switch command {
        case "backup":
          // A database is whole pages of the size in its header.
          let page = Int(bytes[16]) << 8 | Int(bytes[17])
          #expect(bytes.starts(with: "SQLite format 3".utf8) && bytes.count % page == 0, "\(bytes.count)")
        case "radio backup":
          for line in bytes.split(separator: 10) { _ = try JSONValue(parsing: Array(line)) }
        default: #expect(String(decoding: bytes.suffix(16), as: UTF8.self).contains("</html>"))
        }
      }
    }

    private func restore(_ rig: Rig, _ file: String, _ passphrase: String) throws -> (code: Int32, lines: [String]) {
      let restore = try Program.own(
        "meshpost", ["radio", "restore", file, "--private-key", "--yes", "--socket", rig.socket])
      restore.write(passphrase)
      return (try restore.ended(), restore.lines)
    }

    /// The fields beside the encrypted key are enough for another program to open it; and it is the radio's key.
    private func opens(_ file: String, key: String) throws {
      let script = """
        import hashlib, json, sys
        from Crypto.Cipher import AES
        rows = [json.loads(line) for line in open(sys.argv[1])]
        box = next(r for r in rows if r["kind"] == "private_key")
        hexes = {k: bytes.fromhex(box[k]) for k in ("salt", "nonce", "text")}
        derived = hashlib.scrypt(b"a good passphrase", salt=hexes["salt"], n=box["n"], r=box["r"], p=box["p"], maxmem=1 << 27, dklen=32)
        text, tag = hexes["text"][:-16], hexes["text"][-16:]
        secret = AES.new(derived, AES.MODE_GCM, nonce=hexes["nonce"]).decrypt_and_verify(text, tag)
        assert len(secret) == 64 and rows[0]["key"] == sys.argv[2]
        assert secret.hex() not in open(sys.argv[1]).read()
        assert sum(r["kind"] == "contact" for r in rows) >= 25 and sum(r["kind"] == "channel" for r in rows) == 3
        """
      let program = try Program(Program.python, ["-c", script, file, key])
      #expect(try program.ended() == 0, "\(program.lines)")
    }

    @Test
    func `a backup of the store under traffic is sound, is restored with a new epoch, and upstreams miss nothing`()
      throws
    {
      // A radio with the usual 16 places would drop some messages while the machine is busy.
      let rig = try rig(["--queue", "1000"])
      try rig.startHub()
      rig.radio?.write("inject r0 200 600")
      try untilTrue("some messages") { try rig.status()?["store"]?["messages"]?.integer ?? 0 > 100 }
      let file = rig.scratch.location("gw.backup")
      let (code, lines) = try rig.meshpost("backup", file)
      #expect(code == 0, "\(lines)")
      let check = try Program(
        "/usr/bin/env",
        [
          "python3", "-c",
          "import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); print(d.execute('pragma integrity_check').fetchone()[0], d.execute('select count(*) from messages').fetchone()[0])",
          file,
        ])
      #expect(try check.ended() == 0 && check.lines.first?.hasPrefix("ok ") == true, "\(check.lines)")
      #expect(try rig.meshpost("backup", file).code == EX_CANTCREAT)
      let saved = Int(check.lines.first?.split(separator: " ").last ?? "") ?? 0
      #expect(saved > 100)
      try untilTrue("all of them at the hub") { try rig.hubTexts().count >= 600 }
      let epoch = try rig.status()?["epoch"]?.string
      let running = try Program.own("meshpostd", ["--config", rig.scratch.location("gw.toml"), "--restore", file])
      #expect(try running.ended() == EX_CANTCREAT, "not while the daemon has it: \(running.lines)")
      rig.gateway?.send(SIGTERM)
      #expect(try rig.gateway?.ended() == 0)
      let itself = ["--config", rig.scratch.location("gw.toml"), "--restore", rig.scratch.location("gw.db")]
      let same = try Program.own("meshpostd", itself)
      #expect(try same.ended() == EX_USAGE, "\(same.lines)")
      let damaged = rig.scratch.write("damaged", String(repeating: "x", count: 5000))
      let refused = try Program.own("meshpostd", ["--config", rig.scratch.location("gw.toml"), "--restore", damaged])
      #expect(
        try refused.ended() == EX_CANTCREAT && refused.lines.joined().contains("is not a valid backup"),
        "\(refused.lines)")
      let restored = try Program.own("meshpostd", ["--config", rig.scratch.location("gw.toml"), "--restore", file])
      #expect(try restored.ended() == 0 && restored.lines.joined().contains("was saved as"), "\(restored.lines)")
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try rig.status()?["store"]?["messages"]?.integer == Int64(saved))
      #expect(try rig.status()?["epoch"]?.string != epoch)
      rig.radio?.write("chan r1 0 after the restore")
      try untilTrue("the next message at the hub") { try rig.hubTexts().contains("after the restore") }
      let texts = try rig.hubTexts()
      #expect(
        (1...600).allSatisfy { number in texts.contains { $0 == "message \(number)" || $0 == "direct \(number)" } })
    }
  }
}

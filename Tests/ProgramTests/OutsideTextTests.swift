// SPDX-License-Identifier: MIT

import EventLoop
import Foundation
import Glibc
import HTTP
import JSON
import Sockets
import Synchronization
import TestSupport
import Testing
import UntrustedText

@testable import meshpost
@testable import meshpost_radio

/// Rows, words and keys from outside.
@Suite struct OutsideTextTests {
  @Test func `rows are read whole from any pieces, and an endless row takes no memory`() {
    let text = "one\n\ntwo\r\n" + String(repeating: "x", count: 100)
    for size in [1, 3, 7, 1000] {
      var (reader, rows): (RowReader, [String]) = (RowReader(), [])
      var rest = Array((text + "\n").utf8)[...]
      while !rest.isEmpty {
        reader.take(Array(rest.prefix(size))) { rows.append(String(decoding: $0, as: UTF8.self)) }
        rest = rest.dropFirst(size)
      }
      #expect(rows == text.pieces(at: "\n"))
    }
    var (reader, rows): (RowReader, [Int]) = (RowReader(), [])
    let piece = [UInt8](repeating: 0x78, count: 65536)
    for _ in 0..<RowReader.longest / piece.count + 3 { reader.take(piece) { rows.append($0.count) } }
    #expect(MemoryLayout.size(ofValue: reader) < 100 && Mirror(reflecting: reader).descendant("partial", 0) == nil)
    reader.take(Array("x\nshort\n".utf8)) { rows.append($0.count) }
    #expect(rows == [5])
  }

  @Test func `an accent that was typed separately is deleted with its word`() {
    func typed(_ text: String) -> LineEditor {
      var editor = LineEditor()
      for scalar in text.unicodeScalars { _ = editor.take(.character(Character(scalar))) }
      return editor
    }
    var editor = typed("to e\u{301}\u{301}x")
    _ = editor.take(.control("w"))
    #expect(editor.text == "to " && editor.position == 3)
    editor = typed("to e\u{301}x")
    editor.replaceWord(with: "@[e\u{301}]")
    #expect(Array(editor.text.utf8) == Array("to @[e\u{301}]".utf8) && editor.position == editor.characters.count)
  }

  /// Reads the output of a remote program: it arrives line by line, bounded, and can be cleaned.
  @Test func `hostile output of a remote program is read line by line, within bounds`() throws {
    let said = Mutex<[String]>([])
    let words = try RemoteWords { line in said.withLock { $0.append(line) } }
    let child = dup(words.end)
    words.begin()
    let escape = "\u{1B}]0;owned\u{7}\u{1B}[2J\u{9B}31m\u{202E}gpj.exe\u{2028}\u{301}"
    var bytes = Array("plain\n\(escape)\r\n\n".utf8) + [0xFF, 0xC3, 0x28, 0, 0xED, 0xA0, 0x80, 10]
    bytes += [UInt8](repeating: 0x78, count: RemoteWords.longest * 2 + 5) + Array("\nno end".utf8)
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { write(child, $0.baseAddress, $0.count) }
      guard count > 0 else { break }
      rest = rest.dropFirst(count)
    }
    close(child)
    var patience = Patience()
    while said.withLock({ $0.last }) != "no end", !patience.isOver() { usleep(10_000) }
    words.finish()
    let lines = said.withLock { $0 }
    try #require(lines.count == 8)
    #expect(lines[0] == "plain" && lines[1].unicodeScalars.elementsEqual(escape.unicodeScalars) && lines[2].isEmpty)
    #expect(lines[4...6].map(\.utf8.count) == [RemoteWords.longest, RemoteWords.longest, 5])
    for line in lines {
      #expect(Visible.line(line).unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7F...0x9F).contains($0.value) })
      #expect(!Visible.line(line).unicodeScalars.contains { [0x202E, 0x2028].contains($0.value) })
    }
  }

  @Test(arguments: [
    (1_795_000_000_000, #""2026-11-18T11:06:40.000Z","2026-11-18T11:06:40Z""#),
    (253_402_300_799_999, #""9999-12-31T23:59:59.999Z","9999-12-31T23:59:59Z""#),
    (253_402_300_800_000, #""253402300800000","""#), (-62_167_219_200_001, #""-62167219200001","""#),
    (Int64.min, #""-9223372036854775808","""#), (Int64.max, #""9223372036854775807","""#),
  ]) func `an exported time has the standard's form, or is a number`(_ time: Int64, _ cells: String) {
    let row = JSONValue.object([
      ("at", .integer(time)), ("sender_time", .integer(time / 1000)), ("lat", .integer(1)), ("lon", .integer(2)),
    ])
    #expect(CSVWriter(columns: ["at", "sender_time"]).row(row) == cells + "\r\n")
    #expect(GPXWriter().row(row).contains("<time>") == cells.contains("T"))
  }

  @Test func `endless input leaves turns for the radios`() {
    let loop = EventLoop()
    let endless = open("/dev/zero", O_RDONLY | O_CLOEXEC)
    let input = LineInput(endless, on: loop)
    var turns = 0
    func next() {
      turns += 1
      if turns == 5 { loop.stop() } else { loop.schedule(after: .milliseconds(1), next) }
    }
    loop.schedule(after: .milliseconds(1), next)
    withExtendedLifetime(input) { loop.run() }
    #expect(turns == 5)
    close(endless)
  }

  @Test(arguments: [
    ["meshpost", "radio", "scan", "--seconds", "9223372036854775807"], ["meshpost", "radio", "scan", "--seconds", "0"],
    ["meshpost-radio", "--airtime", "inf"], ["meshpost-radio", "--airtime", "nan"],
    ["meshpost-radio", "--airtime", "1e300"], ["meshpost-radio", "--airtime=-1"],
    ["meshpost-hub", "watch", "--token-file", "/etc/passwd", "--interval", "inf"],
    ["meshpost-hub", "watch", "--token-file", "/etc/passwd", "--interval", "1e300"],
  ])
  func `an impossible number is a usage error, not a crash`(_ line: [String]) throws {
    let program = try Program.own(line[0], Array(line.dropFirst()))
    program.endInput()
    #expect(try program.ended() == EX_USAGE, "\(program.lines)")
  }

  @Test func `a line of a radio's script has any length`() throws {
    let scratch = Scratch()
    let long = "# " + String(repeating: "advert r0 ", count: 300)
    let script = scratch.write("script", "\(long)\nadvert r1\nadvert r0")
    let program = try Program.own("meshpost-radio", ["--script", script])
    program.endInput()
    #expect(try program.ended() == 0, "\(program.lines)")
    let done = try program.lines.compactMap { try JSONValue(parsing: $0)["done"]?.string }
    #expect(done == ["advert r1", "advert r0"], "\(program.lines)")
    #expect(!program.lines.contains { $0.contains("error") }, "\(program.lines)")
    let nowhere = try Program.own("meshpost-radio", ["--script", scratch.location("none")])
    nowhere.endInput()
    #expect(try nowhere.ended() == EX_USAGE)
  }

  @Test func `a server's certificate is checked, however its address is written`() throws {
    let scratch = Scratch()
    let make = """
      openssl req -x509 -newkey rsa:2048 -nodes -keyout server.key -out server.pem -days 2 -subj /CN=localhost \
      -addext subjectAltName=DNS:localhost,IP:127.0.0.1 2>/dev/null
      """
    #expect(try Program("/bin/bash", ["-c", make], folder: scratch.folder).ended() == 0)
    let server = """
      import http.server, ssl
      context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
      context.load_cert_chain("server.pem", "server.key")
      http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
      http.socket = context.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
      print("port", http.server_port, flush=True)
      http.serve_forever()
      """
    let program = try Program("/usr/bin/python3", ["-c", server], folder: scratch.folder)
    let port = UInt16(try program.line(with: "port ").split(separator: " ").last.map(String.init) ?? "") ?? 0
    func ask(_ host: String) throws -> Result<HTTPResponse, HTTPFailure>? {
      let loop = EventLoop()
      let tls = try TLSContext(authorities: scratch.location("server.pem"))
      let client = HTTPClient(.tcp(host: host, port: port, tls: true), tls: tls, on: loop)
      var answer: Result<HTTPResponse, HTTPFailure>?
      _ = loop.begin {
        answer = await Result { () async throws(HTTPFailure) in
          try await client.send(HTTPRequest("GET", "/server.pem"), timeout: .seconds(20))
        }
      }
      #expect(turn(loop) { answer != nil })
      client.close()
      return answer
    }
    for host in ["localhost", "127.0.0.1"] {
      guard case .success(let response)? = try ask(host) else {
        Issue.record("\(host)")
        continue
      }
      #expect(response.status == 200)
    }
    // The resolver treats these as 127.0.0.1; the certificate names none of them.
    for host in ["127.1", "2130706433"] {
      guard case .failure? = try ask(host) else {
        Issue.record("\(host) was not held against the certificate")
        continue
      }
    }
  }
}

extension WholeProgramTests {
  /// Texts from the air, in output for people.
  @Suite struct HostileText {
    @Test func `text from the air is cleaned in the log, whichever program repeats it`() throws {
      let rig = try Rig()
      chmod(rig.scratch.folder.path(), 0o777)
      try rig.startRadio()
      let program = rig.scratch.write(
        "echo.py",
        """
        #!/usr/bin/python3
        import json, sys
        sys.stderr.reconfigure(encoding="utf-8")
        print(json.load(sys.stdin)["body"]["text"], file=sys.stderr)

        """)
      chmod(program, 0o755)
      let user = geteuid() == 0 ? "user = \"nobody\"" : ""
      rig.writeGatewayConfiguration(
        extra: "[[hook]]\nname = \"h\"\nkinds = [\"message\"]\nrun = [\"\(program)\"]\n\(user)")
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("chan r1 0 begin \u{1B}]0;owned\u{7}\u{1B}[2J\u{9B}31m\u{202E}txt.exe\u{301}\u{E0041} end")
      let line = try #require(try rig.gateway?.line(with: "begin "))
      #expect(line.contains("]0;owned") && line.contains(" end"), "\(line)")
      for line in rig.gateway?.lines ?? [] {
        let steering = line.unicodeScalars.filter {
          $0.value < 0x20 || (0x7F...0x9F).contains($0.value) || [0x202E, 0xE0041].contains($0.value)
        }
        #expect(steering.isEmpty, "\(line)")
      }
    }

    @Test func `setup warns of secrets that are sent unencrypted over the network`() throws {
      let scratch = Scratch()
      let token = scratch.write("token", "a-token-that-is-secret\n")
      func setUp(_ url: String, _ more: [String]) throws -> [String] {
        let program = try Program.own(
          "meshpost",
          [
            "setup", "--unattended", "--no-start", "--config", scratch.location("\(UUID()).toml"), "--link",
            "tcp:10.0.0.7",
          ]
            + ["--upstream", url] + more)
        #expect(try program.ended() == 0, "\(program.lines)")
        return program.lines.filter { $0.contains("unencrypted") }
      }
      #expect(try setUp("http://hub.example", ["--token-file", token]).first?.contains("https://") == true)
      #expect(try setUp("mqtt://broker.example", ["--token-file", token]).first?.contains("mqtts://") == true)
      for url in ["https://hub.example", "http://127.0.0.1:8787", "mqtts://broker.example", "mqtt://localhost"] {
        #expect(try setUp(url, ["--token-file", token]).isEmpty, "\(url)")
      }
      #expect(try setUp("http://hub.example", []).isEmpty)
    }

    @Test func `options that every command has are completed before the command`() throws {
      let scratch = Scratch()
      let script = try Program.own("meshpost", ["--generate-completion-script", "bash"])
      #expect(try script.ended() == 0)
      let file = scratch.write("completion", script.lines.joined(separator: "\n"))
      func complete(_ words: String...) throws -> [String] {
        let line = (["meshpost"] + words).joined(separator: " ")
        let program = try Program(
          "/bin/bash",
          [
            "-c",
            """
            source "$1"; COMP_WORDS=(meshpost "${@:2}"); COMP_CWORD=$#; COMP_CWORD=$((COMP_CWORD - 1))
            COMP_LINE="\(line)"; COMP_POINT=${#COMP_LINE}; _meshpost meshpost "${@: -1}" ""; printf '%s\\n' "${COMPREPLY[@]}"
            """, "bash", file,
          ] + words)
        #expect(try program.ended() == 0, "\(program.lines)")
        return program.lines
      }
      #expect(try complete("--ho") == ["--host"])
      #expect(try complete("--host", "ssh://pi@hill", "statu") == ["status"])
      #expect(try complete("--json", "--so").contains("--socket"))
      for shell in ["zsh", "fish"] {
        let other = try Program.own("meshpost", ["--generate-completion-script=\(shell)"])
        #expect(try other.ended() == 0 && other.lines.count > 100)
      }
    }
  }
}

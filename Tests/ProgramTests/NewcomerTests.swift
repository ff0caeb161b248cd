// SPDX-License-Identifier: MIT

import ArgumentParser
import Foundation
import Glibc
import JSON
import TestSupport
import Testing
import UntrustedText

@testable import meshpost

extension WholeProgramTests {
  /// The first attempts of new users, and the answers.
  @Suite struct Newcomers {
    @Test func `a similar channel name is suggested, and a documented template is accepted`() throws {
      let rig = try Rig()
      try rig.startRadio([])
      try rig.startGateway()
      try rig.waitForSync()
      let refused = try rig.meshpost("send", "#Public", "hello")
      #expect(refused.code == EX_NOUSER && refused.lines.joined().contains("write 'Public'"), "\(refused)")
      #expect(try rig.meshpost("send", "#nowhere", "hello").lines.joined().contains("channel add '#nowhere'"))
      let added = try rig.meshpost(
        "upstream", "add", "chat", "http://127.0.0.1:1/x", "--kind", "webhook", "--set",
        #"template={"text": "{{sender_name}}: {{text}}"}"#)
      #expect(added.code == 0, "\(added)")
      let mistyped = try rig.meshpost("staus")
      #expect(
        mistyped.code == EX_USAGE
          && mistyped.lines.joined() == "meshpost: unknown command 'staus'. Did you mean 'status'?", "\(mistyped)")
      let before = try Program.own("meshpost", ["--json", "--socket", rig.socket, "status"])
      #expect(try before.ended() == 0 && before.lines.first?.hasPrefix("{") == true, "\(before.lines)")
      #expect(try rig.meshpost("send", "r1", "hello", "--expires", "2h").code == 0)
    }

    @Test func `a capture without a gateway keeps the file of an earlier one`() throws {
      let scratch = Scratch()
      let file = scratch.write("air.pcap", "an earlier capture")
      let capture = try Program.own("meshpost", ["capture", file, "--socket", scratch.location("nowhere.sock")])
      #expect(try capture.ended() == EX_UNAVAILABLE, "\(capture.lines)")
      #expect(try InputFile.text(file) == "an earlier capture")
    }

    @Test(arguments: [
      ("meshpost", #""$0" send r1 "$(printf 'Gr\374\337e')""#, "argument 3: not UTF-8 at byte 3"),
      ("meshpost", #"printf 'p\374ss\n' | "$0" node login r1"#, "the typed line: not UTF-8 at byte 2"),
      ("meshpost-hub", #""$0" people add "$(printf '\377')""#, "argument 3: not UTF-8 at byte 1"),
    ]) func `what is typed and is not UTF-8 is refused before it is sent or kept`(
      _ program: String, _ script: String, _ words: String
    ) throws {
      let typed = try Program("/bin/sh", ["-c", script, Program.programs.appending(path: program).path()])
      typed.endInput()
      #expect(try typed.ended() == EX_DATAERR && typed.lines.contains { $0.contains(words) }, "\(typed.lines)")
    }

    @Test func `a restore of nothing is refused`() throws {
      let scratch = Scratch()
      let file = scratch.write("hilltop.radio", "")
      for nothing in ["", ","] {
        let restore = ["radio", "restore", file, "--only", nothing, "--socket", scratch.location("nowhere.sock")]
        let program = try Program.own("meshpost", restore)
        program.endInput()
        #expect(try program.ended() == EX_USAGE, "\(program.lines)")
        #expect(program.lines.contains { $0.contains("nothing would be restored") }, "\(program.lines)")
      }
    }

    @Test func `run refuses a wrong server, and uses no configuration of an earlier run`() throws {
      let scratch = Scratch()
      let program = Program.programs.appending(path: "meshpost").path()
      let places = [
        "XDG_STATE_HOME": scratch.location("state"), "XDG_RUNTIME_DIR": scratch.location("run"),
        "XDG_CONFIG_HOME": scratch.location("config"),
      ]
      let link = ["--link", "tcp:127.0.0.1:1"]
      let earlier = try Program(program, ["run"] + link, environment: places)
      let kept = scratch.location("state/meshpost/gateway.db.configuration")
      try untilTrue("the configuration to be kept") { access(kept, F_OK) == 0 }
      earlier.send(SIGINT)
      _ = try earlier.ended()
      for url in ["htp://club.example", "foo"] {
        let wrong = try Program(program, ["run", "--upstream", url] + link, environment: places)
        #expect(try wrong.ended() == EX_USAGE, "\(wrong.lines)")
        #expect(wrong.lines.contains { $0.contains("--upstream \(url): ") }, "\(wrong.lines)")
        #expect(!wrong.lines.contains { $0.contains("last configuration") }, "\(wrong.lines)")
      }
      scratch.makeFolder("config/meshpost")
      let own = scratch.write("config/meshpost/meshpostd.toml", "[radio]\nlink = \"nonsense\"\n")
      let refused = try Program(program, ["run"], environment: places)
      #expect(try refused.ended() == EX_CONFIG, "\(refused.lines)")
      #expect(refused.lines.contains { $0.contains("\(own): line 2: radio.link") }, "\(refused.lines)")
    }

    @Test(arguments: [
      ("meshpost", ["--help"]), ("meshpost", ["generate", "requests"]), ("meshpost-hub", ["--help"]),
      ("meshpost-hub", ["stats", "--help"]), ("meshpost-hub", ["--version"]),
    ]) func `output that cannot be written is an error`(_ program: String, _ arguments: [String]) throws {
      let script = #"exec "$0" "$@" >/dev/full"#
      let printing = try Program(
        "/bin/sh", ["-c", script, Program.programs.appending(path: program).path()] + arguments)
      #expect(try printing.ended() == EX_IOERR, "\(printing.lines)")
      #expect(printing.lines == ["error: standard output: No space left on device"])
    }
  }
}

@Suite struct NamelessNodeTests {
  @Test(arguments: ["", " ", "\u{200B}"]) func `a node with an invisible name is shown by its key`(_ name: String) {
    let (key, text) = (JSONValue.string("a1b2c3d4e5f60718"), JSONValue.string("hi"))
    let invisible = JSONValue.string(name)
    let sent = JSONValue.object([
      ("direction", .string("sent")), ("recipient", key), ("recipient_name", invisible), ("text", text),
    ])
    let received = JSONValue.object([("sender", key), ("sender_name", invisible), ("text", text)])
    let (ours, row, theirs) = ("\(Show.message(sent))", "\(Show.outgoing(sent))", "\(Show.message(received))")
    #expect(ours.contains("me → a1b2c3d4e5f6: hi"), "\(ours)")
    #expect(row.contains(" to a1b2c3d4e5f6: "), "\(row)")
    #expect(theirs.contains(" a1b2c3d4e5f6: hi"), "\(theirs)")
  }
}

@Suite struct SpeakerTests {
  @Test(arguments: [
    "me", "Me", "[Public] Boss", "me → Anna", "Boss: pay", "\"me\"", "me\u{FE0F}", " me", "me  ✓ (sent)",
  ])
  func `a name that reads as ours, or as a channel, is told from it`(_ name: String) {
    func row(_ more: (String, JSONValue)...) -> String {
      let all = [("sender_name", JSONValue.string(name)), ("text", .string("I agree  ✓ (sent)"))] + more
      return "\(Show.message(.object(all)))"
    }
    let shown = Show.clean(name)
    #expect(row().contains(" \"\(shown)\": I agree"), "\(row())")
    #expect(row(("author_name", .string("Anna"))).contains(" [room \(shown)] Anna: I agree"))
    for name in ["Anna", "Mel", "me and you"] { #expect(Show.speaker(name) == name) }
  }
}

@Suite struct StandingWordsTests {
  @Test func `an upstream that gets only the end of a message is not shown as one that is behind`() {
    func row(_ more: (String, JSONValue)...) -> String {
      let upstream = JSONValue.object([("name", .string("hub")), ("state", .string("waiting"))] + more)
      return "\(Show.outgoing(.object([("text", .string("hi")), ("upstreams", .array([upstream]))])))"
    }
    #expect(row().hasSuffix("hi  [hub waiting]"), "\(row())")
    #expect(row(("awaits_end", .bool(true))).hasSuffix("hi  [hub gets it when it has ended]"))
  }
}

@Suite struct CountedTests {
  @Test func `one is not several`() {
    #expect([0, 1, 2].map { Show.counted($0, "hop") } == ["0 hops", "1 hop", "2 hops"])
    #expect([1, 2].map { Show.counted($0, "event", ("was", "were")) } == ["1 event was", "2 events were"])
    func path(_ hops: Int64) -> String {
      Show.path(.object([("path", .string("ab")), ("hops", .integer(hops))]))
    }
    #expect(path(1) == "ab (1 hop)" && path(2) == "ab (2 hops)")
  }
}

@Suite struct InputFileTests {
  @Test func `a file without a name is neither written nor read`() {
    #expect(throws: ExitCode(EX_USAGE)) { _ = try OutputFile("") }
    #expect(throws: ExitCode(EX_USAGE)) { _ = try InputFile.read("") }
  }

  @Test func `a pipe, a device and standard output are written where they are, and without force`() throws {
    let scratch = Scratch()
    let pipe = scratch.location("pipe")
    #expect(mkfifo(pipe, 0o600) == 0)
    // Without a reader, opening would wait for one.
    let reader = open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    defer { close(reader) }
    try OutputFile.write("air", to: pipe, replaces: false)
    var bytes = [UInt8](repeating: 0, count: 8)
    let count = read(reader, &bytes, 8)
    #expect(count == 3 && bytes.starts(with: "air".utf8))
    try OutputFile.write("air", to: "/dev/null", replaces: false)
    let output = try OutputFile("/dev/stdout", replaces: false)
    try output.close()
    for (location, kind) in [(pipe, S_IFIFO), ("/dev/null", S_IFCHR)] {
      var facts = stat()
      let isThere = stat(location, &facts) == 0
      #expect(isThere && facts.st_mode & S_IFMT == kind, "\(location)")
    }
    let file = scratch.write("map.html", "an earlier map")
    #expect(throws: ExitCode(EX_CANTCREAT)) { try OutputFile.write("x", to: file, replaces: false) }
  }

  @Test func `a link stays while the file behind it is replaced, and no folder or socket becomes a file`() throws {
    let scratch = Scratch()
    let file = scratch.write("map.html", "an earlier map")
    let (link, stream, dangling) = (scratch.location("link"), scratch.location("stream"), scratch.location("dangling"))
    #expect(symlink(file, link) == 0 && symlink("/dev/null", stream) == 0)
    #expect(symlink(scratch.location("nothing"), dangling) == 0)
    #expect(throws: ExitCode(EX_CANTCREAT)) { try OutputFile.write("x", to: link, replaces: false) }
    try OutputFile.write("a new map", to: link)
    try OutputFile.write("x", to: stream, replaces: false)
    #expect(throws: ExitCode(EX_IOERR)) { try OutputFile.write("x", to: dangling) }
    scratch.makeFolder("folder")
    let socket = scratch.location("socket")
    #expect(mknod(socket, S_IFSOCK | 0o600, 0) == 0)
    for other in [scratch.location("folder"), socket] {
      #expect(throws: ExitCode(EX_CANTCREAT), "\(other)") { try OutputFile.write("x", to: other) }
    }
    for name in [link, stream, dangling] {
      var facts = stat()
      let isThere = lstat(name, &facts) == 0
      #expect(isThere && facts.st_mode & S_IFMT == S_IFLNK, "\(name)")
    }
    #expect(try InputFile.text(file) == "a new map")
    for name in [file, link, stream, dangling, socket] { #expect(access("\(name).part", F_OK) != 0, "\(name)") }
  }

  @Test func `two that write one file at a time each write all of it, and leave other files alone`() throws {
    let scratch = Scratch()
    let (file, own) = (scratch.location("gw.backup"), scratch.write("gw.backup.part", "of the user"))
    let (one, other) = (try OutputFile(file), try OutputFile(file))
    try one.write("one")
    try other.write("the other")
    try one.close()
    #expect(try InputFile.text(file) == "one")
    try other.close()
    #expect(try InputFile.text(file) == "the other" && InputFile.text(own) == "of the user")
    _ = try OutputFile(file)
    #expect(try FileManager.default.contentsOfDirectory(atPath: scratch.folder.path()).count == 2)
  }

  @Test func `what a killed run has left goes with the next setup, and what others are writing stays`() throws {
    let scratch = Scratch()
    scratch.makeFolder("etc")
    scratch.makeFolder("etc/.meshpost-Ab12Cd")
    for name in [".meshpost-Ab12Cd/hub.token", "hub.token.0a1b2c3d.part", "notes.part", "a.0A1B2C3D.part"] {
      _ = scratch.write("etc/\(name)", "text")
    }
    let busy = try OutputFile(scratch.location("etc/busy"))
    try Folder.temporary(in: scratch.location("etc")) { place in
      Unfinished.removeLeft(in: scratch.location("etc"), partsOf: ["other"])
      #expect(access(scratch.location("etc/hub.token.0a1b2c3d.part"), F_OK) == 0)
      Unfinished.removeLeft(in: scratch.location("etc"))
      #expect(access(place, F_OK) == 0, "it is in use")
    }
    try busy.close()
    let left = try FileManager.default.contentsOfDirectory(atPath: scratch.location("etc")).sorted()
    #expect(left == ["a.0A1B2C3D.part", "busy", "notes.part"])
  }

  @Test func `no file that a command is told to write takes the place of one of a running gateway's`() throws {
    let scratch = Scratch()
    scratch.makeFolder("gw.db.upstreams")
    scratch.makeFolder("gw.db.upstreams/secrets")
    let database = scratch.write("gw.db", "messages")
    let files = ["gw.db", "gw.db-wal", "gw.db.web", "gw.db.upstreams/w2.toml", "gw.db.upstreams/secrets/t", "gw.toml"]
    for name in files.dropFirst() { _ = scratch.write(name, "") }
    _ = scratch.write("gw.toml", "[store]\nlocation = \"\(database)\"\n")
    #expect(symlink(database, scratch.location("link")) == 0)
    let lock = open(scratch.location("gw.db.lock"), O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
    defer { close(lock) }
    #expect(flock(lock, LOCK_EX | LOCK_NB) == 0)
    for name in files + ["gw.db.moving", "gw.db.upstreams/new.toml", "link"] {
      #expect(throws: ExitCode(EX_CANTCREAT), "\(name)") {
        try OutputFile.write("x", to: scratch.location(name), replaces: true)
      }
    }
    #expect(try InputFile.text(database) == "messages")
    for name in ["gw.db.backup", "notes.toml"] { try OutputFile.write("x", to: scratch.location(name), replaces: true) }
    // Nobody loses anything by a file of a gateway that does not run, and setup writes the configuration of one that does.
    try OutputFile.write("", to: scratch.location("gw.toml"))
    #expect(flock(lock, LOCK_UN) == 0)
    try OutputFile.write("x", to: scratch.location("gw.db.web"), replaces: true)
  }

  @Test func `bytes that are not UTF-8 are found where they begin`() {
    // Letters, an own U+FFFD, a foreign encoding, and sequences that end too early.
    let cases: [([UInt8], Int?)] = [
      ([], nil), ([0x41, 0xC3, 0xBC], nil), ([0xEF, 0xBF, 0xBD], nil), ([0xFF], 0), ([0x61, 0x62, 0xE9, 0x20], 2),
      ([0xEF, 0xBF], 0), ([0xC3, 0xBC, 0xEF, 0xBF, 0x41], 2), ([0x41, 0xC3], 1), ([0x41, 0xED, 0xA0, 0x80], 1),
      ([0xEF, 0xBF, 0xBD, 0x80], 3),
    ]
    for (bytes, place) in cases { #expect(BrokenText(bytes, from: "here")?.byte == place, "\(bytes)") }
  }

  @Test func `a file with certificates may have comments in any encoding`() throws {
    let block = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
    let comment: [UInt8] = Array("# Autorit".utf8) + [0xE9, 0x0A]
    let bytes = comment + Array(block.utf8) + comment + Array(block.utf8)
    #expect(try InputFile.pem(bytes, from: "ca.pem") == block + block)
    #expect(try InputFile.pem(Array("# é\n\(block)".utf8), from: "ca.pem") == "# é\n\(block)", "unchanged")
    #expect(throws: BrokenText.self) { _ = try InputFile.pem([0x30, 0x82, 0xFF], from: "ca.der") }
  }
}

@Suite struct TimeArgumentTests {
  @Test(arguments: [
    ("2026-02-28Z", 1_772_236_800), ("2024-02-29Z", 1_709_164_800), ("2026-11-21 14:30Z", 1_795_271_400),
    ("1970-01-01Z", 0),
  ]) func `a date is a day of the calendar`(_ text: String, _ seconds: Int) {
    #expect(TimeArgument(argument: text)?.milliseconds == Int64(seconds) * 1000)
  }

  @Test(arguments: [
    "2026-02-31", "2026-02-29", "2026-04-31 12:00", "2026-02-31Z", "2026-13-01", "2026-00-10", "2026-01-00", "2026-1",
    "２０２６-01-01", "+2026-01-01", "2026-01-01 24:00", "0d", "-1h", "+5h", "1e9d", "１h", "h", "90", "2h\u{301}", "",
  ]) func `what is no day, and no time ago, is refused`(_ text: String) {
    #expect(TimeArgument(argument: text) == nil, "\(text)")
  }

  @Test func `a time ago has the units of a duration, and does not end before 1970`() throws {
    let (hour, day) = (try #require(TimeArgument(argument: "1h")), try #require(TimeArgument(argument: "1d")))
    // The clock goes on between the two.
    #expect((82_000_000...82_805_000).contains(hour.milliseconds - day.milliseconds))
    #expect(TimeArgument(argument: "4000000000w")?.milliseconds == 0)
  }
}

@Suite struct DurationArgumentTests {
  @Test(arguments: [
    ("90s", 90), ("15m", 900), ("2h", 7200), ("3d", 259_200), ("1w", 604_800), ("90", 90), ("0", nil), ("-5m", nil),
    ("", nil), ("h", nil), ("2x", nil), ("٣h", nil), ("2h\u{301}", nil), ("99999999999h", nil), ("1.5h", nil),
    ("+5h", nil), ("1e9d", nil), ("１h", nil), (" 1h", nil), ("0d", nil),
  ]) func `a duration is parsed as people type it`(_ text: String, _ seconds: Int?) {
    #expect(DurationArgument(argument: text)?.seconds == seconds)
  }

  @Test func `the suggested ssh command has the address as it was given`() {
    #expect(SSHAddress("ssh://pi@hilltop:2222")?.plainCommand == "ssh -p 2222 pi@hilltop true")
    #expect(SSHAddress("ssh://hilltop/run/x.sock")?.plainCommand == "ssh hilltop true")
  }
}

@Suite struct HintWordsTests {
  @Test(arguments: ["held_for_recipient", "failed"]) func `the remedy for a post is a login to its room`(
    _ state: String
  ) throws {
    func hint(_ kind: String) throws -> String {
      let message = JSONValue.object([
        ("kind", .string(kind)), ("recipient_name", .string("Lobby")), ("state", .string(state)),
        ("reason", .string("no_acknowledgement")),
      ])
      return try #require(Show.hint(of: message))
    }
    #expect(try hint("room").contains("`meshpost room login Lobby`"))
    #expect(try !hint("room").contains("advert"))
    #expect(try hint("direct").contains("meshpost radio advert --flood"))
  }

  @Test func `a cancelled message that was perhaps transmitted is not told as one that was not`() {
    func hint(after attempts: Int64) -> String? {
      Show.hint(
        of: .object([
          ("kind", .string("direct")), ("state", .string("failed")), ("reason", .string("cancelled")),
          ("attempts", .integer(attempts)),
        ]))
    }
    #expect(hint(after: 0)?.hasPrefix("cancelled: on request. ") == true)
    #expect(hint(after: 1)?.contains("whether it has arrived is not known") == true)
  }
}

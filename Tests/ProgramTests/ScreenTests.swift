// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

/// A program in its own terminal in tmux: reads its screen, and types.
private final class Screen {
  private let socket: String
  private let scratch = Scratch()

  init(_ command: String, columns: Int, rows: Int) throws {
    socket = scratch.location("tmux")
    let said = try tmux([
      "-f", "/dev/null", "new-session", "-d", "-x", "\(columns)", "-y", "\(rows)",
      "\(command); echo ended $?; sleep 60",
    ])
    guard said.code == 0 else { throw Program.Waited(description: "tmux: \(said.lines)") }
  }

  deinit { _ = try? tmux(["kill-server"]) }  // the folder goes, too

  @discardableResult
  private func tmux(_ arguments: [String]) throws -> (code: Int32, lines: [String]) {
    let program = try Program(
      "/usr/bin/tmux", ["-S", socket] + arguments, environment: ["LC_ALL": "C.UTF-8", "TERM": "xterm-256color"])
    return (try program.ended(), program.lines)
  }

  var lines: [String] { get throws { try tmux(["capture-pane", "-p"]).lines } }
  func type(_ keys: String...) throws { try tmux(["send-keys"] + keys) }
  func resize(columns: Int, rows: Int) throws { try tmux(["resize-window", "-x", "\(columns)", "-y", "\(rows)"]) }

  /// Waits until the screen shows it.
  func shows(_ words: String, _ fits: ([String]) -> Bool) throws {
    var last: [String] = []
    do {
      try untilTrue(words) {
        last = try self.lines
        return fits(last)
      }
    } catch {
      throw Program.Waited(description: "\(error); the screen:\n\(last.joined(separator: "\n"))")
    }
  }
}

extension WholeProgramTests {
  @Suite struct Screens {
    private func rig() throws -> Rig {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "4"])
      try rig.startGateway()
      try rig.waitForSync()
      return rig
    }

    private func top(_ rig: Rig) -> String {
      "MESHPOST_SOCKET=\(rig.socket) \(Program.programs.appending(path: "meshpost").path()) top --interval 1"
    }

    @Test func `top shows link, upstreams, messages and nodes live, on 80 by 24 and on a phone`()
      throws
    {
      let rig = try rig()
      let screen = try Screen(top(rig), columns: 80, rows: 24)
      try screen.shows("the gateway") { lines in
        lines.contains { $0.hasPrefix("radio     up") } && lines.contains { $0.hasPrefix("hub       waiting") }
          && lines.contains { $0.hasPrefix("sync      synced") }
      }
      rig.radio?.write("advert r1")
      let text = "Grüezi mitenand, this goes over more than one line 👍 日本"
      rig.radio?.write("chan r1 0 \(text)")
      try screen.shows("the message, wrapped beside the nodes") { lines in
        lines.contains { $0.contains("│") && $0.contains("[Public] r1: Grüezi") }
          && lines.contains { $0.contains("👍 日本") }
          && lines.contains { $0.range(of: "s +r1 ", options: .regularExpression) != nil }
      }
      #expect(try rig.meshpost("send", "r1", "from here", "--wait").code == 0)
      try screen.shows("our message, once, with its outcome") { lines in
        lines.count { $0.contains("me → r1: from here") } == 1 && lines.contains { $0.contains("from here  ✓") }
      }
      #expect(try screen.lines.count <= 24)
      try screen.resize(columns: 40, rows: 20)
      try screen.shows("one column") { lines in
        lines.allSatisfy { !$0.contains("│") && $0.count <= 40 } && lines.contains { $0.contains("r1: Grüezi") }
          && lines.contains { $0.contains("Tab nodes") }
      }
      try screen.type("Tab")
      try screen.shows("the nodes") { lines in
        lines.contains { $0.hasPrefix("heard") } && !lines.contains { $0.contains("Grüezi") }
      }
      rig.killRadio()
      try screen.shows("the link to be down") { lines in lines.contains { $0.hasPrefix("radio     down") } }
      rig.gateway?.kill9()
      try screen.shows("nobody to answer") { lines in lines.contains { $0.hasPrefix("no answer") } }
      try screen.type("q")
      try screen.shows("the end, with the screen given back") { $0.contains { $0.hasPrefix("ended") } }
    }

    @Test
    func `Ctrl-C at a hidden prompt ends the program, is not part of the secret, and restores the terminal`()
      throws
    {
      let scratch = Scratch()
      let program = Program.programs.appending(path: "meshpost").path()
      let command = "\(program) radio backup \(scratch.location("backup")) --private-key --socket /nowhere"
      let screen = try Screen(
        "trap : INT; \(command); echo code $?; stty -a | grep -ow -e -echo -e echo", columns: 80, rows: 24)
      try screen.shows("the question") { $0.contains { $0.hasPrefix("passphrase for the private key:") } }
      try screen.type("-l", "half a secret")
      try screen.type("C-c")
      try screen.shows("its end by the signal") { $0.contains("code 130") && $0.contains("echo") }
      #expect(try !screen.lines.joined().contains("half"), "it is not shown")
      #expect(access(scratch.location("backup"), F_OK) != 0)

      let typed = try Screen(command, columns: 80, rows: 24)
      for question in ["passphrase for", "repeat the passphrase"] {
        try typed.shows(question) { $0.contains { $0.hasPrefix(question) } }
        try typed.type("-l", "a good passphrase")
        try typed.type("Enter")
      }
      try typed.shows("that both were the same") { $0.contains { $0.contains("no control socket") } }
    }

    private func chat(_ rig: Rig, _ to: String) -> String {
      "MESHPOST_SOCKET=\(rig.socket) \(Program.programs.appending(path: "meshpost").path()) chat '\(to)'"
    }

    @Test func `chat shows messages, marks, reactions, names and another conversation, also on a phone`() throws {
      let rig = try rig()
      rig.radio?.write("dm r1 r0 are you there?")
      try untilTrue("a message") { try rig.status()?["store"]?["messages"]?.integer == 1 }
      let screen = try Screen(chat(rig, "r1"), columns: 80, rows: 24)
      try screen.shows("the earlier messages") { lines in
        lines.first?.hasPrefix("r1 (chat") == true && lines.contains { $0.hasSuffix("r1: are you there?") }
      }
      try screen.type("-l", "yes, Grüezi 👍")
      try screen.shows("the typed text") { $0.contains("> yes, Grüezi 👍") }
      try screen.type("Enter")
      try screen.shows("that it is delivered") { $0.contains { $0.contains("me: yes, Grüezi 👍  ✓") } && $0.last == ">" }
      rig.radio?.write("dm r1 r0 fine")
      try screen.shows("the answer as it comes") { $0.contains { $0.hasSuffix("r1: fine") } }
      try screen.type("-l", "/react 🎉")
      try screen.type("Enter")
      try screen.shows("the reaction at its message") { $0.contains { $0.contains("r1: fine") && $0.contains("🎉") } }
      // The radio's table has no reachable node of this name: the message waits, and can be cancelled.
      try screen.type("-l", "/to Node 1")
      try screen.type("Tab")
      try screen.shows("the name completed") { $0.contains { $0.hasPrefix("> /to Node 1 ") } }
      try screen.type("Enter")
      try screen.shows("another conversation") {
        $0.first?.hasPrefix("Node 1 ") == true && $0.contains("no messages yet")
      }
      rig.radio?.write("chan r1 0 elsewhere")
      try screen.shows("that something was said elsewhere") { $0.contains("new message from r1 in Public") }
      try screen.type("-l", "/to Public")
      try screen.type("Enter")
      try screen.shows("the channel") { $0.first == "channel Public" && $0.contains { $0.hasSuffix("r1: elsewhere") } }
      try screen.type("-l", "hi r")
      try screen.type("Tab")
      try screen.shows("a mention") { $0.contains("> hi @[r1]") }
      try screen.type("Enter")
      try screen.type("-l", "and more")
      try screen.shows("that it is sent, and what was typed meanwhile") { lines in
        lines.contains { $0.contains("me: hi @[r1]  ✓") } && lines.last == "> and more"
      }
      try screen.type("C-u")
      try screen.resize(columns: 40, rows: 20)
      let long = String(repeating: "word ", count: 20)
      try screen.type("-l", long)
      try screen.shows("the end of the typed text") { lines in
        lines.allSatisfy { $0.count <= 40 } && lines.last?.hasPrefix("> ") == true
          && lines.last?.hasSuffix("word") == true
      }
      try screen.type("C-u")
      try screen.type("-l", String(repeating: "x", count: 200))
      try screen.type("Enter")
      try screen.shows("why it is not sent, and the text is kept") { lines in
        lines.contains { $0.contains("too long") } && lines.last?.hasSuffix("xxx") == true
      }
      try screen.type("C-c")
      try screen.shows("the end") { $0.contains { $0.hasPrefix("ended 0") } }
    }

    @Test func `a terminal that answers no query is drawn again soon`() throws {
      let rig = try rig()
      let script = """
        import fcntl, os, pty, struct, sys, termios, time
        process, terminal = pty.fork()
        if process == 0: os.execvp("/bin/sh", ["sh", "-c", sys.argv[1]])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        said, begun = b"", None
        while True:
            try: data = os.read(terminal, 4096)
            except OSError: break
            if not data: break
            said += data
            if begun is None and bytes([27]) + b"[5n" in said:
                begun = time.monotonic()
                print("asked", flush=True)
            if begun is not None and b"to be seen" in said:
                # A terminal that answers is waited for up to 15 seconds.
                print("seen", "soon" if time.monotonic() - begun < 14 else "late", flush=True)
                os.write(terminal, b"q")
                break
        """
      let reader = try Program("/usr/bin/env", ["TERM=xterm", "python3", "-c", script, top(rig)])
      try reader.line(with: "asked")
      rig.radio?.write("chan r1 0 to be seen")
      #expect(try reader.line(with: "seen ") == "seen soon")
    }

    @Test func `top over a line of 9,600 baud shows new messages next, without a queue of old pictures`()
      throws
    {
      let rig = try rig()
      // Each picture has a clock. A queue of pictures would show in the bytes that came since the time on the clock of the one that is seen:
      // a busy machine makes pictures later, but not older.
      let script = """
        import fcntl, os, pty, re, select, struct, sys, termios, time
        process, terminal = pty.fork()
        if process == 0: os.execvp("/bin/sh", ["sh", "-c", sys.argv[1]])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        said, count, due, shown, seen, counts = b"", 0, time.monotonic(), False, False, []
        while True:
            if select.select([terminal], [], [], 1)[0]:
                counts.append((time.time(), count))
                try: data = os.read(terminal, 96)
                except OSError: break
                if not data: break
                # A terminal answers when it gets to the question.
                for _ in range((said[-3:] + data).count(b"\\x1b[5n")): os.write(terminal, b"\\x1b[0n")
                said, count = (said + data)[-8192:], count + len(data)
                # 960 bytes a second, and not more.
                due = max(due, time.monotonic() - 0.1) + len(data) / 960
                time.sleep(max(0, due - time.monotonic()))
            if b"radio     " in said and not shown:
                shown = True
                print("shown", flush=True)
            if b"number 40" in said and not seen:
                seen = True
                clock = re.findall(rb" (\\d\\d):(\\d\\d):(\\d\\d)", said[:said.index(b"number 40")])[-1]
                now = time.localtime()
                age = (now.tm_hour * 3600 + now.tm_min * 60 + now.tm_sec - sum(int(one) * by for one, by in zip(clock, (3600, 60, 1)))) % 86400
                drawn = int(time.time()) - age
                print("seen", count - max((before for at, before in counts if at <= drawn), default=0), flush=True)
                os.write(terminal, b"q")
        print("ended", flush=True)
        """
      let reader = try Program("/usr/bin/env", ["TERM=xterm", "python3", "-c", script, top(rig)])
      try reader.line(with: "shown")
      for number in 1...40 { rig.radio?.write("chan r1 0 number \(number)") }
      let words = try reader.line(with: "seen").split(separator: " ")
      // A second of the clock, and the picture with the message: some 1 KB and 2 KB.
      let bytes = try #require(words.last.flatMap { Int($0) })
      #expect(bytes < 8000, "bytes that came since the picture with the message was made")
      try reader.line(with: "ended")
    }
  }
}

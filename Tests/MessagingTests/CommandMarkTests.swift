// SPDX-License-Identifier: MIT

import Companion
import Testing

@testable import Messaging

extension CommandMark {
  init() { self.init(number: .random(in: 0..<1000), to: KeyPrefix(value: 0x0102_0304_0506), by: nil) }
}

@Suite struct CommandMarkTests {
  /// As `handleCommand` of the firmware: `strlen(command) > 4 && command[2] == '|'`, after its blanks.
  private func answer(_ command: Text) -> (mark: String, rest: String) {
    let command = command.string.drop { $0 == " " }
    guard command.utf8.count > 4, command.dropFirst(2).first == "|" else { return ("", String(command)) }
    return (String(command.prefix(3)), String(command.dropFirst(3)))
  }

  @Test func `a node reads the command behind its mark, and its reply has the mark`() {
    for (command, read) in [
      ("get tx", "get tx"), ("  ver", "ver"), ("a", "a "), (" ", "  "), ("ab|get tx", "ab|get tx"),
    ] {
      let mark = CommandMark()
      let (sent, rest) = answer(mark.marked(Text(command)))
      #expect(sent.utf8.count == CommandMark.length && rest == read, "\(command)")
      #expect(mark.reply(in: Text(sent + "> 22")) == "> 22" && mark.reply(in: Text(sent)) == "")
    }
    #expect(CommandMark().marked(Text(String(repeating: "x", count: 156))).bytes.count <= 160)
  }

  @Test func `a reply without the mark, or with that of another command, is no reply`() {
    let mark = CommandMark()
    for text in ["> 22", "password now: x", "__|> 22", "", "a"] {
      #expect(mark.reply(in: Text(text)) == nil, "\(text)")
    }
  }

  @Test func `marks are many, and the next run knows them, but not those of other nodes and programs`() {
    let (node, other, own) = (KeyPrefix(value: 1), KeyPrefix(value: 2), KeyPrefix(value: 3))
    let all = (0..<62).map { CommandMark(number: $0, to: node, by: own).marked("ver") }
    #expect(Set(all.map(\.string)).count == 62)
    #expect(all.allSatisfy { CommandMark.isOwn($0, of: node, to: own) })
    #expect(all.count { CommandMark.isOwn($0, of: other, to: own) } < 10)
    #expect(all.count { CommandMark.isOwn($0, of: node, to: other) } < 10)
    for text in ["", "a", "> 22", "|||", "password now: x"] {
      #expect(!CommandMark.isOwn(Text(text), of: node, to: own), "\(text)")
    }
  }
}

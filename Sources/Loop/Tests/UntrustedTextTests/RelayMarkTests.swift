// SPDX-License-Identifier: MIT

import Testing
import UntrustedText

@Suite struct RelayMarkTests {
  @Test(arguments: [
    "⇄zoe@A: hi", "⇄\u{301}zoe@A: hi", " ⇄zoe@A: hi", "\u{200B}⇄zoe", "\u{FEFF} ⇄", "y: ⇄zoe@A: hi",
    "y: z:\u{200B} ⇄zoe",
    "heard ⇄zoe@A: hi", "@[y] \u{1F600}⇄a@b: c@hill-7.x_: hi",
  ])
  func `a text that another gateway has relayed is recognised by its mark, wherever the mark is`(_ text: String) {
    #expect(RelayMark.isIn(text) && RelayMark.isIn(text, from: "x"))
  }

  @Test func `texts without a relay mark are passed on, also those with an arrow or an address`() {
    for text in ["hi", "A ⇄ B", "the line Bern⇄Thun is open: go", "mail me@home: now", "a⇄b@ : c", ""] {
      #expect(!RelayMark.isIn(text, from: "zoe"), "\(text)")
    }
    #expect(RelayMark.isIn("hi", from: "⇄zoe@A") && RelayMark.isIn("hi", from: "y: ⇄zoe"))
  }

  @Test func `a relayed text is one visible line, from a gateway with a valid id`() {
    let text = RelayMark.text(sender: "s\n\u{1B}", gateway: "hill-1", text: "\u{202E}a\0b")
    #expect(text == "⇄s \u{FFFD}@hill-1: \u{FFFD}a\u{FFFD}b")
    for id in ["", "g\n\u{1B}", "a b", "é", String(repeating: "a", count: 65)] {
      #expect(RelayMark.text(sender: "s", gateway: id, text: "t") == nil, "\(id)")
    }
    #expect(RelayMark.splits(name: "a: b".utf8) && !RelayMark.splits(name: "a:b :c:".utf8))
  }
}

// SPDX-License-Identifier: MIT

import Testing
import UntrustedText

@Suite struct VisibleNameTests {
  @Test(arguments: ["", " ", "\u{200B}", "\u{200D}\u{FE0F}", "\u{3164}", "\u{2800}\u{A0}", "\u{FFFD}", "\u{202E}\t"])
  func `a name without visible characters is recognised`(_ name: String) { #expect(Visible.gist(name).isEmpty) }

  @Test func `a text of which nothing is seen is blank, and a text of replaced bytes is not`() {
    for text in ["", " \n", "\u{200B}", "\u{2060}\u{FEFF}", "\u{AD}", "\u{2800}", "\u{E0020}", "\u{FE0F}"] {
      #expect(Visible.isBlank(text), "\(text.debugDescription)")
    }
    for text in ["a", "\u{200B}.", "👍", "\u{FFFD}"] { #expect(!Visible.isBlank(text), "\(text.debugDescription)") }
  }

  @Test func `a name for a radio or a channel is one visible line`() {
    func isChannel(_ name: String) -> Bool { GivenName.channelFault(Array(name.utf8)) == nil }
    func isRadio(_ name: String) -> Bool { GivenName.radioFault(Array(name.utf8)) == nil }
    for name in ["a", "Hügel 3", "👩\u{200D}🚒", "A ⇄ B", "a:b", String(repeating: "x", count: 31)] {
      #expect(isChannel(name) && isRadio(name), "\(name.debugDescription)")
    }
    for name in [
      "", " ", "\u{200B}", "a\nb", "\u{1B}[2J", "a\u{202E}b", "a\u{0}", "a\u{200B}", String(repeating: "x", count: 32),
    ] {
      #expect(!isChannel(name) && !isRadio(name), "\(name.debugDescription)")
    }
    for name in ["#", "# ", "#\u{3164}", "#\u{FE0F}"] { #expect(!isChannel(name), "\(name.debugDescription)") }
    for name in ["⇄x", " ⇄x", "a⇄b@c", "a: b", "a:⇄"] {
      #expect(isChannel(name) && !isRadio(name), "\(name.debugDescription)")
    }
  }

  @Test func `names that look alike have the same gist`() {
    for name in ["ridge 2", "Ridge\u{200B} 2", " RIDGE2", "Ri\u{2060}dge\u{3164}2"] {
      #expect(Visible.gist(name) == Visible.gist("Ridge 2"), "\(name)")
    }
    #expect(Visible.gist("Ridge 2") != Visible.gist("Ridge 3") && Visible.gist("👩‍🔧") != "")
  }
}

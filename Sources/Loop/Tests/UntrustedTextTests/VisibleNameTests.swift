// SPDX-License-Identifier: MIT

import Testing
import UntrustedText

@Suite struct VisibleNameTests {
  @Test(arguments: ["", " ", "\u{200B}", "\u{200D}\u{FE0F}", "\u{3164}", "\u{2800}\u{A0}", "\u{FFFD}", "\u{202E}\t"])
  func `a name without visible characters is recognised`(_ name: String) { #expect(Visible.gist(name).isEmpty) }

  @Test func `names that look alike have the same gist`() {
    for name in ["ridge 2", "Ridge\u{200B} 2", " RIDGE2", "Ri\u{2060}dge\u{3164}2"] {
      #expect(Visible.gist(name) == Visible.gist("Ridge 2"), "\(name)")
    }
    #expect(Visible.gist("Ridge 2") != Visible.gist("Ridge 3") && Visible.gist("👩‍🔧") != "")
  }
}

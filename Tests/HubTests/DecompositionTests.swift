// SPDX-License-Identifier: MIT

import Foundation
import Testing

@testable import Hub

@Suite struct DecompositionTests {
  @Test func `compatibility decomposition equals Foundation's`() {
    var compared = 0
    for number in UInt32(0)...0x10FFFF {
      guard let scalar = Unicode.Scalar(number), let age = scalar.properties.age, age.major <= 14 else { continue }
      let expected = Array(String(scalar).decomposedStringWithCompatibilityMapping.unicodeScalars)
      #expect(Decomposition.compatible([scalar]) == expected, "\(String(number, radix: 16))")
      compared += 1
    }
    #expect(compared > 140_000)
  }

  @Test func `combining marks are ordered, however they were written`() {
    for text in [
      "q\u{307}\u{323}", "\u{1E0B}\u{323}", "a\u{315}\u{300}\u{5AE}\u{300}b", "한국어", "ﬁx①Ⅷ", "\u{301}\u{323}", "",
    ] {
      let expected = Array(text.decomposedStringWithCompatibilityMapping.unicodeScalars)
      #expect(Decomposition.compatible(text.unicodeScalars) == expected, "\(text)")
    }
  }
}

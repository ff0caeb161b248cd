// SPDX-License-Identifier: MIT

import Glibc
import Testing

@testable import EventLoop

@Suite struct SpareMemoryTests {
  @Test func `a page fault reads at most one piece of the program's code, and one page of its data`() throws {
    SpareMemory.readInPieces()
    SpareMemory.giveBack()
    let file = try #require(fopen("/proc/self/smaps", "r"))
    defer { fclose(file) }
    var line = [CChar](repeating: 0, count: 4096)
    var mapping = ""
    var count = 0
    while fgets(&line, Int32(line.count), file) != nil {
      let text = String(decoding: line.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
      let fields = text.split(whereSeparator: \.isWhitespace)
      if fields.count >= 5, fields[0].utf8.contains(UInt8(ascii: "-")) {
        // A library that is loaded in any case, and that no other test loads meanwhile.
        mapping = fields.count >= 6 && fields[5].hasSuffix("/libc.so.6") ? text : ""
        let ends = fields[0].split(separator: "-").compactMap { UInt($0, radix: 16) }
        try #require(ends.count == 2)
        guard !mapping.isEmpty, fields[1] == "r-xp" else { continue }
        count += 1
        #expect(ends[1] - ends[0] <= SpareMemory.piece, "\(text)")
      } else if !mapping.isEmpty, fields.first == "VmFlags:" {
        #expect(fields.contains("rr"), "\(mapping)")
      }
    }
    #expect(count > 1)
  }
}

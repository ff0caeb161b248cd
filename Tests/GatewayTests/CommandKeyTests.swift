// SPDX-License-Identifier: MIT

import Testing

@testable import Gateway

@Suite struct CommandKeyTests {
  @Test func `the key of a command's message has room for each permitted id`() {
    func key(_ id: String, _ text: String = "hello") -> String {
      RemoteCommands.key(ofCommand: id, "Birch", text)
    }
    func id(_ count: Int) -> String { String(repeating: "i", count: count) }
    for count in [1, 39, 40, 48] {
      #expect(key(id(count)).utf8.count <= 64 && key(id(count)) == key(id(count)) && key(id(count)) != key("x"))
      #expect(key(id(count)) != key(id(count), "hello!"))
    }
    #expect(key("a1").hasPrefix("command/a1/") && key(id(39)).contains(id(39)))
    #expect(key(id(40)) != key(id(41)))
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import Testing

@Suite struct HostNameTests {
  @Test(arguments: [
    // RFC 3492 § 7.1, WHATWG URL, and existing top-level domains.
    ("bücher.example", "xn--bcher-kva.example"), ("BÜCHER.example", "xn--bcher-kva.example"),
    // Composed or not.
    ("bu\u{308}cher.example", "xn--bcher-kva.example"), ("faß.de", "xn--fa-hia.de"),
    ("他们为什么不说中文.cn", "xn--ihqwcrb4cv8a8dqg056pqjye.cn"), ("例え。テスト", "xn--r8jz45g.xn--zckzah"),
  ])
  func `a name beyond ASCII becomes its A-labels`(_ name: String, _ ascii: String) throws {
    #expect(try HostName.ascii(name) == ascii)
  }

  @Test(arguments: ["Hub.Example.org", "127.0.0.1", "::1", "fe80::1%eth0", "a_b.example", "", "xn--bcher-kva.example"])
  func `a name in ASCII stays as it is`(_ name: String) throws {
    #expect(try HostName.ascii(name) == name)
  }

  @Test(arguments: [
    "b\u{FFFF}cher.example", "☕.example", "ü\u{0}", String(repeating: "ü", count: 300), "\u{301}a.example",
  ])
  func `a text that is no host name is refused with a reason`(_ name: String) {
    #expect(throws: HostName.Failure.self) { try HostName.ascii(name) }
  }
}

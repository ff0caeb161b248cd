// SPDX-License-Identifier: MIT

import Testing

@testable import ProxyTunnel

@Suite struct TunnelSettingsTests {
  @Test(arguments: [
    ("http://proxy.example:3128", "http://proxy.example:3128"), ("proxy.example:3128", "http://proxy.example:3128"),
    ("proxy.example", "http://proxy.example:1080"), ("SOCKS5H://p:1/", "socks5h://p:1"),
    ("socks4://me@10.0.0.1:9050", "socks4://10.0.0.1:9050"), ("socks4a://[fd00::1]:9050", "socks4a://[fd00::1]:9050"),
    ("socks5://me:secret@[::1]", "socks5://[::1]:1080"), ("http://a:b@c:d@e:5", "http://e:5"),
    ("http://bücher.example:8080", "http://bücher.example:8080"),
  ])
  func `a proxy is parsed, and printed without user and password`(_ text: String, _ shown: String) throws {
    let proxy = try TunnelSettings(parsing: text)
    #expect(proxy.shown == shown)
  }

  @Test func `the user and the password are decoded for the proxy`() throws {
    let proxy = try TunnelSettings(parsing: "socks5h://m%40e:p%3A%2f%25:+%C3%BC@h:1")
    #expect(proxy.user == "m@e")
    #expect(proxy.password == "p:/%:+ü")
    #expect(try TunnelSettings(parsing: "http://me@h:1").password == nil)
    #expect(try TunnelSettings(parsing: "http://me:@h:1").password == "")
  }

  @Test(arguments: [
    ("", "http://HOST:PORT"), ("https://p:1", "by TLS"), ("socks://p:1", "socks5h://"), ("ftp://p:1", "socks5h://"),
    ("http://", "http://HOST:PORT"), ("http://p:0", "http://HOST:PORT"), ("http://p:65536", "http://HOST:PORT"),
    ("http://p:+1", "http://HOST:PORT"), ("http://p:1/path", "http://HOST:PORT"), ("http://p:1?x", "http://HOST:PORT"),
    ("http://p q:1", "http://HOST:PORT"), ("http://p\n:1", "http://HOST:PORT"), ("::1", "http://HOST:PORT"),
    ("http://[::1:5", "http://HOST:PORT"), ("http://[host]:5", "http://HOST:PORT"),
    ("http://a]b:5", "http://HOST:PORT"),
    ("http://me:hush/hush@p:1", "%2F"), ("http://me:%zz@p:1", "%25"), ("http://me:%2@p:1", "%25"),
    ("http://me:%0d%0aX@p:1", "control characters"), ("http://me:%00@p:1", "control characters"),
    ("http://me:%ff@p:1", "control characters"), ("http://:hush@p:1", "user is missing"),
    ("socks4://me:hush@p:1", "SOCKS 4"), ("http://\(String(repeating: "u", count: 256)):x@p:1", "255"),
  ])
  func `an invalid proxy is refused with the allowed forms, and its text is not printed`(
    _ text: String, _ words: String
  ) {
    let error = #expect(throws: TunnelSettings.Invalid.self) { try TunnelSettings(parsing: text) }
    #expect(error?.description.contains(words) == true, "\(error?.description ?? "")")
    #expect(error?.description.contains("hush") == false)
  }

  @Test func `no form of printing a proxy contains its password`() throws {
    let proxy = try TunnelSettings(parsing: "http://somebody:hush@p:1")
    var dumped = ""
    dump((proxy, ProxyChoice.through(proxy)), to: &dumped)
    for text in ["\(proxy)", String(reflecting: proxy), dumped, "\([proxy])", "\(ProxyChoice.through(proxy))"] {
      #expect(!text.contains("hush") && !text.contains("somebody"), "\(text)")
    }
    #expect(proxy != (try TunnelSettings(parsing: "http://somebody:other@p:1")))
  }

  // MARK: The environment

  private func proxy(_ variables: [String: String], _ scheme: String, _ host: String = "hub.example") throws -> String?
  {
    try TunnelSettings.of(environment: ProxyEnvironment { variables[$0] }, scheme: scheme, host: host)?.shown
  }

  @Test func `the scheme selects the environment variable`() throws {
    let all = ["http_proxy": "h:1", "https_proxy": "s:1", "all_proxy": "socks5h://a:1"]
    for (scheme, shown) in [
      ("http", "http://h:1"), ("ws", "http://h:1"), ("https", "http://s:1"), ("wss", "http://s:1"),
      ("mqtt", "socks5h://a:1"), ("mqtts", "socks5h://a:1"),
    ] { #expect(try proxy(all, scheme) == shown, "\(scheme)") }
    #expect(try proxy(["all_proxy": "a:1"], "https") == "http://a:1")
    #expect(try proxy(["http_proxy": "a:1"], "https") == nil)
    #expect(try proxy(["http_proxy": "a:1", "https_proxy": "a:1"], "mqtt") == nil)
    #expect(try proxy([:], "http") == nil)
  }

  @Test func `lower-case variables take precedence over upper-case ones, and empty variables do not count`() throws {
    #expect(try proxy(["HTTP_PROXY": "big:1"], "http") == "http://big:1")
    #expect(try proxy(["HTTP_PROXY": "big:1", "http_proxy": "small:1"], "http") == "http://small:1")
    #expect(try proxy(["HTTP_PROXY": "big:1", "http_proxy": ""], "http") == "http://big:1")
    #expect(try proxy(["http_proxy": "", "ALL_PROXY": "all:1"], "http") == "http://all:1")
  }

  @Test func `an invalid variable is named in an error, not skipped`() {
    let error = #expect(throws: TunnelSettings.Invalid.self) {
      try proxy(["HTTPS_PROXY": "https://me:hush@p:1"], "https")
    }
    #expect(error?.description.contains("HTTPS_PROXY in the environment") == true)
    #expect(error?.description.contains("hush") == false)
  }

  @Test(arguments: [
    ("*", "hub.example", true), ("hub.example", "hub.example", true), ("example", "hub.example", true),
    (".example", "hub.example", true), (".example", "example", true), ("example", "notexample", false),
    ("a, b hub.example", "hub.example", true), ("HUB.example", "hub.EXAMPLE.", true),
    ("hub.example.", "hub.example", true),
    ("b.example", "hub.example", false), ("", "hub.example", false), (",, ,", "hub.example", false), (".", "x", false),
    ("10.0.0.0/8", "10.1.2.3", true), ("10.0.0.0/8", "11.1.2.3", false), ("10.1.2.3", "10.1.2.3", true),
    ("10.0.0.0/33", "10.0.0.0", false), ("10.0.0.0/", "10.0.0.0", false), ("2.3", "10.1.2.3", false),
    ("192.168.1.128/25", "192.168.1.127", false), ("0.0.0.0/0", "1.2.3.4", true), ("0.0.0.0/0", "::1", false),
    ("fd00::/8", "fdab::1", true), ("[::1]", "::1", true), ("::1", "0:0:0:0:0:0:0:1", true),
    ("fd00::/8", "fe80::1", false),
    ("10.0.0.0/8", "hub.example", false),
  ])
  func `a host in no_proxy is reached directly`(_ list: String, _ host: String, _ isStraight: Bool) throws {
    for name in ["no_proxy", "NO_PROXY"] {
      let variables = ["http_proxy": "p:1", name: list]
      #expect(try proxy(variables, "http", host) == (isStraight ? nil : "http://p:1"), "\(list) \(host)")
    }
  }

  @Test func `the configuration takes precedence over the environment`() throws {
    let environment = ProxyEnvironment { ["http_proxy": "env:1", "no_proxy": "except.example"][$0] }
    func way(_ text: String?, _ host: String = "hub.example") throws -> String? {
      try ProxyChoice(parsing: text).proxy(in: environment, scheme: "http", host: host)?.shown
    }
    #expect(try way(nil) == "http://env:1")
    #expect(try way(nil, "except.example") == nil)
    #expect(try way("none") == nil)
    #expect(try way("socks5h://own:2") == "socks5h://own:2")
    #expect(try way("socks5h://own:2", "except.example") == "socks5h://own:2")
    let error = #expect(throws: TunnelSettings.Invalid.self) { try ProxyChoice(parsing: "https://own:2") }
    #expect(error?.description.hasSuffix("or \"none\"") == true)
  }
}

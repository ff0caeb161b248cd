// SPDX-License-Identifier: MIT

import Testing

@testable import HTTP

/// Texts in a URL or a head are cut and compared by bytes: an accent after a sign hides nothing, and canonically equivalent signs are different.
@Suite struct OutsideTextTests {
  @Test(arguments: [
    ("http://host/\u{301}x", "host", 80, "/\u{301}x"), ("http://host/a/\u{600}/", "host", 80, "/a/\u{600}"),
    ("https://[::1]:8443/a/", "::1", 8443, "/a"), ("http://host:8080", "host", 8080, ""),
    ("http://h\u{F8}st", "h\u{F8}st", 80, ""),
  ])
  func `a URL is split by its bytes`(_ url: String, _ host: String, _ port: UInt16, _ path: String) throws {
    let (endpoint, own) = try #require(HTTPEndpoint.parse(url))
    guard case .tcp(let found, let number, _) = endpoint else { return #expect(Bool(false)) }
    #expect(Array(found.utf8) == Array(host.utf8) && number == port && Array(own.utf8) == Array(path.utf8))
  }

  @Test(arguments: [
    "http://host/a\r\nX-Forged: 1", "http://host/a\r\n\u{301}X-Forged: 1", "http://host/a \u{301}b", "http://host/\0",
    "http://user@\u{301}host/", "http://user\u{600}@host/", "http://host/#\u{301}", "http://host/?\u{301}",
    "http://:80",
    "http://host:+80/", "http://host:\u{664}4/", "http://host:99999999999999999999/", "http://host:-1", "http://[",
    "http://]:",
    "http:/\u{301}/host", "", "http://",
  ])
  func `a URL that would break the request line, or that hides a user, is refused`(_ url: String) {
    #expect(HTTPEndpoint.parse(url) == nil)
  }

  @Test func `a request's path and query are split by bytes`() {
    let request = HTTPRequest("GET", "/v1/a?\u{301}=1&to=\u{301}x&\u{600}&text==&limit=5")
    #expect(Array(request.path.utf8) == Array("/v1/a".utf8))
    #expect(request.query["to"].map { Array($0.utf8) } == Array("\u{301}x".utf8))
    #expect(request.query["text"] == "=" && request.query["limit"] == "5")
    // A space and a plus in the form of browsers.
    #expect(HTTPRequest("GET", "/v1/a?q=two+words%2B&a+b").query == ["q": "two words+", "a b": ""])
    #expect(HTTPRequest("GET", "/v1/a").query.isEmpty)
  }

  @Test func `a Kelvin sign does not count as the letter k`() throws {
    let headers: HTTPHeaders = ["Connection": "\u{212A}eep-alive, Close", "Upgrade": "webSoc\u{212A}et"]
    #expect(headers.hasToken("close", in: "connection"))
    #expect(!headers.hasToken("keep-alive", in: "Connection") && !headers.hasToken("websocket", in: "Upgrade"))
    #expect(HTTPHeaders(dictionaryLiteral: ("X-K", "1"))["x-\u{212A}"] == nil)
    var parser = HTTPParser(.responses, maxBody: 100)
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chun\u{212A}ed\r\n\r\n0\r\n\r\n"
    #expect(throws: HTTPParseError.malformed("transfer encoding")) {
      try parser.parse(Array(answer.utf8)[...]) { _ in }
    }
  }
}

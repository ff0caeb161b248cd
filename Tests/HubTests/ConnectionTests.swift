// SPDX-License-Identifier: MIT

import NIOCore
import NIOEmbedded
import NIOHTTP1
import Synchronization
import Testing

@testable import Hub

@Suite struct ConnectionTableTests {
  @Test func `there is never room for more connections than descriptors`() {
    #expect(ConnectionTable.room(limit: 20_000, open: 20, wanted: 4096) == 4096)
    #expect(ConnectionTable.room(limit: 1024, open: 20, wanted: 4096) < 1024 - 20)
    #expect(ConnectionTable.room(limit: 40, open: 20, wanted: 4096) < ConnectionTable.least)
  }
}

@Suite struct RefusedLoginTests {
  private final class Lines: Sendable {
    let all = Mutex([String]())
    var count: Int { all.withLock { $0.count } }
  }

  @Test func `refused logins are logged with their address, a few a minute, and the omitted ones are counted`() {
    let lines = Lines()
    let refused = RefusedLogins { _, words in lines.all.withLock { $0.append(words) } }
    let start = ContinuousClock.now
    for _ in 0..<100 { refused.note(from: "192.0.2.7", "unknown token", "GET", "/v1/gateways", now: start) }
    #expect(lines.count == RefusedLogins.maxOfOne)
    #expect(
      lines.all.withLock { $0.first } == "login refused from 192.0.2.7: unknown token (GET /v1/gateways)")
    for number in 0..<500 { refused.note(from: "192.0.2.\(number)", "x", "GET", "/", now: start) }
    #expect(lines.count == RefusedLogins.maxOfAll)
    refused.note(from: "192.0.2.7", "x", "GET", "/", now: start + .seconds(61))
    #expect(lines.all.withLock { $0.contains { $0.hasPrefix("540 more logins") } })
  }

  @Test func `a repeated log line is written once a minute, with the number of repetitions`() {
    let lines = Lines()
    let line = ThrottledLog { _, words in lines.all.withLock { $0.append(words) } }
    let start = ContinuousClock.now
    for _ in 0..<1000 { line.say("full", now: start) }
    line.say("full", now: start + .seconds(61))
    #expect(lines.all.withLock { $0 } == ["full", "full (repetitions in the last minutes: 999)"])
  }

  @Test func `a token is compared whole, and the scheme in any case`() throws {
    let access = HubAccess([
      HubConfiguration.Token(
        name: "hill", secrets: ["a-token-of-16-and-more", "its-successor-is-here"], gateway: "hill", access: .write)
    ])
    #expect(access.check("Bearer its-successor-is-here", gateway: "hill", .write).allowed == "hill")
    #expect(access.check("bearer a-token-of-16-and-more", gateway: "hill", .greet).allowed == "hill")
    #expect(access.check("Bearer a-token-of-16-and-more", gateway: "dale", .greet) == .forbidden("hill"))
    #expect(access.check("Bearer a-token-of-16-and-more", gateway: "hill", .command) == .forbidden("hill"))
    for wrong in [
      "Bearer a-token-of-16-and-mor", "Bearer ", "Bearer", "a-token-of-16-and-more", "Bearer  its-successor-is-here",
    ] {
      guard case .unknown = access.check(wrong, gateway: "hill", .read) else {
        Issue.record("\(wrong)")
        continue
      }
    }
  }
}

@Suite struct LinkGateTests {
  @Test(arguments: ["\u{16}\u{3}\u{1}\u{2}\u{0}", "NONSENSE\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: many\r\n\r\n"])
  func `a request that is not HTTP is answered at once with 400`(_ said: String) throws {
    let channel = EmbeddedChannel()
    let operations = channel.pipeline.syncOperations
    try operations.addHandler(HTTPResponseEncoder())
    try operations.addHandler(ByteToMessageHandler(HTTPRequestDecoder()))
    try operations.addHandler(LinkHandshakeFilter({ _ in .closed }, { _ in nil }))
    try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
    // `try?`: the channel reports the error to the next handler.
    _ = try? channel.writeInbound(ByteBuffer(string: said))
    var answer = ""
    while let part = try channel.readOutbound(as: ByteBuffer.self) { answer += String(buffer: part) }
    #expect(answer.hasPrefix("HTTP/1.1 400 ") && answer.contains("Connection: close"), "\(answer)")
  }
}

extension HubAccess.Verdict {
  /// The name of the token that permits the request; `nil`: it is refused.
  var allowed: String? { if case .allowed(let grant) = self { grant.name } else { nil } }
}

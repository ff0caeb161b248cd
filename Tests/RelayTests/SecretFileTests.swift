// SPDX-License-Identifier: MIT

import HTTP
import TestSupport
import Testing

@testable import Relay

@Suite struct SecretFileTests {
  private let scratch = Scratch()

  @Test func `a secret is the first line as it is, without the blanks around it`() {
    for (text, secret) in [
      ("abc\n", "abc"), (" \tabc \r\nsecond\n", "abc"), ("two words\n", "two words"), ("Zürich 7\n", "Zürich 7"),
      ("\u{FEFF}abc\n", "abc"), (" \n", nil), ("", nil),
    ] as [(String, String?)] {
      #expect(SecretFile.read(scratch.write("secret", text)) == secret, "\(text)")
    }
  }

  @Test func `a token that no header can have stops its upstream, and is not sent in another form`() {
    let file = scratch.write("token", "two words\n")
    var settings = UpstreamSettings(
      kind: .hub(isLive: true, keepAlive: 300), journal: Upstream.Settings(name: "hub"), url: "http://127.0.0.1:1",
      tokenFile: file)
    #expect(settings.fileTroubles(isDaemon: false).map(\.key) == ["token_file"])
    var headers = HTTPHeaders()
    #expect(throws: Verdict.self) { try settings.authorize(&headers) }
    settings.tokenFile = scratch.write("token", "one-word\n")
    #expect(settings.fileTroubles(isDaemon: false).isEmpty)
    #expect(throws: Never.self) { try settings.authorize(&headers) }
    #expect(headers["Authorization"] == "Bearer one-word")
  }
}

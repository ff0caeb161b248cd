// SPDX-License-Identifier: MIT

import Testing

@testable import Hub

@Suite struct HubConfigurationTests {
  private func mistakes(_ text: String) -> [String] {
    do {
      _ = try HubConfiguration(parsing: Array(text.utf8), file: "hub.toml")
      return []
    } catch {
      return "\(error)".split(separator: "\n").map(String.init)
    }
  }

  @Test(arguments: [
    ("gateway_token = \"/x\"", "gateway_token is not a known key (did you mean gateway_tokens?); "),
    ("prot = 8787", "prot is not a known key (did you mean port?); "),
    ("[wbe]\nurl = \"https://hub.example.org\"", "wbe is not a known key (did you mean web?); "),
    ("[consum]\nurl = \"mqtt://b\"", "consum is not a known key (did you mean consume?); "),
  ]) func `a mistyped key is the only mistake, and the near one is named`(_ text: String, _ words: String) {
    let found = mistakes(text)
    #expect(found.count == 1 && found[0].hasPrefix("hub.toml: line 1: \(words)"), "\(found)")
  }

  @Test func `a hub that serves needs a token`() {
    #expect(mistakes("").count == 1 && mistakes("")[0].contains("gateway_tokens, or at least one [[token]]"))
  }
}

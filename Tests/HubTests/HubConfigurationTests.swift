// SPDX-License-Identifier: MIT

import Foundation
import TestSupport
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

  @Test func `the shipped file has known keys, also with all its commented settings`() throws {
    let file = Checkout.folder.appending(path: "deploy/hub.toml")
    let text = try String(contentsOf: file, encoding: .utf8)
    let open = text.split(separator: "\n", omittingEmptySubsequences: false).map { line -> String in
      line.hasPrefix("#") && !line.hasPrefix("# ") && line != "#" ? String(line.dropFirst()) : String(line)
    }.joined(separator: "\n")
    // The files that it names are not here.
    let found = mistakes(open).filter { !$0.contains(" cannot be read, ") && !$0.contains(" is not a folder ") }
    #expect(found == [])
    #expect(open.contains("\n[web]\n") && open.contains("\ngateway_tokens = "))
  }

  @Test func `a hub that serves needs a token`() {
    #expect(mistakes("").count == 1 && mistakes("")[0].contains("gateway_tokens, or at least one [[token]]"))
  }
}

// SPDX-License-Identifier: MIT

import Testing

@testable import Gateway

/// Values that are right each by itself, and wrong together.
@Suite struct BoundsOfConfigurationTests {
  private func parse(_ text: String) throws -> GatewayConfiguration {
    try GatewayConfiguration(parsing: Array(text.utf8), file: "test.toml")
  }

  @Test(arguments: [
    ("[control]\nmetrics_port = 9100\n[web]\nlisten = \"127.0.0.1:9100\"", "metrics_port"),
    ("[control]\nmetrics_port = 9100\n[web]\nlisten = \"[::]:9100\"", "metrics_port"),
    ("[control]\nmetrics_port = 9100\n[[proxy]]\nlisten = \"127.0.0.1:9100\"", "metrics_port"),
    ("[[proxy]]\nlisten = \"127.0.0.1:5000\"\nname = \"app\"\n[web]\nlisten = \"0.0.0.0:5000\"", "[[proxy]] app"),
    (
      "[[proxy]]\nlisten = \"127.0.0.1:5000\"\n[[proxy]]\nlisten = \"0.0.0.0:5000\"\nallow_from = [\"10.0.0.0/8\"]",
      "twice"
    ),
  ])
  func `two listeners at one port are refused`(_ text: String, _ words: String) throws {
    do {
      _ = try parse(text)
      Issue.record("\(text) is accepted")
    } catch let failure as GatewayConfiguration.Failure {
      #expect(failure.description.contains(words), "\(failure)")
    }
  }

  @Test(arguments: [
    "[control]\nmetrics_port = 9100\n[web]\nlisten = \"192.168.1.2:9100\"",
    "[control]\nmetrics_port = 9100\n[[proxy]]\nlisten = \"[::1]:9100\"",
    "[[proxy]]\nlisten = \"127.0.0.1:5000\"\n[[proxy]]\nlisten = \"127.0.0.2:5000\"",
  ])
  func `listeners at different addresses may have one port`(_ text: String) throws { _ = try parse(text) }

  @Test func `a journal leaves messages half of the database, and few messages fit into a small one`() throws {
    let small = try parse("[store]\nmax_size = \"4 MiB\"\njournal_max_size = \"256 MiB\"")
    #expect(small.store.journalMaxSize == 2 << 20 && small.store.messagesMax == 2048)
    #expect(small.warnings.contains { $0.contains("line 3") && $0.contains("journal_max_size") }, "\(small.warnings)")
    #expect(try parse("[store]\nmax_size = \"4 MiB\"").store.journalMaxSize == 2 << 20)
    #expect(try parse("").store.journalMaxSize == 256 << 20)
    let usual = try parse("[store]\nmax_size = \"1 GiB\"\njournal_max_size = \"256 MiB\"")
    #expect(usual.store.journalMaxSize == 256 << 20 && usual.store.messagesMax == 500_000 && usual.warnings.isEmpty)
  }

  @Test func `a broker must know the gateway again, or it keeps no commands for it`() throws {
    let broker = "[[upstream]]\nname = \"a\"\nkind = \"mqtt\"\nurl = \"mqtts://b\"\nclient_id = "
    #expect(throws: GatewayConfiguration.Failure.self) { try parse(broker + "\"\"") }
    _ = try parse(broker + "\"hill\"")
  }
}

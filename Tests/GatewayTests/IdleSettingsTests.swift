// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import Testing

@testable import Gateway

/// Settings that have no effect with the radio or the upstreams that are there.
@Suite struct IdleSettingsTests {
  private func parse(_ text: String) throws -> GatewayConfiguration {
    try GatewayConfiguration(parsing: Array(text.utf8), file: "test.toml")
  }

  @Test func `hooks, webhooks and Home Assistant get only what concerns somebody, and others get all`() throws {
    let configuration = try parse(
      """
      [[upstream]]
      name = "hub"
      url = "https://x"
      [[upstream]]
      name = "broker"
      kind = "mqtt"
      url = "mqtts://x"
      [[upstream]]
      name = "home"
      kind = "mqtt"
      url = "mqtts://y"
      home_assistant = true
      [[upstream]]
      name = "alarm"
      kind = "webhook"
      url = "https://x"
      [[hook]]
      name = "bot"
      run = ["/bin/true"]
      kinds = ["message"]
      """)
    let people = configuration.upstreams.filter(\.journal.filter.onlyConcerning)
    #expect(people.map(\.name) == ["home", "alarm", "hook/bot"])
  }

  @Test func `channels in the settings that the radio does not have are reported once each`() throws {
    let configuration = try parse(
      """
      [relay]
      messages_from_hub = true
      channels = ["#trees", "#hll", "Two", "0011223344556677", "Own"]
      [[upstream]]
      name = "a"
      url = "https://x"
      channels = ["#gone"]
      contacts = []
      [[upstream]]
      name = "home"
      kind = "mqtt"
      url = "mqtts://x"
      home_assistant = true
      home_assistant_notify = ["#trees", "#near", "Anna"]
      [[hook]]
      name = "bot"
      run = ["/bin/true"]
      kinds = ["message"]
      channels = ["Other"]
      """)
    func channel(_ slot: UInt8, _ name: String, _ first: UInt8) throws -> Channel {
      Channel(
        slot: slot, name: Text(name),
        secret: try #require(ChannelSecret(bytes: [first] + Array(repeating: 7, count: 15))))
    }
    let channels = [
      // The channel matches under any name in the radio: the secret follows from the configured name.
      Channel(slot: 0, name: "trees", secret: .hashtag("#trees")), try channel(1, "Two", 1), try channel(2, "Two", 2),
      try channel(3, "Own", 3),
    ]
    let said = configuration.idleSettings(configuration.exchange, nil, channels).map(\.words)
    let has = "which the radio does not have; it has \"trees\", \"Two\", \"Two\", \"Own\""
    #expect(
      said == [
        "relay.channels names \"#hll\", \(has)",
        "relay.channels names \"Two\", and 2 of the radio's channels are called so: write the digest of one (`meshpost channels`)",
        "relay.channels names \"0011223344556677\", \(has)", "upstream \"a\": channels names \"#gone\", \(has)",
        "upstream \"home\": home_assistant_notify names \"#near\", \(has)",
        "hook \"bot\": channels names \"Other\", \(has)",
      ])
    #expect(configuration.idleSettings(configuration.exchange, nil, nil) == [], "nobody knows yet")
    var off = configuration.exchange
    off.isOn = false
    #expect(!configuration.idleSettings(off, nil, channels).contains { $0.setting.hasPrefix("relay") })
    off.isOn = true
    let lonely = try parse("").idleSettings(off, nil, nil).map(\.words)
    #expect(lonely == ["relay.messages_from_hub: no upstream is a hub"])
  }

  @Test func `a name of the radio that stops the exchange is told while the exchange is on`() throws {
    let configuration = try parse(
      "[relay]\nmessages_from_hub = true\n[[upstream]]\nname = \"a\"\nurl = \"https://x\"\n")
    func said(_ name: String, _ exchange: ChannelExchange.Settings) -> [String] {
      configuration.idleSettings(exchange, Text(name), nil).map(\.words)
    }
    #expect(said("ab", configuration.exchange) == [])
    #expect(said("a: b", configuration.exchange).first?.hasPrefix("relay.messages_from_hub: the radio's name") == true)
    let marked = said("⇄x", configuration.exchange)
    #expect(marked.count == 1 && marked[0].contains("no gateway passes on what this radio says"), "\(marked)")
    var off = configuration.exchange
    off.isOn = false
    #expect(said("a: b", off) == [] && said("⇄x", off) == [])
  }

  @Test(arguments: [
    ("commands_per_minute = 5", ["commands_per_minute"]), ("", []), ("allow = []", []),
    ("command_topic = \"m/x\"\nallow = []", ["command_topic"]),
    ("home_assistant = true\nhome_assistant_notify = [\"Birch\"]", ["home_assistant_notify"]),
  ])
  func `a server may do nothing that no line permits, and a key that needs it names the line`(
    _ keys: String, _ warned: [String]
  ) throws {
    let broker = "[[upstream]]\nname = \"a\"\nkind = \"mqtt\"\nurl = \"mqtts://x\"\n"
    let configuration = try parse(broker + keys)
    #expect(configuration.upstreams.map(\.journal.allowed) == [[]])
    let warnings = configuration.warnings
    #expect(warnings.count == warned.count && warnings.allSatisfy { $0.contains("allow = [\"send\"]") }, "\(warnings)")
    for key in warned { #expect(warnings.contains { $0.contains("upstream.\(key): ") }, "\(warnings)") }
    if !keys.contains("allow") { #expect(try parse(broker + keys + "\nallow = [\"send\"]").warnings.isEmpty) }
  }
}

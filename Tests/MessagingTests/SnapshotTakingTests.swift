// SPDX-License-Identifier: MIT

import Companion
import Testing

@testable import Messaging

/// What is asked of a node's command line, and what its answers mean, with the rules of `CommonCLI.cpp`.
@Suite struct SnapshotTakingTests {
  /// A command line that, as the firmware does, compares only the beginning of what was asked.
  private struct CommandLine {
    let version: String
    /// In the order of the firmware's comparisons.
    var settings: [(String, String)]
    var others: [String: String] = [:]
    var asked: [String] = []

    mutating func answer(_ command: String) -> Text {
      asked.append(command)
      if command == "ver" { return Text("\(version) (Build: 1 Jan 2026)") }
      if let answer = others.first(where: { command.hasPrefix($0.key) })?.value { return Text(answer) }
      guard command.hasPrefix("get ") else { return "Unknown command" }
      let name = command.dropFirst(4)
      return Text(settings.first { name.hasPrefix($0.0) }.map { "> \($0.1)" } ?? "??: \(name)")
    }
  }

  private static let oldest: [(String, String)] = [
    ("af", "1.0"), ("int.thresh", "0"), ("agc.reset.interval", "0"), ("multi.acks", "0"), ("allow.read.only", "off"),
    ("flood.advert.interval", "12"), ("advert.interval", "0"), ("guest.password", "secret"), ("name", "Ridge"),
    ("repeat", "on"), ("lat", "47.3"), ("lon", "8.5"), ("radio", "869.618,62.5,8,8"), ("rxdelay", "0"),
    ("txdelay", "0.5"), ("flood.max", "64"), ("direct.txdelay", "0.2"), ("tx", "22"), ("role", "repeater"),
  ]
  private static let newest =
    [
      ("cad", "off"), ("radio.rxgain", "on"), ("radio.fem.rxgain", "off"), ("flood.max.advert", "64"),
      ("flood.max.unscoped", "8"), ("owner.info", "Jo"), ("path.hash.mode", "1"), ("loop.detect", "off"),
      ("extra.sf", ""), ("adc.multiplier", "1.3"), ("bootloader.ver", "9"), ("bridge.type", "none"),
    ] + oldest

  private func take(_ line: inout CommandLine) -> SnapshotTaking {
    var taking = SnapshotTaking()
    while let setting = taking.next { taking.took(line.answer(setting.command)) }
    return taking
  }

  @Test func `firmware 1.9 is asked for what it knows, and its short comparisons do not invent settings`() {
    var line = CommandLine(version: "v1.9.0", settings: Self.oldest)
    let taking = take(&line)
    #expect(line.asked.count == 19 && taking.missing.isEmpty, "\(line.asked)")
    #expect(taking.values["radio"] == .known("869.618,62.5,8,8") && taking.values["flood.max"] == .known("64"))
    #expect(taking.values.values.allSatisfy { $0 != .unknown })
    #expect(taking.values["radio.rxgain"] == nil && taking.values["flood.max.advert"] == nil)
  }

  @Test func `a firmware of unknown kind is asked for everything, and an answer to a shorter name is none`() {
    var line = CommandLine(version: "custom", settings: Self.oldest)
    let taking = take(&line)
    for name in [
      "radio.rxgain", "radio.fem.txgain", "flood.max.advert", "flood.max.unscoped", "cad", "board", "region",
    ] {
      #expect(taking.values[name] == .unknown, "\(name)")
    }
    #expect(taking.values["name"] == .known("Ridge"))
    #expect(!line.asked.contains { $0.contains("bridge.delay") }, "without a bridge it has no settings of one")
  }

  @Test func `firmware 1.17 tells all of it, and no question asks for a secret`() {
    var line = CommandLine(
      version: "v1.17.1", settings: Self.newest,
      others: ["region default": " default scope is <null>", "board": "Heltec V3", "powersaving": "off"])
    line.others["gps advert"] = "> share"
    let taking = take(&line)
    #expect(taking.values["flood.max.advert"] == .known("64"), "equal to flood.max, and its own")
    #expect(taking.values["radio.rxgain"] == .known("on"))
    #expect(taking.values["region.default"] == .known("default scope is <null>"))
    #expect(taking.values["gps.advert"] == .known("> share".replacing("> ", with: "")))
    #expect(taking.values["extra.sf"] == .known(""))
    #expect(!line.asked.contains { $0.contains("password") || $0.contains("key") || $0.contains("secret") })
    #expect(line.asked.allSatisfy { $0.utf8.count <= 156 } && Set(line.asked).count == line.asked.count)
    #expect(Set(NodeSetting.all.map(\.name)).count == NodeSetting.all.count)
  }

  @Test func `the satellites of a GPS receiver are no setting`() {
    var line = CommandLine(version: "v1.17.1", settings: Self.newest, others: ["gps": "on, active, fix, 7 sats"])
    #expect(take(&line).values["gps"] == .known("on"))
  }

  @Test func `a bridge has settings`() {
    var line = CommandLine(
      version: "v1.17.1", settings: [("bridge.type", "rs232"), ("bridge.baud", "115200")] + Self.oldest)
    let taking = take(&line)
    #expect(taking.values["bridge.baud"] == .known("115200") && taking.values["bridge.channel"] == .unknown)
  }

  @Test func `a question without an answer is asked once more at the end`() {
    var line = CommandLine(version: "v1.17.1", settings: Self.newest)
    var (taking, silences) = (SnapshotTaking(), [String: Int]())
    while let setting = taking.next {
      let isSilent = setting.name == "af" || (setting.name == "tx" && silences["tx"] == nil)
      guard isSilent else {
        taking.took(line.answer(setting.command))
        continue
      }
      silences[setting.name, default: 0] += 1
      taking.silence()
    }
    #expect(silences == ["af": 2, "tx": 1])
    #expect(taking.missing == ["af"] && taking.values["tx"] == .known("22"))
    #expect(taking.count == taking.values.count + 1)
  }

  @Test func `a snapshot that was cut off is gone on with, unless the firmware is another by now`() {
    var (line, first) = (CommandLine(version: "v1.17.1", settings: Self.newest), SnapshotTaking())
    for _ in 0..<20 { first.took(line.answer(first.next!.command)) }
    for (version, asked) in [("v1.17.1", first.missing.count + 1), ("v1.17.2", first.count)] {
      line = CommandLine(version: version, settings: Self.newest)
      var taking = SnapshotTaking(before: first.values)
      while let setting = taking.next { taking.took(line.answer(setting.command)) }
      #expect(abs(line.asked.count - asked) <= 5 && line.asked.first == "ver", "\(version) \(line.asked)")
      #expect(taking.missing.isEmpty && taking.values["name"] == .known("Ridge") && taking.values["tx"] == .known("22"))
    }
  }

  @Test func `after four silences in a row the node is not there, and the rest is missing`() {
    var line = CommandLine(version: "v1.17.1", settings: Self.newest)
    var taking = SnapshotTaking()
    for _ in 0..<10 { taking.took(line.answer(taking.next!.command)) }
    for _ in 0..<4 { taking.silence() }
    #expect(taking.next == nil && taking.values.count == 10)
    #expect(taking.missing.count == taking.count - 10 && taking.missing.count > 20)
  }
}

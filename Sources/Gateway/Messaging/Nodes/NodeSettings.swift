// SPDX-License-Identifier: MIT

import Companion

/// A setting that the command line of repeaters, rooms and sensors tells. Source: `CommonCLI.cpp` and the examples of firmware 1.9 to 1.17.
struct NodeSetting: Equatable, Sendable {
  let name: String
  let command: String
  /// Firmware 1.N before this one does not know it.
  let since: Int
  /// Firmware compares only the beginning of a name, so one that does not know this setting answers with the shorter one.
  let shorter: String?
  /// Only asked if this setting has another value than `none`.
  let needs: String?

  private init(_ name: String, _ command: String? = nil, since: Int = 0, shorter: String? = nil, needs: String? = nil) {
    (self.name, self.since, self.shorter, self.needs) = (name, since, shorter, needs)
    self.command = command ?? "get \(name)"
  }

  static let firmware = NodeSetting("firmware", "ver")

  /// Passwords and keys are never asked for; nor is what changes by itself (clock, counters, the reason of the last start), or follows from others.
  static let all = [
    firmware, NodeSetting("board", "board", since: 10), NodeSetting("role"), NodeSetting("name"), NodeSetting("lat"),
    NodeSetting("lon"), NodeSetting("radio"), NodeSetting("tx"), NodeSetting("repeat"), NodeSetting("af"),
    NodeSetting("int.thresh"), NodeSetting("cad", since: 16), NodeSetting("agc.reset.interval"),
    NodeSetting("multi.acks"), NodeSetting("allow.read.only"), NodeSetting("advert.interval"),
    NodeSetting("flood.advert.interval"), NodeSetting("rxdelay"), NodeSetting("txdelay"),
    NodeSetting("direct.txdelay"), NodeSetting("flood.max"),
    NodeSetting("flood.max.advert", since: 16, shorter: "flood.max"),
    NodeSetting("flood.max.unscoped", since: 16, shorter: "flood.max"), NodeSetting("owner.info", since: 10),
    NodeSetting("path.hash.mode", since: 14), NodeSetting("loop.detect", since: 14),
    NodeSetting("extra.sf", since: 16), NodeSetting("radio.rxgain", since: 14, shorter: "radio"),
    NodeSetting("radio.fem.rxgain", since: 16, shorter: "radio"),
    NodeSetting("radio.fem.txgain", since: 16, shorter: "radio"), NodeSetting("adc.multiplier", since: 10),
    NodeSetting("bootloader.ver", since: 14), NodeSetting("powersaving", "powersaving", since: 10),
    NodeSetting("gps", "gps", since: 10), NodeSetting("gps.advert", "gps advert", since: 10, shorter: "gps"),
    NodeSetting("region", "region", since: 10), NodeSetting("region.home", "region home", since: 10),
    NodeSetting("region.default", "region default", since: 14), NodeSetting("bridge.type", since: 10),
    NodeSetting("bridge.enabled", since: 10, needs: "bridge.type"),
    NodeSetting("bridge.delay", since: 10, needs: "bridge.type"),
    NodeSetting("bridge.source", since: 10, needs: "bridge.type"),
    NodeSetting("bridge.baud", since: 10, needs: "bridge.type"),
    NodeSetting("bridge.channel", since: 10, needs: "bridge.type"),
  ]
}

/// The settings that a node has told, and which are to be asked for next. Pure.
///
/// Questions get lost: one without an answer is asked once more at the end. After a few in a row without one, the node is not there.
struct SnapshotTaking: Equatable {
  enum Value: Equatable, Sendable {
    case known(String)
    /// The firmware, or the board, does not know the setting.
    case unknown
  }

  private static let mostSilences = 4

  private(set) var values: [String: Value] = [:]
  private var waiting = NodeSetting.all
  /// Asked once, without an answer; and twice.
  private var (again, silent): ([NodeSetting], [NodeSetting]) = ([], [])
  private var silences = 0
  /// Firmware 1.N; `nil`: not told, or of another kind, which is asked for everything.
  private var version: Int?
  /// What an earlier snapshot has told that was cut off. It counts if the firmware is still the same.
  private var before: [String: Value]

  init(before: [String: Value] = [:]) { self.before = before }

  /// The next setting to ask for; `nil`: there is none, or the node is silent.
  var next: NodeSetting? { silences >= Self.mostSilences ? nil : waiting.first ?? again.first }
  /// Settings that are not told.
  var missing: [String] {
    let names = Set((waiting + again + silent).map(\.name))
    return NodeSetting.all.map(\.name).filter { names.contains($0) }
  }
  /// All that are to be asked for, as far as that is known.
  var count: Int { values.count + waiting.count + again.count + silent.count }

  /// What the node has answered to the question for `next`.
  mutating func took(_ reply: Text) {
    guard let setting = next else { return }
    silences = 0
    forget(setting)
    let value = value(of: setting, reply.string)
    values[setting.name] = value
    if setting == .firmware, case .known(let words) = value {
      version = Self.version(words)
      if value == before[setting.name] { goOn() }
    }
    let isNeedless: (NodeSetting) -> Bool = { [self] in
      $0.since > (version ?? .max) || $0.needs.map { isAbsent($0) } ?? false
    }
    waiting.removeAll(where: isNeedless)
    again.removeAll(where: isNeedless)
  }

  private mutating func goOn() {
    values.merge(before) { new, _ in new }
    for setting in NodeSetting.all where before[setting.name] != nil { forget(setting) }
    silent.removeAll { before[$0.name] != nil }
  }

  /// There was no answer to the question for `next`.
  mutating func silence() {
    guard let setting = next else { return }
    silences += 1
    if waiting.first == setting { again.append(waiting.removeFirst()) } else { silent.append(again.removeFirst()) }
  }

  private mutating func forget(_ setting: NodeSetting) {
    waiting.removeAll { $0 == setting }
    again.removeAll { $0 == setting }
  }

  private func isAbsent(_ name: String) -> Bool {
    switch values[name] {
    case nil: false
    case .unknown: true
    case .known(let value): value.isExactly("none")
    }
  }

  private func value(of setting: NodeSetting, _ reply: String) -> Value {
    var text = reply
    if text.hasPrefix(">") { text.removeFirst() }
    text = text.bare
    for words in Self.unknowing where text.lowercased().hasPrefix(words) { return .unknown }
    if setting.name == "gps" { text = String(text.prefix { $0 != "," }) }
    if let shorter = setting.shorter, case .known(text)? = values[shorter], mayAnswerShorter(setting) {
      return .unknown
    }
    return .known(text)
  }

  /// Of a number, an equal answer says nothing: the version decides.
  private func mayAnswerShorter(_ setting: NodeSetting) -> Bool { setting.shorter != "flood.max" || version == nil }

  private static let unknowing = ["??", "unknown command", "unknown config", "error: unsupported", "err - ??"]

  /// `v1.17.1 (Build: …)`: 17.
  private static func version(_ words: String) -> Int? {
    let numbers = words.drop { !$0.isNumber }.prefix { $0.isNumber || $0 == "." }.split(separator: ".")
    guard numbers.count >= 2, numbers[0] == "1" else { return nil }
    return Int(numbers[1])
  }
}

extension String {
  fileprivate var bare: String {
    let isBlank: (Character) -> Bool = { $0 == " " || $0 == "\n" || $0 == "\r" || $0 == "\0" }
    return String(drop(while: isBlank).reversed().drop(while: isBlank).reversed())
  }
}

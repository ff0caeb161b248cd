// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import TOML
import UntrustedText

/// Edits an existing configuration in a few places. Everything else stays unchanged: comments, other keys, unknown sections.
struct ConfigurationText {
  private var lines: [[UInt8]]
  private var document: TOMLTable
  private let location: String

  init(_ text: String, location: String) throws {
    self.location = location
    lines = text.utf8.split(separator: 10, omittingEmptySubsequences: false).map(Array.init)
    document = try Self.parse(lines, location)
  }

  /// `nil`: it is invalid.
  init?(ifReadable text: String, location: String) {
    // `try?`: its mistakes do not matter, because setup replaces it.
    guard (try? TOMLParser.parse(Array(text.utf8))) != nil,
      let readable = try? ConfigurationText(text, location: location)
    else { return nil }
    self = readable
  }

  var text: String { String(decoding: Array(lines.joined(separator: [10])), as: UTF8.self) }

  private static func parse(_ lines: [[UInt8]], _ location: String) throws -> TOMLTable {
    do {
      return try TOMLParser.parse(Array(lines.joined(separator: [10])))
    } catch {
      throw Failure.say("\(location): \(error): fix it, or start over with --replace", EX_CONFIG)
    }
  }

  // MARK: Reading

  /// Whether no key has a value.
  var isEmpty: Bool { Self.flat(document).isEmpty }

  func string(_ section: String, _ key: String) -> String? { Self.table(document[section])?[key].flatMap(Self.string) }

  func flag(_ section: String, _ key: String) -> Bool? {
    if case .bool(let flag)? = Self.table(document[section])?[key]?.kind { flag } else { nil }
  }

  /// `line`: its first line; `hasLink`: it keeps a link to a hub.
  typealias Upstream = (name: String, url: String, line: Int, hasLink: Bool)

  /// In file order.
  var upstreams: [Upstream] { elements("upstream").map(Self.upstream) }

  /// Whether the upstream at an index has a value for a key; an empty list is none.
  func has(_ key: String, ofUpstream place: Int) -> Bool {
    guard let value = elements("upstream")[place][key] else { return false }
    if case .array(let values) = value.kind { return !values.isEmpty }
    return true
  }

  private static func upstream(_ table: TOMLTable) -> Upstream {
    func text(_ key: String) -> String { table[key].flatMap(string) ?? "" }
    let isHub = table["kind"] == nil || text("kind").isExactly("hub")
    return (text("name"), text("url"), table.line, isHub && !text("link").isExactly("http"))
  }

  /// The upstreams that an operator added to the running gateway. They are in files beside its database, or beside the file behind a link.
  static func added(beside store: String) -> [Upstream] {
    let folder = Folder.resolved(store) + ".upstreams"
    return Files.names(in: folder).filter { $0.hasSuffix(".toml") }.compactMap { name in
      // `try?`: an invalid one still has its name.
      let table = Files.read("\(folder)/\(name)").flatMap { try? TOMLParser.parse($0) }
      return (String(name.dropLast(5)), table.map(upstream)?.url ?? "", 0, table.map(upstream)?.hasLink ?? false)
    }
  }

  private func elements(_ name: String) -> [TOMLTable] {
    guard case .array(let values)? = document[name]?.kind else { return [] }
    return values.compactMap { Self.table($0) }
  }

  private static func table(_ value: TOMLValue?) -> TOMLTable? {
    if case .table(let table)? = value?.kind { table } else { nil }
  }

  private static func string(_ value: TOMLValue) -> String? {
    if case .string(let text) = value.kind { text } else { nil }
  }

  // MARK: Changing

  /// Sets a string in a section, and adds a missing section. An empty string removes the key.
  mutating func set(_ section: String, _ key: String, _ value: String) throws {
    if value.isEmpty { return try remove(section, key) }
    if string(section, key)?.isExactly(value) != true { try set(section, key, toml: Setup.quoted(value)) }
  }

  mutating func set(_ section: String, _ key: String, _ value: Bool) throws {
    if flag(section, key) != value { try set(section, key, toml: "\(value)") }
  }

  private mutating func set(_ section: String, _ key: String, toml value: String) throws {
    guard let table = Self.table(document[section]) else {
      return try change(only: "\(section).\(key)") { lines in
        Self.add("[\(section)]\n\(key) = \(value)\n", to: &lines)
      }
    }
    try put(key, value, in: table, path: "\(section).\(key)")
  }

  /// Removes a key and its line from a section.
  mutating func remove(_ section: String, _ key: String) throws {
    guard let place = Self.table(document[section])?[key]?.line else { return }
    try change(only: "\(section).\(key)") { lines in
      if lines.indices.contains(place - 1) { lines.remove(at: place - 1) }
    }
  }

  /// Sets a string of the upstream at an index.
  mutating func setUpstream(_ place: Int, _ key: String, _ value: String) throws {
    let table = elements("upstream")[place]
    guard table[key].flatMap(Self.string)?.isExactly(value) != true else { return }
    try put(key, Setup.quoted(value), in: table, path: "upstream[\(place)].\(key)")
  }

  /// Sets a list of strings of the upstream at an index.
  mutating func setUpstream(_ place: Int, _ key: String, _ values: [String]) throws {
    let table = elements("upstream")[place]
    if case .array(let old)? = table[key]?.kind, old.map({ Self.string($0) ?? "" }) == values { return }
    try put(key, Setup.quoted(values), in: table, path: "upstream[\(place)].\(key)")
  }

  /// Removes a key and its line from the upstream at an index.
  mutating func removeUpstream(_ place: Int, _ key: String) throws {
    guard let line = elements("upstream")[place][key]?.line else { return }
    try change(only: "upstream[\(place)].\(key)") { lines in
      if lines.indices.contains(line - 1) { lines.remove(at: line - 1) }
    }
  }

  /// Appends a section.
  mutating func append(_ section: String) throws {
    try change(only: "upstream[\(elements("upstream").count)]") { Self.add(section, to: &$0) }
  }

  private static func add(_ section: String, to lines: inout [[UInt8]]) {
    while lines.last?.isEmpty == true { lines.removeLast() }
    lines += [[]] + section.utf8.split(separator: 10, omittingEmptySubsequences: false).map(Array.init)
    while lines.last?.isEmpty == true { lines.removeLast() }
    lines.append([])
  }

  private mutating func put(_ key: String, _ value: String, in table: TOMLTable, path: String) throws {
    let line = Array("\(key) = \(value)".utf8)
    let (place, isThere) = (table[key]?.line ?? table.line, table[key] != nil)
    try change(only: path) { lines in
      guard lines.indices.contains(place - 1) else { return }
      if isThere {
        lines[place - 1] = lines[place - 1].prefix { $0 == 0x20 || $0 == 0x09 } + line
      } else {
        lines.insert(line, at: place)
      }
    }
  }

  /// Edits lines, and compares the meaning before and after: it does not change a file with another syntax (multi-line values, dotted keys).
  private mutating func change(only path: String, _ edit: (inout [[UInt8]]) -> Void) throws {
    var edited = lines
    edit(&edited)
    // `try?`: an edit that results in invalid TOML is rejected below.
    let changed = try? TOMLParser.parse(Array(edited.joined(separator: [10])))
    let old = Self.flat(document)
    guard let changed, edited != lines,
      Self.flat(changed).filter({ !$0.key.hasPrefix(path) }) == old.filter({ !$0.key.hasPrefix(path) })
    else {
      throw Failure.say(
        "\(path) in \(location) has a form that cannot be edited automatically: edit it by hand", EX_CONFIG)
    }
    (lines, document) = (edited, changed)
  }

  /// The values of a document by path, without line numbers.
  private static func flat(_ table: TOMLTable, _ path: String = "") -> [String: String] {
    var all: [String: String] = [:]
    for entry in table.entries {
      all.merge(flat(entry.value, path.isEmpty ? entry.key : "\(path).\(entry.key)")) { first, _ in first }
    }
    return all
  }

  private static func flat(_ value: TOMLValue, _ path: String) -> [String: String] {
    switch value.kind {
    case .table(let table): return flat(table, path)
    case .array(let values):
      var all: [String: String] = [:]
      for (place, value) in values.enumerated() {
        all.merge(flat(value, "\(path)[\(place)]")) { first, _ in first }
      }
      return all
    case .string(let text): return [path: "\"\(text)"]
    case .integer(let number): return [path: "\(number)"]
    case .number(let number): return [path: "\(number)f"]
    case .bool(let flag): return [path: "\(flag)"]
    }
  }
}

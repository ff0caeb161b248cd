// SPDX-License-Identifier: MIT

/// A table: keys in order of their appearance.
public struct TOMLTable: Equatable, Sendable {
  public struct Entry: Equatable, Sendable {
    public var key: String
    public var value: TOMLValue
  }

  /// The origin of a table, which decides whether it can be extended.
  enum Origin: Equatable, Sendable {
    /// Created on the way to a `[header]`: may still get a header of its own.
    case implicit
    /// Created by its `[header]` or `[[header]]`; also the document.
    case header
    /// Created by a dotted key: further keys of the same section and headers of inner tables may extend it.
    case dotted
    /// Created by `{ … }`: cannot be extended.
    case inline
  }

  public internal(set) var entries: [Entry] = []
  public internal(set) var line: Int
  private var origin: Origin

  init(line: Int, origin: Origin = .header) {
    self.line = line
    self.origin = origin
  }

  public subscript(key: String) -> TOMLValue? { index(of: key).map { entries[$0].value } }

  /// TOML compares keys by bytes; Strings are also equal if they only look the same.
  private func index(of key: String) -> Int? { entries.firstIndex { $0.key.utf8.elementsEqual(key.utf8) } }

  // MARK: Headers

  /// `[path]`.
  mutating func openTable(_ path: ArraySlice<String>, _ line: Int) throws(TOMLError) {
    guard let key = path.last else { return }
    try reach(path.dropLast(), line) { (parent) throws(TOMLError) in
      guard let index = parent.index(of: key) else {
        return parent.add(key, .table(TOMLTable(line: line, origin: .header)), line)
      }
      guard case .table(var table) = parent.entries[index].value.kind else { throw parent.isTaken(index, line) }
      guard table.origin == .implicit else {
        throw TOMLError(
          line: line, reason: "[\(path.joined(separator: "."))] is defined twice (first on line \(table.line))")
      }
      table.origin = .header
      table.line = line
      parent.entries[index].value = TOMLValue(kind: .table(table), line: line)
    }
  }

  /// `[[path]]`.
  mutating func openElement(_ path: ArraySlice<String>, _ line: Int) throws(TOMLError) {
    guard let key = path.last else { return }
    try reach(path.dropLast(), line) { (parent) throws(TOMLError) in
      let element = TOMLValue(kind: .table(TOMLTable(line: line, origin: .header)), line: line)
      guard let index = parent.index(of: key) else { return parent.add(key, .array([element]), line) }
      guard case .array(var elements) = parent.entries[index].value.kind, Self.isOpen(elements) else {
        throw TOMLError(
          line: line, reason: "`\(key)` is not a list of tables (line \(parent.entries[index].value.line))")
      }
      elements.append(element)
      parent.entries[index].value.kind = .array(elements)
    }
  }

  /// Whether `[[headers]]` created the list, and not `[ … ]`.
  private static func isOpen(_ elements: [TOMLValue]) -> Bool {
    if case .table(let last)? = elements.last?.kind { last.origin == .header } else { false }
  }

  /// Changes the table at a header's path and creates missing ones. Of a list of tables it changes the last.
  mutating func reach(
    _ path: ArraySlice<String>, _ line: Int, _ body: (inout TOMLTable) throws(TOMLError) -> Void
  ) throws(TOMLError) {
    guard let key = path.first else { return try body(&self) }
    if index(of: key) == nil { add(key, .table(TOMLTable(line: line, origin: .implicit)), line) }
    guard let index = index(of: key) else { return }
    switch entries[index].value.kind {
    case .table(var inner) where inner.origin != .inline:
      try inner.reach(path.dropFirst(), line, body)
      entries[index].value.kind = .table(inner)
    case .array(var elements) where Self.isOpen(elements):
      guard case .table(var inner)? = elements.popLast()?.kind else { return }
      try inner.reach(path.dropFirst(), line, body)
      elements.append(TOMLValue(kind: .table(inner), line: inner.line))
      entries[index].value.kind = .array(elements)
    default: throw isTaken(index, line)
    }
  }

  // MARK: Keys

  /// `path = value`.
  mutating func set(_ path: ArraySlice<String>, _ value: TOMLValue) throws(TOMLError) {
    guard let key = path.first else { return }
    guard path.count > 1 else {
      if let first = self[key] {
        throw TOMLError(line: value.line, reason: "`\(key)` is defined twice (first on line \(first.line))")
      }
      return add(key, value.kind, value.line)
    }
    if index(of: key) == nil { add(key, .table(TOMLTable(line: value.line, origin: .dotted)), value.line) }
    guard let index = index(of: key) else { return }
    guard case .table(var inner) = entries[index].value.kind, inner.origin == .dotted else {
      throw isTaken(index, value.line)
    }
    try inner.set(path.dropFirst(), value)
    entries[index].value.kind = .table(inner)
  }

  /// After the `}` neither the inline table nor tables from its dotted keys can be extended.
  mutating func close() {
    origin = .inline
    for index in entries.indices {
      guard case .table(var inner) = entries[index].value.kind else { continue }
      inner.close()
      entries[index].value.kind = .table(inner)
    }
  }

  private mutating func add(_ key: String, _ kind: TOMLValue.Kind, _ line: Int) {
    entries.append(Entry(key: key, value: TOMLValue(kind: kind, line: line)))
  }

  private func isTaken(_ index: Int, _ line: Int) -> TOMLError {
    let (key, first) = (entries[index].key, entries[index].value)
    return TOMLError(line: line, reason: "`\(key)` is \(first.kindName) already (line \(first.line))")
  }
}

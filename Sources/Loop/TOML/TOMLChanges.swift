// SPDX-License-Identifier: MIT

extension TOMLTable {
  /// The paths (`store.max_size`) of settings that differ between two documents; a list of tables counts as one
  /// setting. A missing setting differs from any value.
  public static func changes(from old: TOMLTable, to new: TOMLTable) -> [String] {
    let (old, new) = (old.settings(), new.settings())
    return Set(old.keys).union(new.keys).filter { old[$0] != new[$0] }.sorted()
  }

  /// The settings as texts, by path.
  private func settings(_ prefix: String = "") -> [String: String] {
    var found: [String: String] = [:]
    for entry in entries {
      if case .table(let inner) = entry.value.kind {
        found.merge(inner.settings("\(prefix)\(entry.key).")) { _, newer in newer }
      } else {
        found[prefix + entry.key] = entry.value.text
      }
    }
    return found
  }
}

extension TOMLValue {
  /// A text that is equal for equal values, regardless of their lines.
  fileprivate var text: String {
    switch kind {
    // By its bytes: texts are also equal if they only look the same, and may have quotes and commas.
    case .string(let text): "\"\(Array(text.utf8))\""
    case .integer(let number): "\(number)"
    case .number(let number): "\(number)"
    case .bool(let isTrue): "\(isTrue)"
    case .array(let values): "[\(values.map(\.text).joined(separator: ","))]"
    case .table(let table):
      "{\(table.entries.map { "\($0.key)=\($0.value.text)" }.sorted().joined(separator: ","))}"
    }
  }
}

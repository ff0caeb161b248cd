// SPDX-License-Identifier: MIT

/// The words that somebody who mistyped one may have meant.
public enum NearWords {
  /// Those of `words` with the least distance to the typed word, in their order; empty: none is near. `most`: the greatest distance, if not a third
  /// of a word.
  public static func near(_ typed: String, among words: [String], within most: Int? = nil) -> [String] {
    let near = words.map { ($0, distance($0, typed)) }.filter { $0.1 <= most ?? max(1, $0.0.utf8.count / 3) }
    let best = near.map(\.1).min()
    return near.filter { $0.1 == best }.map(\.0)
  }

  /// The edit distance in bytes: insertions, deletions, changes, and swaps of neighbours.
  static func distance(_ left: String, _ right: String) -> Int {
    let (a, b) = (Array(left.utf8), Array(right.utf8.prefix(64)))
    var rows = [Array(0...b.count)]
    for i in a.indices {
      var row = [i + 1]
      for j in b.indices {
        let last = rows[i]
        var best = min(last[j + 1] + 1, row[j] + 1, last[j] + (a[i] == b[j] ? 0 : 1))
        if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] { best = min(best, rows[i - 1][j - 1] + 1) }
        row.append(best)
      }
      rows.append(row)
    }
    return rows[a.count][b.count]
  }
}

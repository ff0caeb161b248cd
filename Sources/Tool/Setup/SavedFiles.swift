// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import UntrustedText

/// The earlier versions of a file that `setup` has replaced: `FILE.before-TIME`, in seconds since 1970.
struct SavedFiles {
  /// How many stay.
  static let most = 5
  /// The least number of ten digits. Only names with ten of them are of this program's making: one that a person gave, such as `before-2024`, stays.
  private static let least: Int64 = 1_000_000_000

  private let file: String

  /// Behind a link is the file that is replaced.
  init(_ file: String) { self.file = Folder.resolved(file) }

  /// Gives the file another name before the new one is written, so that the file always exists. The name is later than all before, also where the clock
  /// is wrong: the order of the names decides which ones are removed.
  func save() throws -> String {
    let number = max(Int64(time(nil)), Self.least, (all.last?.number ?? 0) + 1)
    var saved = "\(file).before-\(number)"
    while access(saved, F_OK) == 0 { saved += "x" }
    // Rename on file systems without hard links.
    guard link(file, saved) == 0 || rename(file, saved) == 0 else { throw Failure.file(saved) }
    return saved
  }

  /// Removes all but the newest. One that cannot be removed does no harm.
  func removeOldest() {
    for old in all.dropLast(Self.most) { unlink(old.location) }
  }

  /// Those that this program has named, the oldest first.
  private var all: [(number: Int64, location: String)] {
    let (folder, name) = (Folder.of(file), file.pieces(at: "/").last ?? file)
    let start = "\(name).before-"
    let saved = Files.names(in: folder).compactMap { found -> (number: Int64, location: String)? in
      guard found.begins(with: start) else { return nil }
      let rest = found.utf8.dropFirst(start.utf8.count)
      let digits = rest.prefix { (0x30...0x39).contains($0) }
      // Earlier versions set an `x` after a name that was taken.
      guard digits.count == 10, rest.dropFirst(10).allSatisfy({ $0 == UInt8(ascii: "x") }),
        let number = Int64(String(decoding: digits, as: UTF8.self)), number >= Self.least
      else { return nil }
      return (number, "\(folder)/\(found)")
    }
    return saved.sorted { ($0.number, $0.location.utf8.count) < ($1.number, $1.location.utf8.count) }
  }
}

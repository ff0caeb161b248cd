// SPDX-License-Identifier: MIT

import Glibc

/// A file's content as it was synced, and the changes since then.
///
/// Guarded by its disk's lock.
final class FileState: Hashable {
  enum Change {
    case write(Int, [UInt8])
    case length(Int)
  }

  /// Facts by which a change of a file's content is noticed.
  struct Stamp: Equatable {
    let (size, seconds, nanoseconds): (Int, Int, Int)

    init(_ facts: stat) {
      (size, seconds, nanoseconds) = (Int(facts.st_size), facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec)
    }
  }

  let inode: ino_t
  var stamp: Stamp?
  /// The number of times that SQLite has it open.
  var openings = 0
  private(set) var synced: [UInt8] = []
  /// As it is now.
  private(set) var content: [UInt8] = []
  private(set) var changes: [(order: Int, change: Change)] = []

  init(_ inode: ino_t) { self.inode = inode }

  static func == (one: FileState, other: FileState) -> Bool { one === other }
  func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }

  func note(_ change: Change, order: Int) {
    changes.append((order, change))
    Self.apply(change, to: &content)
  }

  /// By the changes: a database would be copied as a whole with each commit.
  func sync() {
    for (_, change) in changes { Self.apply(change, to: &synced) }
    changes.removeAll(keepingCapacity: true)
  }

  private static func apply(_ change: Change, to content: inout [UInt8]) {
    switch change {
    case .length(let length):
      if length < content.count { content.removeLast(content.count - length) }
      lengthen(&content, to: length)
    case .write(let offset, let bytes):
      lengthen(&content, to: offset + bytes.count)
      copy(bytes[...], to: &content, at: offset)
    }
  }

  private static func lengthen(_ content: inout [UInt8], to length: Int) {
    if length > content.count { content += [UInt8](repeating: 0, count: length - content.count) }
  }

  /// By memory: an array's own replacement is slow without optimisation.
  private static func copy(_ bytes: ArraySlice<UInt8>, to content: inout [UInt8], at place: Int) {
    content.withUnsafeMutableBytes { target in
      bytes.withUnsafeBytes { UnsafeMutableRawBufferPointer(rebasing: target[place...]).copyMemory(from: $0) }
    }
  }

  /// After a cut: each sector, and the length, as it was after a number of changes.
  func content(_ loss: inout Loss) -> [UInt8] {
    guard !changes.isEmpty else { return synced }
    let loss = loss.ofFile(changes: changes.map(\.order))
    var lengths = [synced.count]
    // A shortened file has lost its old sectors, and its next ones are new: a sector has neither half of that.
    var (low, high) = (0, changes.count)
    for (index, (_, change)) in changes.enumerated() {
      let before = lengths[index]
      switch change {
      case .length(let new): lengths.append(new)
      case .write(let offset, let bytes): lengths.append(max(before, offset + bytes.count))
      }
      guard lengths[index + 1] < before else { continue }
      if index < loss.keptLength { low = index + 1 } else { high = min(high, index) }
    }
    let sectors = ((lengths.max() ?? 0) + Loss.sector - 1) / Loss.sector
    let kept = (0..<sectors).map { min(max(loss.kept(sector: $0), low), high) }
    var state = synced
    Self.lengthen(&state, to: sectors * Loss.sector)
    for (index, (_, change)) in changes.enumerated() {
      let (start, end) =
        switch change {
        case .write(let offset, let bytes): (offset, offset + bytes.count)
        case .length(let new): (new, state.count)
        }
      var from = start
      while from < end {
        let to = min(end, (from / Loss.sector + 1) * Loss.sector)
        if kept[from / Loss.sector] > index {
          switch change {
          case .write(_, let bytes): Self.copy(bytes[from - start..<to - start], to: &state, at: from)
          case .length: Self.copy([UInt8](repeating: 0, count: to - from)[...], to: &state, at: from)
          }
        }
        from = to
      }
    }
    return Array(state.prefix(lengths[loss.keptLength]))
  }
}

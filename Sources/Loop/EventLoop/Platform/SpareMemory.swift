// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Memory that this process holds and does not need now.
public enum SpareMemory {
  /// Returns the allocator's free memory to the kernel, and drops the program's own code: what is needed again comes from the page
  /// cache, a page at a time. After a burst most of what was used is not used again for hours.
  public static func giveBack() {
    malloc_trim(0)
    // Only code, which nothing has written to: there is nothing in it that the file does not have.
    for code in mappedFiles(where: isCode) { advise(code, Int32(MADV_DONTNEED)) }
  }

  /// Has what is needed of the program's file and its libraries read from the disk in small pieces, once for all. Some disks read mebibytes around each
  /// page, which under a limit puts out what is needed next (docs/decisions/0010).
  public static func readInPieces() {
    for mapping in mappedFiles(where: { $0.last == UInt8(ascii: "p") }) { advise(mapping, Int32(MADV_RANDOM)) }
    // From Linux 6.16 on code is read ahead all the same, but not beyond its mapping. What differs from its neighbours, here in whether core dumps have it,
    // is a mapping of its own; they have no code anyway.
    for code in mappedFiles(where: isCode) {
      for start in stride(from: code.lowerBound, to: code.upperBound, by: Int(2 * piece)) {
        advise(start..<min(start + piece, code.upperBound), Int32(MADV_DONTDUMP))
      }
    }
  }

  /// What Linux reads at once where nobody says otherwise.
  static let piece: UInt = 128 << 10

  private static func advise(_ range: Range<UInt>, _ advice: Int32) {
    guard let start = UnsafeMutableRawPointer(bitPattern: range.lowerBound) else { return }
    _ = madvise(start, Int(range.upperBound - range.lowerBound), advice)  // it stays as it was, at worst
  }

  /// It may be run, and not written to.
  private static func isCode(_ permissions: ArraySlice<UInt8>) -> Bool { permissions.elementsEqual("r-xp".utf8) }

  /// Mappings of files, by their permissions (proc_pid_maps(5)).
  private static func mappedFiles(where fits: (ArraySlice<UInt8>) -> Bool) -> [Range<UInt>] {
    (Files.read("/proc/self/maps", most: 1 << 20) ?? []).split(separator: 10).compactMap { line in
      let fields = line.split(separator: 0x20, omittingEmptySubsequences: true)
      guard fields.count >= 6, fits(fields[1]), fields[5].first == UInt8(ascii: "/") else { return nil }
      let ends = fields[0].split(separator: UInt8(ascii: "-")).map {
        UInt(String(decoding: $0, as: UTF8.self), radix: 16)
      }
      guard ends.count == 2, let low = ends[0], let high = ends[1], low < high else { return nil }
      return low..<high
    }
  }
}

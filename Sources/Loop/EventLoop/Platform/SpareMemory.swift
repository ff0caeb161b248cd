// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Reduces the memory that this process holds.
public enum SpareMemory {
  /// Returns the allocator's free memory to the kernel, and drops the pages of the program's code: those that are
  /// needed again come from the page cache. After a burst, most of them are not needed for hours.
  public static func giveBack() {
    malloc_trim(0)
    // Only code, which is never written to: the file has the same content.
    for code in mappedFiles(where: isCode) { advise(code, Int32(MADV_DONTNEED)) }
  }

  /// The allocator makes at most so many arenas, which threads then share. Otherwise it makes one for each thread, up to eight for each processor: what
  /// one thread has freed is of no use to another, so a program with many threads holds much more than it uses. Call it before threads begin.
  public static func limitArenas(to count: Int32) { mallopt(M_ARENA_MAX, count) }

  /// Makes the kernel read the program and its libraries from the disk in small pieces. Some disks read mebibytes
  /// around each page, which under a memory limit evicts pages that are needed next (docs/decisions/0010).
  public static func readInPieces() {
    for mapping in mappedFiles(where: { $0.last == UInt8(ascii: "p") }) { advise(mapping, Int32(MADV_RANDOM)) }
    // From Linux 6.16 on the kernel reads code ahead in any case, but not beyond its mapping. Areas with different
    // attributes are separate mappings; excluding every second piece from core dumps, which have no code anyway, makes
    // many small ones.
    for code in mappedFiles(where: isCode) {
      for start in stride(from: code.lowerBound, to: code.upperBound, by: Int(2 * piece)) {
        advise(start..<min(start + piece, code.upperBound), Int32(MADV_DONTDUMP))
      }
    }
  }

  /// The kernel's default read-ahead, in bytes.
  static let piece: UInt = 128 << 10

  private static func advise(_ range: Range<UInt>, _ advice: Int32) {
    guard let start = UnsafeMutableRawPointer(bitPattern: range.lowerBound) else { return }
    _ = madvise(start, Int(range.upperBound - range.lowerBound), advice)  // on failure nothing changes
  }

  /// Executable, and not writable.
  private static func isCode(_ permissions: ArraySlice<UInt8>) -> Bool { permissions.elementsEqual("r-xp".utf8) }

  /// Mappings of files with fitting permissions (proc_pid_maps(5)).
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

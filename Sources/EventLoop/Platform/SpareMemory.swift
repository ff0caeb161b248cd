// SPDX-License-Identifier: MIT

import CLinux
import Glibc

/// Memory that this process holds and does not need now.
public enum SpareMemory {
  /// Returns the allocator's free memory to the kernel, and drops the program's own code: what is needed again comes from the page
  /// cache, a page at a time. After a burst most of what was used is not used again for hours.
  public static func giveBack() {
    malloc_trim(0)
    for range in executableRanges() {
      guard let start = UnsafeMutableRawPointer(bitPattern: range.lowerBound) else { continue }
      // Only code, which nothing has written to: there is nothing in it that the file does not have.
      _ = madvise(start, Int(range.upperBound - range.lowerBound), Int32(MADV_DONTNEED))  // what is kept is kept
    }
  }

  /// Mappings of files that may be run and not written to (proc_pid_maps(5)).
  private static func executableRanges() -> [Range<UInt>] {
    let file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return [] }
    defer { close(file) }
    var bytes: [UInt8] = []
    while bytes.count < 1 << 20, case .bytes(let more) = Descriptor.read(file, most: 16384) { bytes += more }
    return bytes.split(separator: 10).compactMap { line in
      let fields = line.split(separator: 0x20, omittingEmptySubsequences: true)
      guard fields.count >= 6, fields[1].elementsEqual("r-xp".utf8), fields[5].first == UInt8(ascii: "/") else {
        return nil
      }
      let ends = fields[0].split(separator: UInt8(ascii: "-")).map {
        UInt(String(decoding: $0, as: UTF8.self), radix: 16)
      }
      guard ends.count == 2, let low = ends[0], let high = ends[1], low < high else { return nil }
      return low..<high
    }
  }
}

// SPDX-License-Identifier: MIT

import CLinux
import FoundationEssentials
import Glibc

/// What this process holds.
struct ProcessFigures {
  /// Bytes that the allocator has given out.
  let heap = mallinfo2()
  let residentKibibytes: Int
  let anonymousKibibytes: Int
  let descriptors: Int
  let threads: Int
  /// Bytes of all calls that write, to files and to sockets.
  let writtenBytes: Int
  let processorSeconds: Double

  init() {
    let memory = Self.fields("smaps_rollup")
    (residentKibibytes, anonymousKibibytes) = (memory["Rss"] ?? 0, memory["Anonymous"] ?? 0)
    // `try?`: a process can read its own list.
    descriptors = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count) ?? 0
    threads = Self.fields("status")["Threads"] ?? 0
    writtenBytes = Self.fields("io")["wchar"] ?? 0
    processorSeconds = Self.processorSeconds(of: RUSAGE_SELF.rawValue)
  }

  /// `whose`: as `getrusage` has it.
  static func processorSeconds(of whose: Int32) -> Double {
    var use = rusage()
    getrusage(__rusage_who_t(whose), &use)
    let times = [use.ru_utime, use.ru_stime]
    return times.reduce(0) { $0 + Double($1.tv_sec) + Double($1.tv_usec) / 1e6 }
  }

  var heapBytes: Int { Int(heap.uordblks) + Int(heap.hblkhd) }

  /// `Name:  17 kB` of a file of the kernel's about this process.
  private static func fields(_ file: String) -> [String: Int] {
    // `try?`: without /proc there are none.
    let text = (try? String(contentsOfFile: "/proc/self/\(file)", encoding: .utf8)) ?? ""
    var found: [String: Int] = [:]
    for line in text.split(separator: "\n") {
      let words = line.split(whereSeparator: { $0 == " " || $0 == "\t" })
      if words.count > 1, words[0].hasSuffix(":") { found[String(words[0].dropLast())] = Int(words[1]) }
    }
    return found
  }
}

/// The bytes of an SQLite database and its log.
struct DatabaseFigures {
  let size: Int
  /// Without free pages. By the file's header, since the gateway keeps others from reading: as of the last checkpoint.
  let used: Int
  let logSize: Int

  init(_ file: String) {
    (size, logSize) = (Self.size(file), Self.size(file + "-wal"))
    var header = [UInt8](repeating: 0, count: 40)
    let descriptor = open(file, O_RDONLY)
    // This also ends SQLite's locks on it, which are the process's: here nobody else opens it.
    defer { close(descriptor) }
    // A file without a header has no free pages.
    _ = read(descriptor, &header, header.count)
    func number(_ range: Range<Int>) -> Int { header[range].reduce(0) { $0 << 8 | Int($1) } }
    used = size - number(36..<40) * number(16..<18)
  }

  private static func size(_ file: String) -> Int {
    var found = stat()
    return stat(file, &found) == 0 ? Int(found.st_size) : 0
  }
}

// SPDX-License-Identifier: MIT

import Glibc

/// Reads whole small files and folders, such as the kernel's.
public enum Files {
  /// The content; `nil` if the file cannot be read, or has `most` bytes or more.
  public static func read(_ location: String, most: Int = 1 << 16) -> [UInt8]? {
    let descriptor = open(location, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    while bytes.count < most {
      switch Descriptor.read(descriptor) {
      case .bytes(let more): bytes += more
      case .end: return bytes
      // A folder can be opened, and only its reading fails.
      case .wouldBlock, .failed: return nil
      }
    }
    return nil
  }

  /// The sorted names in a folder, without hidden ones; empty if it cannot be read.
  public static func names(in location: String) -> [String] {
    guard let folder = opendir(location) else { return [] }
    defer { closedir(folder) }
    var names: [String] = []
    while let entry = readdir(folder) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
        pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name.utf8.first != UInt8(ascii: ".") { names.append(name) }
    }
    return names.sorted()
  }
}

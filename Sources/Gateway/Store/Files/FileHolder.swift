// SPDX-License-Identifier: MIT

import Glibc

/// Finds the process that has a file open, as far as this user can see, for an error message.
enum FileHolder {
  /// For example `sqlite3 (process 812)`; `nil`: none is visible.
  static func name(of location: String) -> String? {
    var wanted = stat()
    guard stat(location, &wanted) == 0 else { return nil }
    for process in entries("/proc")
    where process != "\(getpid())" && process.utf8.allSatisfy({ (48...57).contains($0) }) {
      for descriptor in entries("/proc/\(process)/fd") {
        var found = stat()
        guard stat("/proc/\(process)/fd/\(descriptor)", &found) == 0, found.st_dev == wanted.st_dev,
          found.st_ino == wanted.st_ino
        else { continue }
        return "\(command(process)) (process \(process))"
      }
    }
    return nil
  }

  private static func command(_ process: String) -> String {
    let descriptor = open("/proc/\(process)/comm", O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return "a program" }
    defer { close(descriptor) }
    var bytes = [UInt8](repeating: 0, count: 64)
    let count = read(descriptor, &bytes, bytes.count)
    return String(decoding: bytes.prefix(max(0, count)).filter { $0 >= 0x20 && $0 != 0x7F }, as: UTF8.self)
  }

  private static func entries(_ folder: String) -> [String] {
    guard let stream = opendir(folder) else { return [] }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != ".", name != ".." { names.append(name) }
    }
    return names
  }
}

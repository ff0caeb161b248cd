// SPDX-License-Identifier: MIT

import Glibc

/// Replaces files as a whole: after a power cut there is the old file or the new one.
public enum WholeFile {
  /// Returns when the new file is on disk. `false`: the old file is as it was, and `errno` has the reason. `draft`: where the new file is written
  /// first, beside the old one. `group`: the file's group, which then may read it whatever the umask says.
  public static func replace(
    _ location: String, with bytes: [UInt8], mode: mode_t = 0o600, group: gid_t? = nil, draft: String? = nil
  ) -> Bool {
    let fresh = draft ?? location + ".new"
    // Never write through a file or link that an earlier attempt, or another user, has left.
    unlink(fresh)
    let file = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode)
    guard file >= 0 else { return false }
    var isWhole = true
    if let group { isWhole = fchown(file, uid_t.max, group) == 0 && fchmod(file, mode) == 0 }
    isWhole = isWhole && writeAll(bytes[...], to: file) && fsync(file) == 0
    isWhole = isWhole && rename(fresh, location) == 0
    let reason = errno
    close(file)
    guard isWhole else {
      unlink(fresh)
      errno = reason
      return false
    }
    syncFolder(of: location)
    return true
  }

  /// Writes all of it. A disk that becomes full takes a part first, and refuses only the rest with its reason. `false`: `errno` has that.
  public static func writeAll(_ bytes: ArraySlice<UInt8>, to descriptor: Int32) -> Bool {
    var rest = bytes
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { return false }
      rest = rest.dropFirst(count)
    }
    return true
  }

  /// Makes a new, changed or removed name survive a power cut.
  public static func syncFolder(of location: String) {
    let folder = location.lastIndex(of: "/").map { location[..<$0] } ?? "."
    let descriptor = open(folder.isEmpty ? "/" : String(folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard descriptor >= 0 else { return }
    fsync(descriptor)
    close(descriptor)
  }
}

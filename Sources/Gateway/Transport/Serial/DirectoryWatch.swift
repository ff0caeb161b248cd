// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc

/// Waits for a file to appear, without polling: inotify on the nearest folder that exists.
final class DirectoryWatch {
  private let descriptor: Int32

  /// `nil` if the kernel has no watches left; the retry timer covers that.
  init?(appearanceOf location: String) {
    descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
    guard descriptor >= 0 else { return nil }
    let events = UInt32(IN_CREATE) | UInt32(IN_MOVED_TO) | UInt32(IN_ATTRIB)
    guard inotify_add_watch(descriptor, Self.nearestFolder(of: location), events) >= 0 else { return nil }
  }

  deinit { if descriptor >= 0 { close(descriptor) } }

  /// Returns at the next change.
  func change(on loop: EventLoop) async throws {
    _ = try await loop.wait(for: .readable, of: descriptor)
    // The next call reads the rest.
    for _ in 0..<Descriptor.readsPerTurn { guard case .bytes = Descriptor.read(descriptor) else { return } }
  }

  private static func nearestFolder(of location: String) -> String {
    var parts = location.split(separator: "/").dropLast()
    while !parts.isEmpty {
      let folder = "/" + parts.joined(separator: "/")
      if access(folder, F_OK) == 0 { return folder }
      parts = parts.dropLast()
    }
    return "/"
  }
}

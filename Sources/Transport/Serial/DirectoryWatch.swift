// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc

/// Tells when something appears at a location, without polling: inotify on the nearest folder that exists.
final class DirectoryWatch {
  private let descriptor: Int32
  private let loop: EventLoop

  /// `nil` when the kernel has no watches left: the wait for the next try covers that.
  init?(appearanceOf location: String, on loop: EventLoop, _ appeared: @escaping () -> Void) {
    self.loop = loop
    descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
    guard descriptor >= 0 else { return nil }
    let events = UInt32(IN_CREATE) | UInt32(IN_MOVED_TO) | UInt32(IN_ATTRIB)
    guard inotify_add_watch(descriptor, Self.nearestFolder(of: location), events) >= 0 else { return nil }
    let source = descriptor
    loop.watch(source, for: .readable) { _ in
      // What there is beyond is told in the next turn.
      for _ in 0..<Descriptor.readsPerTurn { guard case .bytes = Descriptor.read(source) else { break } }
      appeared()
    }
  }

  deinit {
    guard descriptor >= 0 else { return }
    loop.unwatch(descriptor)
    close(descriptor)
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

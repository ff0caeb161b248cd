// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import ServiceManager

/// Secrets come from files, never from the command line.
public enum SecretFile {
  /// The first line, without spaces around it; `nil`: there is none. `name`: a location, or a credential's name.
  public static func read(_ name: String) -> String? {
    // A pipe without a writer must not hold up the daemon.
    let descriptor = open(Credential.location(name), O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    guard case .bytes(let bytes) = Descriptor.read(descriptor) else { return nil }
    let line = bytes.prefix { $0 != 10 && $0 != 13 }.filter { $0 > 0x20 && $0 < 0x7F }
    return line.isEmpty ? nil : String(decoding: line, as: UTF8.self)
  }
}

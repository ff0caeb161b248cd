// SPDX-License-Identifier: MIT

import EventLoop
import Glibc
import ServiceManager

/// Secrets come from files, never from the command line.
public enum SecretFile {
  /// The first line, without white space around it; `nil`: there is none, or it is not UTF-8. `name`: a location, or a
  /// credential's name.
  public static func read(_ name: String) -> String? {
    // A pipe without a writer must not hold up the daemon.
    let descriptor = open(Credential.location(name), O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    guard case .bytes(let bytes) = Descriptor.read(descriptor) else { return nil }
    // Some editors begin a file with a mark of its encoding.
    let isMarked = bytes.starts(with: [0xEF, 0xBB, 0xBF])
    var line = bytes.dropFirst(isMarked ? 3 : 0).prefix { $0 != 10 && $0 != 13 }
    line = line.drop { $0 <= 0x20 }
    while let last = line.last, last <= 0x20 { line.removeLast() }
    let text = String(decoding: line, as: UTF8.self)
    return line.isEmpty || !text.utf8.elementsEqual(line) ? nil : text
  }

  /// Whether a secret can be a token in a header of HTTP.
  static func isToken(_ secret: String) -> Bool { secret.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } }
}

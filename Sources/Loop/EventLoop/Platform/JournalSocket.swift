// SPDX-License-Identifier: MIT

import CLinux
import Glibc
import UntrustedText

/// journald's native socket: lines with fields. Source: systemd's "Native Journal Protocol".
final class JournalSocket {
  /// Whether standard error leads to journald, according to systemd and in fact.
  let isWanted: Bool
  private var descriptor: Int32 = -1

  init() {
    isWanted = Self.isStandardErrorJournal
    guard isWanted else { return }
    let location = getenv("MESHPOST_JOURNAL_SOCKET").map { String(cString: $0) } ?? "/run/systemd/journal/socket"
    descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0, !connect(to: location) else { return }
    close(descriptor)
    descriptor = -1
  }

  deinit { if descriptor >= 0 { close(descriptor) } }

  /// `JOURNAL_STREAM` is `DEVICE:INODE` of standard error. A child of a service inherits the variable; if it writes
  /// elsewhere, the numbers differ.
  static var isStandardErrorJournal: Bool {
    guard let value = getenv("JOURNAL_STREAM") else { return false }
    var status = stat()
    guard fstat(2, &status) == 0 else { return false }
    return String(cString: value) == "\(status.st_dev):\(status.st_ino)"
  }

  private func connect(to location: String) -> Bool {
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    guard location.utf8.count < MemoryLayout.size(ofValue: address.sun_path) else { return false }
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: location.utf8) }
    return withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0
      }
    }
  }

  /// Sends a line without line breaks. False: journald did not take it.
  func send(_ priority: Int, _ line: String, _ fields: [(String, String)]) -> Bool {
    guard descriptor >= 0 else { return false }
    var text = "PRIORITY=\(priority)\nSYSLOG_IDENTIFIER=meshpostd\nMESSAGE=\(line)\n"
    for (name, value) in fields { text += "\(name)=\(Visible.line(value))\n" }
    let bytes = Array(text.utf8)
    // A stuck journald must not delay the daemon.
    return Glibc.send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT)) == bytes.count
  }
}

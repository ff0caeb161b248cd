// SPDX-License-Identifier: MIT

import CLinux
import Console
import EventLoop
import Glibc

/// Passes on the standard error of `ssh` and of the remote program, line by line, cleaned: it comes from another machine.
final class RemoteWords: Sendable {
  /// A longer line is passed on in pieces.
  static let longest = 4096
  /// The longest wait for the end of the pipe, in seconds: shared connections of `ssh` may keep it open.
  private static let patience = 1

  /// Exit code of the program that printed the text.
  let end: Int32
  private let source: Int32
  private let ended: Int32

  /// Gets each line.
  private let say: @Sendable (String) -> Void

  /// By default, lines go to standard error, cleaned.
  init(_ say: @escaping @Sendable (String) -> Void = { Console.error($0) }) throws {
    self.say = say
    var (words, ended): ([Int32], [Int32]) = ([-1, -1], [-1, -1])
    let kind = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
    guard socketpair(AF_UNIX, kind, 0, &words) == 0, socketpair(AF_UNIX, kind, 0, &ended) == 0 else {
      throw Failure.file("socketpair")
    }
    (source, end) = (words[0], words[1])
    (self.ended, finished) = (ended[0], ended[1])
  }

  private let finished: Int32

  /// Begins to read, after the start of the program, also after a failed start: it closes our copy of the program's end of the pipe.
  func begin() {
    close(end)
    DetachedThread.begin { self.read() }
  }

  private func read() {
    var (line, buffer): ([UInt8], [UInt8]) = ([], [UInt8](repeating: 0, count: 1024))
    while true {
      let count = Glibc.read(source, &buffer, buffer.count)
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { break }
      for byte in buffer.prefix(count) {
        if byte == 10 || line.count == Self.longest {
          tell(line)
          line = []
        }
        if byte != 10 { line.append(byte) }
      }
    }
    if !line.isEmpty { tell(line) }
    close(finished)
  }

  private func tell(_ line: [UInt8]) {
    say(String(decoding: line.last == 13 ? line.dropLast() : line[...], as: UTF8.self))
  }

  /// Waits until the ended program's text has been passed on.
  func finish() {
    var waited = pollfd(fd: ended, events: Int16(POLLIN), revents: 0)
    _ = poll(&waited, 1, Int32(Self.patience * 1000))  // whatever came by then was said
  }
}

// SPDX-License-Identifier: MIT

import Glibc

/// Why a file cannot be read, in words for its operator.
public struct ReadFailure: Error, Equatable {
  public let reason: String

  /// The file's bytes. It never waits: a pipe may have no writer.
  public static func contents(of location: String) throws(ReadFailure) -> [UInt8] {
    let file = open(location, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    guard file >= 0 else { throw ReadFailure(errno) }
    defer { close(file) }
    var facts = stat()
    guard fstat(file, &facts) == 0 else { throw ReadFailure(errno) }
    switch facts.st_mode & S_IFMT {
    case S_IFREG: break
    case S_IFDIR: throw ReadFailure(reason: "it is a folder")
    default: throw ReadFailure(reason: "it is a pipe or a device, and not a file")
    }
    var (bytes, piece) = ([UInt8](), [UInt8](repeating: 0, count: 65536))
    while true {
      let count = read(file, &piece, piece.count)
      guard count >= 0 else { throw ReadFailure(errno) }
      guard count > 0 else { return bytes }
      bytes += piece[..<count]
    }
  }

  private init(reason: String) { self.reason = reason }

  private init(_ code: Int32) {
    reason =
      switch code {
      case ENOENT: "there is no such file"
      case EACCES: "this user may not read it"
      default: String(cString: strerror(code))
      }
  }
}

// SPDX-License-Identifier: MIT

import EventLoop
import Glibc

/// Loopback ports that are free just now, and that the kernel gives to nobody by itself: they lie below those that outgoing
/// connections get (32768 and up), so that nothing takes one between here and the program that it is for.
enum LoopbackPort {
  private static let range: Range<UInt16> = 21_000..<25_000

  /// Bound; close it to let somebody else have it.
  static func take() throws -> (descriptor: Int32, port: UInt16) {
    for _ in 0..<200 {
      // `try?`: taken; another one then.
      if let free = try? LoopbackSocket.listen(on: .random(in: range)) { return free }
    }
    throw Program.Waited(description: "no free port between \(range.lowerBound) and \(range.upperBound)")
  }

  /// The first of two that follow each other: a mesh's radios listen on such.
  static func pair() throws -> Int {
    for _ in 0..<200 {
      let first = try take()
      defer { close(first.descriptor) }
      // `try?`: taken; another one then.
      guard let second = try? LoopbackSocket.listen(on: first.port + 1) else { continue }
      close(second.descriptor)
      return Int(first.port)
    }
    throw Program.Waited(description: "no two free ports that follow each other")
  }
}

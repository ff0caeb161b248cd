// SPDX-License-Identifier: MIT

import CLinux
import Companion
import EventLoop
import Glibc
import SQLite

/// Passwords of repeaters, rooms and sensors: a file that only its owner can read, a line each: `KEY PASSWORD`.
///
/// They are never logged or journaled. A file that others can read is refused.
public final class Credentials {
  public struct Failure: Error, CustomStringConvertible, Sendable {
    public let description: String
  }

  public let location: String
  /// Called when a password was stored or deleted.
  var changed: () -> Void = {}
  private static let largest = 64 * 1024

  public init(location: String) { self.location = location }

  /// All passwords; none if there is no file.
  public func read() throws(Failure) -> [PublicKey: Text] {
    let descriptor = open(location, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else {
      if errno == ENOENT { return [:] }
      throw Failure(description: "\(location): \(String(cString: strerror(errno)))")
    }
    defer { close(descriptor) }
    var facts = stat()
    guard fstat(descriptor, &facts) == 0, facts.st_mode & 0o077 == 0 else {
      throw Failure(description: "\(location) can be read by others: chmod 600 it")
    }
    var found: [PublicKey: Text] = [:]
    for line in try bytes(of: descriptor).split(separator: 10) {
      guard let blank = line.firstIndex(of: 0x20),
        let key = PublicKey(hex: String(decoding: line[..<blank], as: UTF8.self))
      else { continue }
      found[key] = Text(bytes: Array(line[(blank + 1)...]))
    }
    return found
  }

  /// All of the file: what is not read here would be lost with the next `set`.
  private func bytes(of descriptor: Int32) throws(Failure) -> [UInt8] {
    var bytes: [UInt8] = []
    while bytes.count <= Self.largest {
      switch Descriptor.read(descriptor) {
      case .bytes(let more): bytes += more
      case .end: return bytes
      case .wouldBlock: throw Failure(description: "\(location): it is no file")
      case .failed(let error): throw Failure(description: "\(location): \(error)")
      }
    }
    throw tooLarge
  }

  private var tooLarge: Failure {
    Failure(description: "\(location): more than \(Self.largest / 1024) KiB of passwords")
  }

  /// Stores a password; `nil` deletes it. The old file stays until the new one is whole and on disk.
  public func set(_ password: Text?, for key: PublicKey) throws(Failure) {
    var all = try read()
    all[key] = password
    var bytes: [UInt8] = []
    for (key, password) in all.sorted(by: { $0.key.hex < $1.key.hex }) {
      bytes += Array((key.hex + " ").utf8) + password.bytes + [10]
    }
    guard bytes.count <= Self.largest else { throw tooLarge }
    guard WholeFile.replace(location, with: bytes) else {
      throw Failure(description: "\(location): \(String(cString: strerror(errno)))")
    }
    changed()
  }
}

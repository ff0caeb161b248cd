// SPDX-License-Identifier: MIT

import CLinux
import Companion
import EventLoop
import Glibc
import Store

/// Passwords of repeaters, rooms and sensors: a file that only its owner can read, a line each: `KEY PASSWORD`.
///
/// They are never logged or journaled. A file that others can read is refused.
public final class Credentials {
  public struct Failure: Error, CustomStringConvertible, Sendable {
    public let description: String
  }

  public let location: String
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
    var bytes: [UInt8] = []
    while case .bytes(let more) = Descriptor.read(descriptor), bytes.count < Self.largest { bytes += more }
    var found: [PublicKey: Text] = [:]
    for line in bytes.split(separator: 10) {
      guard let blank = line.firstIndex(of: 0x20),
        let key = PublicKey(hex: String(decoding: line[..<blank], as: UTF8.self))
      else { continue }
      found[key] = Text(bytes: Array(line[(blank + 1)...]))
    }
    return found
  }

  /// Stores a password; `nil` deletes it. The old file stays until the new one is whole and on disk.
  public func set(_ password: Text?, for key: PublicKey) throws(Failure) {
    var all = try read()
    all[key] = password
    var bytes: [UInt8] = []
    for (key, password) in all.sorted(by: { $0.key.hex < $1.key.hex }) {
      bytes += Array((key.hex + " ").utf8) + password.bytes + [10]
    }
    let fresh = location + ".new"
    unlink(fresh)
    let descriptor = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw Failure(description: "\(fresh): \(String(cString: strerror(errno)))") }
    defer { close(descriptor) }
    guard write(descriptor, bytes, bytes.count) == bytes.count, fsync(descriptor) == 0,
      rename(fresh, location) == 0
    else { throw Failure(description: "\(location): \(String(cString: strerror(errno)))") }
    Store.syncFolder(of: location)
  }
}

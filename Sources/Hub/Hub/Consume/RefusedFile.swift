// SPDX-License-Identifier: MIT

import Glibc
import JSON
import Synchronization

/// A file for people with the publications that cannot be stored: a JSON object a line, with the payload in hexadecimal digits. At its limit the file
/// is renamed to `….1`, and a new one begins: together they have at most twice the limit.
final class RefusedFile: Sendable {
  static let maxBytes = 4 << 20
  private static let maxPayload = 64 << 10

  let location: String
  private let bound: Int
  private let lock = Mutex(())

  init(location: String, bound: Int = RefusedFile.maxBytes) { (self.location, self.bound) = (location, bound) }

  /// Returns when the line is on disk. Then the caller acknowledges the publication to the broker.
  func append(_ publication: Publication, reason: String, at now: Int64) throws(HubDatabaseError) {
    let line =
      JSONWriter.object { json in
        json.field("at", now)
        json.field("topic", publication.topic)
        json.field("reason", reason)
        json.field("bytes", publication.payload.count)
        json.field("payload", publication.payload.prefix(Self.maxPayload).hex)
      } + [10]
    let failure = lock.withLock { _ in write(line) }
    if let failure { throw HubDatabaseError(kind: .unavailable, message: "\(location): \(failure)") }
  }

  /// The error; `nil`: the line is on disk.
  private func write(_ line: [UInt8]) -> String? {
    var facts = stat()
    if stat(location, &facts) == 0, Int(facts.st_size) + line.count > bound, rename(location, location + ".1") != 0 {
      return String(cString: strerror(errno))
    }
    let descriptor = open(location, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0o600)
    guard descriptor >= 0 else { return String(cString: strerror(errno)) }
    defer { close(descriptor) }
    let isWritten = line.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) } == line.count
    guard isWritten, fsync(descriptor) == 0 else { return String(cString: strerror(errno)) }
    return nil
  }

}

extension Collection<UInt8> {
  /// Two lower-case hexadecimal digits for each byte.
  var hex: String {
    let digits = Array("0123456789abcdef".utf8)
    return String(decoding: flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
  }
}

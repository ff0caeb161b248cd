// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Glibc
import JSON
import OwnFiles
import Store

/// The password's hash, and sessions that outlive the daemon: a file beside the database that only its owner can read.
/// Backups do not contain it.
struct WebSecrets {
  struct Failure: Error, CustomStringConvertible {
    let description: String
  }

  struct Contents {
    /// `nil`: there is no password.
    var hash: String?
    /// `usedAt`: the last use, in seconds since 1970.
    var sessions: [(digest: [UInt8], usedAt: Int64)] = []
  }

  private static let largest = 64 * 1024

  let location: String

  init(store: String) { location = OwnSuffix.web.of(store) }

  /// Reads the file; a missing one is empty.
  func read() throws(Failure) -> Contents {
    let descriptor = open(location, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    guard descriptor >= 0 else {
      if errno == ENOENT { return Contents() }
      throw Failure(description: "\(location): \(SystemError("open"))")
    }
    defer { close(descriptor) }
    var facts = stat()
    guard fstat(descriptor, &facts) == 0, facts.st_mode & 0o077 == 0 else {
      throw Failure(
        description:
          "\(location) can be read by others, who may know the password's hash: set the password again with `meshpost web password`"
      )
    }
    var bytes: [UInt8] = []
    while case .bytes(let more) = Descriptor.read(descriptor), bytes.count < Self.largest { bytes += more }
    guard let value = try? JSONValue(parsing: bytes) else {  // `try?`: the remedy is the same for every error
      throw Failure(description: "\(location) is damaged: set the password again with `meshpost web password`")
    }
    var kept = Contents(hash: value["password"]?.string)
    for session in value["sessions"]?.array ?? [] {
      guard let digest = session["digest"]?.string.flatMap({ Hex.bytes($0) }), digest.count == 32,
        let used = session["used_at"]?.integer
      else {
        continue
      }
      kept.sessions.append((digest, used))
    }
    return kept
  }

  /// Written as a whole: a power cut does not restore an old password.
  func write(_ kept: Contents) throws(Failure) {
    let bytes = JSONWriter.object { json in
      json.field("password", kept.hash)
      json.objects("sessions", kept.sessions) { session, json in
        json.field("digest", Hex.string(session.digest))
        json.field("used_at", session.usedAt)
      }
    }
    do throws(SystemError) {
      try WholeFile.write(bytes, to: location)
    } catch {
      throw Failure(description: "\(location): \(error)")
    }
  }
}
